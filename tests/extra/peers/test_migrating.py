"""The lines of docs/migrating/entmax.md and pot.md, beside the packages they name, in float64."""

import pytest
import torch

import khot
from khot.relaxations.rows.sinkhorn import sinkhorn_matrix


def some_scores(requires_grad=False):
    x = torch.randn(3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return x.requires_grad_(requires_grad)


def agree(ours, theirs, tolerance=1e-9):
    """Equal values, and equal gradients of a weighted sum."""
    found = []
    for function in (ours, theirs):
        x = some_scores(requires_grad=True)
        y = function(x)
        weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        found.append((y.detach(), torch.autograd.grad((y * weights).sum(), x)[0]))
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, atol=tolerance, rtol=tolerance)


@pytest.fixture(scope="module")
def entmax():
    return pytest.importorskip("entmax")


@pytest.fixture(scope="module")
def ot():
    return pytest.importorskip("ot")


def test_sparsemax(entmax):
    agree(lambda x: khot.sparse_topk(x, 1), lambda x: entmax.sparsemax(x, dim=-1))


def test_entmax15(entmax):
    agree(lambda x: khot.sparse_topk(x, 1, norm=1.5, temperature=2.0), lambda x: entmax.entmax15(x, dim=-1))


@pytest.mark.parametrize("alpha", [1.25, 1.5, 1.75, 2.0])
def test_entmax_bisect(entmax, alpha):
    agree(
        lambda x: khot.sparse_topk(x, 1, norm=alpha, temperature=1 / (alpha - 1)),
        lambda x: entmax.entmax_bisect(x, alpha=alpha, n_iter=80),
        tolerance=1e-7,
    )


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_budget_bisect(entmax, budget):
    agree(
        lambda x: khot.sparse_topk(x, budget),
        lambda x: entmax.budget_bisect(x, budget=budget, n_iter=80),
        1e-7,
    )


@pytest.mark.parametrize(
    ("theirs", "options"), [("sparsemax_loss", {}), ("entmax15_loss", {"norm": 1.5, "temperature": 2.0})]
)
def test_losses(entmax, theirs, options):
    label = torch.tensor([1, 4, 0])
    one_hot = torch.nn.functional.one_hot(label, 7).double()
    agree(
        lambda x: khot.losses.fenchel_young_loss(x, one_hot, method="sparse", reduction="none", **options),
        lambda x: getattr(entmax, theirs)(x, label),
    )


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_sinkhorn_to_two_anchors(ot, epsilon):
    x, n, k = some_scores()[0], 7, 2
    costs = (x.unsqueeze(-1) - torch.tensor([0.0, 1.0], dtype=x.dtype)) ** 2
    b = torch.tensor([1 - k / n, k / n], dtype=x.dtype)
    plan = ot.sinkhorn(torch.full_like(x, 1 / n), b, costs, epsilon, numItermax=20_000, stopThr=1e-14)
    torch.testing.assert_close(
        khot.sinkhorn_topk(x, k, temperature=epsilon), n * plan[:, 1], atol=1e-9, rtol=0
    )


def test_sinkhorn_to_one_anchor_for_each_rank(ot):
    x, n, k = some_scores()[0], 7, 2
    costs = (x.unsqueeze(-1) - torch.tensor([0.0, 1.0, 2.0], dtype=x.dtype)) ** 2
    b = torch.tensor([(n - k) / n, 1 / n, 1 / n], dtype=x.dtype)
    plan = ot.sinkhorn(torch.full_like(x, 1 / n), b, costs, 1.0, numItermax=50_000, stopThr=1e-14)
    torch.testing.assert_close(
        sinkhorn_matrix(x, k, temperature=1.0), n * plan[:, [2, 1]].mT, atol=1e-8, rtol=0
    )
