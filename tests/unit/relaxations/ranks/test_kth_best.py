"""Pairwise ranks and the k-th best against brute force; bounds against enumeration."""

import itertools

import numpy as np
import pytest
import torch
from scipy.special import expit

import khot
from khot.relaxations import delta_bounds, heaviside_bounds, kth_best, kth_best_bounds, rank_bounds
from khot.relaxations.ranks import pairwise
from strategies.random_scores import scores as rows


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_ranks_are_sums_of_comparisons(block, monkeypatch):
    monkeypatch.setattr(pairwise, "_AT_ONCE", block)
    z = rows(3, 6)
    ranks = pairwise._PairwiseRanksForwardMode.apply(z)
    for r, row in enumerate(z.numpy()):
        for i in range(6):
            expected = 1 + sum(1 / (1 + np.exp(row[i] - row[j])) for j in range(6) if j != i)
            assert ranks[r, i].item() == pytest.approx(expected, rel=1e-12)


def test_derivatives_of_the_soft_kth_best():
    x, scores = rows(2, 5, 3).requires_grad_(), rows(2, 5, seed=1).requires_grad_()

    def call(x, scores):
        return kth_best(x, scores, 2, temperature=0.7)

    assert torch.autograd.gradcheck(call, (x, scores), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(call, (x, scores))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_cold_is_hard_and_hard_is_one_vector_for_each_rank(k):
    x, scores = rows(4, 5, 2), rows(4, 5, seed=1)
    expected = torch.stack([x[r, scores[r].argsort(descending=True)[k - 1]] for r in range(4)])
    assert torch.equal(kth_best(x, scores, k, hard=True), expected)
    torch.testing.assert_close(kth_best(x, scores, k, temperature=1e-3), expected)


def test_hard_with_ties_uses_every_vector_once():
    x = torch.eye(4)
    all_of_them = torch.stack(
        [kth_best(x, torch.tensor([1.0, 2.0, 1.0, 1.0]), k, hard=True) for k in range(1, 5)]
    )
    assert all_of_them.argmax(-1).tolist() == [1, 0, 2, 3]
    assert torch.equal(all_of_them.sum(0), torch.ones(4))


def test_wrong_shapes_and_k_are_named():
    with pytest.raises(ValueError, match="values must have the shape of scores and one dimension more"):
        kth_best(torch.zeros(4, 2), torch.zeros(5), 1)
    with pytest.raises(ValueError, match=r"0 <= k <= n = 4 .* got k = 5"):
        kth_best(torch.zeros(4, 2), torch.zeros(4), 5)
    with pytest.raises(ValueError, match="k must be at least 1, which is the best, got k = 0"):
        kth_best(torch.zeros(4, 2), torch.zeros(4), 0)


def boxes(n, count, seed=0):
    """Boxes whose ends often coincide."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        lb = (4 * torch.rand(n, generator=generator)).round() / 2
        yield lb, lb + (3 * torch.rand(n, generator=generator)).round() / 2


def orders(lb, ub):
    """Every order of scores in the box, ties by index."""
    ends = sorted(set(lb.tolist() + ub.tolist()))
    values = sorted({*ends, *((a + b) / 2 for a, b in itertools.pairwise(ends))})
    choices = [[v for v in values if low <= v <= high] for low, high in zip(lb, ub, strict=True)]
    for m in itertools.product(*choices):
        yield sorted(range(len(m)), key=lambda i: (-m[i], i))


def test_rank_bounds_are_sound_and_tight():
    for lb, ub in boxes(4, 60):
        ranks = [{order.index(i) + 1 for order in orders(lb, ub)} for i in range(4)]
        bounds = rank_bounds(lb, ub, k=2)
        assert bounds.rank_min.tolist() == [min(r) for r in ranks]
        assert bounds.rank_max.tolist() == [max(r) for r in ranks]
        assert bounds.kept.tolist() == [max(r) <= 2 for r in ranks]
        assert bounds.dropped.tolist() == [min(r) > 2 for r in ranks]
        assert torch.equal(bounds.undecided, ~(bounds.kept | bounds.dropped))


def test_kth_best_bounds_hold_every_point_of_the_box():
    generator = torch.Generator().manual_seed(3)
    m_lb, x_lb = torch.rand(5, generator=generator), torch.rand(5, 2, generator=generator)
    m_ub = m_lb + 0.3 * torch.rand(5, generator=generator)
    x_ub = x_lb + torch.rand(5, 2, generator=generator)
    low, high = kth_best_bounds(x_lb, x_ub, m_lb, m_ub, 2)
    m = m_lb + (m_ub - m_lb) * torch.rand(100_000, 5, generator=generator)
    x = x_lb + (x_ub - x_lb) * torch.rand(100_000, 5, 2, generator=generator)
    best = kth_best(x, m, 2, hard=True)
    assert (best >= low).all()
    assert (best <= high).all()


@pytest.mark.parametrize("temperature", [None, 0.5])
def test_lines_around_a_step(temperature):
    low = 3 * rows(500)
    high = low + 4 * rows(500, seed=1).abs()
    low[:3], high[:3] = torch.tensor([-1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0])
    lines = heaviside_bounds(low, high, temperature)
    for share in torch.linspace(0, 1, 201, dtype=torch.float64):
        x = low + share * (high - low)
        h = (x >= 0).double() if temperature is None else torch.sigmoid(x / temperature)
        assert (lines.lower_slope * x + lines.lower_offset <= h).all()
        assert (lines.upper_slope * x + lines.upper_offset >= h).all()


def test_lines_around_an_indicator():
    low = torch.arange(-4.0, 4).repeat_interleave(5)
    high = low + torch.arange(5.0).repeat(8)
    lines = delta_bounds(low, high)
    for step in range(5):
        x = torch.minimum(low + step, high)
        assert (lines.lower_slope * x + lines.lower_offset <= (x == 0)).all()
        assert (lines.upper_slope * x + lines.upper_offset >= (x == 0).float()).all()
    exact = (low == 0) & (high == 0)
    assert lines.upper_offset[exact].item() == pytest.approx(1, rel=1e-5)


def test_boxes_must_be_boxes():
    with pytest.raises(ValueError, match="lb must not exceed ub"):
        rank_bounds(torch.tensor([1.0]), torch.tensor([0.0]))
    with pytest.raises(ValueError, match="must have the same shape"):
        heaviside_bounds(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="k must satisfy 0 <= k <= n = 1, got 2"):
        rank_bounds(torch.zeros(1), torch.zeros(1), k=2)


def test_pairwise_weights_sum_to_k_at_ten_thousand():
    y = khot.pairwise_topk(rows(10_000), 8, temperature=0.1)
    assert y.sum().item() == pytest.approx(8, rel=1e-9)


def test_wrong_types_are_named():
    x, scores = rows(4, 2), rows(4)
    with pytest.raises(TypeError, match=r"values must have a floating-point dtype, got torch\.int64"):
        kth_best(torch.ones(4, 2, dtype=torch.int64), scores, 1)
    with pytest.raises(TypeError, match="kth_best: k must be an integer, got 'a'"):
        kth_best(x, scores, "a")
    with pytest.raises(ValueError, match="kth_best: window must be positive and finite, got 0"):
        kth_best(x, scores, 1, window=0)
    for k in (1.5, "1", True, torch.tensor(1)):
        with pytest.raises(TypeError, match="kth_best_bounds: k must be an integer, got "):
            kth_best_bounds(x, x, scores, scores, k)
        with pytest.raises(TypeError, match="rank_bounds: k must be an integer, got "):
            rank_bounds(scores, scores, k)
    with pytest.raises(TypeError, match=r"heaviside_bounds: low must be a torch\.Tensor, got int"):
        heaviside_bounds(3, scores)
    for temperature in ("a", True, torch.tensor(1.0)):
        with pytest.raises(TypeError, match="heaviside_bounds: temperature must be a number"):
            heaviside_bounds(scores, scores, temperature)


def test_the_kth_best_in_other_dims_of_the_smallest_and_under_masks():
    x, scores = rows(3, 5, 2, 4), rows(3, 5, 2, seed=1)
    moved = kth_best(x, scores, 2, dim=1, temperature=0.3)
    torch.testing.assert_close(moved, kth_best(x.movedim(1, 2), scores.movedim(1, 2), 2, temperature=0.3))
    smallest = kth_best(x, -scores, 2, dim=1, temperature=0.3, largest=False)
    torch.testing.assert_close(smallest, moved)
    mask = torch.tensor([True, False, True, True, False]).view(5, 1)
    poisoned = x.clone()
    poisoned[:, [1, 4]] = torch.nan
    kept = [0, 2, 3]
    for hard in (False, True):
        masked = kth_best(poisoned, scores, 2, dim=1, mask=mask, hard=hard)
        torch.testing.assert_close(masked, kth_best(x[:, kept], scores[:, kept], 2, dim=1, hard=hard))
        assert not kth_best(poisoned, scores, 4, dim=1, mask=mask, hard=hard).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [None, 1e-30, 0.5, 1e30])
def test_lines_around_a_step_are_finite_and_sound_at_every_scale(temperature, dtype):
    info = torch.finfo(dtype)
    smallest = info.tiny * info.eps
    sizes = [
        0.0,
        smallest,
        3 * smallest,
        info.tiny,
        1e-4,
        0.3,
        1.0,
        17.0,
        1e4,
        info.max / 2,
        info.max,
        np.inf,
    ]
    ends = torch.tensor([sign * size for size in sizes for sign in (-1, 1)], dtype=dtype)
    low, high = (t.flatten() for t in torch.meshgrid(ends, ends, indexing="ij"))
    low, high = low[low <= high], high[low <= high]
    lines = heaviside_bounds(low, high, temperature)
    assert all(part.isfinite().all() for part in lines)
    lower_slope, lower_offset, upper_slope, upper_offset = (part.double() for part in lines)
    candidates = [*ends.tolist(), 1e-3, -1e-3, 5.0, -5.0]
    for x in [c for c in candidates if np.isfinite(c)]:
        inside = (low.double() <= x) & (x <= high.double())
        h = float(x >= 0) if temperature is None else expit(x / temperature)
        assert (lower_slope * x + lower_offset <= h)[inside].all()
        assert (upper_slope * x + upper_offset >= h)[inside].all()


def test_lines_around_an_indicator_are_finite_without_ends():
    inf = np.inf
    low, high = torch.tensor([-inf, -inf, 0.0, -3.0, -1e38]), torch.tensor([inf, 2.0, inf, inf, 1e38])
    lines = delta_bounds(low, high)
    assert all(part.isfinite().all() for part in lines)
    for x in (-1e30, -3.0, -1.0, 0.0, 1.0, 2.0, 1e30):
        inside = (low <= x) & (x <= high)
        assert (lines.lower_slope * x + lines.lower_offset <= float(x == 0))[inside].all()
        assert (lines.upper_slope * x + lines.upper_offset >= float(x == 0))[inside].all()
