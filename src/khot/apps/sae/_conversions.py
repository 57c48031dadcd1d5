"""Convert an autoencoder to another form: one threshold instead of k, or inputs that are not standardised."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from khot.apps.sae._computing import Computes
from khot.apps.sae.thresholds import threshold_for

__all__ = ["Converts"]

Self = TypeVar("Self", bound="Converts")


class Converts(Computes):
    """The part of :class:`khot.apps.sae.SparseAutoencoder` that converts activation and inputs."""

    @torch.no_grad()
    def fit_threshold(self, x: Tensor, l0: float | None = None) -> float:
        """Set the threshold of ``batch_topk`` so that inputs (…, d_in) have k active latents on average.

        Args:
            x: inputs, the more the better.
            l0: the wanted average, if not k.

        Returns:
            The threshold.
        """
        if self.options.activation != "batch_topk":
            raise ValueError(
                f"SparseAutoencoder: fit_threshold is for batch_topk, this is {self.options.activation}; "
                "as_jumprelu(x) gives any of them a threshold"
            )
        found = threshold_for(self, x, self.options.k if l0 is None else l0)
        assert self.threshold is not None
        self.threshold.fill_(found)
        return found

    @torch.no_grad()
    def as_jumprelu(self: Self, x: Tensor | None = None, l0: float | None = None) -> Self:
        """A JumpReLU autoencoder with the same weights and one threshold, which every tool can read.

        Args:
            x: inputs on which k (or ``l0``) latents should be active on average; optional if a threshold is
                known (``batch_topk``, ``jumprelu``).
            l0: the wanted average, if not k.

        Returns:
            A new autoencoder in evaluation mode. If the selection used decoder norms, they are folded into
            its weights.
        """
        options = self.options
        if x is not None:
            level = torch.tensor(threshold_for(self, x, options.k if l0 is None else l0))
        elif self.threshold is not None and bool((self.threshold >= 0).all()):
            level = self.threshold
        else:
            raise ValueError(
                f"SparseAutoencoder: as_jumprelu needs x, {options.activation} has no threshold yet"
            )
        made: Self = cast(Any, type(self))(
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
            device=self.W_enc.device,
            dtype=self.W_enc.dtype,
        )
        for name, tensor in self.named_parameters():
            made.get_parameter(name).copy_(tensor)
        norms = self.norms()
        if norms is not None:
            made.W_enc.mul_(norms[:, None])
            made.b_enc.mul_(norms)
            made.W_dec.div_(norms[:, None])
        return made.eval()

    @torch.no_grad()
    def fold_standardisation_(self, mean: Tensor, scale: float) -> None:
        """Turn an autoencoder of (x − mean) · scale into one of x.

        Activations, thresholds and temperatures are divided by ``scale``.
        """
        options = self.options
        if options.transcoder:
            raise ValueError(
                "SparseAutoencoder: fold_standardisation_ is not for a transcoder, whose inputs and "
                "outputs differ"
            )
        if mean.shape != (options.d_in,) or not 0 < scale < float("inf"):
            raise ValueError(
                f"SparseAutoencoder: mean must have the shape ({options.d_in},) and scale be > 0, "
                f"got {tuple(mean.shape)} and {scale}"
            )
        shift = mean.to(self.W_enc.dtype)
        self.b_enc.div_(scale)
        self.b_dec.div_(scale).add_(shift)
        moved = shift if not options.subtract_b_dec else torch.zeros_like(shift)
        if self.W_skip is not None:
            skipped = self.W_skip @ shift
            self.b_dec.sub_(skipped)
            if options.subtract_b_dec:
                moved = skipped
        self.b_enc.sub_(self.W_enc @ moved)
        if self.threshold is not None and bool((self.threshold >= 0).all()):
            self.threshold.div_(scale)
        first, last = options.temperature
        self.options = dataclasses.replace(options, temperature=(first / scale, last / scale))
