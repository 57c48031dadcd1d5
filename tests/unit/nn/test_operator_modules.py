"""Layers of operators: their functions with settings."""

import pytest
import torch

import khot
from khot.nn import (
    DifferentiableTopK,
    IterativeTopK,
    NetworkTopK,
    NeuralsortTopK,
    PairwiseTopK,
    SampledTopK,
    Select,
    SoftRankTopK,
    SoftsortTopK,
    SuccessiveHalvingTopK,
    SuccessiveSoftmaxTopK,
    TopK,
    TopKActivation,
)

LAYERS = [
    (PairwiseTopK, {"window": 0.3}, khot.pairwise_topk),
    (SoftRankTopK, {"regularization": "kl"}, khot.soft_rank_topk),
    (SoftsortTopK, {}, khot.softsort_topk),
    (NeuralsortTopK, {}, khot.neuralsort_topk),
    (NetworkTopK, {}, khot.network_topk),
    (NetworkTopK, {"network": "odd_even", "distribution": "cauchy"}, khot.network_topk),
    (SuccessiveHalvingTopK, {"boost": "base20"}, khot.successive_halving_topk),
    (IterativeTopK, {}, khot.iterative_topk),
    (SuccessiveSoftmaxTopK, {"capped": True}, khot.successive_softmax_topk),
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
    assert all(f"{name}={value!r}" in repr(layer) for name, value in options.items())


@layers
def test_bad_settings_are_named_when_it_is_made(kind, options, function):
    with pytest.raises(ValueError, match=f"{kind.__name__}: k must be finite and not negative, got -1"):
        kind(-1, **options)
    with pytest.raises(ValueError, match=f"{kind.__name__}: k must be an integer .*, got 1.5"):
        kind(1.5, **options)
    with pytest.raises(TypeError, match=f"{kind.__name__}: k must be a number, got '2'"):
        kind("2", **options)
    with pytest.raises(ValueError, match=f"{kind.__name__}: temperature must be positive"):
        kind(2, temperature=-1.0, **options)
    with pytest.raises(ValueError, match=f"{kind.__name__}: temperature must be positive and finite, got -1"):
        kind(2, **options).temperature = -1


@layers
def test_none_are_selected_with_k_0(kind, options, function):
    assert not kind(0, **options)(torch.randn(2, 4, generator=torch.Generator().manual_seed(0))).any()


@pytest.mark.parametrize(
    ("kind", "options", "error", "message"),
    [
        (NetworkTopK, {"network": "shell"}, ValueError, "network must be"),
        (NetworkTopK, {"distribution": "normal"}, ValueError, "distribution must be"),
        (SuccessiveHalvingTopK, {"boost": "cube"}, ValueError, "boost must be"),
        (IterativeTopK, {"variant": "guess"}, ValueError, "variant must be"),
        (SoftRankTopK, {"regularization": "l3"}, ValueError, "regularization must be"),
        (PairwiseTopK, {"window": 0.0}, ValueError, "positive"),
        (SoftRankTopK, {"widow": 1.0}, TypeError, "no option 'widow'; its options: window, regularization"),
        (Select, {"method": "heap"}, ValueError, "unknown method 'heap'"),
        (Select, {"combine": "sum"}, TypeError, "Select: method 'sigmoid' has no option 'combine'"),
        (Select, {"capped": True}, TypeError, "select: method 'sigmoid' has no option 'capped'"),
        (Select, {"learn_k": True, "k_max": 3}, ValueError, "Select: k cannot be learned"),
        (Select, {"order": "random"}, ValueError, "Select: order must be"),
        (Select, {"boost": "base20"}, TypeError, "'sigmoid' has no option 'boost'"),
    ],
)
def test_wrong_options_are_named_when_it_is_made(kind, options, error, message):
    with pytest.raises(error, match=message):
        kind(2, **options)


def test_select_is_the_function_with_its_settings():
    generator = torch.Generator().manual_seed(0)
    values, scores = torch.randn(3, 6, 2, generator=generator), torch.randn(3, 6, generator=generator)
    mask = torch.randn(3, 6, generator=generator) > -1
    settings = {"temperature": 0.5, "order": "position", "boost": "base20", "largest": False}
    for hard in (True, False):
        layer = Select(2, "successive_halving", hard=hard, **settings)
        expected = khot.select(values, scores, 2, "successive_halving", mask=mask, hard=hard, **settings)
        found = layer(values, scores, mask)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert f"hard={hard}, largest=False, boost='base20', order='position'" in repr(layer)


def test_select_with_at_most_has_k_places():
    found = Select(5, at_most=True)(torch.eye(3), torch.tensor([0.1, 0.9, 0.5]))
    assert found.indices.tolist() == [1, 2, 0, -1, -1]
    with pytest.raises(ValueError, match="0 <= k <= n = 3"):
        Select(5)(torch.eye(3), torch.zeros(3))
    with pytest.raises(ValueError, match=r"Select: k must be an integer, got 1\.5"):
        Select(1.5)


@pytest.mark.parametrize("dim", [None, "0", (0, 1), True, 1.5])
def test_a_dimension_is_checked_when_the_layer_is_made(dim):
    for kind in (TopK, TopKActivation, SampledTopK, Select, *{kind for kind, _, _ in LAYERS}):
        with pytest.raises(TypeError, match=f"^{kind.__name__}: dim must be an integer, got "):
            kind(2, dim=dim)


@pytest.mark.parametrize("tau", [0, None, -1.0])
def test_the_layer_of_topknets_names_its_own_argument(tau):
    with pytest.raises((TypeError, ValueError), match=r"^DifferentiableTopK: tau must be"):
        DifferentiableTopK(2)(torch.zeros(2, 4), tau=tau)
