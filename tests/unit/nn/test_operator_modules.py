"""Layers of operators: their functions with settings."""

import pytest
import torch

import khot
from khot.nn import (
    IterativeTopK,
    NetworkTopK,
    NeuralsortTopK,
    PairwiseTopK,
    Select,
    SoftRankTopK,
    SoftsortTopK,
    SuccessiveHalvingTopK,
    SuccessiveSoftmaxTopK,
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
    with pytest.raises(ValueError, match=f"{kind.__name__}: k must be a positive integer, got 0"):
        kind(0, **options)
    with pytest.raises(ValueError, match=f"{kind.__name__}: temperature must be positive"):
        kind(2, temperature=-1.0, **options)


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
        (Select, {"combine": "sum"}, ValueError, "Select: combine must be"),
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
    layer = Select(2, "successive_halving", temperature=0.5, combine="soft", order="position", boost="base20")
    found = layer(values, scores, mask)
    expected = khot.select(
        values,
        scores,
        2,
        "successive_halving",
        0.5,
        mask=mask,
        combine="soft",
        order="position",
        boost="base20",
    )
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert "combine='soft', order='position', boost='base20'" in repr(layer)
