"""Top-k of NumPy arrays: the kernels of `khot.sigmoid_topk` and its family read the memory of the array.

Nothing is copied if the array

* is float32 or float64 (float16 is computed in float32),
* is C-contiguous and ``axis`` is its last (other strides take one contiguous copy),
* has the byte order of the machine (another one is an error).

khot never writes to your array, so it may be read-only. Integer scores are an error, as in torch. `vjp` and
`jvp` give Jacobian products in reverse and in forward mode.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from khot import relaxations

__all__ = [
    "Gradients",
    "hard_topk",
    "jvp",
    "laplace_topk",
    "normal_topk",
    "sigmoid_topk",
    "sparse_topk",
    "vjp",
]

Array = NDArray[Any]
Budget = float | Array
_Function = Callable[..., Array]


class Gradients(NamedTuple):
    """The gradients that the function returned by `vjp` gives.

    Attributes:
        scores: gradient in the scores, in their shape and dtype.
        k: gradient in k, in its shape; None if k was a number.
        temperature: gradient in the temperature, in its shape; None if it was a number.

    Example:
        >>> _, pull = vjp(sigmoid_topk, np.array([3.0, 1.0, 2.0]), np.array(2.0))
        >>> scores, k, temperature = pull(np.ones(3))
        >>> round(float(k), 6), temperature is None  # the weights sum to k
        (1.0, True)
    """

    scores: Array
    k: Array | None
    temperature: Array | None


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
        >>> hard_topk(np.array([2.0, 3.0, 2.0, 1.0]), 2)
        array([1., 1., 0., 0.])
    """
    return _call(relaxations.hard_topk, scores, k, axis, mask, largest)


_TORCH: dict[_Function, Callable[..., torch.Tensor]] = {
    sigmoid_topk: relaxations.sigmoid_topk,
    laplace_topk: relaxations.laplace_topk,
    normal_topk: relaxations.normal_topk,
    sparse_topk: relaxations.sparse_topk,
}


def vjp(
    function: _Function,
    scores: Array,
    k: Budget,
    *,
    temperature: Budget = 1.0,
    axis: int = -1,
    mask: Array | None = None,
    largest: bool = True,
    **options: float,
) -> tuple[Array, Callable[[Array], Gradients]]:
    """Compute the weights, and a function that multiplies a vector by their Jacobian.

    The weights are read-only, because the products read them; copy them if you want to change them. Do not
    change the scores before the last product either.

    Args:
        function: `sigmoid_topk`, `laplace_topk`, `normal_topk` or `sparse_topk` of this module.
        scores: a floating-point array of any shape.
        k: budget, as in `sigmoid_topk`; an array has a gradient, a number has none.
        temperature: > 0; an array has a gradient, a number has none.
        axis: the axis that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores.
        options: options of the function: ``norm`` for `sparse_topk`.

    Returns:
        The weights, and a function that takes a vector in the shape and dtype of the weights and returns its
        `Gradients`.

    Example:
        >>> y, pull = vjp(sigmoid_topk, np.array([3.0, 1.0, 2.0]), 2)
        >>> pull(np.array([1.0, 0.0, 0.0])).scores.round(3)
        array([ 0.096, -0.052, -0.045])
    """
    if function not in _TORCH:
        names = ", ".join(sorted(f.__name__ for f in _TORCH))
        raise ValueError(f"vjp: function must be one of {names} of khot.interop.numpy, got {function!r}")
    name = function.__name__
    leaves = [_tensor(name, what, value) for what, value in (("scores", scores), ("k", k))]
    leaves.append(_tensor(name, "temperature", temperature))
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            leaf.requires_grad_()
    with torch.enable_grad():
        y = _TORCH[function](
            leaves[0],
            leaves[1],
            temperature=leaves[2],
            dim=axis,
            mask=_tensor(name, "mask", mask),
            largest=largest,
            **options,
        )
    wanted = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]

    def pull(vector: Array) -> Gradients:
        g = _tensor(name, "vector", vector)
        if not isinstance(g, torch.Tensor) or g.shape != y.shape or g.dtype != y.dtype:
            got = f"{vector.dtype} of shape {vector.shape}" if isinstance(g, torch.Tensor) else repr(vector)
            raise ValueError(f"{name}: the vector must be {scores.dtype} of shape {scores.shape}, got {got}")
        made = torch.autograd.grad(y, [leaves[i] for i in wanted], g, retain_graph=True)
        gradients: list[Array | None] = [None, None, None]
        for i, gradient in zip(wanted, made, strict=True):
            gradients[i] = gradient.numpy()
        assert gradients[0] is not None
        return Gradients(gradients[0], gradients[1], gradients[2])

    weights = y.detach().numpy()
    weights.flags.writeable = False  # the products read them
    return weights, pull


def jvp(
    function: _Function, scores: Array, k: Budget, tangent: Array, **arguments: Any
) -> tuple[Array, Array]:
    """Compute the weights, and their derivative when the scores move along ``tangent``.

    The Jacobian in the scores is symmetric, so this is the product that `vjp` gives for the scores.

    Args:
        function: `sigmoid_topk`, `laplace_topk`, `normal_topk` or `sparse_topk` of this module.
        scores: a floating-point array of any shape.
        k: budget, as in `sigmoid_topk`.
        tangent: the direction, in the shape and dtype of ``scores``.
        arguments: other arguments of the function, by name.

    Returns:
        The weights and their derivative, in the shape and dtype of ``scores``.

    Example:
        >>> y, moved = jvp(sigmoid_topk, np.array([3.0, 1.0, 2.0]), 2, np.array([1.0, 0.0, 0.0]))
        >>> moved.round(3)
        array([ 0.096, -0.052, -0.045])
    """
    y, pull = vjp(function, scores, k, **arguments)
    return y, pull(tangent).scores


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
    tensors = {what: _tensor(name, what, value) for what, value in (("k", k), ("mask", mask))}
    options = {what: _tensor(name, what, value) for what, value in options.items()}
    x = _tensor(name, "scores", scores)
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: scores must be a numpy.ndarray, got {type(scores).__name__}")
    with torch.no_grad():
        y = function(x, tensors["k"], dim=axis, mask=tensors["mask"], largest=largest, **options)
    return y.numpy()


def _tensor(name: str, argument: str, value: Any) -> Any:
    """An array as a tensor over the same memory; anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    array: Array = value
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: {argument} must be a plain array, got a masked one: use its data, and mask=~scores.mask"
        )
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise TypeError(f"{name}: {argument} must be of a real dtype of up to 64 bits, got {array.dtype}")
    if not array.dtype.isnative:
        raise TypeError(
            f"{name}: {argument} must be in the byte order of this machine, got {array.dtype.str}: "
            f"use {argument}.astype({argument}.dtype.newbyteorder('='))"
        )
    if any(stride < 0 for stride in array.strides):
        array = np.array(array, order="C")
    if not array.flags.writeable:
        array = _writable(array)
    return torch.from_numpy(array)  # pyright: ignore[reportUnknownMemberType]


def _writable(array: Array) -> Array:
    """The same memory without the read-only flag, about which torch would warn; khot does not write to it."""
    if array.size == 0:
        return array.copy()
    array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    if array.flags.writeable:  # a copy
        return array
    memory: Any = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    memory._array = array  # keeps it alive, as long as a tensor needs it
    return np.frombuffer(memory, dtype=array.dtype).reshape(array.shape)
