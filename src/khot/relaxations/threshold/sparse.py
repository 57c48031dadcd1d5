"""Sparse top-k: the projection on the capped simplex, with exact zeros and ones.

    y = argmax ⟨x, π⟩ − (τ/q) ‖π‖_q^q  over  π ∈ [0, 1]ⁿ, Σπ = k,     q = ``norm`` in (1, 2],
    yᵢ = clamp(z₊^{1/(q−1)}, 0, 1),   z = (x + c)/τ,   c such that Σy = k.

q = 2 is the Euclidean projection of x/τ; with k = 1 it is sparsemax. As q → 1 the exact zeros disappear and
the exact ones stay.

It belongs to the threshold family (``_family.py``), with w = y^{2−q}/(q − 1) where 0 < y < 1 and 0 elsewhere:
if all weights are 0 or 1, there is no gradient. Cost: a few passes over the row and a selection (for q = 2
only if the row is long) in the compiled kernels, no sort. References: Sander et al. (2023);
Martins & Astudillo (2016) for sparsemax; Blondel, Martins & Niculae (2020).
"""

from __future__ import annotations

from torch import Tensor

from khot.relaxations._arguments import Number
from khot.relaxations._plain_arguments import is_number
from khot.relaxations.registry import Relaxation, register
from khot.relaxations.threshold._family import gated_topk
from khot.relaxations.threshold._gates import Sparse

__all__ = ["sparse_gate", "sparse_topk"]

_GATES: dict[float, Sparse] = {2.0: Sparse(2.0)}


def sparse_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    norm: float = 2.0,
    temperature: Number | Tensor = 1.0,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, with exact zeros and ones.

    .. math:: y = \operatorname*{arg\,max}_{\pi \in [0,1]^n,\, \sum \pi = k}
              \langle x, \pi \rangle - \tfrac{\tau}{q} \|\pi\|_q^q

    Scores below the threshold get weight 0, scores τ or more above it get weight 1, both with gradient 0.
    Differentiable almost everywhere in ``scores``, in a tensor ``k`` and in a tensor ``temperature``.

    Units: the temperature divides the scores: with ``norm=2`` weights rise from 0 to 1 over a width of τ.
    Cost: O(n), a few passes over the row; no sort.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: budget, 0 ≤ k ≤ n, any real number, or a tensor that broadcasts to
            ``scores.shape`` without ``dim``.
        norm: q in (1, 2]; 2 is the Euclidean projection on the capped simplex.
        temperature: > 0, a number or a tensor like ``k``; the hard top-k is the limit at 0.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward (k must be an integer).

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([1.1, 0.5, 0.2, -1.0])
        >>> [round(v, 3) for v in sparse_topk(x, 1).tolist()]
        [0.8, 0.2, 0.0, 0.0]
        >>> [round(v, 3) for v in sparse_topk(x, 2).tolist()]
        [1.0, 0.65, 0.35, 0.0]

    Reference: Sander, Puigcerver, Djolonga, Peyré & Blondel (2023), Fast, Differentiable and Sparse Top-k;
    Martins & Astudillo (2016), From Softmax to Sparsemax.
    """
    return gated_topk(
        "sparse_topk", sparse_gate("sparse_topk", norm), scores, k, temperature, dim, mask, largest, hard
    )


def sparse_gate(name: str, norm: float) -> Sparse:
    """The gate for this norm; errors name the function ``name``."""
    if not is_number(norm):
        raise TypeError(f"{name}: norm must be a number, got {type(norm).__name__}")
    if not 1 < norm <= 2:
        raise ValueError(f"{name}: norm must be in (1, 2], got {norm}")
    gate = _GATES.get(norm)
    return Sparse(float(norm)) if gate is None else gate


SPEC = register(
    Relaxation(
        name="sparse",
        weights=sparse_topk,
        real_k=True,
        smooth="C⁰",
        max_n=1_000_000,
        example_options=({"norm": 1.5},),
        reference="Sander et al. (2023); Martins & Astudillo (2016)",
    )
)
