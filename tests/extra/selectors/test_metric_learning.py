"""NeighborLoss in the place of a loss of pytorch-metric-learning: with its miners and its memory."""

import pytest
import torch

pytest.importorskip("pytorch_metric_learning")

from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu

from khot.apps.neighbors import NeighborLoss
from khot_bench.reproduce.neighbor_models import nca_loss


def problem(n=24, d=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, requires_grad=True), torch.arange(n) % 4


MINERS = [
    miners.MultiSimilarityMiner(),
    miners.BatchHardMiner(),
    miners.TripletMarginMiner(margin=0.5, type_of_triplets="all"),
    miners.PairMarginMiner(pos_margin=0.1, neg_margin=1.0),
    miners.BatchEasyHardMiner(),
]


@pytest.mark.parametrize("miner", MINERS, ids=lambda m: type(m).__name__)
def test_what_miners_give(miner):
    x, y = problem()
    mined = miner(x, y)
    value = NeighborLoss(3)(x, y, mined)
    value.backward()
    assert value > 0
    assert x.grad.isfinite().all()
    assert (x.grad != 0).any()


def test_all_pairs_are_no_miner_at_all():
    x, y = problem()
    loss = NeighborLoss(3)
    for convert in (lmu.get_all_pairs_indices, lmu.get_all_triplets_indices):
        torch.testing.assert_close(loss(x, y, convert(y)), loss(x, y))


class Memory(losses.CrossBatchMemory):
    """It asks for the name of the loss."""

    @staticmethod
    def supported_losses():
        return ["NeighborLoss"]


def test_in_a_memory_of_batches():
    loss = NeighborLoss(3)
    memory = Memory(loss, embedding_size=8, memory_size=60)
    x, y = problem()
    # The first batch meets only itself, the second also the first, nobody itself.
    torch.testing.assert_close(memory(x, y), loss(x, y))
    z, _ = problem(seed=1)
    both = torch.cat([z, x])
    found = NeighborLoss(3, reduction="none")(both, y.repeat(2))[:24].mean()
    torch.testing.assert_close(memory(z, y), found)
    memory(z, y).backward()
    assert z.grad.isfinite().all()
    mined = Memory(loss, 8, 60, miner=miners.MultiSimilarityMiner())
    for seed in range(4):
        value = mined(*problem(seed=seed))
    assert value.isfinite()


def test_the_nca_of_the_experiment_is_theirs():
    x, y = problem()
    theirs = losses.NCALoss(softmax_scale=5.0, distance=LpDistance(power=2, normalize_embeddings=False))
    torch.testing.assert_close(nca_loss(x, y, 5.0), theirs(x, y), rtol=1e-4, atol=1e-4)
