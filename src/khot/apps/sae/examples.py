"""Where latents are most active, and how often: for interpreting them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from khot.apps.sae.activations import ActivationStore
from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = ["LatentExamples", "latent_density", "top_examples"]

_AT_ONCE = 4096


class LatentExamples(NamedTuple):
    """The result of :func:`top_examples` for one latent.

    ``latent`` is its index, ``rows`` the rows of the store where it is most active, best first, and ``acts``
    its activations there.

    Example:
        >>> examples = LatentExamples(latent=3, rows=[17, 4], acts=[2.5, 1.0])
        >>> examples.rows[0]
        17
    """

    latent: int
    rows: list[int]
    acts: list[float]


@torch.no_grad()
def latent_density(autoencoder: SparseAutoencoder, store: ActivationStore, rows: int = 20_000) -> Tensor:
    """The share of tokens on which each latent is active.

    Cost: one encoding of the rows.

    Args:
        autoencoder: the autoencoder, in evaluation mode.
        store: the activations.
        rows: use this many rows, from the first.

    Returns:
        Shares in [0, 1], shape (num_latents,).

    Example:
        >>> import tempfile
        >>> from khot.apps.sae import collect_activations
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8))
        >>> store = collect_activations(network, "0", torch.randn(5, 20, 4), tempfile.mkdtemp())
        >>> latent_density(SparseAutoencoder(8, 16, 2).eval(), store).shape
        torch.Size([16])
    """
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
    """The rows on which given latents are most active.

    Cost: one encoding of the rows.

    Args:
        autoencoder: the autoencoder, in evaluation mode.
        store: the activations.
        latents: the indices of the latents.
        count: how many rows to return for each latent.
        rows: search this many rows, from the first.

    Returns:
        One :class:`LatentExamples` for each latent; a latent that is never active has no rows.

    Example:
        >>> import tempfile
        >>> from khot.apps.sae import collect_activations
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8))
        >>> store = collect_activations(network, "0", torch.randn(5, 20, 4), tempfile.mkdtemp())
        >>> first, second = top_examples(SparseAutoencoder(8, 16, 2).eval(), store, [0, 3], count=2)
        >>> first.latent, second.latent, len(second.rows) <= 2
        (0, 3, True)
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
