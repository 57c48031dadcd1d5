"""Capacity against a loop in plain Python."""

import math

import pytest
import torch

from khot.apps.moe import apply_capacity


def by_hand(weights, indices, capacity, drop, mask):
    tokens, k = indices.shape
    places = [(t, j) for t in range(tokens) for j in range(k) if mask[t]]
    if drop == "probability":
        places.sort(key=lambda p: -weights[p[0]][p[1]])  # stable: ties by position
    kept, load = torch.zeros(tokens, k, dtype=torch.bool), {}
    for t, j in places:
        expert = int(indices[t, j])
        load[expert] = load.get(expert, 0) + 1
        kept[t, j] = load[expert] <= capacity
    return kept


@pytest.mark.parametrize("drop", ["probability", "position"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("capacity", [1, 3, 100])
def test_as_by_hand(drop, padded, capacity):
    generator = torch.Generator().manual_seed(0)
    indices = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(20)])
    weights = torch.randint(1, 5, (20, 2), generator=generator) / 4.0  # with ties
    mask = torch.rand(20, generator=generator) > 0.4 if padded else torch.ones(20, dtype=torch.bool)
    found = apply_capacity(weights, indices, 4, capacity=capacity, drop=drop, mask=mask if padded else None)
    kept = by_hand(weights.tolist(), indices, capacity, drop, mask.tolist())
    assert torch.equal(found.kept, kept)
    assert torch.equal(found.weights, torch.where(kept, weights, 0))


def test_a_factor_counts_real_tokens():
    indices = torch.zeros(20, 1, dtype=torch.int64)
    weights = torch.ones(20, 1)
    mask = torch.arange(20) >= 10
    for factor, real, wanted in (
        (1.1, None, math.ceil(1.1 * 20 / 4)),
        (1.2, mask, 3),
        (0.01, mask, 1),
        (1.0, mask * 0, 0),
    ):
        kept = apply_capacity(weights, indices, 4, capacity_factor=factor, mask=real).kept
        assert kept.sum() == wanted
        assert real is None or not kept[~real.bool()].any()
    assert apply_capacity(weights, indices, 2, capacity_factor=1.1).kept.sum() == 11  # not 12, by rounding


def test_gradients_of_what_is_kept_only():
    weights = torch.tensor([[0.5], [0.9]], requires_grad=True)
    apply_capacity(weights, torch.zeros(2, 1, dtype=torch.int64), 1, capacity=1).weights.sum().backward()
    assert weights.grad.tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"capacity": 0}, ValueError, "apply_capacity: capacity must be at least 1, got 0"),
        ({"capacity": 1.5}, TypeError, r"capacity must be an integer, got 1\.5"),
        ({"capacity_factor": 0.0}, ValueError, r"capacity_factor must be a positive number, got 0\.0"),
        ({"capacity": 1, "capacity_factor": 1.0}, ValueError, "not both"),
        ({}, ValueError, "give capacity or capacity_factor"),
        (
            {"capacity": 1, "drop": "random"},
            ValueError,
            "drop must be .probability. or .position., got .random.",
        ),
        ({"capacity": 1, "mask": torch.ones(3)}, ValueError, "mask must have the shape of the tokens"),
    ],
)
def test_errors(options, error, message):
    with pytest.raises(error, match=message):
        apply_capacity(torch.ones(2, 1), torch.zeros(2, 1, dtype=torch.int64), 2, **options)


def test_shapes_that_differ():
    with pytest.raises(ValueError, match=r"apply_capacity: .* got \(5, 2\) and \(6, 2\)"):
        apply_capacity(torch.ones(5, 2), torch.zeros(6, 2, dtype=torch.int64), 4, capacity=1)
    with pytest.raises(ValueError, match="apply_capacity: weights and indices"):
        apply_capacity(torch.ones(6), torch.zeros(6, dtype=torch.int64), 4, capacity=1)
