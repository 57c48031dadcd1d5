"""The same autoencoder in another form: one threshold instead of k, or inputs that are not standardised."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from khot.apps.sae.thresholds import threshold_for

if TYPE_CHECKING:
    from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = ["as_jumprelu", "fold_standardisation"]


def as_jumprelu(autoencoder: SparseAutoencoder, x: Tensor | None, l0: float | None) -> SparseAutoencoder:
    """See :meth:`khot.apps.sae.SparseAutoencoder.as_jumprelu`."""
    options = autoencoder.options
    if x is not None:
        level = torch.tensor(threshold_for(autoencoder, x, options.k if l0 is None else l0))
    elif autoencoder.threshold is not None and bool((autoencoder.threshold >= 0).all()):
        level = autoencoder.threshold
    else:
        raise ValueError(f"SparseAutoencoder: as_jumprelu needs x, {options.activation} has no threshold yet")
    made = type(autoencoder)(
        options.d_in,
        options.num_latents,
        options.k,
        "jumprelu",
        transcoder=options.transcoder,
        d_out=options.d_out,
        skip=options.skip,
        subtract_b_dec=options.subtract_b_dec,
        normalize_decoder=options.normalize_decoder,
        threshold=level,
        device=autoencoder.W_enc.device,
        dtype=autoencoder.W_enc.dtype,
    )
    for name, tensor in autoencoder.named_parameters():
        made.get_parameter(name).copy_(tensor)
    norms = autoencoder.norms()
    if norms is not None:
        made.W_enc.mul_(norms[:, None])
        made.b_enc.mul_(norms)
        made.W_dec.div_(norms[:, None])
    return made.eval()


def fold_standardisation(autoencoder: SparseAutoencoder, mean: Tensor, scale: float) -> None:
    """See :meth:`khot.apps.sae.SparseAutoencoder.fold_standardisation_`."""
    if autoencoder.options.transcoder:
        raise ValueError(
            "SparseAutoencoder: fold_standardisation_ is not for a transcoder, whose inputs and "
            "outputs differ"
        )
    if mean.shape != (autoencoder.options.d_in,) or not 0 < scale < float("inf"):
        raise ValueError(
            f"SparseAutoencoder: mean must have the shape ({autoencoder.options.d_in},) and scale be > 0, "
            f"got {tuple(mean.shape)} and {scale}"
        )
    shift = mean.to(autoencoder.W_enc.dtype)
    autoencoder.b_enc.div_(scale)
    autoencoder.b_dec.div_(scale).add_(shift)
    moved = shift if not autoencoder.options.subtract_b_dec else torch.zeros_like(shift)
    if autoencoder.W_skip is not None:
        skipped = autoencoder.W_skip @ shift
        autoencoder.b_dec.sub_(skipped)
        if autoencoder.options.subtract_b_dec:
            moved = skipped
    autoencoder.b_enc.sub_(autoencoder.W_enc @ moved)
    if autoencoder.threshold is not None and bool((autoencoder.threshold >= 0).all()):
        autoencoder.threshold.div_(scale)
    first, last = autoencoder.options.temperature
    autoencoder.options = dataclasses.replace(autoencoder.options, temperature=(first / scale, last / scale))
