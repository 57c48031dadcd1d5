"""Metrics of a soft selection against counting, scipy's entropies and a loop over cosines."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from scipy.stats import entropy as scipy_entropy

import khot
from khot import metrics
from khot.relaxations import _chunks
from strategies.random_scores import scores as numbers


@pytest.mark.parametrize("k", [1, 3, 8])
def test_overlap_by_sets(k):
    weights, scores = numbers(30, 8), numbers(30, 8, seed=1)
    expected = [
        len(set(np.argsort(-w)[:k]) & set(np.argsort(-s)[:k])) / k
        for w, s in zip(weights.numpy(), scores.numpy(), strict=True)
    ]
    np.testing.assert_allclose(metrics.topk_overlap(weights, scores, k).numpy(), expected)


@pytest.mark.parametrize("method", ["sigmoid", "sparse"])
def test_weights_of_the_same_scores_overlap_entirely(method):
    scores = numbers(30, 12)
    weights = khot.topk(scores, 4, method, temperature=0.3)
    assert (metrics.topk_overlap(weights, scores, 4) == 1).all()


@pytest.mark.parametrize("k", [1, 3, 8])
def test_weight_on_topk_by_sums(k):
    weights, scores = khot.topk(numbers(30, 8), k), numbers(30, 8, seed=1)
    order = np.argsort(-scores.numpy(), -1)[:, :k]
    expected = np.take_along_axis(weights.numpy(), order, -1).sum(-1) / k
    np.testing.assert_allclose(metrics.weight_on_topk(weights, scores, k).numpy(), expected, atol=1e-12)


def test_weight_on_topk_at_its_ends():
    scores = numbers(5, 8)
    hard = metrics.weight_on_topk(khot.hard_topk(scores, 3), scores, 3)
    uniform = metrics.weight_on_topk(torch.full((5, 8), 3 / 8).double(), scores, 3)
    assert (hard == 1).all()
    torch.testing.assert_close(uniform, torch.full((5,), 3 / 8).double())


def test_weight_on_topk_has_the_gradient_of_a_mean():
    weights, scores = numbers(6).requires_grad_(), torch.tensor([1.0, 6.0, 2.0, 5.0, 3.0, 4.0])
    (grad,) = torch.autograd.grad(metrics.weight_on_topk(weights, scores, 2), weights)
    assert grad.tolist() == [0, 0.5, 0, 0.5, 0, 0]


@pytest.mark.parametrize("metric", [metrics.topk_overlap, metrics.weight_on_topk])
def test_masks_and_minus_infinity_exclude(metric):
    weights, scores, mask = numbers(9, 8), numbers(9, 8, seed=1), numbers(9, 8, seed=2) < 0.5
    mask[0] = False
    mask[1] = torch.arange(8) < 2  # fewer than k
    result = metric(weights, scores, 3, mask=mask)
    by_infinity = metric(weights, torch.where(mask, scores, -math.inf), 3)
    assert torch.equal(result, by_infinity)
    assert result[0] == 1
    for row in range(1, 9):
        w, s = weights[row, mask[row]], scores[row, mask[row]]
        torch.testing.assert_close(result[row], metric(w, s, min(3, len(w))))


@pytest.mark.parametrize("metric", [metrics.topk_overlap, metrics.weight_on_topk])
def test_shapes_and_types(metric):
    weights, scores = numbers(3, 5, 2), numbers(3, 5, 2, seed=1)
    result = metric(weights, scores, 2, dim=1)
    torch.testing.assert_close(result, metric(weights.movedim(1, -1), scores.movedim(1, -1), 2))
    k = torch.tensor([[1, 2], [3, 4], [5, 0]])
    each = metric(weights, scores, k, dim=1)
    torch.testing.assert_close(each[1, 0], metric(weights[1, :, 0], scores[1, :, 0], 3))
    assert each[2, 1] == 1
    assert metric(weights.half(), scores.half(), 2, dim=1).dtype == torch.float16
    assert metric(torch.zeros(0, 4), torch.zeros(0, 4), 2).shape == (0,)


@pytest.mark.parametrize("metric", [metrics.topk_overlap, metrics.weight_on_topk])
def test_bad_arguments_are_named(metric):
    name = metric.__name__
    with pytest.raises(
        ValueError, match=rf"{name}: weights must have the shape of scores, \(4,\), got \(3,\)"
    ):
        metric(torch.zeros(3), torch.zeros(4), 2)
    with pytest.raises(ValueError, match=rf"{name}: k must satisfy 0 <= k <= n = 4 .* got k = 5"):
        metric(torch.zeros(4), torch.zeros(4), 5)
    with pytest.raises(TypeError, match=f"{name}: mask must be a boolean"):
        metric(torch.zeros(4), torch.zeros(4), 2, mask=torch.ones(4))


def test_entropy_is_the_sum_of_scipys():
    weights = torch.rand(6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights[0, :3] = torch.tensor([0.0, 1.0, 0.0])
    expected = scipy_entropy(np.stack([weights.numpy(), 1 - weights.numpy()]), axis=0).sum(-1)
    np.testing.assert_allclose(metrics.entropy(weights).numpy(), expected, rtol=1e-12)
    torch.testing.assert_close(metrics.entropy(weights.T, dim=0), metrics.entropy(weights))


def test_normalised_entropy_goes_from_hard_to_uniform():
    scores = numbers(4, 10)
    assert metrics.entropy(khot.hard_topk(scores, 3), normalized=True).tolist() == [0] * 4
    uniform = metrics.entropy(torch.full((4, 10), 0.3).double(), normalized=True)
    torch.testing.assert_close(uniform, torch.ones(4).double())
    warmer = [
        metrics.entropy(khot.sigmoid_topk(scores, 3, temperature=t), normalized=True) for t in (0.1, 1, 10)
    ]
    assert (warmer[0] < warmer[1]).all()
    assert (warmer[1] < warmer[2]).all()
    share = 3 / 10
    most = -10 * (share * math.log(share) + (1 - share) * math.log(1 - share))
    plain = metrics.entropy(khot.sigmoid_topk(scores, 3))
    torch.testing.assert_close(warmer[1], plain / most)


@pytest.mark.parametrize("normalized", [False, True])
def test_entropy_at_and_beyond_the_ends(normalized):
    weights = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.7, -0.3]], requires_grad=True)
    result = metrics.entropy(weights, normalized=normalized)
    assert result.tolist() == [0, 0, 0]
    assert (torch.autograd.grad(result.sum(), weights)[0] == 0).all()
    assert metrics.entropy(torch.zeros(2, 0), normalized=normalized).tolist() == [0, 0]


def test_entropy_has_derivatives():
    weights = torch.rand(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for normalized in (False, True):
        assert torch.autograd.gradcheck(
            lambda w, normalized=normalized: metrics.entropy(w, normalized=normalized),
            weights.requires_grad_(),
        )


def nearest_cosines(true: np.ndarray, approx: np.ndarray) -> float:
    def similarity(a, b):
        return 1 - cosine(a, b) if a.any() and b.any() else 0.0

    return float(np.mean([max(similarity(a, b) for b in approx) for a in true]))


@pytest.mark.parametrize("block", [1, 7, 2**22])
def test_nccs_is_the_mean_of_the_nearest_cosines(block, monkeypatch):
    monkeypatch.setattr(_chunks, "AT_ONCE", block)
    true, approx = numbers(2, 3, 5, 4), numbers(2, 3, 6, 4, seed=1)
    true[0, 0, 1] = 0
    approx[1, 1, 2] = 0
    result = metrics.nccs(true, approx)
    for i, j in np.ndindex(2, 3):
        expected = nearest_cosines(true[i, j].numpy(), approx[i, j].numpy())
        assert result[i, j].item() == pytest.approx(expected, abs=1e-12)


def test_nccs_of_the_same_vectors_in_another_order_and_length_is_one():
    true = numbers(7, 4)
    assert metrics.nccs(true, 3 * true.flip(0)).item() == pytest.approx(1, abs=1e-12)
    assert metrics.nccs(true, -true[:1]).item() < 0.9


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1.0, 1e30, 1e38])
def test_nccs_does_not_depend_on_lengths(scale):
    true, approx = numbers(5, 4).float(), numbers(6, 4, seed=1).float()
    torch.testing.assert_close(metrics.nccs(scale * true, approx), metrics.nccs(true, approx))


def test_nccs_of_zero_vectors_is_zero_without_nan():
    true, approx = torch.zeros(2, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    for pair in ((true, approx), (approx, true), (true, true)):
        result = metrics.nccs(*pair)
        assert result.item() == 0
        assert all(g.isfinite().all() for g in torch.autograd.grad(result, pair))


def test_nccs_has_derivatives():
    inputs = (numbers(3, 4).requires_grad_(), numbers(5, 4, seed=1).requires_grad_())
    assert torch.autograd.gradcheck(metrics.nccs, inputs)


def test_nccs_of_2048_vectors():
    true = numbers(2048, 64).float()
    order = torch.randperm(2048, generator=torch.Generator().manual_seed(1))
    assert metrics.nccs(true, true[order]).item() == pytest.approx(1, abs=1e-5)
    assert metrics.nccs(true.half(), true[order].half()).dtype == torch.float16


@pytest.mark.parametrize(
    ("true", "approx", "error", "message"),
    [
        (torch.zeros(3, 4), torch.zeros(3, 5), ValueError, r"must agree .* got \(3, 4\) and \(3, 5\)"),
        (torch.zeros(2, 3, 4), torch.zeros(3, 4), ValueError, "must agree"),
        (
            torch.zeros(0, 4),
            torch.zeros(3, 4),
            ValueError,
            r"true must hold one vector or more, .* got \(0, 4\)",
        ),
        (
            torch.zeros(3, 4),
            torch.zeros(4),
            ValueError,
            r"approx must hold one vector or more, .* got \(4,\)",
        ),
        (torch.zeros(3, 4).long(), torch.zeros(3, 4), TypeError, "true must have a floating-point dtype"),
    ],
)
def test_nccs_names_bad_arguments(true, approx, error, message):
    with pytest.raises(error, match=f"nccs: .*{message}"):
        metrics.nccs(true, approx)


@pytest.mark.parametrize("normalized", [False, True])
def test_the_entropy_of_nan_is_nan(normalized):
    weights = torch.tensor([[0.5, math.nan, 0.5], [0.5, 0.5, 0.0]])
    found = metrics.entropy(weights, normalized=normalized)
    assert found.isnan().tolist() == [True, False]
    assert metrics.entropy(weights, mask=~weights.isnan(), normalized=normalized).isfinite().all()
