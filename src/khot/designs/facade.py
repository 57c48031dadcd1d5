"""One call to draw k of n, from scores, inclusion probabilities or logits, with any design."""

from __future__ import annotations

import math
import warnings
from typing import Any, cast

import torch
from torch import Tensor

from khot.constraints import SUM_TOLERANCE
from khot.designs._arguments import check_one_of, check_size, check_units
from khot.designs.base import KHotDistribution
from khot.designs.registry import get, names
from khot.kernels.availability import is_plain
from khot.relaxations._arguments import allowed_scores, check_at_most, check_mask, directed, position
from khot.relaxations._plain_arguments import check_generator, check_sample_shape, check_switch

__all__ = ["sample"]


def sample(
    scores: Tensor | None = None,
    k: float | None = None,
    *,
    probs: Tensor | None = None,
    logits: Tensor | None = None,
    design: str | type[KHotDistribution] = "random_tree_pivotal",
    sample_shape: tuple[int, ...] = (),
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    at_most: bool = False,
) -> Tensor:
    r"""Draw exactly ``k`` of the n entries along ``dim``, as a k-hot vector.

    .. math:: x \in \{0, 1\}^n, \quad \textstyle\sum_i x_i = k, \quad P(x_i = 1) = \pi_i

    Give one of ``scores``, ``probs`` and ``logits``. Samples have no gradient; for gradients see
    ``khot.designs.KHotCategoricalStraightThrough`` and ``khot.estimators``. Cost: that of the design; O(n)
    and a shuffle for the default.

    Args:
        scores: a floating-point tensor of any shape; π is ``sigmoid_topk(scores, k)`` in every design. −inf
            is never drawn, +inf always. If ``k`` or fewer entries can be drawn, all of them are.
        k: how many to draw, 0 ≤ k ≤ n; any number for ``systematic`` and ``tree_pivotal``.
        probs: inclusion probabilities π in [0, 1] with sum ``k``.
        logits: natural parameters: for ``conditional_poisson``, where they differ from scores, and for
            ``plackett_luce`` (Gumbel top-k), which accepts nothing else.
        design: a name in ``khot.designs.names()``, or a class. The default is near maximum entropy and needs
            no solve; ``conditional_poisson`` has maximum entropy. ``pareto`` and ``adjusted_pareto`` meet π
            only approximately.
        sample_shape: how many draws, as a shape.
        generator: source of randomness; by default torch's global generator.
        dim: the dimension of the n entries.
        mask: boolean, broadcastable to the given tensor; entries with False are never drawn (with ``probs``
            they must have probability 0).
        largest: False makes small scores likely to be drawn instead of large ones.
        at_most: accept a ``k`` above n, and draw all entries.

    Returns:
        Zeros and ones of shape ``sample_shape`` + shape of the given tensor, in its dtype.

    Example:
        >>> scores = torch.tensor([2.0, 0.0, 1.0, -1.0])
        >>> x = sample(scores, 2, sample_shape=(1000,), generator=torch.Generator().manual_seed(0))
        >>> x.sum(-1).unique(), x.mean(0).argmax()
        (tensor([2.]), tensor(0))
        >>> sample(probs=torch.tensor([0.0, 1.0, 1.0, 0.0]), k=2)
        tensor([0., 1., 1., 0.])

    Reference: Tillé (2006), Sampling Algorithms.
    """
    name = "sample"
    parameters = {"scores": scores, "probs": probs, "logits": logits}
    argument = check_one_of(name, parameters)
    given = parameters[argument]
    assert given is not None
    last = position(name, given, dim, argument)
    check_units(name, argument, given, last)
    check_switch(name, "largest", largest)
    check_switch(name, "at_most", at_most)
    check_sample_shape(name, sample_shape)
    check_generator(name, generator)
    kind = get(design, name)
    if argument not in kind.parameters:
        takes = " or ".join(f"{each}=" for each in kind.parameters)
        raise TypeError(f"{name}: design {kind.__name__} takes {takes}, got {argument}")
    size = _size(kind, k, given.shape[last], at_most)
    if argument == "probs":
        rows = _without(name, given, mask)
    else:
        rows = allowed_scores(name, directed(name, given, largest), mask)
    if argument != "scores" and not largest:
        raise ValueError(f"{name}: largest=False is for scores, got {argument}")
    rows = rows.detach().movedim(last, -1)
    if argument == "scores" and mask is None:
        _warn_of_probabilities(rows, size)
    made: KHotDistribution = cast("Any", kind)(size, **{argument: rows})
    return made.sample(sample_shape, generator).movedim(-1, last - given.dim())


def _size(kind: type[KHotDistribution], k: float | None, n: int, at_most: bool) -> float:
    """k as a number that the design can draw."""
    name = "sample"
    if k is None:
        raise TypeError(f"{name}: give k, how many are drawn")
    if at_most:
        check_at_most(name, k)
        if not isinstance(k, Tensor) and k > n:
            return n
    size = check_size(name, k, n, whole=False)
    if not isinstance(size, int) and not kind.takes_fractions:
        these = ", ".join(each for each in names() if get(each).takes_fractions)
        raise ValueError(
            f"{name}: k must be an integer for design {kind.__name__}, got k = {k}; "
            f"these take any number: {these}"
        )
    return size


def _without(name: str, probs: Tensor, mask: Tensor | None) -> Tensor:
    """Probabilities that are 0 where the mask is; their sum says so if they were not."""
    if mask is None:
        return probs
    check_mask(name, probs, mask)
    return torch.where(mask, probs, torch.zeros_like(probs))


def _warn_of_probabilities(rows: Tensor, k: float) -> None:
    """Scores that look like inclusion probabilities, and would be taken for something else."""
    if not 0 < k < rows.shape[-1] or not is_plain(rows):
        return
    low, high = rows.aminmax()
    if not (low >= 0 and high <= 1):
        return
    away = (rows.double().sum(-1) - k).abs().max().item()
    if away <= SUM_TOLERANCE[rows.dtype] * max(k, 1.0) and not math.isnan(away):
        warnings.warn(
            f"sample: scores lie in [0, 1] and sum to k = {k}, as inclusion probabilities do; they are taken "
            "as scores, π = sigmoid_topk(scores, k). If they are probabilities, pass probs=",
            stacklevel=3,
        )
