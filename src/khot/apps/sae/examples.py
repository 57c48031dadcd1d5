"""Where latents are most active, and how often: what a reader looks at to see what they mean."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from khot.apps.sae.activations import ActivationStore
from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = ["LatentExamples", "latent_density", "top_examples"]

_AT_ONCE = 4096


class LatentExamples(NamedTuple):
    """A latent, the rows of a store where it is most active, best first, and its activations there."""

    latent: int
    rows: list[int]
    acts: list[float]


@torch.no_grad()
def latent_density(autoencoder: SparseAutoencoder, store: ActivationStore, rows: int = 20_000) -> Tensor:
    """On which share of the tokens each latent is active, (num_latents,), from the first ``rows`` of a
    store."""
    fired = torch.zeros(autoencoder.num_latents, dtype=torch.int64)
    count = min(rows, len(store))
    for start in range(0, count, _AT_ONCE):
        acts, indices = autoencoder.encode(store.read(range(start, min(start + _AT_ONCE, count))))
        fired += torch.bincount(indices[acts > 0], minlength=autoencoder.num_latents)
    return fired / max(count, 1)


@torch.no_grad()
def top_examples(
    autoencoder: SparseAutoencoder,
    store: ActivationStore,
    latents: list[int],
    *,
    count: int = 8,
    rows: int = 50_000,
) -> list[LatentExamples]:
    """The rows on which these latents are most active.

    Args:
        autoencoder: in evaluation mode.
        store: its first ``rows`` are looked at.
        latents: which.
        count: how many rows of each.
        rows: how many are looked at.

    Returns:
        One :class:`LatentExamples` for each latent; those that are never active have no rows.
    """
    wrong = [latent for latent in latents if not 0 <= latent < autoencoder.num_latents]
    if wrong:
        raise ValueError(
            f"top_examples: latents must be in 0 … {autoencoder.num_latents - 1}, got {wrong[0]}"
        )
    which = torch.tensor(latents, dtype=torch.int64)
    best = torch.zeros(len(latents), 0)
    places = torch.zeros(len(latents), 0, dtype=torch.int64)
    last = min(rows, len(store))
    for start in range(0, last, _AT_ONCE):
        acts, indices = autoencoder.encode(store.read(range(start, min(start + _AT_ONCE, last))))
        found = torch.stack([torch.where(indices == latent, acts, 0).sum(-1) for latent in which])
        here = torch.arange(start, start + found.shape[1]).expand_as(found)
        best, places = torch.cat([best, found.float()], 1), torch.cat([places, here], 1)
        best, order = best.topk(min(count, best.shape[1]), dim=1)
        places = places.gather(1, order)
    return [
        LatentExamples(
            latent,
            [int(r) for r, a in zip(rs, acts, strict=True) if a > 0],
            [float(a) for a in acts if a > 0],
        )
        for latent, rs, acts in zip(latents, places, best, strict=True)
    ]
