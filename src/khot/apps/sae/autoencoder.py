r"""Sparse autoencoders: write a vector as a sum of a few out of many learned directions.

.. math:: z = \mathrm{act}\big(E (x - b_\text{dec}) + b_\text{enc}\big), \qquad \hat x = D^\top z +
    b_\text{dec},

with about k of the M latents z active. ``activation`` decides which:

=============  =====================================  ====================================================
activation     in training                            in evaluation
=============  =====================================  ====================================================
topk           the k largest of each token            the same
batch_topk     the k·B largest of a batch of B        those above a threshold: the running mean of the
                                                      smallest activation in training
sigmoid_topk   the candidates of each token, times    the k largest of each token
               their sigmoid top-k weights, which
               ``anneal`` sharpens until it is topk
jumprelu       those above a threshold per latent,    the same
               which is given, not learned
=============  =====================================  ====================================================

All pre-activations are computed once, without a graph. :func:`khot.topk_entries` selects, decoding sums the
rows of active latents, and the gradients of encoder and decoder are computed from the active entries only.
They equal those of the dense form.

Cost: one product of O(B M d_in); everything else is O(B k d).

Reference: Gao et al. (2024), arXiv:2406.04093 (TopK, AuxK, Multi-TopK); Bussmann, Leask & Nanda (2024),
arXiv:2412.06410 (BatchTopK); Rajamanoharan et al. (2024), arXiv:2407.14435 (JumpReLU); Bussmann et al.
(2025), arXiv:2503.17547 (Matryoshka); Dunefsky et al. (2024), arXiv:2406.11944, and Paulo et al. (2025),
arXiv:2501.18823 (transcoders, with skip); sigmoid top-k: Wijk, Vinuesa & Azizpour (2025).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from khot.apps.sae._computing import padded, placed
from khot.apps.sae._conversions import Converts
from khot.apps.sae._decoder_norms import project_gradient_, row_norms, unit_rows
from khot.apps.sae._options import Activation, Options
from khot.apps.sae.files import FileFormat, read_folder, write_folder
from khot.apps.sae.result import Latents, Reconstruction
from khot.apps.sae.thresholds import first_threshold
from khot.relaxations._plain_arguments import check_switch, check_tensor

__all__ = ["SparseAutoencoder"]


class SparseAutoencoder(Converts):
    r"""A sparse autoencoder, or a transcoder.

    Cost: one product of O(B M d_in) for B tokens and M latents; everything else is O(B k d).

    Args:
        d_in: the length of an input.
        num_latents: the number of latents, M.
        k: how many latents are active per token, exactly (``topk``, ``sigmoid_topk``) or on average.
        activation: see the table of :mod:`khot.apps.sae.autoencoder`.
        transcoder: predict another vector, ``forward(x, y)``; then ``b_dec`` is not subtracted from inputs.
        d_out: for a transcoder, the length of an output.
        skip: add a linear map of the input, ``W_skip``, to the output; initially zero.
        subtract_b_dec: subtract ``b_dec`` from inputs; by default yes, except for a transcoder.
        tied: initialise the encoder equal to the decoder, instead of independently.
        normalize_decoder: initialise the decoder's rows with norm 1; keep them there with
            :meth:`normalize_decoder_`.
        scale_by_decoder_norm: multiply pre-activations by the decoder's norms, for selection and output.
        prefixes: for a Matryoshka autoencoder: the latents before each of these numbers also reconstruct on
            their own. The last is ``num_latents``, and may be left out.
        k_aux: how many dead latents a token may use for AuxK; by default ``d_out // 2``.
        multi_topk: also compute ``multi_topk_fvu``, the error with 4 k latents.
        k_start: training starts with this many times k active latents; :meth:`anneal` reduces them.
        temperature: for ``sigmoid_topk``: the first and the last temperature, in units of the
            pre-activations.
        candidates: for ``sigmoid_topk``: how many of the largest latents of a token share the weights; by
            default 4 k.
        threshold: for ``jumprelu``: a number, or one for each latent; for ``batch_topk``, if it is known.
        device: device of the parameters.
        dtype: dtype of the parameters; inputs are cast to it.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> autoencoder = SparseAutoencoder(d_in=16, num_latents=64, k=4)
        >>> result = autoencoder(torch.randn(10, 16))
        >>> result.sae_out.shape, result.latent_acts.shape, result.l0.item() <= 4
        (torch.Size([10, 16]), torch.Size([10, 4]), True)
        >>> result.loss().backward()

    Reference: Gao et al. (2024), Scaling and evaluating sparse autoencoders, arXiv:2406.04093; see
    :mod:`khot.apps.sae.autoencoder` for the other activations.
    """

    def __init__(
        self,
        d_in: int,
        num_latents: int,
        k: int,
        activation: Activation = "topk",
        *,
        transcoder: bool = False,
        d_out: int | None = None,
        skip: bool = False,
        subtract_b_dec: bool | None = None,
        tied: bool = True,
        normalize_decoder: bool = True,
        scale_by_decoder_norm: bool = False,
        prefixes: Sequence[int] = (),
        k_aux: int | None = None,
        multi_topk: bool = False,
        k_start: float = 1.0,
        temperature: tuple[float, float] = (0.5, 0.05),
        candidates: int | None = None,
        threshold: float | Tensor | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_switch("SparseAutoencoder", "tied", tied)
        given: dict[str, Any] = {
            "d_in": d_in,
            "num_latents": num_latents,
            "k": k,
            "activation": activation,
            "transcoder": transcoder,
            "d_out": d_out,
            "skip": skip,
            "subtract_b_dec": subtract_b_dec,
            "normalize_decoder": normalize_decoder,
            "scale_by_decoder_norm": scale_by_decoder_norm,
            "prefixes": prefixes,
            "k_aux": k_aux,
            "multi_topk": multi_topk,
            "k_start": k_start,
            "temperature": temperature,
            "candidates": candidates,
        }
        self.options = options = Options(**given)
        d_in, num_latents, d_out = options.d_in, options.num_latents, options.d_out
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        self.W_enc = nn.Parameter(torch.empty(num_latents, d_in, **kind))
        self.b_enc = nn.Parameter(torch.empty(num_latents, **kind))
        self.W_dec = nn.Parameter(torch.empty(num_latents, d_out, **kind))
        self.b_dec = nn.Parameter(torch.empty(d_out, **kind))
        self.W_skip = nn.Parameter(torch.empty(d_out, d_in, **kind)) if skip else None
        self.register_buffer("threshold", first_threshold(options, threshold, device))
        self.progress = 0.0
        self.reset_parameters(tied=tied)

    def reset_parameters(self, *, tied: bool = True) -> None:
        """Random directions of norm 1 for the decoder, equal (``tied``) or other ones for the encoder."""
        with torch.no_grad():
            nn.init.normal_(self.W_dec, std=self.options.d_out**-0.5)
            if self.options.normalize_decoder:
                self.W_dec.copy_(unit_rows(self.W_dec))
            if tied and self.W_enc.shape == self.W_dec.shape:
                self.W_enc.copy_(self.W_dec)
            else:
                nn.init.normal_(self.W_enc, std=self.options.d_in**-0.5)
                self.W_enc.copy_(unit_rows(self.W_enc))
            for bias in (self.b_enc, self.b_dec, self.W_skip):
                if bias is not None:
                    nn.init.zeros_(bias)

    @property
    def k(self) -> int:
        """The number of active latents after annealing."""
        return self.options.k

    @property
    def num_latents(self) -> int:
        """The number of latents."""
        return self.options.num_latents

    def encode(self, x: Tensor, *, dense: bool = False) -> Latents | Tensor:
        """The active latents of inputs (…, d_in).

        Args:
            x: inputs.
            dense: return a tensor (…, num_latents) with zeros, instead of :class:`Latents`.
        """
        check_switch("SparseAutoencoder.encode", "dense", dense)
        rows, shape = self.rows_of(x)
        found = self.select(rows)
        if not dense:
            acts, indices = padded(found, len(rows))
            return Latents(*(part.view(*shape, acts.shape[-1]) for part in (acts, indices)))
        layout = found.layout
        whole = found.scores.new_zeros(len(rows), self.num_latents)
        return whole.index_put((layout.rows, layout.indices), found.scores).view(*shape, self.num_latents)

    def decode(self, acts: Tensor, indices: Tensor | None = None) -> Tensor:
        """Reconstruct from the result of :meth:`encode`, ``decode(*latents)``, or from dense activations.

        ``W_skip`` is not used.
        """
        check_tensor("SparseAutoencoder.decode", "acts", acts)
        if indices is not None:
            return self.decode_entries(acts, indices)
        if acts.shape[-1:] != (self.num_latents,):
            raise ValueError(
                f"SparseAutoencoder.decode: acts without indices must have the last dimension "
                f"{self.num_latents}, got {tuple(acts.shape)}"
            )
        norms, acts = self.norms(), acts.to(self.W_dec.dtype)
        return (acts if norms is None else acts / norms) @ self.W_dec + self.b_dec

    def forward(
        self,
        x: Tensor,
        y: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        dead_mask: Tensor | None = None,
        total_variance: Tensor | None = None,
    ) -> Reconstruction:
        """Reconstruct x, or predict y.

        Args:
            x: inputs (…, d_in).
            y: the target to predict, (…, d_out); by default x.
            mask: of the shape (…), True for a real token. Padding has no active latent and is not counted.
            dead_mask: boolean (num_latents,), the dead latents that AuxK should revive.
            total_variance: the variance of the whole batch, if this is a part of it.

        Returns:
            :class:`Reconstruction`; minimise its :meth:`~Reconstruction.loss`.
        """
        name = "SparseAutoencoder"
        rows, shape = self.rows_of(x)
        if y is None and self.options.d_out != self.options.d_in:
            raise ValueError(f"{name}: a transcoder from {self.options.d_in} to {self.options.d_out} needs y")
        target = rows if y is None else self._target(y, shape)
        for argument, marks in (("mask", mask), ("dead_mask", dead_mask)):
            if marks is not None:
                check_tensor(name, argument, marks)
        if dead_mask is not None and (
            dead_mask.dtype != torch.bool or dead_mask.shape != (self.num_latents,)
        ):
            raise ValueError(
                f"{name}: dead_mask must be boolean of shape ({self.num_latents},), got "
                f"{dead_mask.dtype} {tuple(dead_mask.shape)}"
            )
        if mask is None:
            out, acts, indices, numbers = self.reconstruct(rows, target, dead_mask, total_variance)
        else:
            if mask.dtype != torch.bool or mask.shape != shape:
                raise ValueError(
                    f"{name}: mask must be boolean of shape {tuple(shape)}, got {mask.dtype} "
                    f"{tuple(mask.shape)}"
                )
            real = mask.reshape(-1)
            *parts, numbers = self.reconstruct(rows[real], target[real], dead_mask, total_variance)
            out, acts, indices = (placed(part, real) for part in parts)
            out = torch.where(real[:, None], out, self.b_dec)
        many = (*shape, acts.shape[-1])
        return Reconstruction(
            out.view(*shape, self.options.d_out), acts.view(many), indices.view(many), *numbers
        )

    @torch.no_grad()
    def normalize_decoder_(self) -> None:
        """Scale the decoder's rows to norm 1; call it after each step of the optimiser."""
        norms = row_norms(self.W_dec).unsqueeze(-1)
        self.W_dec.div_(torch.where(norms > 0, norms, 1))

    @torch.no_grad()
    def project_decoder_gradient_(self) -> None:
        """Remove the part of the decoder's gradient that only changes norms; call it before each step."""
        if self.W_dec.grad is not None:
            project_gradient_(self.W_dec.grad, self.W_dec)

    def save(
        self, folder: str | Path, format: FileFormat = "saelens", *, about: Mapping[str, Any] | None = None
    ) -> None:
        """Write a folder that other tools open; see :mod:`khot.apps.sae.files` for the formats.

        Args:
            folder: created if necessary; each file is written completely or not at all.
            format: ``"saelens"`` or ``"sparsify"``.
            about: entries for the ``metadata`` of SAELens, such as the model and the hook point.
        """
        write_folder(self, Path(folder), format, about or {})

    @classmethod
    def load(cls, folder: str | Path) -> SparseAutoencoder:
        """Read a folder of SAELens, sparsify or dictionary_learning, or a ``params.npz`` of Gemma Scope.

        The format is recognised from the files. They must state activation, k and dtype; nothing is guessed.
        """
        return read_folder(cls, Path(folder))

    def extra_repr(self) -> str:
        """Show the settings."""
        options = self.options
        shown = [f"{options.d_in}", f"{options.num_latents}", f"{options.k}", repr(options.activation)]
        shown += [
            f"{name}=True"
            for name in ("transcoder", "skip", "scale_by_decoder_norm")
            if getattr(options, name)
        ]
        return ", ".join(shown + ([f"prefixes={options.prefixes}"] if options.prefixes else []))
