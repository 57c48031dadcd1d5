"""What processes are asked wrongly, or oddly: each of them must get the same answer, and all go on."""

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import khot
from khot import parallel
from khot.apps.moe import RoutingStatistics, load_balance_loss
from strategies.sharded_cases import METHODS, cut, scores

X = scores(0, 2, 6)
INDICES = torch.tensor([[0, 1], [2, 3]])


def functions():
    """Every public function, as (name, call of scores and k)."""
    for method in METHODS:
        yield f"{method}_topk", lambda x, k, m=method: parallel.topk(x, k, m)
    yield "hard_topk", lambda x, k: parallel.hard_topk(x, k)
    yield "hard=True", lambda x, k: parallel.sigmoid_topk(x, k, hard=True)
    for design in ("systematic", "tree_pivotal"):
        yield f"sample {design}", lambda x, k, d=design: parallel.sample(x, k, design=d)
    yield "batch_topk", lambda x, k: parallel.batch_topk(x, k)


def raises(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def case_another_k_dtype_or_shape(rank, size):
    other = rank == size - 1
    for name, call in functions():
        raises(lambda: call(X, 3 + other), "k must be the same in all processes")  # noqa: B023
        raises(lambda: call(X.float() if other else X, 3), "dtype must be the same|dtype of scores")  # noqa: B023
        wrong = X[:, :4] if name == "batch_topk" else X[:1]
        raises(
            lambda: call(wrong if other else X, 3),  # noqa: B023
            "the length of a row|shape of scores without dim|their shape without dim",
        )
        if name != "batch_topk":  # to which it is one row more, or less
            raises(lambda: call(X[0] if other else X, 3), "in process 0|dimension")  # noqa: B023
        call(X, 3)  # and all go on


def case_one_process_refuses(rank, size):
    other = rank == size - 1
    for name, call in functions():
        raises(lambda: call(X.long() if other else X, 3), "floating-point dtype")  # noqa: B023
        raises(lambda: call(None if other else X, 3), "must be a torch.Tensor|give one of|scores")  # noqa: B023
        raises(lambda: call(X, -1 if other else 3), "k must|must be the same")  # noqa: B023
        for wrong in (None, "a"):
            raises(lambda: call(X, wrong if other else 3), "k must|must be the same|give k")  # noqa: B023
        raises(lambda: call(X, 100), "k must|0 <= k <= n")  # noqa: B023
        assert call(X, 3).shape == X.shape, name
    raises(lambda: parallel.topk(X, 3, "sigmod" if other else "sigmoid"), "method must be 'sigmoid'")
    raises(lambda: parallel.topk(X, 3, **({"norm": 2.0} if other else {})), "has no option norm")
    sharded = distribute_tensor(X, init_device_mesh("cpu", (size,)), [Shard(1)])
    raises(lambda: parallel.topk(sharded, 3, "sigmod" if other else "sigmoid"), "method must be 'sigmoid'")
    parallel.topk(X, 3)


def case_router_statistics(rank, size):
    other = rank == size - 1
    raises(lambda: parallel.expert_loads(INDICES, 4 + other), "num_experts must be the same")
    raises(lambda: parallel.expert_loads(INDICES[:, : 2 - other], 4), "k must be the same")
    raises(lambda: parallel.expert_loads(INDICES + 9 * other, 4), "indices must be in 0")
    raises(lambda: parallel.expert_loads(None if other else INDICES, 4), "indices must be a plain tensor")
    raises(lambda: parallel.expert_loads(INDICES.float() if other else INDICES, 4), "must be integers")
    mask = torch.zeros(2, dtype=torch.bool)
    loads = parallel.expert_loads(INDICES, 4, mask=mask if other else None)
    assert loads.counts.tolist() == [size - 1] * 4
    loads = parallel.expert_loads(INDICES[: 0 if other else 2], 4)  # one has no tokens
    assert (loads.counts.tolist(), loads.tokens) == ([size - 1] * 4, 2 * (size - 1))
    step = RoutingStatistics(4, kind="global").update(INDICES[: 0 if other else 2])
    assert step.tokens == 2 * (size - 1)
    raises(
        lambda: RoutingStatistics(4 + other, kind="global").update(INDICES), "num_experts must be the same"
    )
    raises(lambda: RoutingStatistics(4, kind="global").update(INDICES + 9 * other), "indices must be in")
    logits = torch.zeros(2, 4 + other)
    raises(lambda: load_balance_loss(logits, INDICES, "global"), "experts must be the same")
    raises(lambda: load_balance_loss(torch.zeros(2, 4), INDICES + 9 * other, "global"), "indices must be in")
    assert load_balance_loss(torch.zeros(2, 4), INDICES, "global") == 1


def case_empty_and_masked_out_shards(rank, size):
    """Of every function, with all scores in one process or allowed in one alone."""
    x = scores(3, 3, 12, dtype=torch.float32)
    mine = x if rank == 0 else x[:, :0]
    there = torch.full(x.shape, rank == size - 1)
    for method in METHODS:
        one = khot.topk(x, 4, method)
        torch.testing.assert_close(parallel.topk(mine, 4, method), one[:, : mine.shape[1]], atol=1e-6, rtol=0)
        masked = parallel.topk(x, 4, method, mask=there)
        torch.testing.assert_close(masked, one * there, atol=1e-6, rtol=0)
    one = khot.hard_topk(x, 4)
    assert torch.equal(parallel.hard_topk(mine, 4), one[:, : mine.shape[1]])
    assert torch.equal(parallel.hard_topk(x, 4, mask=there), one * there)
    for design in ("systematic", "tree_pivotal"):
        draws = [
            parallel.sample(mine, 4, design=design, sample_shape=(7,)).sum(-1),
            parallel.sample(x, 4, design=design, mask=there, sample_shape=(7,)).sum(-1),
        ]
        assert (draws[0] == 4 * (rank == 0)).all()
        assert (draws[1] == 4 * (rank == size - 1)).all()
    rows = x if rank == 0 else x[:0]
    assert torch.equal(parallel.batch_topk(rows, 2), khot.hard_topk(x.flatten(), 6).view(3, 12)[: len(rows)])
    chosen = parallel.batch_topk(x, 2, mask=there)  # 6 of each process together, all of them here
    assert torch.equal(chosen, khot.hard_topk(x.flatten(), 6 * size).view(3, 12) * there)


def case_odd_arguments(rank, size):
    n = 6 * size
    for k in (0, n):
        for method in METHODS:
            assert torch.equal(parallel.topk(X, k, method), torch.full_like(X, k > 0))
        assert torch.equal(parallel.hard_topk(X, k), torch.full_like(X, k > 0))
        assert torch.equal(parallel.sample(X, k), torch.full_like(X, k > 0))
    half = X.bfloat16()
    y = parallel.sigmoid_topk(half.requires_grad_(), 3)
    y.sum().backward()
    assert (y.dtype, half.grad.dtype) == (torch.bfloat16, torch.bfloat16)
    assert parallel.hard_topk(X.bfloat16(), 3).dtype == torch.bfloat16
    with torch.no_grad():
        assert not parallel.sigmoid_topk(X.clone().requires_grad_(), 3).requires_grad
    part = X.clone().requires_grad_(rank == 0)
    raises(lambda: parallel.sigmoid_topk(part, 3), "what has a gradient .* must be the same")
    with torch.inference_mode():
        parallel.sparse_topk(X, 3)
    first = X.transpose(0, 1)
    assert torch.equal(parallel.sigmoid_topk(first, 3, dim=0), parallel.sigmoid_topk(X, 3).transpose(0, 1))
    mesh = init_device_mesh("cpu", (size,))
    whole = distribute_tensor(X, mesh, [Replicate()]).requires_grad_()
    parallel.sigmoid_topk(whole, 2).to_local().square().sum().backward()
    alone = X.clone().requires_grad_()
    khot.sigmoid_topk(alone, 2).square().sum().backward()
    torch.testing.assert_close(whole.grad.full_tensor(), alone.grad)
    sharded = distribute_tensor(X, mesh, [Shard(1)])
    raises(
        lambda: parallel.sigmoid_topk(sharded, 3, group=torch.distributed.group.WORLD), "group must be None"
    )
    raises(lambda: parallel.batch_topk(sharded, 3), "DTensor")


def case_compiled(rank, size):
    """The call stays outside the graph; values and gradients are those of the eager one."""
    x = scores(1, 3, 24)
    mine, weight = (cut(t, rank, size) for t in (x, scores(2, 3, 24)))

    def loss(x, k, temperature):
        y = parallel.topk(x * 2, k, "laplace", temperature=temperature)
        with torch.no_grad():
            hard = parallel.hard_topk(x, 5)
        return (y.sin() * hard * weight).sum()

    compiled = torch.compile(loss, backend="aot_eager")
    found = []
    for call in (loss, compiled, compiled):
        inputs = [t.clone().requires_grad_() for t in (mine, torch.tensor(3.5), torch.tensor(0.7))]
        value = call(*inputs)
        value.backward()
        found.append([value.detach(), *(t.grad for t in inputs)])
    for one in found[1:]:
        torch.testing.assert_close(one, found[0])
    draw = torch.compile(lambda x: parallel.sample(x, 3) + 1, backend="aot_eager")
    assert draw(mine).shape == mine.shape
    assert torch.equal(
        torch.compile(lambda x: parallel.batch_topk(x, 3) + 1, backend="aot_eager")(X),
        parallel.batch_topk(X, 3) + 1,
    )
