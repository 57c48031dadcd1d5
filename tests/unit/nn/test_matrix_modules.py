"""SoftsortTopK, NeuralsortTopK and NetworkTopK: their functions with settings."""

import pytest
import torch

import khot
from khot.nn import NetworkTopK, NeuralsortTopK, SoftsortTopK

LAYERS = [
    (SoftsortTopK, {}, khot.softsort_topk),
    (NeuralsortTopK, {}, khot.neuralsort_topk),
    (NetworkTopK, {}, khot.network_topk),
    (NetworkTopK, {"network": "odd_even", "distribution": "cauchy"}, khot.network_topk),
]
layers = pytest.mark.parametrize(("kind", "options", "function"), LAYERS)


@layers
def test_it_is_the_function_with_its_settings(kind, options, function):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 4, generator=generator)
    mask = torch.randn(3, 5, 4, generator=generator) > -1
    layer = kind(2, temperature=0.8, dim=1, **options)
    assert torch.equal(layer(x), function(x, 2, temperature=0.8, dim=1, **options))
    assert torch.equal(layer(x, mask), function(x, 2, temperature=0.8, dim=1, mask=mask, **options))
    assert torch.equal(kind(2, hard=True, **options)(x), khot.hard_topk(x, 2))
    assert "k=2, temperature=0.8, dim=1, hard=False" in repr(layer)
    assert all(f"{name}={value}" in repr(layer) for name, value in options.items())


@layers
def test_bad_settings_are_named_when_it_is_made(kind, options, function):
    with pytest.raises(ValueError, match=f"{kind.__name__}: k must be a positive integer, got 0"):
        kind(0, **options)
    with pytest.raises(ValueError, match=f"{kind.__name__}: temperature must be positive"):
        kind(2, temperature=-1.0, **options)


def test_unknown_networks_are_named():
    with pytest.raises(ValueError, match="NetworkTopK: network must be"):
        NetworkTopK(2, network="shell")
    with pytest.raises(ValueError, match="NetworkTopK: distribution must be"):
        NetworkTopK(2, distribution="normal")
