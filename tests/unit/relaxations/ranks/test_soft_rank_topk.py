"""soft_rank_topk and DifferentiableTopK: ranks 1 … k, at every temperature."""

import pytest
import torch

import khot
from khot.nn import DifferentiableTopK
from khot.relaxations import soft_rank
from khot.relaxations.ranks.soft_rank_topk import soft_rank_matrix


def published_rows(scores, k, tau):
    """The window arithmetic of the topknets project: 0-based positions against 1-based ranks."""
    ranks = soft_rank(scores, temperature=tau, descending=True).unsqueeze(-1)
    positions = torch.arange(k, dtype=scores.dtype).view(1, 1, k)
    window = torch.sigmoid((positions + 0.5 - ranks) / tau) - torch.sigmoid((positions - 0.5 - ranks) / tau)
    rows = window.transpose(1, 2)
    return rows / (rows.sum(-1, keepdim=True) + 1e-8)


def test_the_published_windows_pick_ranks_1_1_2_where_ours_pick_1_2_3():
    scores = torch.tensor([[0.3, 2.0, -1.0, 1.1, 0.9]], dtype=torch.float64)
    by_rank = scores.argsort(descending=True)[0].tolist()
    assert published_rows(scores, 3, 0.05).argmax(-1)[0].tolist() == [by_rank[0], by_rank[0], by_rank[1]]
    assert DifferentiableTopK(3)(scores, 0.05).argmax(-1)[0].tolist() == by_rank[:3]


@pytest.mark.parametrize("tau", [1e-4, 0.01, 0.5, 1.0, 10.0, 1e4])
def test_rows_sum_to_one_at_every_temperature(tau):
    scores = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    rows = DifferentiableTopK(3)(scores, tau)
    assert rows.shape == (4, 3, 9)
    torch.testing.assert_close(rows.sum(-1), torch.ones(4, 3))
    assert (rows >= 0).all()


def test_published_rows_fade_where_ours_do_not():
    scores = torch.tensor([[100.0, 50.0, 0.0, -50.0]])
    assert published_rows(scores, 1, 0.02).sum() < 0.5
    assert DifferentiableTopK(1)(scores, 0.02).sum() == pytest.approx(1)


def test_weights_are_the_sum_of_the_rows():
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    matrix = soft_rank_matrix(x, 3, temperature=0.4)
    torch.testing.assert_close(matrix.sum(-2), khot.soft_rank_topk(x, 3, temperature=0.4))


def test_window_changes_the_rows_and_not_the_ranks():
    x = torch.randn(8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    narrow = soft_rank_matrix(x, 3, temperature=0.1, window=0.01)
    wide = soft_rank_matrix(x, 3, temperature=0.1, window=2.0)
    assert (narrow.amax(-1) > 0.99).all()
    assert (wide.amax(-1) < 0.6).all()


def test_rows_beyond_the_allowed_are_zero():
    mask = torch.tensor([True, False, True, False, False])
    matrix = soft_rank_matrix(torch.arange(5.0), 4, mask=mask, temperature=0.1)
    torch.testing.assert_close(matrix.sum(-1), torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert (matrix[:, ~mask] == 0).all()


def test_ties_leak_as_documented():
    """Ranks 2, 2, 2, 4: a part of row 3 lies on the fourth entry."""
    x = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    third = soft_rank_matrix(x, 3, temperature=1e-3, window=1e-3)[2]
    assert third[3] > 0.2


def test_gradients_reach_every_score_and_k_is_checked():
    x = torch.randn(2, 6, generator=torch.Generator().manual_seed(3), requires_grad=True)
    DifferentiableTopK(2)(x, 1.0)[..., 0].sum().backward()
    assert (x.grad != 0).all()
    with pytest.raises(ValueError, match="k must"):
        DifferentiableTopK(7)(x)
    assert DifferentiableTopK(0)(x).shape == (2, 0, 6)
    with pytest.raises(ValueError, match="DifferentiableTopK: k must be finite and not negative, got -1"):
        DifferentiableTopK(-1)
