"""Smoothed derivatives: exact on polynomials, a window that follows the noise, and what the library sees."""

import numpy as np
import pysindy
import pytest

from khot.apps.sindy import ExactK, SmoothedDerivative
from strategies.trajectories import lorenz


def test_polynomials_are_differentiated_exactly():
    t = np.linspace(0, 2, 41)
    x = np.stack([t**3 - t, 2 * t**2], axis=1)
    derivative = SmoothedDerivative(7)
    slope = derivative(x, t)
    assert np.isnan(slope[:3]).all()
    assert np.isnan(slope[-3:]).all()
    np.testing.assert_allclose(slope[3:-3], np.stack([3 * t**2 - 1, 4 * t], axis=1)[3:-3], atol=1e-10)
    np.testing.assert_allclose(derivative.smoothed_x_, x, atol=1e-10)
    np.testing.assert_allclose(SmoothedDerivative(7)(x, t[1] - t[0]), slope, atol=1e-10)  # a step for times
    whole = SmoothedDerivative(7, drop_edges=False)(x, t)
    np.testing.assert_allclose(whole, np.stack([3 * t**2 - 1, 4 * t], axis=1), atol=1e-10)
    assert np.abs(SmoothedDerivative(7, polyorder=1)(x, t)[3:-3] - slope[3:-3]).max() > 0.01


def test_the_window_grows_with_the_noise_and_beats_fixed_ones():
    windows, errors = [], []
    _, clean = lorenz(0.0)
    for noise in (0.0, 0.01, 0.05, 0.1):
        t, x = lorenz(noise)
        derivative = SmoothedDerivative()
        derivative(x, t)
        windows.append(derivative.window_length_)
        errors.append(np.abs(derivative.smoothed_x_ - clean).mean())
        for window in (7, 101):
            fixed = SmoothedDerivative(window)
            fixed(x, t)
            assert errors[-1] <= np.abs(fixed.smoothed_x_ - clean).mean()
    assert windows == sorted(windows)
    assert windows[0] == 5
    assert windows[-1] > 20


def test_short_trajectories_have_the_smallest_window():
    for order, window in ((1, 3), (2, 3), (3, 5), (4, 5)):
        for samples in (2 * window, 12, 20):
            derivative = SmoothedDerivative(polyorder=order)
            slope = derivative(np.arange(samples)[:, None] ** 1.0, 1.0)
            assert derivative.window_length_ == window
            np.testing.assert_allclose(slope[window // 2 : -(window // 2)], 1.0)


def test_a_coordinate_in_other_units_does_not_change_the_window():
    t, x = lorenz(0.05)
    one, other = SmoothedDerivative(), SmoothedDerivative()
    one(x, t)
    other(x * [1e6, 1, 1], t)
    assert one.window_length_ == other.window_length_


def test_the_library_sees_smoothed_states_if_asked():
    t, x = lorenz(0.1)
    slope = np.zeros_like(x)
    for smooth in (True, False):
        derivative = SmoothedDerivative(31, smooth_library=smooth)
        slope = derivative(x, t)
        assert (derivative.smoothed_x_ == x).all() == (not smooth)
    assert slope.shape == x.shape
    library = pysindy.PolynomialLibrary(2)
    found = []
    for smooth in (True, False):
        method = SmoothedDerivative(31, smooth_library=smooth)
        model = pysindy.SINDy(ExactK((2, 3, 2)), feature_library=library, differentiation_method=method)
        model.fit(x, t)
        found.append(abs(model.coefficients()[0, 1] + 10))
    assert found[0] < 0.5 * found[1]  # noise in the library shrinks coefficients


def test_several_trajectories():
    t, x = lorenz(0.0)
    model = pysindy.SINDy(
        ExactK((2, 3, 2)),
        feature_library=pysindy.PolynomialLibrary(2),
        differentiation_method=SmoothedDerivative(),
    )
    model.fit([x[:900], x[1000:]], [t[:900], t[1000:]])
    assert model.complexity == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_length": 8}, "window_length must be 'auto' or an odd integer above polyorder=3"),
        ({"window_length": 3}, "above polyorder=3 and up to the 40 samples, got 3"),
        ({"window_length": 41}, "up to the 40 samples, got 41"),
        ({"window_length": 7.0}, "got 7.0"),
        ({"polyorder": 0}, "polyorder must be a positive integer, got 0"),
        ({"polyorder": 25}, "polyorder=25 needs 54 samples, got 40"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match="SmoothedDerivative: ") as caught:
        SmoothedDerivative(**options)(np.ones((40, 1)), 0.1)
    assert message in str(caught.value)


@pytest.mark.parametrize("t", [np.r_[np.arange(39), 50.0], np.arange(20.0), -np.arange(40.0)])
def test_uneven_times_are_refused(t):
    with pytest.raises(ValueError, match="t must have 40 increasing times with even steps"):
        SmoothedDerivative(7)(np.ones((40, 1)), t)
