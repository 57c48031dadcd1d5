"""The first 20 steps of training in float64, shared by two processes, are those of one process."""

import copy

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from khot.apps.moe import Experts, MoE, TopKRouter, load_balance_loss
from khot.apps.sae import SparseAutoencoder
from khot.apps.sparse import DropAndGrow, sparsification_of, sparsify
from khot.vision import NetworkConfig, from_config

STEPS, BATCH = 20, 16


class Routed(nn.Module):
    """A mixture of experts between two linear layers, with a global balance loss."""

    def __init__(self, everywhere):
        super().__init__()
        self.everywhere = everywhere
        self.layer = MoE(TopKRouter(8, 4, 2), Experts(4, hidden=8, width=16))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        routing = self.layer.router(x)
        kind = "global" if self.everywhere else "switch"
        balance = load_balance_loss(routing.logits, routing.indices, kind)
        return self.head(self.layer(x)), balance


def vision(everywhere):
    config = NetworkConfig(
        image_size=8,
        patch_size=2,
        channels=1,
        classes=3,
        width=8,
        heads=2,
        depth=2,
        k=6,
    )
    return from_config(config)


def autoencoder(everywhere):
    model = SparseAutoencoder(8, 32, 4, "batch_topk")
    model.global_batch = everywhere
    return model


def sparse(everywhere):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    sparsify(model, density=0.3, scope="global")
    return model


def grown(everywhere):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    sparsify(model, density=0.3, update=DropAndGrow(0.3, until=STEPS), every=4)
    return model


def vision_loss(model, x, y):
    return functional.cross_entropy(model(x), y)


def routed_loss(model, x, y):
    out, balance = model(x)
    return functional.cross_entropy(out, y) + 0.1 * balance


def autoencoder_loss(model, x, y):
    return (model(x).sae_out - x).square().mean()


TASKS = {
    "vision": (vision, vision_loss, (1, 8, 8)),
    "mixture": (Routed, routed_loss, (8,)),
    "autoencoder": (autoencoder, autoencoder_loss, (8,)),
    "sparse": (sparse, vision_loss, (8,)),
    "grown": (grown, vision_loss, (8,)),
}


def trained(model, loss_of, data, share, masks):
    """Losses of the steps; ``share`` takes a process's part of a batch, ``masks`` are chosen after each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        x, y = (share(t[step]) for t in data)
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        if masks is not None:
            masks.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def compare(task, wrap, rank, size):
    make, loss_of, shape = TASKS[task]
    torch.manual_seed(0)
    one = make(False).double()
    torch.manual_seed(0)
    mine = make(True).double()
    mine.load_state_dict(copy.deepcopy(one.state_dict()))
    generator = torch.Generator().manual_seed(1)
    data = (
        torch.randn(STEPS, BATCH, *shape, dtype=torch.float64, generator=generator),
        torch.randint(0, 3, (STEPS, BATCH), generator=generator),
    )
    masks = [sparsification_of(model) if task in ("sparse", "grown") else None for model in (one, mine)]
    losses = trained(one, loss_of, data, lambda t: t, masks[0])
    shared = wrap(mine)
    my_losses = trained(shared, loss_of, data, lambda t: t.chunk(size)[rank], masks[1])
    torch.distributed.all_reduce(my_losses)
    torch.testing.assert_close(my_losses / size, losses, atol=1e-5, rtol=1e-5)
    for (name, a), b in zip(one.named_parameters(), mine.parameters(), strict=True):
        torch.testing.assert_close(
            whole(b.detach()), a.detach(), atol=1e-5, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


def sharded(model):
    return fully_shard(model, mesh=init_device_mesh("cpu", (2,)))


def case_ddp_vision(rank, size):
    compare("vision", DistributedDataParallel, rank, size)


def case_ddp_mixture(rank, size):
    compare("mixture", DistributedDataParallel, rank, size)


def case_ddp_autoencoder(rank, size):
    compare("autoencoder", DistributedDataParallel, rank, size)


def case_ddp_sparse(rank, size):
    compare("sparse", DistributedDataParallel, rank, size)


def case_ddp_grown(rank, size):
    compare("grown", DistributedDataParallel, rank, size)


def case_fsdp_vision(rank, size):
    compare("vision", sharded, rank, size)


def case_fsdp_mixture(rank, size):
    compare("mixture", sharded, rank, size)


def case_fsdp_autoencoder(rank, size):
    compare("autoencoder", sharded, rank, size)


def case_fsdp_sparse(rank, size):
    compare("sparse", sharded, rank, size)


def case_fsdp_grown(rank, size):
    compare("grown", sharded, rank, size)
