"""One call of the threshold family: yᵢ = F((xᵢ + c)/τ), c such that Σy = k, F a gate (see ``_gates.py``).

It runs as a kernel on plain CPU tensors, as an operation of a compiled graph, or in torch operations
(``_functions.py``). The derivatives are the same in all cases (``_jacobian.py``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from khot.kernels import cpu, operations, triton
from khot.kernels.availability import is_plain
from khot.kernels.loader import native
from khot.relaxations._arguments import (
    Number,
    as_rows,
    check_budget,
    check_hard,
    check_mask,
    check_temperature,
    compute_dtype,
    directed,
    per_row,
    position,
)
from khot.relaxations._linearised import must_linearise
from khot.relaxations._temperature import within_range
from khot.relaxations.hard import hard_topk
from khot.relaxations.straight_through import straight_through
from khot.relaxations.threshold._functions import (
    compiled_gated,
    linearised_gated,
    native_gated,
    portable_gated,
)
from khot.relaxations.threshold._gates import LOGISTIC, Gate
from khot.relaxations.threshold._plain_gates import plain_gated
from khot.relaxations.threshold._plain_sigmoid import sigmoid_from_weights

__all__ = ["gated_topk"]


def gated_topk(
    name: str,
    gate: Gate,
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    hard: bool,
) -> Tensor:
    """The weights of the operator called ``name``."""
    scores = directed(name, scores, largest)
    if hard is not False:
        check_hard(name, scores, k, dim, hard)
    y = plain_gated(gate, scores, k, temperature, dim) if mask is None and not hard else None
    if y is not None:
        return y
    y = _native(name, gate, scores, k, temperature, dim, mask)
    if y is None:
        y = _compiled(name, gate, scores, k, temperature, dim, mask)
    if y is None:
        rows = as_rows(name, scores, k, temperature, dim, mask)
        weights = linearised_gated(gate, rows) if must_linearise() else portable_gated(gate, rows)[0]
        y = weights.movedim(-1, dim)
    return straight_through(y, hard_topk(scores, k, dim=dim, mask=mask)) if hard else y


def _native(
    name: str,
    gate: Gate,
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
) -> Tensor | None:
    """The weights by the compiled kernel, or None where that cannot be."""
    tensors = [t for t in (scores, k, temperature, mask) if isinstance(t, Tensor)]
    if gate.kernel is None or not is_plain(*tensors) or native() is None:
        return None
    last = position(name, scores, dim)
    check_budget(name, scores, k, last)
    check_temperature(name, temperature)
    dtype = compute_dtype(scores)
    temperature = within_range(temperature, dtype)
    if len(tensors) == 1:
        k_rows, t_rows = float(k), float(temperature)
    else:
        k_rows = per_row(name, "k", scores, k, last) if isinstance(k, Tensor) else float(k)
        t_rows = temperature
        if isinstance(temperature, Tensor):
            t_rows = per_row(name, "temperature", scores, temperature, last)
    if mask is not None:
        check_mask(name, scores, mask)
        mask = mask.expand(scores.shape).movedim(last, -1)
    rows = scores if last == scores.dim() - 1 else scores.movedim(last, -1)
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        if dtype == scores.dtype:
            y = cpu.gated_topk(gate.kernel, rows, k_rows, t_rows, mask, norm=gate.norm)[0]
        else:
            y = cpu.gated_topk(gate.kernel, rows.to(dtype), k_rows, t_rows, mask, norm=gate.norm)[0]
            y = y.to(scores.dtype)
        return y if rows is scores else y.movedim(-1, last)
    if gate is LOGISTIC and dtype == scores.dtype and not _learns(k_rows, t_rows):
        y = sigmoid_from_weights(rows, k_rows, t_rows, mask)
    else:
        y = native_gated(gate, rows, k_rows, t_rows, mask)[0]
    return y if rows is scores else y.movedim(-1, last)


def _compiled(
    name: str,
    gate: Gate,
    scores: Tensor,
    k: Number | Tensor,
    temperature: Number | Tensor,
    dim: int,
    mask: Tensor | None,
) -> Tensor | None:
    """The weights by the kernel as an operation, in a compiled graph or on a GPU; None where that cannot be.

    Little is done beside it: whatever else there is, Inductor would have to compile.
    """
    if gate.kernel is None:
        return None
    last = position(name, scores, dim)
    on_gpu = triton.serves(gate.kernel, gate.norm) and operations.taken_on_gpu(scores)
    if not (on_gpu or operations.taken()) or must_linearise():
        return None
    dtype = compute_dtype(scores)
    rows = (scores if on_gpu else scores.to(dtype)).movedim(last, -1)  # a GPU kernel reads half types
    if not (on_gpu or operations.taken(rows)):
        return None
    check_budget(name, scores, k, last)
    check_temperature(name, temperature)
    if mask is not None:
        check_mask(name, scores, mask)
        mask = mask.expand(scores.shape).movedim(last, -1)
    k_rows, t_rows = (
        per_row(name, argument, scores, value, last)
        if isinstance(value, Tensor) and (value.requires_grad or value.dim())
        else operations.as_tensor(value, dtype, scores.device)
        for argument, value in (("k", k), ("temperature", within_range(temperature, dtype)))
    )
    if gate is LOGISTIC and not on_gpu and not _learns(k_rows, t_rows):
        y = sigmoid_from_weights(rows, k_rows, t_rows, mask)
    else:
        y = compiled_gated(gate, rows, k_rows, t_rows, mask)[0]
    return y.to(scores.dtype).movedim(-1, last)


def _learns(*values: Tensor | Number) -> bool:
    return any(isinstance(value, Tensor) and value.requires_grad for value in values)
