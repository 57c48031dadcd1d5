"""The registry of relaxations: each operator, and the properties it promises.

The contract tests, the benchmarks, the command line and the tables of the docs read it. So a new operator is
one new file with a ``SPEC``, and one import in ``khot.relaxations``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor

__all__ = ["Relaxation", "get", "names", "register", "specs"]

Smoothness = Literal["C∞", "C¹", "C⁰", "piecewise", "none"]


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """An operator and its row in the property table.

    Attributes:
        name: the function's name without ``_topk``; what ``method=`` takes.
        weights: ``f(scores, k, *, temperature, dim, mask, hard, **options)`` → k-hot weights.
        matrix: the same → soft one-hot rows (…, k, n), if the operator has them.
        select: ``f(values, scores, k, *, temperature, mask, **options)`` → (matrix @ values, weights), if the
            operator has a faster way to compute it.
        bounded: weights lie in [0, 1].
        sums_to_k: weights sum to min(k, allowed).
        keeps_order: a larger score never gets a smaller weight.
        equivariant: permuting distinct scores permutes the weights.
        shift_invariant: adding a constant to all scores changes nothing.
        ties_share: n equal scores get k/n each.
        real_k: k may be any real number, and has a gradient.
        smooth: how many times the weights are continuously differentiable.
        stochastic: the operator is random and takes a ``generator``. Order, ties and permutation then hold in
            expectation only; the contract leaves them, and the derivatives, to the operator's own tests. The
            limit at temperature 0 is a hard selection of the scores or of a sample.
        noiseless: the name of the method without its noise, if there is one.
        max_n: the longest row in the contract tests.
        max_k: the largest budget in the contract tests, if not n − 1.
        row_options: options with which the weights are the sum of the rows, if not the defaults.
        example_options: further option sets that the contract tests run.
        reference: the paper, in one line.

    Example:
        >>> sigmoid = get("sigmoid")
        >>> sigmoid.real_k, sigmoid.sums_to_k, sigmoid.stochastic
        (True, True, False)
    """

    name: str
    weights: Callable[..., Tensor]
    matrix: Callable[..., Tensor] | None = None
    select: Callable[..., tuple[Tensor, Tensor]] | None = None
    bounded: bool = True
    sums_to_k: bool = True
    keeps_order: bool = True
    equivariant: bool = True
    shift_invariant: bool = True
    ties_share: bool = True
    real_k: bool = False
    smooth: Smoothness = "none"
    stochastic: bool = False
    noiseless: str | None = None
    max_n: int = 10_000
    max_k: int | None = None
    row_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    example_options: tuple[Mapping[str, Any], ...] = field(default=())
    reference: str = ""


_SPECS: dict[str, Relaxation] = {}


def register(spec: Relaxation) -> Relaxation:
    """Register a relaxation, so that it can be used by name.

    Args:
        spec: the relaxation; its name must be new.

    Returns:
        The relaxation.

    Example:
        >>> register(get("sigmoid"))
        Traceback (most recent call last):
        ValueError: register: a relaxation named 'sigmoid' is already registered
    """
    if spec.name in _SPECS:
        raise ValueError(f"register: a relaxation named {spec.name!r} is already registered")
    _SPECS[spec.name] = spec
    return spec


def get(method: str | Relaxation, caller: str = "get") -> Relaxation:
    """The relaxation called ``method``.

    Args:
        method: one of :func:`names`, or a :class:`Relaxation`, which is returned unchanged.
        caller: the function named in error messages.

    Returns:
        The :class:`Relaxation`.

    Example:
        >>> get("softsort").reference
        'Prillo & Eisenschlos (2020)'
    """
    if isinstance(method, Relaxation):
        return method
    if isinstance(method, str) and method in _SPECS:  # pyright: ignore[reportUnnecessaryIsInstance]
        return _SPECS[method]
    hint = "; did you mean dim= or temperature=?" if isinstance(method, int | float) else ""
    raise ValueError(f"{caller}: unknown method {method!r}{hint}; known methods: {', '.join(names())}")


def names() -> list[str]:
    """The names of all registered relaxations, in alphabetical order.

    Returns:
        The list of names.

    Example:
        >>> "sigmoid" in names()
        True
    """
    return sorted(_SPECS)


def specs() -> Mapping[str, Relaxation]:
    """All registered relaxations by name.

    Returns:
        A read-only mapping, in alphabetical order.

    Example:
        >>> [name for name, spec in specs().items() if spec.stochastic]
        ['gumbel', 'perturbed']
    """
    return MappingProxyType({name: _SPECS[name] for name in names()})
