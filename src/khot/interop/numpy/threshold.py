"""The threshold family and the hard top-k, for arrays."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from khot import relaxations
from khot.interop.numpy._memory import Array, Budget, tensor_over
from khot.relaxations._plain_arguments import check_dim

__all__ = ["hard_topk", "laplace_topk", "normal_topk", "sigmoid_topk", "sparse_topk"]


def sigmoid_topk(
    scores: Array,
    k: Budget,
    *,
    temperature: Budget = 1.0,
    axis: int = -1,
    mask: Array | None = None,
    largest: bool = True,
) -> Array:
    """Relax the indicator of the ``k`` largest scores of an array along ``axis``: `khot.sigmoid_topk`.

    Args:
        scores: a floating-point array of any shape.
        k: budget, 0 ≤ k ≤ n; a number, or an array that broadcasts to ``scores.shape`` without ``axis``.
        temperature: > 0, a number or an array like ``k``; the hard top-k is the limit at 0.
        axis: the axis that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0.
        largest: False selects the smallest scores.

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> import numpy as np
        >>> sigmoid_topk(np.array([3.0, 1.0, 2.0]), 2, temperature=0.1).round(3)
        array([1.   , 0.007, 0.993])
    """
    return _call(relaxations.sigmoid_topk, scores, k, axis, mask, largest, temperature=temperature)


def laplace_topk(
    scores: Array,
    k: Budget,
    *,
    temperature: Budget = 1.0,
    axis: int = -1,
    mask: Array | None = None,
    largest: bool = True,
) -> Array:
    """Relax the indicator of the ``k`` largest scores of an array with Laplace gates: `khot.laplace_topk`.

    Args:
        scores: a floating-point array of any shape.
        k: budget, as in `sigmoid_topk`.
        temperature: > 0, a number or an array like ``k``.
        axis: the axis that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0.
        largest: False selects the smallest scores.

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> import numpy as np
        >>> laplace_topk(np.array([3.0, 1.0, 2.0]), 2).round(3)
        array([0.905, 0.355, 0.741])
    """
    return _call(relaxations.laplace_topk, scores, k, axis, mask, largest, temperature=temperature)


def normal_topk(
    scores: Array,
    k: Budget,
    *,
    temperature: Budget = 1.0,
    axis: int = -1,
    mask: Array | None = None,
    largest: bool = True,
) -> Array:
    """Relax the indicator of the ``k`` largest scores of an array with normal gates: `khot.normal_topk`.

    Args:
        scores: a floating-point array of any shape.
        k: budget, as in `sigmoid_topk`.
        temperature: > 0, a number or an array like ``k``.
        axis: the axis that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0.
        largest: False selects the smallest scores.

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> import numpy as np
        >>> normal_topk(np.array([3.0, 1.0, 2.0]), 2, temperature=0.1).round(3)
        array([1., 0., 1.])
    """
    return _call(relaxations.normal_topk, scores, k, axis, mask, largest, temperature=temperature)


def sparse_topk(
    scores: Array,
    k: Budget,
    *,
    norm: float = 2.0,
    temperature: Budget = 1.0,
    axis: int = -1,
    mask: Array | None = None,
    largest: bool = True,
) -> Array:
    """Relax the indicator of the ``k`` largest scores of an array with exact zeros: `khot.sparse_topk`.

    Args:
        scores: a floating-point array of any shape.
        k: budget, as in `sigmoid_topk`.
        norm: in (1, 2]; 2 is the Euclidean projection on the capped simplex.
        temperature: > 0, a number or an array like ``k``.
        axis: the axis that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0.
        largest: False selects the smallest scores.

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> import numpy as np
        >>> sparse_topk(np.array([1.1, 0.5, 0.2, -1.0]), 2).round(2)
        array([1.  , 0.65, 0.35, 0.  ])
    """
    return _call(relaxations.sparse_topk, scores, k, axis, mask, largest, temperature=temperature, norm=norm)


def hard_topk(
    scores: Array, k: Budget, *, axis: int = -1, mask: Array | None = None, largest: bool = True
) -> Array:
    """Mark the ``k`` largest scores of an array along ``axis`` with 1, all others with 0: `khot.hard_topk`.

    Args:
        scores: a floating-point array of any shape.
        k: an integer, 0 ≤ k ≤ n, or an array that broadcasts to ``scores.shape`` without ``axis``.
        axis: the axis along which to select.
        mask: boolean, broadcastable to ``scores``; False is never selected.
        largest: False marks the smallest scores.

    Returns:
        Zeros and ones in the shape and dtype of ``scores``, with min(k, allowed) ones per row; ties go to the
        lower index.

    Example:
        >>> import numpy as np
        >>> hard_topk(np.array([2.0, 3.0, 2.0, 1.0]), 2)
        array([1., 1., 0., 0.])
    """
    return _call(relaxations.hard_topk, scores, k, axis, mask, largest)


def _call(
    function: Callable[..., torch.Tensor],
    scores: Array,
    k: Budget,
    axis: int,
    mask: Array | None,
    largest: bool,
    **options: Any,
) -> Array:
    name = function.__name__
    if type(axis) is not int:
        check_dim(name, axis, "axis")
    tensors = {what: tensor_over(name, what, value) for what, value in (("k", k), ("mask", mask))}
    options = {what: tensor_over(name, what, value) for what, value in options.items()}
    x = tensor_over(name, "scores", scores)
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: scores must be a numpy.ndarray, got {type(scores).__name__}")
    with torch.no_grad():
        y = function(x, tensors["k"], dim=axis, mask=tensors["mask"], largest=largest, **options)
    return y.numpy()
