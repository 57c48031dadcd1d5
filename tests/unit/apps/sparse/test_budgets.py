"""Budgets of layers and schedules of densities."""

import math

import pytest

from khot.apps.sparse import cubic, layer_budgets

SHAPES = [(300, 784), (100, 300), (10, 100), (32, 16, 3, 3)]
SIZES = [math.prod(shape) for shape in SHAPES]


@pytest.mark.parametrize("density", [0.0, 0.01, 0.1, 0.5, 0.9, 1.0])
def test_the_sum_is_exact(density):
    assert sum(layer_budgets(SHAPES, density, "erk")) == round(density * sum(SIZES))
    assert layer_budgets(SHAPES, density) == [round(density * size) for size in SIZES]


@pytest.mark.parametrize("density", [0.01, 0.1, 0.5, 0.9])
def test_erk_gives_what_its_equation_says(density):
    """One ε for all layers that are not full, found here by bisection."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        total = sum(min(size, middle * sum(shape)) for shape, size in zip(SHAPES, SIZES, strict=True))
        low, high = (middle, high) if total < round(density * sum(SIZES)) else (low, middle)
    for budget, shape, size in zip(layer_budgets(SHAPES, density, "erk"), SHAPES, SIZES, strict=True):
        assert abs(budget - min(size, low * sum(shape))) <= 1


def test_erk_differs_from_uniform():
    assert layer_budgets(SHAPES, 0.1, "erk") != layer_budgets(SHAPES, 0.1)


@pytest.mark.parametrize(
    ("density", "distribution", "message"),
    [
        (1.5, "uniform", r"density must be in \[0, 1\], got 1.5"),
        (-0.1, "erk", r"density must be in \[0, 1\], got -0.1"),
        (0.1, "er", "distribution must be 'uniform' or 'erk', got 'er'"),
    ],
)
def test_wrong_budgets(density, distribution, message):
    with pytest.raises(ValueError, match=message):
        layer_budgets(SHAPES, density, distribution)
    with pytest.raises(TypeError, match="density must be a number, got True"):
        layer_budgets(SHAPES, True)
    for shapes in ([(-1, 4)], [(2.0, 4)], [(True, 4)], [("2", 4)], [3]):
        with pytest.raises(
            ValueError, match="layer_budgets: shapes must be those of weights, integers of at"
        ):
            layer_budgets(shapes, 0.5)


def test_cubic():
    schedule = cubic(1.0, 0.1, steps=10, warmup=5)
    assert schedule(0) == schedule(5) == 1.0
    assert schedule(15) == schedule(99) == pytest.approx(0.1)
    assert schedule(10) == pytest.approx(0.1 + 0.9 / 8)
    falls = [schedule(step) for step in range(20)]
    assert falls == sorted(falls, reverse=True)
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        cubic(1.0, 0.1, 0)
    with pytest.raises(ValueError, match="warmup must be at least 0, got -1"):
        cubic(1.0, 0.1, 1, warmup=-1)
    with pytest.raises(ValueError, match=r"end must be in \[0, 1\], got 2"):
        cubic(1.0, 2, 1)
