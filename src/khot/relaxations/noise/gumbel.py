"""Gumbel top-k: a relaxed sample of k entries without replacement.

With independent Gumbel noise G, the k largest of x + G are k successive draws without replacement, each with
the probabilities softmax(x) over the entries that are left (Plackett–Luce).

The relaxed sample is sigmoid top-k of x + G at the temperature τ: like the Gumbel-softmax, with sigmoid top-k
in place of softmax. The backward pass is its derivative at the drawn noise. ``hard=True`` returns the exact
sample with the same gradient (straight-through). As τ → 0 the relaxed sample becomes the exact sample, not
the top-k of x. Cost: the noise, and sigmoid top-k. Reference: Kool, van Hoof & Welling (2019) for the sample.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.relaxations._arguments import (
    Number,
    allowed_scores,
    budget,
    check_temperature,
    compute_dtype,
    directed,
    position,
)
from khot.relaxations._noise import gumbel
from khot.relaxations._plain_arguments import check_generator, check_switch
from khot.relaxations.hard import hard_topk
from khot.relaxations.registry import Relaxation, register
from khot.relaxations.straight_through import straight_through
from khot.relaxations.threshold._family import gated_topk
from khot.relaxations.threshold._gates import LOGISTIC

__all__ = ["gumbel_topk"]


def gumbel_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Draw ``k`` entries of ``scores`` along ``dim`` without replacement, with a gradient.

    .. math:: y_i = \sigma\big((x_i + G_i + c)/\tau\big), \qquad c \text{ such that } \textstyle\sum_i y_i = k

    with independent standard Gumbel variables G: sigmoid top-k of noisy scores.

    With ``hard=True`` the value is the exact sample: the first entry is drawn with probabilities softmax(x),
    each further one in the same way from the entries that are left. The probability that an entry is in the
    sample is *not* k·softmax(x), unless k = 1.

    Units: the temperature divides the noisy scores. The noise has scale 1 in the units of the scores, which
    are log weights. Cost: O(n), sigmoid top-k and the noise.

    Args:
        scores: log weights, a floating-point tensor of any shape. −inf is never drawn, +inf always (if more
            than k are at +inf, a random k of them).
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``scores.shape`` without ``dim`` (rounded).
        temperature: > 0, of the relaxation, not of the noise; a number or a tensor like ``k``. To draw from a
            tempered distribution, divide ``scores`` instead.
        generator: source of the noise; by default torch's global generator.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: the exact sample forward, the relaxed one's gradient backward.

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0, 0.0])
        >>> y = gumbel_topk(x, 2, hard=True, generator=torch.Generator().manual_seed(0))
        >>> sorted(y.tolist())
        [0.0, 0.0, 1.0, 1.0]

    Reference: Kool, van Hoof & Welling (2019), Stochastic Beams and Where to Find Them.
    """
    name = "gumbel_topk"
    last = position(name, scores, dim)
    check_generator(name, generator)
    scores = directed(name, scores, largest)
    check_switch(name, "hard", hard)
    if isinstance(k, Tensor):
        k = budget(name, scores, k, last, integer=True).squeeze(-1)
    else:
        budget(name, scores, k, last, integer=True)
    check_temperature(name, temperature)
    rows = allowed_scores(name, scores, mask).movedim(last, -1)
    noise = gumbel(tuple(rows.shape), rows.device, generator).to(compute_dtype(scores))
    perturbed = rows.to(noise.dtype) + noise
    y = gated_topk(name, LOGISTIC, perturbed.movedim(-1, last), k, temperature, last, None, True, False).to(
        scores.dtype
    )
    if not hard:
        return y
    # Among more than k entries at +inf it is the noise that decides.
    surely = rows == math.inf
    crowded = surely.sum(-1, keepdim=True) > (k.unsqueeze(-1) if isinstance(k, Tensor) else k)
    among = torch.where(surely, noise, -math.inf)
    sample = hard_topk(torch.where(crowded, among, perturbed.detach()), k)
    return straight_through(y, sample.to(scores.dtype).movedim(-1, last))


SPEC = register(
    Relaxation(
        name="gumbel",
        weights=gumbel_topk,
        stochastic=True,
        noiseless="sigmoid",
        max_n=1_000_000,
        reference="Kool, van Hoof & Welling (2019)",
    )
)
