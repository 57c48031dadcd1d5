"""Successive halving against literal transcriptions of the algorithm, one row and one pair at a time."""

import math

import numpy as np
import pytest
import torch

from khot import successive_halving_topk, topk_matrix
from khot.relaxations.rows.successive_halving import successive_halving_matrix, successive_halving_select
from strategies.quick_run import costly
from strategies.random_scores import scores as rows

PUBLISHED_CODE_FAILS = [(64, 10), (96, 10), (100, 10), (50, 7)]
SIZES = [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (5, 3), (7, 1), (8, 2), (9, 4), (16, 15), (33, 2)]


def chance(a, b, boost):
    if boost == "softmax":
        terms = np.exp(np.array([a, b]) - max(a, b))
    else:
        powers = 20.0 ** np.array([a, b])
        terms = np.exp(powers - powers.max())
    return terms[0] / terms.sum()


def paper(E, v, k, boost="softmax"):
    """Algorithm 2 as printed; n/k must be a power of two."""
    for _ in range(round(math.log2(len(v) / k))):
        order = np.argsort(-v, kind="stable")
        E, v = E[order], v[order]
        half = len(v) // 2
        w = [chance(v[i], v[2 * half - 1 - i], boost) for i in range(half)]
        E = np.stack([w[i] * E[i] + (1 - w[i]) * E[2 * half - 1 - i] for i in range(half)])
        v = np.array([w[i] * v[i] + (1 - w[i]) * v[2 * half - 1 - i] for i in range(half)])
    return E


def tournament(E, v, k):
    """Any n and k, pair by pair: the best that are not needed for pairs pass alone."""
    order = np.argsort(-v, kind="stable")
    E, v = E[order], v[order]
    first = True
    while len(v) > k:
        if not first:
            order = np.argsort(-v, kind="stable")
            E, v = E[order], v[order]
        first = False
        m = len(v)
        t = max(k, (m + 1) // 2)
        b = 2 * t - m
        rows, scores = list(E[:b]), list(v[:b])
        for i in range(b, t):
            j = m - 1 - (i - b)
            w = chance(v[i], v[j], "softmax")
            rows.append(w * E[i] + (1 - w) * E[j])
            scores.append(w * v[i] + (1 - w) * v[j])
        E, v = np.stack(rows), np.array(scores)
    return E


@pytest.mark.parametrize("boost", ["softmax", "base20"])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (8, 1), (16, 4), (64, 32), (256, 2), (24, 3), (5, 5)])
def test_the_published_algorithm(n, k, boost):
    scores = rows(3, n).sigmoid()
    values = rows(3, n, 4, seed=1)
    expected = np.stack([paper(e.numpy(), v.numpy(), k, boost) for e, v in zip(values, scores, strict=True)])
    found, _ = successive_halving_select(values, scores, k, boost=boost)
    if n == k:  # the printed loop does not run; sorted here, like every other result
        expected = np.take_along_axis(expected, np.argsort(-scores.numpy())[..., None], 1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize(("n", "k"), [*PUBLISHED_CODE_FAILS, *SIZES])
def test_any_size(n, k, temperature):
    scores, values = 3 * rows(2, n), rows(2, n, 3, seed=1)
    expected = np.stack(
        [tournament(e.numpy(), v.numpy() / temperature, k) for e, v in zip(values, scores, strict=True)]
    )
    found, weights = successive_halving_select(values, scores, k, temperature=temperature)
    matrix = successive_halving_matrix(scores, k, temperature=temperature)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose((matrix @ values).numpy(), expected, rtol=1e-10, atol=1e-11)
    assert ((matrix > 0).sum(-2) <= 1).all(), "an entry feeds one slot"
    alone = successive_halving_topk(scores, k, temperature=temperature)  # in slices, rounded elsewhere
    torch.testing.assert_close(weights, alone, rtol=1e-13, atol=0)
    torch.testing.assert_close(weights.sum(-1), torch.full((2,), float(k), dtype=torch.float64))


@pytest.mark.parametrize("n", range(1, 8))
def test_small_rows_by_the_identity(n):
    for k in range(1, n + 1):
        for seed in range(5):
            scores = rows(n, seed=seed)
            expected = tournament(np.eye(n), scores.numpy(), k)
            np.testing.assert_allclose(
                topk_matrix(scores, k, "successive_halving").numpy(), expected, atol=1e-13
            )
            weights = successive_halving_topk(scores, k)
            np.testing.assert_allclose(weights.numpy(), expected.sum(0), atol=1e-13)


@pytest.mark.parametrize("boost", ["softmax", costly("base20")])
def test_derivatives(boost):
    scores, values = rows(2, 7).requires_grad_(), rows(2, 7, 2, seed=1).requires_grad_()

    def call(values, scores):
        return successive_halving_select(values, scores, 3, boost=boost)

    assert torch.autograd.gradcheck(call, (values, scores), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, (values, scores))


def test_rows_of_different_budgets_and_lengths():
    scores = rows(5, 23)
    k = torch.tensor([1, 4, 9, 22, 23])
    mask = torch.arange(23) < torch.tensor([23, 20, 11, 23, 5]).unsqueeze(-1)
    weights = successive_halving_topk(scores, k, mask=mask)
    for row in range(5):
        allowed = scores[row][mask[row]]
        budget = min(int(k[row]), len(allowed))
        torch.testing.assert_close(weights[row][mask[row]], successive_halving_topk(allowed, budget))
        assert not weights[row][~mask[row]].any()


def test_infinite_scores():
    inf = math.inf
    scores = torch.tensor([[inf, 1.0, 0.5, 0.0, -inf], [inf, inf, inf, 2.0, 1.0]], requires_grad=True)
    values = torch.eye(5).expand(2, 5, 5)
    blends, weights = successive_halving_select(values, scores, 2)
    matrix = successive_halving_matrix(scores, 2)
    torch.testing.assert_close(blends, matrix)
    # One is sure; the other slot is a tournament of the three finite scores.
    rest = successive_halving_topk(torch.tensor([1.0, 0.5, 0.0]), 1)
    torch.testing.assert_close(weights[0], torch.cat([torch.ones(1), rest, torch.zeros(1)]))
    torch.testing.assert_close(weights[1], torch.tensor([2 / 3, 2 / 3, 2 / 3, 0.0, 0.0]))
    (grad,) = torch.autograd.grad(blends.pow(2).sum() + weights.pow(2).sum(), scores)
    assert grad.isfinite().all()


def test_base20_of_large_scores_is_finite():
    scores = torch.tensor([1e30, 50.0, 3.0, 0.0, -200.0, -1e30], requires_grad=True)
    weights = successive_halving_topk(scores, 2, boost="base20")
    (grad,) = torch.autograd.grad(weights.pow(2).sum(), scores)
    assert weights.isfinite().all()
    assert grad.isfinite().all()
    assert weights[:2].tolist() == [1.0, 1.0]


def test_memory_is_linear():
    # The matrix of this problem would take 4 GB.
    scores = torch.randn(1, 2**17, generator=torch.Generator().manual_seed(0), requires_grad=True)
    values = torch.randn(1, 2**17, 2, generator=torch.Generator().manual_seed(1))
    with torch.profiler.profile(profile_memory=True) as profile:
        blends, _ = successive_halving_select(values, scores, 2**13)
        blends.sum().backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest < 64 * scores.nbytes


@pytest.mark.parametrize("call", [successive_halving_topk, successive_halving_matrix])
def test_wrong_arguments_are_named(call):
    with pytest.raises(ValueError, match="boost must be 'softmax' or 'base20', got 'e'"):
        call(rows(4), 2, boost="e")
    with pytest.raises(ValueError, match="k must be an integer"):
        call(rows(4), 1.5)
    with pytest.raises(ValueError, match="0 <= k <= n = 4"):
        call(rows(4), 5)
