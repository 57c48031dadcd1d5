"""One call for every relaxation: ``topk(x, k, method=...)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from khot.relaxations.arguments import Number
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.sparse import sparse_topk

__all__ = ["checked_options", "options_of", "topk"]

_SHARED = ("temperature", "dim", "mask", "hard")


def topk(
    x: Tensor,
    k: Number | Tensor,
    method: str | Relaxation = "sigmoid",
    temperature: Number | Tensor = 1.0,
    hard: bool = False,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    *,
    capped: bool = False,
    **options: Any,
) -> Tensor:
    r"""K-hot weights: a differentiable mask of the ``k`` largest entries of ``x`` along ``dim``.

    Unlike :func:`torch.topk` this returns neither values nor indices but a weight for every entry, because
    the weights are what has a gradient. For indices take ``x.topk(k).indices``; for a hard mask that still
    trains, ``hard=True``.

    Args:
        x: scores, any floating shape. −inf means excluded, +inf surely selected.
        k: how many, a number or a tensor that broadcasts to ``x.shape`` without ``dim``.
        method: the relaxation, by name (``khot.relaxations.registry.names()`` lists them) or as a
            :class:`khot.relaxations.Relaxation`.
        temperature: > 0, a number or a tensor like ``k``; the hard top-k is the limit at 0.
        hard: exact hard top-k forward, the relaxation's gradient backward (k must be an integer).
        dim: the dimension along which to select.
        mask: boolean, broadcastable to ``x``, True where an entry may be selected.
        largest: False selects the smallest entries; then +inf means excluded and −inf surely selected.
        capped: project the weights of a method that may exceed 1 on the capped simplex.
        options: of the method, such as ``norm`` for ``"sparse"``.

    Returns:
        Weights in the shape and dtype of ``x``.

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in topk(x, 2).tolist()]
        [0.859, 0.451, 0.691]
        >>> topk(x, 2, method="sparse", temperature=0.5).tolist()
        [1.0, 0.0, 1.0]
        >>> topk(x, 1, largest=False, hard=True).tolist()
        [0.0, 1.0, 0.0]
    """
    spec = method if isinstance(method, Relaxation) else get(method)
    checked_options("topk", spec, options)
    scores = x if largest else -x
    y = spec.weights(scores, k, temperature=temperature, dim=dim, mask=mask, hard=hard, **options)
    if not capped or spec.bounded or hard:
        return y
    return sparse_topk(y, k, dim=dim, mask=mask)


def checked_options(
    name: str, spec: Relaxation, options: Mapping[str, Any], function: Callable[..., Any] | None = None
) -> None:
    """Raise unless the method, or this function of it, has each of the options."""
    known = options_of(spec.weights if function is None else function)
    unknown = [option for option in options if option not in known]
    if unknown:
        has = f"its options: {', '.join(known)}" if known else "it has none"
        raise TypeError(f"{name}: method {spec.name!r} has no option {unknown[0]!r}; {has}")


def options_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The options of an operator beyond those that all share."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in _SHARED)
