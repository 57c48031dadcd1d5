r"""AuxK: dead latents, which no longer fire, learn to explain what the others leave unexplained.

The ``k_aux`` largest dead latents of a token reconstruct the residual, which is held constant:
:math:`\min(n_\text{dead}/k_\text{aux}, 1)\, \lVert \hat e - e\rVert^2 / \text{variance}`. Only the dead
latents are encoded again, so that the gradient reaches their encoder. A latent with a negative pre-activation
gets the gradient it would have above zero (straight-through); otherwise a latent that is dead on all tokens
would stay dead.

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
    """The factor of the loss, and the error (B, d_out) of the dead latents in reconstructing the residual.

    Args:
        x: inputs (B, d_in).
        residual: (B, d_out), without a graph.
        weights: the weights of the encoder.
        decoder: W_dec (M, d_out).
        dead: boolean (M,), with at least one True.
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
