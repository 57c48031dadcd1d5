"""Thresholds of an autoencoder: the initial one, and the one that gives a wanted number of active latents."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.apps.sae._computing import Computes
from khot.apps.sae._options import Options
from khot.apps.sae._selecting import pre_activations
from khot.relaxations import topk_entries

__all__ = ["first_threshold", "threshold_for"]

_AT_ONCE = 4096


@torch.no_grad()
def threshold_for(autoencoder: Computes, x: Tensor, l0: float) -> float:
    """The threshold above which inputs (…, d_in) have ``l0`` active latents on average.

    Only the largest pre-activations of each row are kept, so memory is O(B l0); a row counts at most eight
    times the average.

    Args:
        autoencoder: the autoencoder.
        x: the inputs.
        l0: the wanted average, in (0, num_latents].

    Returns:
        The threshold, ≥ 0; if few pre-activations are positive, fewer latents may be active.
    """
    latents = autoencoder.options.num_latents
    rows, _ = autoencoder.rows_of(x)
    if not len(rows) or not 0 < l0 <= latents:
        raise ValueError(
            f"threshold_for: there must be inputs, and l0 in (0, {latents}], got {len(rows)} and {l0}"
        )
    few = min(math.ceil(8 * l0), latents)
    best = [
        topk_entries(pre_activations(part, autoencoder.weights()), few, hard=True).values.flatten()
        for part in torch.split(rows, _AT_ONCE)
    ]
    kept = torch.cat(best).float()
    many = round(l0 * len(rows))
    if many >= len(kept):
        return 0.0
    # Above the level are the `many` largest: it lies between the last of them and the next.
    border = topk_entries(kept, many + 1, hard=True).values[-2:]
    return max(float(border.mean()), 0.0)


def first_threshold(
    options: Options, threshold: float | Tensor | None, device: torch.device | str | None
) -> Tensor | None:
    """The buffer of the threshold: None, one number (−1 if not known), or one number for each latent."""
    name, activation = "SparseAutoencoder", options.activation
    if activation not in ("batch_topk", "jumprelu"):
        if threshold is not None:
            raise ValueError(f"{name}: {activation} has no threshold, got {threshold!r}")
        return None
    if threshold is None:
        if activation == "jumprelu":
            raise ValueError(f"{name}: jumprelu needs a threshold, a number or one for each latent")
        return torch.tensor(-1.0, device=device)
    given = torch.as_tensor(threshold, dtype=torch.float32, device=device).detach().clone()
    wanted = (options.num_latents,) if activation == "jumprelu" else ()
    if (given.dim() and given.shape != wanted) or not bool((given >= 0).all() and given.isfinite().all()):
        raise ValueError(
            f"{name}: threshold must be finite and ≥ 0, a number or of shape {wanted}, got {threshold!r}"
        )
    return given.expand(wanted).clone() if activation == "jumprelu" else given
