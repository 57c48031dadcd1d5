r"""AuxK: latents that no longer fire learn to explain what the others leave unexplained.

The ``k_aux`` largest dead latents of a token reconstruct the residual, which is a constant here:
:math:`\min(n_\text{dead}/k_\text{aux}, 1)\, \lVert \hat e - e\rVert^2 / \text{variance}`. The dead latents
alone are encoded again, so that the gradient reaches their encoder. A latent whose pre-activation is
negative gets the gradient it would have above zero (straight-through): otherwise what is dead on all tokens
would stay so.

Reference: Gao et al. (2024), Scaling and evaluating sparse autoencoders, arXiv:2406.04093, appendix A.2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.apps.sae._selecting import Weights
from khot.estimators import straight_through
from khot.relaxations import topk_entries

__all__ = ["auxk_error"]


def auxk_error(
    x: Tensor, residual: Tensor, weights: Weights, decoder: Tensor, dead: Tensor, k_aux: int
) -> tuple[float, Tensor]:
    """The factor before the loss, and what the dead latents miss of the residual, (B, d_out).

    Args:
        x: inputs (B, d_in).
        residual: (B, d_out), without a graph.
        weights: of the encoder.
        decoder: W_dec (M, d_out).
        dead: boolean (M,), one at least.
        k_aux: how many dead latents a token may use.
    """
    which = dead.nonzero().squeeze(-1)
    count = len(which)
    centred = x if weights.centre is None else x - weights.centre
    pre = torch.addmm(weights.bias[which], centred, weights.weight[which].T)
    if k_aux < count:
        scores = pre if weights.norms is None else pre * weights.norms[which]
        kept = topk_entries(scores.detach(), k_aux, hard=True).indices
        pre = torch.zeros_like(pre).scatter(-1, kept, pre.gather(-1, kept))
    guess = straight_through(pre, pre.relu()) @ decoder[which]
    return min(count / k_aux, 1.0), guess - residual
