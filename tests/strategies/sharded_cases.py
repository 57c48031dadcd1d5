"""What processes with gloo are asked: their shards together must be what one process has."""

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import khot
from khot import parallel
from khot.apps.moe import RoutingStatistics
from khot.apps.sae import SparseAutoencoder

METHODS = ("sigmoid", "laplace", "sparse")


def cut(x, rank, size, dim=-1):
    """Uneven shards, and with four processes an empty one."""
    n = x.shape[dim]
    sizes = [n // 6, n - n // 6] if size == 2 else [n // 4, 0, n - n // 4 - 3, 3]
    return x.split(sizes, dim)[rank]


def scores(seed, *shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def results(call, x, k, temperature, grad, **options):
    x, k, temperature = (t.clone().requires_grad_() for t in (x, k, temperature))
    y = call(x, k, temperature=temperature, **options)
    return (y.detach(), *torch.autograd.grad((y * grad).sum(), (x, k, temperature)))


def assert_as_one(rank, size, method, x, k, temperature, mask=None):
    grad = scores(99, *x.shape).to(x.dtype)
    k, temperature = torch.as_tensor(k, dtype=x.dtype), torch.as_tensor(temperature, dtype=x.dtype)
    one = results(khot.topk, x, k, temperature, grad, method=method, mask=mask)
    parts = [cut(t, rank, size) for t in (x, grad)]
    mine = results(
        parallel.topk,
        parts[0],
        k,
        temperature,
        parts[1],
        method=method,
        mask=None if mask is None else cut(mask, rank, size),
    )
    expected = (cut(one[0], rank, size), cut(one[1], rank, size), *one[2:])
    # Gradients in scores are compared with the largest of the row; or 1/τ, where rows are nearly hard.
    least = 1e-12 if temperature >= 0.1 else 1 / temperature.item()
    largest = one[1].abs().amax(-1, keepdim=True).clamp_min(least)
    for name, a, b in zip(("weights", "scores", "k", "temperature"), expected, mine, strict=True):
        unit = largest if name == "scores" else max(1.0, a.abs().max().item() if a.numel() else 1.0)
        if name == "temperature" and x.dtype != torch.float64:
            unit = max(unit, 1 / temperature.item())
        assert ((a - b).abs() <= 1e-6 * unit).all(), (method, k, temperature, name, a, b)


def case_values_and_gradients(rank, size):
    each_row = torch.tensor([1.0, 2.5, 7.0, 30.0])
    for method in METHODS:
        for dtype in (torch.float64, torch.float32):
            x = scores(0, 4, 30, dtype=dtype)
            for k in (0, 1, 2.5, 29.5, 30, each_row) if dtype == torch.float64 else (2.5, 15):
                for temperature in (1.0, 0.01):
                    assert_as_one(rank, size, method, x, k, temperature)


def case_ties_and_infinities(rank, size):
    for method in METHODS:
        x = scores(1, 4, 30).mul(2).round()
        x[0, 3], x[1, :8], x[2, :9], x[3, 4:] = math.inf, -math.inf, math.inf, -math.inf
        for k in (0, 2, 4, 8.5, 15):
            assert_as_one(rank, size, method, x, k, 0.1)


def case_masked_out_shards(rank, size):
    mask = torch.rand(4, 30, generator=torch.Generator().manual_seed(3)) < 0.6
    mask[:, 6:25] = False
    mask[1] = False
    for method in METHODS:
        for k in (0, 2, 5.5):
            assert_as_one(rank, size, method, scores(2, 4, 30), k, 0.5, mask)


def case_a_long_row(rank, size):
    for method in METHODS:
        assert_as_one(rank, size, method, scores(3, 1, 400_000), 4000, 0.3)
        # In float32 one process sums k's and τ's gradient less well: that of float64 is the one to meet.
        x, grad = (scores(seed, 400_000, dtype=torch.float32) for seed in (3, 4))
        mine, one, true = (
            results(call, t, *(torch.tensor(v, dtype=t.dtype) for v in (4000.0, 0.3)), g, method=method)
            for call, t, g in (
                (parallel.topk, cut(x, rank, size), cut(grad, rank, size)),
                (khot.topk, x, grad),
                (khot.topk, x.double(), grad.double()),
            )
        )
        torch.testing.assert_close(mine[0], cut(one[0], rank, size), atol=1e-6, rtol=0)
        largest = one[1].abs().max().item()
        torch.testing.assert_close(mine[1], cut(one[1], rank, size), atol=1e-6 * largest, rtol=0)
        torch.testing.assert_close(mine[2].double(), true[2], atol=1e-6, rtol=0)
        torch.testing.assert_close(mine[3].double(), true[3], atol=0, rtol=1e-5)


def case_hard(rank, size):
    for seed in range(6):
        x = scores(seed, 3, 40, dtype=torch.float32).mul(2).round()
        for k in (0, 1, 13, 40, torch.tensor([2, 40, 0])):
            assert torch.equal(
                parallel.hard_topk(cut(x, rank, size), k), cut(khot.hard_topk(x, k), rank, size)
            )
    x = scores(9, 5_000, dtype=torch.float32).mul(8).round()  # more than are sent as candidates
    assert torch.equal(parallel.hard_topk(cut(x, rank, size), 900), cut(khot.hard_topk(x, 900), rank, size))


def case_samples(rank, size):
    for k in (3, 7.5):
        p = khot.sigmoid_topk(scores(0, 2, 50), k)
        for design in ("systematic", "tree_pivotal"):
            generator = torch.Generator().manual_seed(4)
            mine = parallel.sample(
                probs=cut(p, rank, size), k=k, design=design, sample_shape=(20,), generator=generator
            )
            parts = [None] * size
            dist.all_gather_object(parts, mine)
            # One process alone, in a group of its own.
            alone = [dist.new_group([r]) for r in range(size)][rank]
            generator = torch.Generator().manual_seed(4)
            one = parallel.sample(
                probs=p, k=k, design=design, sample_shape=(20,), generator=generator, group=alone
            )
            assert torch.equal(torch.cat(parts, -1), one)


def case_batch(rank, size):
    x = scores(0, 12, 20, dtype=torch.float32)
    mine = parallel.batch_topk(cut(x, rank, size, 0), 3)
    assert torch.equal(mine, cut(khot.hard_topk(x.flatten(), 36).view(12, 20), rank, size, 0))


def case_autoencoder_with_a_global_batch(rank, size):
    torch.manual_seed(0)
    whole = SparseAutoencoder(8, 32, 4, "batch_topk", dtype=torch.float64)
    shared = SparseAutoencoder(8, 32, 4, "batch_topk", dtype=torch.float64)
    shared.load_state_dict(whole.state_dict())
    shared.global_batch = True
    x = scores(5, 24, 8)
    one = whole(x)
    mine = shared(cut(x, rank, size, 0))
    torch.testing.assert_close(mine.sae_out, cut(one.sae_out, rank, size, 0))
    torch.testing.assert_close(shared.threshold, whole.threshold)


def case_routing_statistics(rank, size):
    first, second = (
        torch.randint(0, 6, (40, 2), generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    alone, together = RoutingStatistics(6), RoutingStatistics(6, kind="global")
    for indices in (first, second):
        one, mine = alone.update(indices), together.update(cut(indices, rank, size, 0))
        assert mine.usage == one.usage
        assert (mine.tokens, mine.idle, mine.dropped) == (one.tokens, one.idle, one.dropped)
    assert math.isclose(mine.overlap, one.overlap)


def case_dtensor_along_the_row(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    x, grad = scores(7, 3, 29), scores(8, 3, 29)
    for method in METHODS:
        one = results(khot.topk, x, torch.tensor(4.0), torch.tensor(0.5), grad, method=method)
        sharded = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
        k = torch.tensor(4.0, requires_grad=True)
        temperature = distribute_tensor(torch.tensor(0.5), mesh, [Replicate()]).requires_grad_()
        y = parallel.topk(sharded, k, method, temperature=temperature)
        assert isinstance(y, DTensor)
        assert y.placements == sharded.placements
        assert y.shape == x.shape
        local = distribute_tensor(grad, mesh, [Shard(1)]).to_local()
        (y.to_local() * local).sum().backward()
        torch.testing.assert_close(y.full_tensor().detach(), one[0], atol=1e-9, rtol=0)
        assert sharded.grad.placements == sharded.placements
        torch.testing.assert_close(sharded.grad.full_tensor(), one[1], atol=1e-6, rtol=0)
        torch.testing.assert_close(k.grad, one[2], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(temperature.grad.full_tensor(), one[3], atol=1e-5, rtol=1e-6)


def case_dtensor_otherwise(rank, size):
    """Replicated, or sharded along another dimension: nothing is exchanged, placements stay."""
    mesh = init_device_mesh("cpu", (size,))
    x = scores(7, 6, 9)
    one = khot.sigmoid_topk(x, 3)
    for placement in (Replicate(), Shard(0)):
        y = parallel.sigmoid_topk(distribute_tensor(x, mesh, [placement]), 3)
        assert y.placements == (placement,)
        torch.testing.assert_close(y.full_tensor(), one)
    hard = parallel.hard_topk(distribute_tensor(x, mesh, [Shard(1)]), 3)
    assert torch.equal(hard.full_tensor(), khot.hard_topk(x, 3))
    drawn = parallel.sample(distribute_tensor(x, mesh, [Shard(1)]), 3, sample_shape=(4,))
    assert drawn.placements == (Shard(2),)
    assert drawn.full_tensor().sum(-1).tolist() == [[3.0] * 6] * 4
    mask = torch.rand(6, 9, generator=torch.Generator().manual_seed(0)) < 0.7
    sharded, allowed = (distribute_tensor(t, mesh, [Shard(1)]) for t in (x, mask))
    masked = parallel.sigmoid_topk(sharded, 2, mask=allowed)
    torch.testing.assert_close(masked.full_tensor(), khot.sigmoid_topk(x, 2, mask=mask))
    partial = DTensor.from_local(x, mesh, [Partial()], run_check=False)
    with pytest.raises(ValueError, match="must be Shard or Replicate"):
        parallel.sigmoid_topk(partial, 3)


def case_a_mesh_of_two_dimensions(rank, size):
    if size != 4:
        return
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    x, grad = scores(7, 4, 10), scores(8, 4, 10)
    k = torch.tensor([1.0, 2.0, 3.5, 4.0])
    one = results(khot.sigmoid_topk, x, k, torch.tensor(0.5), grad)
    placements = [Shard(0), Shard(1)]
    sharded = distribute_tensor(x, mesh, placements).requires_grad_()
    budget = distribute_tensor(k, mesh, [Shard(0), Replicate()]).requires_grad_()
    temperature = distribute_tensor(torch.tensor(0.5), mesh, [Replicate(), Replicate()]).requires_grad_()
    y = parallel.sigmoid_topk(sharded, budget, temperature=temperature)
    (y.to_local() * distribute_tensor(grad, mesh, placements).to_local()).sum().backward()
    torch.testing.assert_close(y.full_tensor().detach(), one[0], atol=1e-9, rtol=0)
    torch.testing.assert_close(sharded.grad.full_tensor(), one[1], atol=1e-6, rtol=0)
    torch.testing.assert_close(budget.grad.full_tensor(), one[2], atol=1e-6, rtol=0)
    torch.testing.assert_close(temperature.grad.full_tensor(), one[3], atol=1e-5, rtol=0)


def case_errors_in_every_process(rank, size):
    x = scores(0, 2, 6)
    wrong = [
        (lambda: parallel.sigmoid_topk(x, 3 + (rank == 1)), "k must be the same in all processes"),
        (
            lambda: parallel.sigmoid_topk(x.to(torch.float32 if rank else torch.float64), 3),
            "the dtype of scores",
        ),
        (lambda: parallel.sigmoid_topk(x[: 1 + (rank == 0)], 3), "the shape of scores without dim"),
        (lambda: parallel.hard_topk(x, 7 * size), "k must satisfy 0 <= k <= n"),
        (lambda: parallel.sigmoid_topk(x, 3, temperature=-1.0 if rank == 1 else 1.0), "positive and finite"),
    ]
    for call, message in wrong:
        with pytest.raises(ValueError, match=message):
            call()
    parallel.sigmoid_topk(x, 3)  # and all go on


def case_numbers_for_heads(rank, size):
    """A DTensor k or temperature with fewer dimensions than the rows is aligned from the right."""
    mesh = init_device_mesh("cpu", (size,))
    x, grad = scores(5, 4, 2, 10), scores(6, 4, 2, 10)
    numbers = [torch.tensor([1.0, 5.0], dtype=torch.float64), torch.tensor([0.5, 2.0], dtype=torch.float64)]
    own = [number.clone().requires_grad_() for number in numbers]
    khot.sigmoid_topk(x, own[0], temperature=own[1]).backward(grad)
    expected = khot.sigmoid_topk(x, numbers[0], temperature=numbers[1])
    for dim in (0, 1, 2):
        k, temperature = (distribute_tensor(n.clone(), mesh, [Replicate()]).requires_grad_() for n in numbers)
        y = parallel.sigmoid_topk(distribute_tensor(x, mesh, [Shard(dim)]), k, temperature=temperature)
        torch.testing.assert_close(y.full_tensor(), expected, rtol=0, atol=1e-6)
        y.backward(distribute_tensor(grad, mesh, [Shard(dim)]))
        for given, wanted in zip((k, temperature), own, strict=True):
            torch.testing.assert_close(given.grad.full_tensor(), wanted.grad, rtol=1e-6, atol=1e-6)
