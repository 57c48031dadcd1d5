"""One call for every method that works on shards."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from khot.parallel._agreement import agreed_sizes
from khot.parallel._dtensors import is_dtensor, on_dtensor
from khot.parallel._group import Group, ProcessGroup
from khot.parallel.threshold import laplace_topk, sigmoid_topk, sparse_topk
from khot.relaxations._arguments import Number
from khot.relaxations._plain_arguments import check_choice

__all__ = ["topk"]

_METHODS = {"sigmoid": sigmoid_topk, "laplace": laplace_topk, "sparse": sparse_topk}


def topk(
    scores: Tensor,
    k: Number | Tensor,
    method: str = "sigmoid",
    *,
    temperature: Number | Tensor = 1.0,
    hard: bool = False,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    group: ProcessGroup | None = None,
    **options: Any,
) -> Tensor:
    """Relax the indicator of the ``k`` largest scores of rows that several processes hold, by any method.

    This is :func:`khot.topk` for shards; see :func:`khot.parallel.sigmoid_topk` for what holds for all
    methods.

    Args:
        scores: this process's shard, or a ``DTensor``.
        k: budget of the whole row, 0 ≤ k ≤ n; the same in all processes.
        method: ``"sigmoid"``, ``"laplace"`` or ``"sparse"``; the other methods need whole rows.
        temperature: > 0; the same in all processes.
        hard: exact hard top-k forward, the gradient of the method backward (k must be an integer).
        dim: the dimension along which to select, and along which the scores are split.
        mask: boolean, broadcastable to this shard; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores.
        group: the processes; by default all, or this one alone if there is no process group.
        options: options of the method: ``norm`` for ``"sparse"``.

    Returns:
        Weights in the shape and dtype of this shard; over all shards, a row sums to min(k, allowed).

    Example:
        >>> topk(torch.tensor([3.0, 1.0, 2.0]), 2, method="sparse", temperature=0.5).tolist()
        [1.0, 0.0, 1.0]
    """
    try:
        _check_method(method, options)
    except (TypeError, ValueError):
        if is_dtensor(scores):
            on_dtensor("topk", scores, k, temperature, dim, mask, group, partial(_refused, method, options))
        return _refused(method, options, scores, k, temperature, mask, Group(group))
    return _METHODS[method](
        scores,
        k,
        temperature=temperature,
        dim=dim,
        mask=mask,
        largest=largest,
        hard=hard,
        group=group,
        **options,
    )


def _check_method(method: str, options: dict[str, Any]) -> None:
    check_choice("topk", "method", method, _METHODS)
    known = {"norm"} if method == "sparse" else set[str]()
    if unknown := options.keys() - known:
        raise TypeError(
            f"topk: method {method!r} has no option {', '.join(sorted(unknown))}; "
            f"it has {', '.join(sorted(known)) or 'none'}"
        )


def _refused(
    method: str,
    options: dict[str, Any],
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    mask: Tensor | None,
    group: Group,
) -> Tensor:
    """Tell the other processes, which wait for the first message, and raise."""

    def describe() -> tuple[int, dict[str, Any]]:
        _check_method(method, options)
        return 0, {}

    device = scores.device if isinstance(scores, Tensor) else torch.device("cpu")  # pyright: ignore[reportUnnecessaryIsInstance]
    agreed_sizes("topk", group, device, describe)
    raise AssertionError("a wrong method was accepted")
