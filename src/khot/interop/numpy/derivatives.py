"""Jacobian products of the threshold family, for arrays."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from khot import relaxations
from khot.interop.numpy._memory import Array, Budget, tensor_over
from khot.interop.numpy.threshold import laplace_topk, normal_topk, sigmoid_topk, sparse_topk
from khot.relaxations._plain_arguments import check_dim

__all__ = ["Gradients", "jvp", "vjp"]

_Function = Callable[..., Array]

_TORCH: dict[_Function, Callable[..., torch.Tensor]] = {
    sigmoid_topk: relaxations.sigmoid_topk,
    laplace_topk: relaxations.laplace_topk,
    normal_topk: relaxations.normal_topk,
    sparse_topk: relaxations.sparse_topk,
}


class Gradients(NamedTuple):
    """The gradients that the function returned by `vjp` gives.

    Attributes:
        scores: gradient in the scores, in their shape and dtype.
        k: gradient in k, in its shape; None if k was a number.
        temperature: gradient in the temperature, in its shape; None if it was a number.

    Example:
        >>> import numpy as np
        >>> _, pull = vjp(sigmoid_topk, np.array([3.0, 1.0, 2.0]), np.array(2.0))
        >>> scores, k, temperature = pull(np.ones(3))
        >>> round(float(k), 6), temperature is None  # the weights sum to k
        (1.0, True)
    """

    scores: Array
    k: Array | None
    temperature: Array | None


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
        >>> import numpy as np
        >>> y, pull = vjp(sigmoid_topk, np.array([3.0, 1.0, 2.0]), 2)
        >>> pull(np.array([1.0, 0.0, 0.0])).scores.round(3)
        array([ 0.096, -0.052, -0.045])
    """
    if function not in _TORCH:
        names = ", ".join(sorted(f.__name__ for f in _TORCH))
        raise ValueError(f"vjp: function must be one of {names} of khot.interop.numpy, got {function!r}")
    name = function.__name__
    check_dim(name, axis, "axis")
    leaves = [tensor_over(name, what, value) for what, value in (("scores", scores), ("k", k))]
    leaves.append(tensor_over(name, "temperature", temperature))
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            leaf.requires_grad_()
    with torch.enable_grad():
        y = _TORCH[function](
            leaves[0],
            leaves[1],
            temperature=leaves[2],
            dim=axis,
            mask=tensor_over(name, "mask", mask),
            largest=largest,
            **options,
        )
    wanted = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]

    def pull(vector: Array) -> Gradients:
        g = tensor_over(name, "vector", vector)
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
        >>> import numpy as np
        >>> y, moved = jvp(sigmoid_topk, np.array([3.0, 1.0, 2.0]), 2, np.array([1.0, 0.0, 0.0]))
        >>> moved.round(3)
        array([ 0.096, -0.052, -0.045])
    """
    y, pull = vjp(function, scores, k, **arguments)
    return y, pull(tangent).scores
