"""One call to draw k of n: by scores or by inclusion probabilities, with any design."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from khot.designs.base import KHotDistribution
from khot.designs.exponential.conditional_poisson import ConditionalPoisson
from khot.designs.exponential.sampford import Sampford
from khot.designs.order_sampling.pareto import AdjustedPareto, Pareto
from khot.designs.order_sampling.plackett_luce import PlackettLuce
from khot.designs.pivotal.random_pivotal import RandomPivotal
from khot.designs.pivotal.sequential_pivotal import SequentialPivotal
from khot.designs.pivotal.tree_pivotal import RandomTreePivotal, TreePivotal
from khot.designs.splitting.brewer import Brewer
from khot.designs.splitting.midzuno import Midzuno
from khot.designs.splitting.tille import Tille
from khot.designs.systematic.random_systematic import RandomSystematic
from khot.designs.systematic.systematic import Systematic
from khot.relaxations._arguments import allowed_scores, check_mask, position

__all__ = ["DESIGNS", "design_for", "sample"]

DESIGNS: dict[str, type[KHotDistribution]] = {
    "systematic": Systematic,
    "random_systematic": RandomSystematic,
    "tree_pivotal": TreePivotal,
    "random_tree_pivotal": RandomTreePivotal,
    "sequential_pivotal": SequentialPivotal,
    "random_pivotal": RandomPivotal,
    "tille": Tille,
    "midzuno": Midzuno,
    "conditional_poisson": ConditionalPoisson,
    "sampford": Sampford,
    "brewer": Brewer,
    "pareto": Pareto,
    "adjusted_pareto": AdjustedPareto,
    "plackett_luce": PlackettLuce,
}
"""The designs of ``khot.sample`` by name."""

# Up to this n·min(k, n − k) a draw from scores takes milliseconds, mostly near what random tree pivotal
# sampling takes. From probs the weights are solved for first, which takes some 10 to 100 ms.
_SMALL = {"scores": 1_000_000, "probs": 100_000}


def sample(
    x: Tensor,
    k: float,
    design: str = "auto",
    *,
    given: Literal["scores", "probs"] = "scores",
    sample_shape: tuple[int, ...] = (),
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Draw exactly ``k`` of the n entries along ``dim``, as a k-hot vector.

    .. math:: x \in \{0, 1\}^n, \quad \textstyle\sum_i x_i = k, \quad P(x_i = 1) = \pi_i

    No gradient: see ``khot.designs.KHotCategoricalStraightThrough`` and ``khot.estimators``.

    Args:
        x: scores or inclusion probabilities, any floating shape.
        k: how many are drawn, 0 ≤ k ≤ n; any number for ``systematic`` and ``tree_pivotal``.
        design: ``conditional_poisson`` (the largest entropy), ``random_tree_pivotal``, ``tree_pivotal``,
            ``random_pivotal``, ``sequential_pivotal``, ``random_systematic``, ``systematic``, ``sampford``,
            ``brewer``, ``tille`` or ``midzuno``; with inclusion probabilities that are only near π
            ``pareto``, ``adjusted_pareto`` and ``plackett_luce``. ``auto`` is conditional Poisson where its
            table is small, n·min(k, n − k) ≤ 1e6 for scores and ≤ 1e5 for probs, and random tree pivotal
            beyond.
        given: what ``x`` is. From scores, π is ``sigmoid_topk(x, k)``, except that for conditional Poisson
            and Plackett–Luce scores are the natural parameters; −inf is never drawn, +inf always.
            Probabilities sum to ``k``.
        sample_shape: how many draws, as a shape.
        generator: where the randomness comes from; by default torch's own.
        dim: the dimension of the n entries.
        mask: boolean, broadcastable to ``x``; False is never drawn (and must have probability 0).

    Returns:
        Zeros and ones of shape ``sample_shape`` + ``x.shape``, in the dtype of ``x``.

    Example:
        >>> scores = torch.tensor([2.0, 0.0, 1.0, -1.0])
        >>> x = sample(scores, 2, sample_shape=(1000,), generator=torch.Generator().manual_seed(0))
        >>> x.sum(-1).unique(), x.mean(0).argmax()
        (tensor([2.]), tensor(0))

    Reference: Tillé (2006), Sampling Algorithms.
    """
    name = "sample"
    last = position(name, x, dim)
    if given not in ("scores", "probs"):
        raise ValueError(f"{name}: given must be 'scores' or 'probs', got {given!r}")
    if given == "scores":
        x = allowed_scores(name, x, mask)
    elif mask is not None:
        check_mask(name, x, mask)
        x = torch.where(mask, x, torch.zeros_like(x))  # their sum says so if they were not 0
    rows = x.detach().movedim(last, -1)
    kind = design_for(design, rows.shape[-1], k, given)
    distribution = kind(k, probs=rows) if given == "probs" else kind(k, logits=rows)
    return distribution.sample(sample_shape, generator).movedim(-1, last - x.dim())


def design_for(design: str, n: int, k: float, given: str) -> type[KHotDistribution]:
    """The class of a design, with the rule of ``auto``."""
    if design == "auto":
        if k != math.floor(k):
            return TreePivotal
        small = n * min(k, n - k) <= _SMALL[given]
        return ConditionalPoisson if small else RandomTreePivotal
    if design not in DESIGNS:
        raise ValueError(f"sample: unknown design {design!r}; known designs: auto, {', '.join(DESIGNS)}")
    return DESIGNS[design]
