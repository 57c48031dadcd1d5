"""Sides that train a sparse autoencoder of a given number of latents, forward alone or a whole step.

Forward is encoding, selecting and decoding. Forward+backward is a whole training step on its own
parameters: these, the loss, its gradients in all parameters, and Adam (with a learning rate of 0, so that
every call computes the same).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

import khot
from khot.apps.sae import SparseAutoencoder
from khot.compare.cost.side import Side

__all__ = ["dense", "entries", "hard_entries", "unsorted_topk"]

_ACTIVATIONS = {"topk": "TopK", "batch_topk": "BatchTopK", "sigmoid_topk": "sigmoid top-k, soft"}


class _Dense(nn.Module):
    """TopK with dense latents, as SAELens computes it."""

    def __init__(self, d: int, latents: int) -> None:
        super().__init__()
        like = SparseAutoencoder(d, latents, 1)
        self.encoder, self.b_enc = (
            nn.Parameter(like.W_enc.detach().T.clone()),
            nn.Parameter(like.b_enc.detach()),
        )
        self.decoder, self.b_dec = nn.Parameter(like.W_dec.detach()), nn.Parameter(like.b_dec.detach())

    def forward(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        pre = (x - self.b_dec) @ self.encoder + self.b_enc
        best = pre.topk(k, dim=-1, sorted=False)
        values = best.values.relu()
        latents = torch.zeros_like(pre).scatter_(-1, best.indices, values)
        return latents @ self.decoder + self.b_dec, values


def _stepping(
    make: Callable[[int, int], nn.Module], run: Callable[[nn.Module, Tensor, int], tuple[Tensor, Tensor]]
):
    @functools.lru_cache(maxsize=2)
    def made(d: int, k: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(2)  # pyright: ignore[reportUnknownMemberType]
        module = make(d, k)
        return module, torch.optim.Adam(module.parameters(), lr=0.0, fused=True)

    def call(x: Tensor, k: int) -> Tensor:
        module, optimizer = made(x.shape[-1], k)
        rows = x.detach()
        if not x.requires_grad:
            with torch.no_grad():
                return run(module, rows, k)[1]
        optimizer.zero_grad()
        out, values = run(module, rows, k)
        (out - rows).square().sum().backward()  # pyright: ignore[reportUnknownMemberType]
        optimizer.step()  # pyright: ignore[reportUnknownMemberType]
        return (
            values.detach() + 0 * x[..., :k]
        )  # the step is done: what is left for the gradient costs nothing

    return call


def dense(latents: str) -> Side:
    """The dense step of torch operations."""
    call = _stepping(lambda d, k: _Dense(d, int(latents)), lambda module, x, k: module(x, k))
    return Side("dense torch step", "torch", torch.__version__, call, "torch", "values")


def entries(choice: str) -> Side:
    """`SparseAutoencoder`, by `activation/latents`."""
    activation, _, latents = choice.partition("/")

    def make(d: int, k: int) -> nn.Module:
        return SparseAutoencoder(d, int(latents), k, activation)  # pyright: ignore[reportArgumentType]

    def run(module: nn.Module, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        result = module(x)
        return result.sae_out, _first(result.latent_acts, k)

    return Side(
        f"khot {_ACTIVATIONS[activation]}", "khot", khot.__version__, _stepping(make, run), "khot", "values"
    )


def _first(acts: Tensor, k: int) -> Tensor:
    """Exactly k columns: what tables check is a form."""
    return nn.functional.pad(acts[:, :k], (0, max(k - acts.shape[1], 0)))


def hard_entries() -> Side:
    """`khot.topk_entries(…, hard=True)`: values and indices, best first."""

    def call(x: Tensor, k: int) -> Tensor:
        return khot.topk_entries(x, k, hard=True).values

    return Side("khot.topk_entries", "khot", khot.__version__, call, "khot", "values")


def unsorted_topk() -> Side:
    """`torch.topk(…, sorted=False)`, as autoencoders call it."""

    def call(x: Tensor, k: int) -> Tensor:
        return torch.topk(x, k, sorted=False).values

    return Side("torch.topk, unsorted", "torch", torch.__version__, call, "torch", "values")
