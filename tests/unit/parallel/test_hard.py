"""The k largest of rows that several processes hold are those of one process, ties and all."""

import math

import pytest
import torch

import khot
from khot import parallel
from khot.parallel._hard import hard_shards
from khot.parallel._shards import as_shards
from strategies.thread_group import in_threads, unwrapped

CUTS = ([5, 25], [7, 0, 20, 3])


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("most_candidates", [512, 0])
def test_as_one_process_by_candidates_and_by_counting(cut, most_candidates):
    generator = torch.Generator().manual_seed(0)
    for trial in range(12):
        x = torch.randn(4, 30, generator=generator).mul(2).round()
        if trial % 3 == 0:
            x[0, 2:5], x[1, :4], x[2, 5:], x[3, 20:] = math.nan, math.inf, -math.inf, math.nan
            x[3, :5] = math.inf
        k = (0, 1, 5, 17, 30, torch.tensor([1, 2, 8, 30]))[trial % 6]

        def work(group, x=x, k=k):
            part = x.split(cut, -1)[group.rank]
            shards = as_shards("hard_topk", group, part, k, 1.0, -1, None, True, integer=True)
            return hard_shards(shards, group, most_candidates)

        assert torch.equal(torch.cat(unwrapped(in_threads(len(cut), work)), -1), khot.hard_topk(x, k)), (x, k)


def test_minus_zero_ties_with_zero():
    x = torch.tensor([0.0, -0.0, 0.0, -0.0, 1.0, -1.0])

    def work(group):
        shards = as_shards("hard_topk", group, x.chunk(3)[group.rank], 3, 1.0, -1, None, True, integer=True)
        return hard_shards(shards, group, 0)

    assert torch.equal(torch.cat(unwrapped(in_threads(3, work)), -1)[0], khot.hard_topk(x, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_whole_range_of_a_type(dtype):
    """Numbers of the order of floats span more than an integer of their size has."""
    info = torch.finfo(dtype)
    x = torch.tensor([info.max, -info.max, info.tiny, -info.tiny, 0.0, 1.0, -1.0, info.max / 2], dtype=dtype)

    def work(group, k):
        shards = as_shards("hard_topk", group, x.chunk(2)[group.rank], k, 1.0, -1, None, True, integer=True)
        return hard_shards(shards, group, 0)

    for k in range(9):
        parts = unwrapped(in_threads(2, lambda group, k=k: work(group, k)))
        assert torch.equal(torch.cat(parts, -1)[0], khot.hard_topk(x, k))


def test_a_mask_the_smallest_and_another_dimension():
    x = torch.randn(3, 24, 2, generator=torch.Generator().manual_seed(0))
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.5

    def work(group):
        part, allowed = (t.split([20, 4], 1)[group.rank] for t in (x, mask))
        return parallel.hard_topk(part, 6, dim=1, mask=allowed, largest=False, group=group)

    one = khot.hard_topk(x, 6, dim=1, mask=mask, largest=False)
    assert torch.equal(torch.cat(unwrapped(in_threads(2, work)), 1), one)


def test_a_global_batch():
    x = torch.randn(9, 20, generator=torch.Generator().manual_seed(0)).mul(3).round()
    cut = [4, 0, 5]

    def work(group):
        return parallel.batch_topk(x.split(cut)[group.rank], 3, group=group)

    y = torch.cat(unwrapped(in_threads(3, work)))
    assert torch.equal(y, khot.hard_topk(x.flatten(), 27).view(9, 20))
    assert y.sum(-1).unique().numel() > 1  # rows have different numbers


def test_expert_loads():
    indices = torch.randint(0, 6, (30, 2), generator=torch.Generator().manual_seed(0))
    real = torch.rand(30, generator=torch.Generator().manual_seed(1)) < 0.7

    def work(group):
        mine, mask = (t.split([10, 20])[group.rank] for t in (indices, real))
        return parallel.expert_loads(mine, 6, mask=mask, group=group)

    for loads in unwrapped(in_threads(2, work)):
        assert torch.equal(loads.counts, torch.bincount(indices[real].flatten(), minlength=6))
        assert loads.tokens == int(real.sum())
        assert 0.5 < loads.entropy <= 1


def test_wrong_arguments_of_expert_loads():
    indices = torch.zeros(2, 1, dtype=torch.int64)
    for call, message in (
        (
            lambda: parallel.expert_loads(indices, 4, mask=[True, True]),
            "mask must be a torch.Tensor, got list",
        ),
        (lambda: parallel.expert_loads(indices, True), "num_experts must be an integer, got True"),
        (lambda: parallel.expert_loads([[0]], 4), "indices must be a plain tensor, got list"),
    ):
        with pytest.raises(TypeError, match=f"expert_loads: {message}"):
            call()
