"""What a sparse autoencoder gives."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["Latents", "Reconstruction"]


class Latents(NamedTuple):
    """The active latents of each token: ``acts`` and ``indices``, both (…, K).

    K is k where each token has k; else the largest number of a token, and the places left over have
    activation 0 and an index that is valid all the same.
    """

    acts: Tensor
    indices: Tensor


class Reconstruction(NamedTuple):
    """What :class:`khot.apps.sae.SparseAutoencoder` gives: the six fields of sparsify, and two more.

    ``sae_out`` (…, d_out); ``latent_acts`` and ``latent_indices`` (…, K), see :class:`Latents`; ``fvu``,
    the fraction of variance unexplained; ``auxk_loss`` and ``multi_topk_fvu``, 0 where they were not asked
    for; ``l0``, how many latents a token has active in the mean; ``prefix_fvu``, the mean over the shorter
    prefixes of a Matryoshka autoencoder.
    """

    sae_out: Tensor
    latent_acts: Tensor
    latent_indices: Tensor
    fvu: Tensor
    auxk_loss: Tensor
    multi_topk_fvu: Tensor
    l0: Tensor
    prefix_fvu: Tensor

    def loss(self, *, auxk: float = 1 / 32, multi_topk: float = 1 / 8, prefix: float = 1.0) -> Tensor:
        """What to minimise: ``fvu`` and, with these weights, the other losses."""
        return self.fvu + auxk * self.auxk_loss + multi_topk * self.multi_topk_fvu + prefix * self.prefix_fvu
