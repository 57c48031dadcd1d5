"""Top-k of NumPy arrays: the kernels of `khot.sigmoid_topk` and its family on the memory of the array.

An array is handed to torch as the memory it is, and a result is an array over the memory that the kernel
wrote: nothing is copied, if the array

* is float32 or float64 (float16 is computed in float32),
* has its rows in order along ``axis`` (C-contiguous with ``axis=-1``; other strides are read through one
  contiguous copy, negative ones too),
* is in the byte order of the machine: another one is refused.

Read-only arrays are fine; they are never written to. Integers are refused, as in torch.

`vjp` gives Jacobian products, `jvp` the same forward: the Jacobian in the scores is symmetric.
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
    """What `vjp` pulls back; None for an argument that was a number.

    Attributes:
        scores: in the shape and dtype of the scores.
        k: of an array k, in its shape.
        temperature: of an array temperature, in its shape.
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
    """`khot.sigmoid_topk` of an array.

    Args:
        scores: any floating shape.
        k: budget, 0 ≤ k ≤ n; a number, or an array that broadcasts to the shape without ``axis``.
        temperature: > 0, likewise.
        axis: the axis that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0.
        largest: False selects the smallest.

    Returns:
        Weights in the shape and dtype of ``scores``.

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
    """`khot.laplace_topk` of an array; arguments as in `sigmoid_topk`."""
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
    """`khot.normal_topk` of an array; arguments as in `sigmoid_topk`."""
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
    """`khot.sparse_topk` of an array: exact zeros and ones; ``norm`` in (1, 2], else as in `sigmoid_topk`.

    Example:
        >>> sparse_topk(np.array([1.1, 0.5, 0.2, -1.0]), 2).round(2)
        array([1.  , 0.65, 0.35, 0.  ])
    """
    return _call(relaxations.sparse_topk, scores, k, axis, mask, largest, temperature=temperature, norm=norm)


def hard_topk(
    scores: Array, k: Budget, *, axis: int = -1, mask: Array | None = None, largest: bool = True
) -> Array:
    """`khot.hard_topk` of an array: ones at the k largest, ties by index; arguments as in `sigmoid_topk`.

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
    """The weights, and a function that pulls a vector of their shape back to the arguments.

    The weights are read-only, because the products read them; copy them to change them.

    Args:
        function: one of this module's, but for `hard_topk`, which has no gradient.
        scores: as there, and so are all others. They must not change before the last product.
        k: an array has a gradient, a number none.
        temperature: likewise.
        axis: as there.
        mask: as there.
        largest: as there.
        options: ``norm`` of `sparse_topk`.

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
    """The weights, and how they move with the scores: the product of the same, symmetric, Jacobian.

    Args:
        function: as in `vjp`.
        scores: as there.
        k: as there.
        tangent: a motion of the scores, of their shape and dtype.
        arguments: the others, by name.
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
    """The array as a tensor over the same memory; what is no array as it is."""
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
        array = np.ascontiguousarray(array).reshape(array.shape)
    if not array.flags.writeable:
        array = _writable(array)
    return torch.from_numpy(array)  # pyright: ignore[reportUnknownMemberType]


def _writable(array: Array) -> Array:
    """The same memory without its flag, of which torch would warn; nothing here writes to it."""
    if array.size == 0:
        return array.copy()
    array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    if array.flags.writeable:  # a copy
        return array
    memory: Any = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    memory._array = array  # keeps it alive, as long as a tensor needs it
    return np.frombuffer(memory, dtype=array.dtype).reshape(array.shape)
