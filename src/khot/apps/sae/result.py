"""The results of a sparse autoencoder."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["Latents", "Reconstruction"]


class Latents(NamedTuple):
    """The active latents of each token: ``acts`` and ``indices``, both (…, K).

    If each token has k active latents, K = k. Otherwise K is the largest number of a token; the remaining
    places of other tokens have activation 0 and an index that is still valid.

    Example:
        >>> import torch
        >>> from khot.apps.sae import SparseAutoencoder
        >>> latents = SparseAutoencoder(8, 16, 2).encode(torch.randn(5, 8))
        >>> latents.acts.shape, latents.indices.shape
        (torch.Size([5, 2]), torch.Size([5, 2]))
    """

    acts: Tensor
    indices: Tensor


class Reconstruction(NamedTuple):
    """The result of :class:`khot.apps.sae.SparseAutoencoder`: the six fields of sparsify, and two more.

    ``sae_out`` (…, d_out) is the reconstruction; ``latent_acts`` and ``latent_indices`` (…, K), see
    :class:`Latents`; ``fvu`` is the fraction of variance unexplained; ``auxk_loss`` and ``multi_topk_fvu``
    are 0 if they were not requested; ``l0`` is the mean number of active latents per token; ``prefix_fvu`` is
    the mean error of the shorter prefixes of a Matryoshka autoencoder.

    Example:
        >>> import torch
        >>> from khot.apps.sae import SparseAutoencoder
        >>> result = SparseAutoencoder(8, 16, 2)(torch.randn(5, 8))
        >>> result.sae_out.shape, torch.equal(result.loss(), result.fvu)  # no other loss was requested
        (torch.Size([5, 8]), True)
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
        """The loss to minimise: ``fvu`` plus the other losses with these weights."""
        return self.fvu + auxk * self.auxk_loss + multi_topk * self.multi_topk_fvu + prefix * self.prefix_fvu
