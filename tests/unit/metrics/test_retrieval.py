"""Metrics of a ranking against scikit-learn, and against a loop over sorted lists."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import label_ranking_average_precision_score, ndcg_score, top_k_accuracy_score

from khot import metrics
from khot.losses import ndcg_loss
from strategies.random_scores import scores as numbers

BINARY = [metrics.recall_at_k, metrics.precision_at_k, metrics.hit_rate, metrics.mrr]
ALL = [*BINARY, metrics.ndcg_at_k]


def chances(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(metric, scores, relevance, k, mask=None) -> float:
    """Of one row, with lists: (score, index, relevance) of those that are there."""
    there = [i for i in range(len(scores)) if mask is None or mask[i]]
    ranked = sorted((i for i in there if scores[i] != -math.inf), key=lambda i: (-float(scores[i]), i))[:k]
    found = [float(relevance[i]) for i in ranked]
    wanted = sorted((float(relevance[i]) for i in there), reverse=True)
    if metric is metrics.recall_at_k:
        return sum(found) / sum(wanted) if sum(wanted) else 0.0
    if metric is metrics.precision_at_k:
        return sum(found) / k
    if metric is metrics.hit_rate:
        return float(any(found))
    if metric is metrics.mrr:
        return next((1 / rank for rank, hit in enumerate(found, 1) if hit), 0.0)
    dcg, ideal = (
        sum(gain / math.log2(1 + r) for r, gain in enumerate(gains, 1)) for gains in (found, wanted[:k])
    )
    return dcg / ideal if ideal else 0.0


def relevances(metric, *shape: int, seed: int = 1) -> torch.Tensor:
    """Booleans, or for NDCG grades; the first row has nothing relevant."""
    relevance = chances(*shape, seed=seed) < 0.3
    relevance[0] = False
    return relevance if metric in BINARY else relevance * 5 * chances(*shape, seed=seed + 1)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("k", [1, 3, 12])
@pytest.mark.parametrize("metric", ALL)
def test_by_hand(metric, k, masked, ties):
    scores = numbers(40, 12)
    scores = scores.round() if ties else scores
    scores[1, ::2] = -math.inf
    relevance = relevances(metric, 40, 12)
    mask = None
    if masked:
        mask = chances(40, 12, seed=5) < 0.5
        mask[2] = False
        mask[3] = torch.arange(12) < 2  # fewer than k
    result = metric(scores, relevance, k, mask=mask)
    rows = range(40)
    expected = [by_hand(metric, scores[i], relevance[i], k, None if mask is None else mask[i]) for i in rows]
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 4, 9])
@pytest.mark.parametrize("graded", [False, True])
def test_ndcg_is_scikit_learns(k, graded):
    scores, relevance = numbers(50, 9), chances(50, 9, seed=1) < 0.4
    relevance = relevance * torch.randint(1, 5, (50, 9), generator=torch.Generator().manual_seed(2))
    relevance = relevance if graded else relevance > 0
    ours = metrics.ndcg_at_k(scores, relevance, k)
    assert ours.mean().item() == pytest.approx(ndcg_score(relevance.numpy(), scores.numpy(), k=k), rel=1e-12)


def test_one_relevant_entry_is_a_label():
    """Then recall and hit rate are top-k accuracy, and MRR is label ranking average precision."""
    scores, label = numbers(60, 7), torch.arange(60) % 7
    relevance = torch.nn.functional.one_hot(label, 7)
    accuracy = top_k_accuracy_score(label.numpy(), scores.numpy(), k=3)
    assert metrics.recall_at_k(scores, relevance, 3).mean().item() == pytest.approx(accuracy)
    assert metrics.hit_rate(scores, relevance, 3).mean().item() == pytest.approx(accuracy)
    assert metrics.precision_at_k(scores, relevance, 3).mean().item() == pytest.approx(accuracy / 3)
    precision = label_ranking_average_precision_score(relevance.numpy(), scores.numpy())
    assert metrics.mrr(scores, relevance).mean().item() == pytest.approx(precision)


@pytest.mark.parametrize("gain", ["linear", "exponential"])
def test_ndcg_is_the_limit_of_the_loss(gain):
    scores, relevance = numbers(20, 8), torch.arange(8).expand(20, 8) % 4
    loss = ndcg_loss(scores, relevance, k=5, temperature=1e-5, gain=gain, reduction="none")
    torch.testing.assert_close(metrics.ndcg_at_k(scores, relevance, 5, gain=gain), 1 - loss)


def test_huge_grades_do_not_overflow():
    scores, relevance = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4000, 3999, 0])
    assert metrics.ndcg_at_k(scores, relevance, 3, gain="exponential").item() == pytest.approx(
        (0.5 / math.log2(3) + 1 / 2) / (1 + 0.5 / math.log2(3))
    )


def test_a_relevant_entry_that_is_never_placed_is_missed_and_a_masked_one_is_not_there():
    scores, relevance = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, False, True])
    filtered = torch.tensor([3.0, 2.0, -math.inf])
    assert metrics.recall_at_k(filtered, relevance, 3).item() == 0.5
    assert metrics.recall_at_k(scores, relevance, 3, mask=torch.tensor([True, True, False])).item() == 1


@pytest.mark.parametrize("metric", ALL)
def test_any_dimension_any_type_and_empty_batches(metric):
    scores, relevance = numbers(3, 6, 2), chances(3, 6, 2, seed=1) < 0.5
    expected = metric(scores.movedim(1, -1), relevance.movedim(1, -1), 2)
    torch.testing.assert_close(metric(scores, relevance, 2, dim=1), expected)
    for kind in (torch.uint8, torch.int64, torch.float16, torch.float64):
        assert torch.equal(metric(scores, relevance.to(kind), 2, dim=1), expected)
    half = metric(scores.bfloat16(), relevance, 2, dim=1)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, metric(scores.bfloat16().float(), relevance, 2, dim=1))
    assert metric(torch.zeros(0, 4), torch.zeros(0, 4), 2).shape == (0,)
    assert not metric(scores.requires_grad_(), relevance, 2, dim=1).requires_grad


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"relevance": torch.ones(3)}, ValueError, r"relevance must have the shape .* \(4,\), got \(3,\)"),
        ({"relevance": [1, 0, 1, 0]}, TypeError, "relevance must be a torch.Tensor, got list"),
        ({"relevance": torch.ones(4).to(torch.complex64)}, TypeError, "relevance must be .*complex64"),
        ({"relevance": torch.tensor([0.0, -1, 0, 1])}, ValueError, r"relevance must be finite.*\[-1, 1\]"),
        ({"relevance": torch.tensor([0.0, math.nan, 0, 1])}, ValueError, "relevance must be finite"),
        ({"relevance": torch.tensor([0.0, math.inf, 0, 1])}, ValueError, "relevance must be finite"),
        ({"k": 0}, ValueError, "k must satisfy 1 <= k <= n = 4, got k = 0"),
        ({"k": 5}, ValueError, "k must satisfy 0 <= k <= n = 4 .* got k = 5"),
        ({"k": 1.5}, ValueError, "k must be an integer here, got k = 1.5"),
        ({"k": torch.tensor(2)}, TypeError, "k must be one integer, got a tensor"),
        ({"scores": torch.ones(4).long()}, TypeError, "scores must have a floating-point dtype"),
        ({"scores": torch.tensor([0.0, math.nan, 0, 1])}, ValueError, "scores must not be NaN"),
        ({"mask": torch.ones(4)}, TypeError, "mask must be a boolean tensor"),
        ({"dim": 1}, IndexError, "dim must be in"),
    ],
)
def test_bad_arguments_are_named(metric, change, error, message):
    arguments = {"scores": torch.arange(4.0), "relevance": torch.tensor([True, False, True, False]), "k": 2}
    with pytest.raises(error, match=f"^{metric.__name__}: {message}"):
        metric(**{**arguments, **change})


@pytest.mark.parametrize("metric", BINARY)
@pytest.mark.parametrize("grades", [[0, 2, 1, 0], [0.0, 0.5, 1.0, 0.0]])
def test_grades_are_refused_where_relevance_is_yes_or_no(metric, grades):
    with pytest.raises(ValueError, match=rf"{metric.__name__}: relevance must be binary.* got (2|0.5);"):
        metric(torch.arange(4.0), torch.tensor(grades), 2)


@pytest.mark.parametrize("metric", ALL)
def test_what_the_mask_hides_may_be_anything(metric):
    scores, relevance = torch.tensor([3.0, 1.0, 2.0, math.nan]), torch.tensor([0.0, 1.0, 0.0, math.nan])
    mask = torch.tensor([True, True, True, False])
    expected = metric(scores[:3], relevance[:3], 2)
    torch.testing.assert_close(metric(scores, relevance, 2, mask=mask), expected)


def test_an_unknown_gain_is_named():
    with pytest.raises(ValueError, match="ndcg_at_k: gain must be 'exponential' or 'linear', got 'square'"):
        metrics.ndcg_at_k(torch.ones(3), torch.ones(3), 2, gain="square")
