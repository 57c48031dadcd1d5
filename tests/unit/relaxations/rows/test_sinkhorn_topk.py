"""sinkhorn_topk against long runs of Sinkhorn's algorithm, and the rows of its sorted variant."""

import functools
import math

import numpy as np
import pytest
import torch

import khot
from khot.relaxations import Relaxation
from khot.relaxations.rows.sinkhorn import sinkhorn_matrix
from khot.testing import relaxation_checks
from strategies.contract_checks import TRACING, parameters
from strategies.quick_run import in_turn
from strategies.random_scores import scores

SORTED = Relaxation(
    name="sinkhorn_sorted",
    weights=functools.partial(khot.sinkhorn_topk, variant="sorted"),
    smooth="C∞",
    max_n=5_000,
    max_k=8,
)
CHECKS = {check.name: check for check in relaxation_checks(SORTED)}
COSTLY = {"scales", "second_order", "inductor", *TRACING}


def sinkhorn(x, anchors, mass, epsilon, divide_by=1.0):
    """The plan (n, anchors) with entropy, times n: alternate scaling of logarithms until nothing changes."""
    x, anchors = np.asarray(x), np.asarray(anchors, dtype=float)
    n = len(x)
    logits = -((x[:, None] - anchors) ** 2) / divide_by / epsilon
    mu, nu = -math.log(n), np.log(np.asarray(mass) / n)
    f, g = np.zeros(n), np.zeros(len(anchors))
    for _ in range(200_000):
        f = mu - np.logaddexp.reduce(logits + g, axis=1)
        before, g = g, nu - np.logaddexp.reduce(logits + f[:, None], axis=0)
        if abs(g - before).max() < 1e-14:
            return n * np.exp(logits + f[:, None] + g)
    raise AssertionError("has not converged")


@pytest.mark.parametrize("k", [1, 3, 4.5, 11])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
def test_two_anchors_are_a_long_sinkhorn_run(k, epsilon):
    x = scores(12)
    expected = sinkhorn(x, [0, 1], [12 - k, k], epsilon)[:, 1]
    np.testing.assert_allclose(khot.sinkhorn_topk(x, k, temperature=epsilon), expected, atol=1e-10)
    half = khot.sigmoid_topk(x, k, temperature=epsilon / 2)
    assert torch.equal(khot.sinkhorn_topk(x, k, temperature=epsilon), half)


def test_a_tensor_is_the_same_temperature_as_a_number():
    x = torch.stack([scores(6, seed=s) for s in (13, 14)])
    for settings in ({}, {"variant": "sorted"}):
        number = khot.sinkhorn_topk(x, 2, temperature=0.3, **settings)
        tensor = khot.sinkhorn_topk(x, 2, temperature=torch.tensor([0.3, 0.6], dtype=x.dtype), **settings)
        torch.testing.assert_close(tensor[0], number[0], atol=1e-14, rtol=0)
        assert not torch.allclose(tensor[1], number[1])


def test_costs_divided_by_their_maximum_are_another_temperature():
    """As in the authors' code: scores moved to 0 and above, costs divided by the largest."""
    x, epsilon = scores(10, seed=1), 0.2
    moved = (x - x.min()).numpy()
    largest = max((moved**2).max(), ((moved - 1) ** 2).max())
    expected = sinkhorn(moved, [0, 1], [7, 3], epsilon, divide_by=largest)[:, 1]
    y = khot.sinkhorn_topk(x, 3, temperature=epsilon * float(largest))
    np.testing.assert_allclose(y, expected, atol=1e-10)


@pytest.mark.parametrize(("k", "epsilon"), [(1, 0.5), (3, 0.5), (3, 2.0), (5, 1.0), (9, 3.0)])
def test_sorted_rows_are_a_long_sinkhorn_run(k, epsilon):
    x = scores(10, seed=2)
    plan = sinkhorn(x, range(k + 1), [10 - k] + [1] * k, epsilon)
    rows = sinkhorn_matrix(x, k, temperature=epsilon)
    np.testing.assert_allclose(rows, plan[:, :0:-1].T, atol=1e-9)
    y = khot.sinkhorn_topk(x, k, temperature=epsilon, variant="sorted")
    np.testing.assert_allclose(y, 1 - plan[:, 0], atol=1e-9)


def test_all_ranks_are_a_long_sinkhorn_run_without_a_rest():
    x = scores(6, seed=3)
    plan = sinkhorn(x, range(1, 7), [1] * 6, 0.7)
    np.testing.assert_allclose(sinkhorn_matrix(x, 6, temperature=0.7), plan[:, ::-1].T, atol=1e-9)


def test_one_rank_is_sigmoid_top_1():
    x = scores(30, seed=4)
    one = khot.sinkhorn_topk(x, 1, temperature=0.4, variant="sorted")
    torch.testing.assert_close(one, khot.sigmoid_topk(x, 1, temperature=0.2), atol=1e-14, rtol=1e-12)


KINDS = ["plain", "ties", "rounded", "clusters", "heavy", "two levels"]
SIZES = [(5, 4), (40, 7), (40, 39), (3000, 6)]


@pytest.mark.parametrize(("kind", "size", "scale"), in_turn(KINDS, SIZES, [1e-6, 1.0, 30.0, 1e5]))
def test_marginals_hold_at_every_scale(kind, size, scale):
    n, k = size
    x = scores(n, seed=5)
    x = {
        "plain": x,
        "ties": torch.zeros_like(x),
        "rounded": (2 * x).round(),
        "clusters": (2 * x).round() + 1e-4 * x,
        "heavy": torch.tan(1.5 * x.clamp(-1, 1)),
        "two levels": (x > 0).double(),
    }[kind] * scale
    rows = sinkhorn_matrix(x, k)
    torch.testing.assert_close(rows.sum(-1), torch.ones(k, dtype=x.dtype), atol=1e-12, rtol=0)
    assert rows.sum(-2).max() <= 1 + 1e-9
    y = khot.sinkhorn_topk(x, k, variant="sorted")
    assert abs(y.sum().item() - k) <= 1e-9
    torch.testing.assert_close(y, rows.sum(-2), atol=1e-9, rtol=0)


def test_rows_have_the_form_of_the_solution():
    """Between two ranks, log odds grow by 2/ε for each unit of the score: the condition of optimality."""
    x, epsilon = 3 * scores(9, seed=6), 0.5
    logs = sinkhorn_matrix(x, 4, temperature=epsilon).log()
    odds = logs[:-1] - logs[1:]
    slopes = (odds - odds[:, :1]) - 2 * (x - x[0]) / epsilon
    torch.testing.assert_close(slopes, torch.zeros_like(slopes), atol=1e-9, rtol=0)


@pytest.mark.full
def test_the_matrix_has_derivatives_of_two_orders():
    x = scores(7, seed=7).reshape(1, 7).requires_grad_()
    tau = torch.tensor([0.8], dtype=torch.float64, requires_grad=True)

    def rows(x, tau):
        return sinkhorn_matrix(x, 3, temperature=tau)

    assert torch.autograd.gradcheck(rows, (x, tau), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(rows, (x, tau))
    torch.testing.assert_close(
        torch.func.vmap(lambda row: sinkhorn_matrix(row, 3))(x.detach()), sinkhorn_matrix(x.detach(), 3)
    )


def test_the_gradient_is_that_of_the_converged_plan_when_nearly_hard():
    """Neighbours 8 apart in log odds: weights are nearly hard, their gradients small, and not noise."""
    x = torch.tensor([0.0, 4.0, 2.0, 6.0, 5.9], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(sinkhorn_matrix(x, 2, temperature=0.5)[1, 4], x)
    step = 1e-5 * torch.eye(5, dtype=torch.float64)
    up, down = (sinkhorn_matrix(x.detach() + s * step, 2, temperature=0.5)[:, 1, 4] for s in (1, -1))
    torch.testing.assert_close(grad, (up - down) / 2e-5, atol=1e-8, rtol=1e-6)


def test_rows_of_infinities_masks_and_of_ranks_that_do_not_exist():
    inf = math.inf
    x = torch.tensor([1.0, inf, 0.5, -inf, 2.0, 3.0], dtype=torch.float64)
    mask = torch.tensor([True, True, True, True, True, False])
    rows = sinkhorn_matrix(x, 5, temperature=0.5, mask=mask)
    assert rows[0].tolist() == [0, 1, 0, 0, 0, 0]
    kept = sinkhorn_matrix(torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64), 3, temperature=0.5)
    torch.testing.assert_close(rows[1:4][:, [0, 2, 4]], kept, atol=1e-13, rtol=0)
    assert not rows[4].any()
    assert not rows[1:][:, [1, 3, 5]].any()


def test_a_budget_per_row_and_any_dim():
    x = torch.stack([scores(6, seed=s) for s in (8, 9, 10)])
    k = torch.tensor([1, 4, 0])
    y = khot.sinkhorn_topk(x, k, variant="sorted")
    each = [khot.sinkhorn_topk(row, int(b), variant="sorted") for row, b in zip(x, k, strict=True)]
    torch.testing.assert_close(y, torch.stack(each), atol=1e-12, rtol=0)
    torch.testing.assert_close(sinkhorn_matrix(x.t(), 2, dim=0), sinkhorn_matrix(x, 2))


def test_unknown_variants_are_named():
    with pytest.raises(ValueError, match="sinkhorn_topk: variant must be 'plain' or 'sorted', got 'other'"):
        khot.sinkhorn_topk(torch.zeros(3), 1, variant="other")
    with pytest.raises(ValueError, match=r"sinkhorn_topk: k must be an integer.*2\.5"):
        khot.sinkhorn_topk(torch.zeros(3), 2.5, variant="sorted")


@pytest.mark.parametrize("check", parameters(CHECKS.values(), lambda check: check.name in COSTLY))
def test_the_sorted_variant_passes_the_contract(check):
    check()


@pytest.mark.full
def test_the_sorted_variant_compiles_in_one_graph():
    x = torch.stack([scores(6, seed=s) for s in (11, 12)]).requires_grad_()

    def cost(x):
        return khot.sinkhorn_topk(x, 2, temperature=0.5, variant="sorted").square().sum()

    compiled = torch.compile(cost, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), cost(x))
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x), torch.autograd.grad(cost(x), x))
