"""How a sparse autoencoder computes: from parameters and options to active latents, outputs and losses."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from khot.apps.sae._annealing import Anneals
from khot.apps.sae._auxiliary import auxk_error
from khot.apps.sae._decoder_norms import row_norms
from khot.apps.sae._entry_gradients import weighted_rows
from khot.apps.sae._selecting import Selected, Weights, select_latents
from khot.apps.sae._unexplained import fraction_of
from khot.parallel._group import Group
from khot.relaxations._plain_arguments import check_tensor

__all__ = ["Computes", "padded", "placed"]

_MEMORY = 0.99  # of the running mean of the threshold


class Computes(Anneals):
    """The passes of :class:`khot.apps.sae.SparseAutoencoder`, which makes the parameters."""

    W_enc: nn.Parameter
    b_enc: nn.Parameter
    W_dec: nn.Parameter
    b_dec: nn.Parameter
    W_skip: nn.Parameter | None
    threshold: Tensor | None

    global_batch: bool = False
    """Whether ``batch_topk`` in training takes the k·B largest of the batches of all processes together."""

    def reconstruct(
        self, x: Tensor, y: Tensor, dead: Tensor | None, variance: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        """Outputs (B, d_out), activations and indices (B, K), and the scalars of `Reconstruction`."""
        found = self.select(x)
        out = self._decoded(found, x)
        fraction = fraction_of(y, out, variance)
        error = fraction(out - y)
        zero = torch.zeros_like(error)
        multi = fraction(self._decoded(self.select(x, 4), x) - y) if self.options.multi_topk else zero
        partial: list[Tensor] = []
        for end in self.options.prefixes[:-1]:
            inside = found.values * (found.layout.indices < end)
            partial.append(fraction(self._decoded(found._replace(values=inside), x) - y))
        prefix = torch.stack(partial).mean() if partial else zero
        aux = zero
        if dead is not None and bool(dead.any()):
            share, missed = auxk_error(
                x, (y - out).detach(), self.weights(), self.W_dec, dead, self.options.k_aux
            )
            aux = share * fraction(missed)
        l0 = (found.values > 0).sum() / max(len(x), 1)
        if self.training and self.options.activation == "batch_topk":
            self._follow_threshold(found)
        return out, *padded(found, len(x)), (error, aux, multi, l0, prefix)

    def _decoded(self, found: Selected, x: Tensor) -> Tensor:
        out = weighted_rows(found.values, self.W_dec, found.layout) + self.b_dec
        return out if self.W_skip is None else out + x @ self.W_skip.T

    def decode_entries(self, acts: Tensor, indices: Tensor) -> Tensor:
        """Reconstruct from activations and indices (…, K)."""
        check_tensor("SparseAutoencoder.decode", "indices", indices)
        if acts.shape != indices.shape:
            raise ValueError(
                "SparseAutoencoder.decode: acts and indices must have one shape, "
                f"got {tuple(acts.shape)} and {tuple(indices.shape)}"
            )
        shape, few = (*acts.shape[:-1], self.options.d_out), acts.shape[-1]
        if not few:
            return self.b_dec.expand(shape)
        acts, indices = acts.reshape(-1, few).to(self.W_dec.dtype), indices.reshape(-1, few)
        norms = self.norms()
        values = acts if norms is None else acts / norms[indices]
        summed = functional.embedding_bag(indices, self.W_dec, per_sample_weights=values, mode="sum")
        return (summed + self.b_dec).view(shape)

    def select(self, x: Tensor, times: int = 1) -> Selected:
        options = self.options
        k, soft = self.annealed()
        weights = self.weights()
        if options.activation == "batch_topk" and not self.training:
            assert self.threshold is not None
            unknown = (
                "SparseAutoencoder: the threshold of batch_topk is not known: train, or call fit_threshold(x)"
            )
            if torch.compiler.is_compiling():  # a compiled graph cannot branch on a value
                cast("Any", torch)._assert_async(self.threshold >= 0, unknown)
            elif float(self.threshold) < 0:
                raise RuntimeError(unknown)
            weights = weights._replace(threshold=self.threshold)
        ragged = options.activation in ("batch_topk", "jumprelu")
        return select_latents(
            x, weights, options, soft=soft, k=k * times, ragged=ragged, everywhere=self.global_batch
        )

    def weights(self) -> Weights:
        """The weights that the selection reads."""
        centre = self.b_dec if self.options.subtract_b_dec else None
        threshold = self.threshold if self.options.activation == "jumprelu" else None
        return Weights(self.W_enc, self.b_enc, centre, self.norms(), threshold)

    def norms(self) -> Tensor | None:
        """The norms of the decoder's rows, if the selection uses them."""
        if not self.options.scale_by_decoder_norm:
            return None
        return row_norms(self.W_dec.detach()).clamp_min(torch.finfo(self.W_dec.dtype).tiny)

    @torch.no_grad()
    def _follow_threshold(self, found: Selected) -> None:
        assert self.threshold is not None
        if not len(found.scores) and not self.global_batch:
            return
        positive = torch.where(found.scores > 0, found.scores, torch.inf)
        smallest = positive.amin() if len(positive) else positive.new_full((), torch.inf)
        if self.global_batch:
            smallest = -Group().largest(-smallest.detach())
        smallest = torch.where(smallest.isfinite(), smallest, self.threshold.clamp_min(0)).to(
            self.threshold.dtype
        )
        moved = torch.lerp(smallest, self.threshold, _MEMORY)
        self.threshold.copy_(torch.where(self.threshold < 0, smallest, moved))

    def rows_of(self, x: Tensor) -> tuple[Tensor, torch.Size]:
        """Inputs as (B, d_in) in the parameters' dtype, and their shape without the last dimension."""
        check_tensor("SparseAutoencoder", "x", x)
        if not x.is_floating_point() or x.shape[-1:] != (self.options.d_in,):
            raise ValueError(
                f"SparseAutoencoder: x must be floating-point with the last dimension {self.options.d_in}, "
                f"got {x.dtype} of shape {tuple(x.shape)}"
            )
        return x.reshape(-1, self.options.d_in).to(self.W_enc.dtype), x.shape[:-1]

    def _target(self, y: Tensor, shape: torch.Size) -> Tensor:
        check_tensor("SparseAutoencoder", "y", y)
        if y.shape != (*shape, self.options.d_out):
            raise ValueError(
                f"SparseAutoencoder: y must have the shape {(*shape, self.options.d_out)}, got "
                f"{tuple(y.shape)}"
            )
        return y.reshape(-1, self.options.d_out).to(self.W_dec.dtype)


def padded(found: Selected, count: int) -> tuple[Tensor, Tensor]:
    """Activations and indices (count, K) of the entries, padded with zeros in rows that have fewer."""
    layout, acts = found.layout, found.scores
    if found.per_row:
        return acts.view(count, found.per_row), layout.indices.view(count, found.per_row)
    inside = torch.arange(len(acts), device=acts.device) - layout.starts[layout.rows]
    ends = torch.cat([layout.starts[1:], layout.starts.new_full((1,), len(acts))])
    longest = int((ends - layout.starts).max()) if count else 0
    places = (layout.rows, inside)
    return (
        acts.new_zeros(count, longest).index_put(places, acts),
        layout.indices.new_zeros(count, longest).index_put(places, layout.indices),
    )


def placed(some: Tensor, where: Tensor) -> Tensor:
    """The rows ``some`` at the positions where ``where`` (B,) is True, zeros elsewhere."""
    whole = some.new_zeros(len(where), some.shape[-1])
    return whole.index_put((torch.nonzero(where).squeeze(-1),), some)
