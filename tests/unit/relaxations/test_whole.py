"""An operator as one operation of a compiled graph: gradients come from the graph that it recorded."""

import gc

import pytest
import torch
from torch import Tensor

from khot.relaxations import _whole
from strategies.random_scores import scores

CALLS: list[tuple[int, ...]] = []


def scaled_softmax(z: Tensor, allowed: Tensor, k: Tensor, most: int, tau: Tensor) -> Tensor:
    CALLS.append(tuple(z.shape))
    return most * k * torch.softmax(torch.where(allowed, z / tau, -torch.inf), -1)


weights = _whole.whole("scaled_softmax", scaled_softmax)


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


def problem() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    allowed = torch.ones(3, 5, dtype=torch.bool)
    allowed[1, 2] = False
    tau = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    return scores(3, 5), allowed, torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64), tau


def compiled_cost():
    _, allowed, k, _ = problem()

    def cost(z: Tensor, tau: Tensor) -> Tensor:
        return weights(z, allowed, k, 2, tau).square().sum()

    torch.compiler.reset()
    return cost, torch.compile(cost, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("learned", [(True, True), (True, False), (False, True)])
def test_compiled_value_and_gradients_are_those_of_eager_and_no_pass_is_made_twice(learned):
    z, _, _, tau = problem()
    leaves = [t.requires_grad_() for t, has in zip((z, tau), learned, strict=True) if has]
    cost, compiled = compiled_cost()
    expected = cost(z, tau)
    CALLS.clear()
    actual = compiled(z, tau)
    torch.testing.assert_close(actual, expected)
    right = torch.autograd.grad(expected, leaves)
    for _ in range(2):  # the graph is still there the second time
        for mine, eager in zip(torch.autograd.grad(actual, leaves, retain_graph=True), right, strict=True):
            torch.testing.assert_close(mine, eager)
    assert CALLS == [(3, 5)]


@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="torch 2.6: the portable path")
def test_the_graph_goes_with_the_result():
    z, _, _, tau = problem()
    _, compiled = compiled_cost()
    gc.collect()
    before = len(_whole._graphs)
    result = compiled(z.requires_grad_(), tau)
    assert len(_whole._graphs) == before + 1
    del result
    gc.collect()
    assert len(_whole._graphs) == before


def test_nothing_is_recorded_where_nothing_has_a_gradient():
    z, allowed, k, tau = problem()
    before = len(_whole._graphs)
    _, ticket = torch.ops.khot.whole(z, tau, allowed, k, "scaled_softmax", 2, [False, False])
    assert int(ticket) == 0
    assert len(_whole._graphs) == before


def test_a_lost_graph_is_recorded_again():
    z, allowed, k, tau = problem()
    arguments = (z, tau, allowed, k, "scaled_softmax", 2, [True, True])
    _, ticket = torch.ops.khot.whole(*arguments)
    grad = scores(3, 5, seed=1)
    expected = torch.ops.khot.whole_gradients(grad, ticket, *arguments)
    again = torch.ops.khot.whole_gradients(grad, ticket * 0, *arguments)
    assert len(CALLS) == 2
    for mine, right in zip(again, expected, strict=True):
        torch.testing.assert_close(mine, right)


def test_vmap_and_a_batch_of_gradients_under_compilation():
    z, _, _, tau = problem()

    def row(z: Tensor, tau: Tensor) -> Tensor:
        one = torch.ones(1, dtype=torch.float64)
        return weights(z, torch.ones(5, dtype=torch.bool), one, 2, tau)

    torch.compiler.reset()
    batched = torch.compile(lambda z, tau: torch.vmap(row)(z, tau), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(batched(z, tau), torch.vmap(row)(z, tau))
    jacobian = torch.compile(
        lambda z, tau: torch.func.jacrev(row)(z, tau), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(jacobian(z[0], tau[0]), torch.func.jacrev(row)(z[0], tau[0]))
