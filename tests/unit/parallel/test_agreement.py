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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, g: parallel.sigmoid_topk(x, other(g, 3, 4), group=g), "k must be the same in all processes, got 3 in process 0, 4 in process 1"),
        (lambda x, g: parallel.sigmoid_topk(x.to(other(g, torch.float32, torch.float64)), 3, group=g), "the dtype of scores must be the same in all processes, got torch.float32 in process 0"),
        (lambda x, g: parallel.sigmoid_topk(x[: other(g, 1, 2)], 3, group=g), "the shape of scores without dim must be the same in all processes, got (1,) in process 0, (2,)"),
        (lambda x, g: parallel.sigmoid_topk(x, 3, temperature=other(g, 1.0, 0.5), group=g), "temperature must be the same in all processes, got 1.0 in process 0, 0.5"),
        (lambda x, g: parallel.topk(x, 3, other(g, "sigmoid", "laplace"), group=g), "function must be the same in all processes, got sigmoid_topk in process 0, laplace_topk"),
        (lambda x, g: parallel.sigmoid_topk(x, torch.tensor([1.0, other(g, 2, 3)]), group=g), "k must be the same in all processes, got [1.0, 2.0] in process 0, [1.0, 3.0]"),
        (lambda x, g: parallel.sigmoid_topk(x.requires_grad_(g.rank == 0), 3, group=g), "what has a gradient (scores, k, temperature) must be the same"),
        (lambda x, g: parallel.hard_topk(x, other(g, 3, 2), group=g), "hard_topk: k must be the same in all processes"),
        (lambda x, g: parallel.batch_topk(x[:, : other(g, 5, 4)], 2, group=g), "batch_topk: the length of a row must be the same in all processes, got 5 in process 0, 4"),
        (lambda x, g: parallel.sample(x, 3, generator=torch.Generator().manual_seed(g.rank), group=g), "sample: the state of generator must be the same in all processes"),
        (lambda x, g: parallel.sigmoid_topk(x, 13, group=g), "k must satisfy 0 <= k <= n = 12 (scores.shape = (2, 12), dim = 1), got k = 13"),
        (lambda x, g: parallel.hard_topk(x, 2.5, group=g), "k must be an integer here, got k = 2.5"),
    ],
)  # fmt: skip
def test_what_differs(call, message):
    for text in errors(call):
        assert text.startswith("ValueError")
        assert message in text


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x, g: parallel.sigmoid_topk(x, 3, temperature=other(g, 1.0, -1.0), group=g), "ValueError", "temperature must be positive and finite, got -1.0"),
        (lambda x, g: parallel.sparse_topk(x, 3, norm=other(g, 2, 3), group=g), "ValueError", "norm must be in (1, 2], got 3"),
        (lambda x, g: parallel.sigmoid_topk(x, 3, mask=other(g, None, torch.ones(3, 1, dtype=torch.bool)), group=g), "ValueError", "mask must broadcast to scores.shape = (2, 7)"),
        (lambda x, g: parallel.sigmoid_topk(other(g, x, x.long()), 3, group=g), "TypeError", "scores must have a floating-point dtype"),
        (lambda x, g: parallel.sigmoid_topk(other(g, x, None), 3, group=g), "TypeError", "scores must be a torch.Tensor, got NoneType"),
        (lambda x, g: parallel.expert_loads(torch.tensor([[0, other(g, 1, 9)]]), 4, group=g), "ValueError", "indices must be in 0 … 3, got 0 … 9"),
    ],
)  # fmt: skip
def test_one_process_that_refuses_its_arguments(call, kind, message):
    first, second = errors(call)
    assert second.startswith(kind)
    assert message in second
    assert "process 1 of the group refused its arguments: " in first
    assert message in first


def test_a_group_that_is_not_there():
    with pytest.raises(
        ValueError, match="there is no process group; call torch.distributed.init_process_group"
    ):
        parallel.sigmoid_topk(X, 3, group=object())
