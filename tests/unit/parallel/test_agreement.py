"""A mistake in one process is an error in all of them, which says what and where."""

import pytest
import torch

from khot import parallel
from strategies.thread_group import in_threads

X = torch.randn(2, 12, generator=torch.Generator().manual_seed(0))


def errors(call):
    """What a call raises in each of two processes, which it is told."""
    found = in_threads(2, lambda group: call(X.split([5, 7], -1)[group.rank], group))
    assert all(isinstance(each, Exception) for each in found), found
    return [f"{type(each).__name__}: {each}" for each in found]


def other(group, one, two):
    return two if group.rank else one


def sigmoid(x, group, k=3, **options):
    return parallel.sigmoid_topk(x, k, group=group, **options)


DIFFERENT = {
    "k must be the same in all processes, got 3 in process 0, 4 in process 1": lambda x, g: sigmoid(
        x, g, other(g, 3, 4)
    ),
    "the dtype of scores must be the same in all processes, got torch.float32 in process 0": lambda x, g: (
        sigmoid(x.to(other(g, torch.float32, torch.float64)), g)
    ),
    "the shape of scores without dim must be the same in all processes, got (1,) in process 0, (2,)": (
        lambda x, g: sigmoid(x[: other(g, 1, 2)], g)
    ),
    "temperature must be the same in all processes, got 1.0 in process 0, 0.5": lambda x, g: sigmoid(
        x, g, temperature=other(g, 1.0, 0.5)
    ),
    "function must be the same in all processes, got sigmoid_topk in process 0, laplace_topk": lambda x, g: (
        parallel.topk(x, 3, other(g, "sigmoid", "laplace"), group=g)
    ),
    "k must be the same in all processes, got [1.0, 2.0] in process 0, [1.0, 3.0]": lambda x, g: sigmoid(
        x, g, torch.tensor([1.0, other(g, 2, 3)])
    ),
    "what has a gradient (scores, k, temperature) must be the same": lambda x, g: sigmoid(
        x.clone().requires_grad_(g.rank == 0), g
    ),
    "hard_topk: k must be the same in all processes": lambda x, g: parallel.hard_topk(
        x, other(g, 3, 2), group=g
    ),
    "batch_topk: the length of a row must be the same in all processes, got 5 in process 0, 4": (
        lambda x, g: parallel.batch_topk(x[:, : other(g, 5, 4)], 2, group=g)
    ),
    "sample: the state of generator must be the same in all processes": lambda x, g: parallel.sample(
        x, 3, generator=torch.Generator().manual_seed(g.rank), group=g
    ),
    "k must satisfy 0 <= k <= n = 12 (scores.shape = (2, 12), dim = 1), got k = 13": lambda x, g: sigmoid(
        x, g, 13
    ),
    "k must be an integer here, got k = 2.5": lambda x, g: parallel.hard_topk(x, 2.5, group=g),
}


@pytest.mark.parametrize("message", DIFFERENT)
def test_what_differs(message):
    for text in errors(DIFFERENT[message]):
        assert text.startswith("ValueError")
        assert message in text


REFUSED = {
    "ValueError: sigmoid_topk: temperature must be positive and finite, got -1.0": lambda x, g: sigmoid(
        x, g, temperature=other(g, 1.0, -1.0)
    ),
    "ValueError: sparse_topk: norm must be in (1, 2], got 3": lambda x, g: parallel.sparse_topk(
        x, 3, norm=other(g, 2, 3), group=g
    ),
    "ValueError: sigmoid_topk: mask must broadcast to scores.shape = (2, 7)": lambda x, g: sigmoid(
        x, g, mask=other(g, None, torch.ones(3, 1, dtype=torch.bool))
    ),
    "TypeError: sigmoid_topk: scores must have a floating-point dtype": lambda x, g: sigmoid(
        other(g, x, x.long()), g
    ),
    "TypeError: sigmoid_topk: scores must be a torch.Tensor, got NoneType": lambda x, g: sigmoid(
        other(g, x, None), g
    ),
    "ValueError: expert_loads: indices must be in 0 … 3, got 0 … 9": lambda x, g: parallel.expert_loads(
        torch.tensor([[0, other(g, 1, 9)]]), 4, group=g
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_one_process_that_refuses_its_arguments(message):
    first, second = errors(REFUSED[message])
    assert message in second
    assert "process 1 of the group refused its arguments: " in first
    assert message.partition(": ")[2] in first


def test_a_group_that_is_not_there():
    with pytest.raises(ValueError, match="there is no process group; call torch"):
        parallel.sigmoid_topk(X, 3, group=object())
