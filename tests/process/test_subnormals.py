"""Subnormal numbers, kept or flushed to zero: no NaN, the laws hold, and khot leaves the setting alone."""

import pytest
import torch

import khot
from khot import designs
from khot.relaxations import registry
from strategies.design_examples import by_scores
from strategies.every_call import every_call, seeded
from strategies.quick_run import costly

TINY = torch.finfo(torch.float32).tiny  # the smallest number that is not subnormal
K, N = 3, 12


def flushed() -> bool:
    return (torch.full((), TINY) * 0.5).item() == 0.0


@pytest.fixture(params=[False, True], ids=["kept", "flushed"])
def flush(request):
    if not torch.set_flush_denormal(request.param):
        pytest.skip("this processor cannot flush subnormal numbers")
    return request.param


def rows(dtype):
    """Scores that are subnormal, in several ways; and ordinary ones that leave subnormal weights."""
    tiny = torch.finfo(dtype).tiny
    steps = torch.linspace(-1, 1, N, dtype=torch.float64)
    far = torch.linspace(-100, -85, N - 4, dtype=torch.float64)
    return {
        "subnormal": steps * tiny / 4,
        "smallest of all": torch.where(steps > 0, 2**-1074 if dtype is torch.float64 else 2**-149, 0.0),
        "beside ordinary ones": torch.where(steps > 0, steps, steps * tiny / 4),
        "around the smallest normal": steps * tiny * 2,
        "far below": torch.cat([torch.zeros(4, dtype=torch.float64), far]),
    }


@pytest.mark.parametrize("dtype", [torch.float32, costly(torch.float64)])
def test_laws_hold_and_nothing_is_nan(flush, dtype):
    """The smallest temperatures are as small as what is flushed: there weights need not sum to k."""
    tiny = torch.finfo(dtype).tiny
    for method, spec in registry.specs().items():
        for kind, values in rows(dtype).items():
            for temperature in (1.0, 1e-2, 4 * tiny, tiny):
                where = f"{method}, {kind}, temperature {temperature}"
                x = values.to(dtype).requires_grad_()
                noise = {"generator": seeded(0)} if spec.stochastic else {}
                y = spec.weights(x, K, temperature=temperature, **noise)
                (gradient,) = torch.autograd.grad(y.square().sum(), x)
                assert y.isfinite().all(), where
                assert not gradient.isnan().any(), where
                if spec.bounded:
                    assert ((y >= 0) & (y <= 1)).all(), where
                if spec.sums_to_k and (temperature >= 1e-2 or not flush):
                    assert y.sum().item() == pytest.approx(K, abs=1e-4), where


def test_flushing_changes_results_by_no_more_than_what_is_flushed():
    """Weights differ by rounding alone: their sums do not hang on numbers below 1e-38."""
    found = []
    for setting in (False, True):
        if not torch.set_flush_denormal(setting):
            pytest.skip("this processor cannot flush subnormal numbers")
        found.append({name: call() for name, call in every_call(8, 64).items() if "design" not in name})
    torch.set_flush_denormal(False)
    for name, (kept, *_) in found[0].items():
        torch.testing.assert_close(
            found[1][name][0], kept, atol=1e-6, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_designs_with_subnormal_scores_draw_exactly_k(flush):
    for name in designs.names():
        for kind, values in rows(torch.float32).items():
            made = by_scores(designs.get(name), K, values.float())
            drawn = made.sample((4,), generator=seeded(1))
            assert drawn.sum(-1).tolist() == [K] * 4, (name, kind, flush)


def test_no_call_changes_the_setting(flush):
    for name, call in every_call(4, 64).items():
        call()
        assert flushed() == flush, name


def test_a_fit_that_flushes_puts_the_setting_back(flush):
    """Closing gates make many subnormal numbers, so the training of a selector flushes them."""
    from khot.apps.features import TopKSelector

    x = torch.randn(60, 5, generator=seeded(2)).numpy()
    TopKSelector(2, max_iter=2, random_state=0).fit(x, x[:, 0])
    assert flushed() == flush


def test_importing_khot_changes_nothing(run_python):
    """A library linked with -ffast-math would flush for the whole process, in new threads too."""
    code = """
import threading, numpy, khot
from khot.kernels import loader
loader.native()
small = lambda: numpy.float32(1e-38) * numpy.float32(0.1) > 0
found = [small()]
thread = threading.Thread(target=lambda: found.append(small()))
thread.start(); thread.join()
print(found == [True, True])
"""
    assert run_python(code) == "True"


def test_a_temperature_that_is_flushed_selects_the_k_largest(flush):
    x = torch.tensor([3.0, 1.0, 2.0, 0.0])
    assert khot.sigmoid_topk(x, 2, temperature=1e-45).tolist() == [1.0, 0.0, 1.0, 0.0]
