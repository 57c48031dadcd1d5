"""From inputs to active latents: the only place that computes all pre-activations, without a graph."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from khot.apps.sae._entry_gradients import Layout, entry_values, layout_of
from khot.apps.sae._options import Options
from khot.parallel import batch_topk
from khot.relaxations import sigmoid_topk, topk_entries

__all__ = ["Selected", "Weights", "pre_activations", "select_latents"]


class Weights(NamedTuple):
    """The parameters that the selection reads: the encoder, the centre of the inputs, the decoder's norms."""

    weight: Tensor
    bias: Tensor
    centre: Tensor | None
    norms: Tensor | None
    threshold: Tensor | None


class Selected(NamedTuple):
    """Active latents as entries: ``values`` (E,), to decode, with a graph; ``scores`` (E,), to report.

    ``per_row`` is the number of entries in each row, or 0 if rows differ.
    """

    values: Tensor
    scores: Tensor
    layout: Layout
    per_row: int


def select_latents(
    x: Tensor,
    weights: Weights,
    options: Options,
    *,
    soft: float | None,
    k: float,
    ragged: bool,
    everywhere: bool = False,
) -> Selected:
    """The active latents of inputs (B, d).

    Args:
        x: the inputs.
        weights: the parameters.
        options: the options of the autoencoder.
        soft: the temperature of sigmoid top-k among the candidates; None for the k largest.
        k: the average number per row; an integer if the selection is hard.
        ragged: rows may have different numbers: by the thresholds, or without them the largest of the batch.
        everywhere: the batch is spread over all processes.
    """
    scores = pre_activations(x, weights)
    count, latents = scores.shape
    if ragged:
        if weights.threshold is None and everywhere:
            places = batch_topk(scores, round(k)).view(-1).nonzero().squeeze(-1)
            found = scores.view(-1)[places]
        elif weights.threshold is None:
            many = min(round(k) * count, scores.numel())
            places, _, found = topk_entries(scores.view(-1), many, hard=True, order="position")
        else:
            places = (scores > weights.threshold.clamp_min(0)).view(-1).nonzero().squeeze(-1)
            found = scores.view(-1)[places]
        rows, indices = places // latents, places % latents
        starts = torch.searchsorted(rows, torch.arange(count, device=x.device))
        per_row = 0
    else:
        per_row = options.candidates if soft is not None else min(math.floor(k), latents)
        entries = topk_entries(scores, per_row, hard=True)
        indices, found = entries.indices.flatten(), entries.values.flatten()
        starts = torch.arange(0, count * per_row, per_row, device=x.device)
        rows = torch.arange(count, device=x.device).repeat_interleave(per_row)
    del scores
    layout = layout_of(indices, starts, rows, latents)
    norms = None if weights.norms is None else weights.norms[indices]
    raw = entry_values(
        found if norms is None else found / norms, x, weights.centre, weights.weight, weights.bias, layout
    )
    values = raw.relu()
    if soft is not None:
        compared = (raw if norms is None else raw * norms).view(count, per_row)
        gates = sigmoid_topk(compared, min(k, per_row), temperature=soft)
        values = values * gates.view(-1).to(values.dtype)
    return Selected(values, values if norms is None else values * norms, layout, per_row)


@torch.no_grad()
def pre_activations(x: Tensor, weights: Weights) -> Tensor:
    """Pre-activations (B, M), times the norms of the decoder if the selection uses them."""
    centred = x if weights.centre is None else x - weights.centre
    scores = torch.addmm(weights.bias, centred, weights.weight.T)
    return scores if weights.norms is None else scores.mul_(weights.norms)
