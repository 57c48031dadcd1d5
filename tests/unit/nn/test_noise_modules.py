"""GumbelTopK, PerturbedTopK and SinkhornTopK pass every setting on, and check it when they are made."""

import pytest
import torch

import khot
from khot.nn import GumbelTopK, PerturbedTopK, SinkhornTopK

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MASK = torch.tensor([True, True, True, False, True, True])


def seeded():
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.25}, {"dim": 0}, {"hard": True}, {"samples": 7}, {"noise": "gumbel"}]
)
def test_perturbed(settings):
    layer = PerturbedTopK(2, **settings)
    mask = None if "dim" in settings else MASK
    expected = khot.perturbed_topk(X, 2, mask=mask, generator=seeded(), **settings)
    assert torch.equal(layer(X, mask, generator=seeded()), expected)
    assert all(f"{name}={value}" in repr(layer).replace("'", "") for name, value in settings.items())


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.25}, {"dim": 0}, {"hard": True}])
def test_gumbel(settings):
    layer = GumbelTopK(2, **settings)
    mask = None if "dim" in settings else MASK
    expected = khot.gumbel_topk(X, 2, mask=mask, generator=seeded(), **settings)
    assert torch.equal(layer(X, mask, generator=seeded()), expected)
    assert all(f"{name}={value}" in repr(layer).replace("'", "") for name, value in settings.items())


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.25}, {"dim": 0}, {"hard": True}, {"variant": "sorted"}]
)
def test_sinkhorn(settings):
    layer = SinkhornTopK(2, **settings)
    mask = None if "dim" in settings else MASK
    assert torch.equal(layer(X, mask), khot.sinkhorn_topk(X, 2, mask=mask, **settings))
    assert all(f"{name}={value}" in repr(layer).replace("'", "") for name, value in settings.items())


def test_sinkhorn_learns_temperature_and_budget():
    layer = SinkhornTopK(2, learn_temperature=True, learn_k=True, k_max=4)
    layer(X.float())[:, 0].sum().backward()
    assert layer.kappa.grad != 0
    assert layer.log_temperature.grad != 0
    layer = SinkhornTopK(2, variant="sorted", learn_temperature=True)
    layer(X.float())[:, 0].sum().backward()
    assert layer.log_temperature.grad != 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GumbelTopK(-1), "GumbelTopK: k must be finite and not negative, got -1"),
        (lambda: GumbelTopK(2, temperature=0.0), "GumbelTopK: temperature must be positive"),
        (lambda: PerturbedTopK(1.5), "PerturbedTopK: k must be an integer for method 'perturbed', got 1.5"),
        (lambda: PerturbedTopK(2, samples=1), "samples must be at least 2, got 1"),
        (lambda: PerturbedTopK(2, noise="x"), "noise must be 'normal' or 'gumbel', got 'x'"),
        (lambda: SinkhornTopK(2, variant="x"), "variant must be 'plain' or 'sorted', got 'x'"),
        (lambda: SinkhornTopK(1.5, variant="sorted"), "k must be an integer here, got k = 1.5"),
        (
            lambda: SinkhornTopK(2, variant="sorted", learn_k=True, k_max=4),
            "SinkhornTopK: learn_k needs a gradient in k, there is none with .*sorted",
        ),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
