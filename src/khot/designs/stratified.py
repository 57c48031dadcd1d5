"""Stratified sampling: a fixed number of units from each group, drawn independently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from khot.designs._arguments import (
    check_one_of,
    check_probabilities,
    check_scores,
    check_size,
    validates,
)
from khot.designs.base import KHotDistribution
from khot.designs.registry import get
from khot.relaxations._plain_arguments import check_tensor

__all__ = ["Stratified"]


class Stratified(KHotDistribution):
    r"""Stratified sampling: one design per stratum, drawn independently.

    .. math:: p(x) = \prod_h p_h(x_h), \qquad \pi_{ij} = \pi_i \pi_j \text{ across strata}

    The number of units from each stratum is fixed, so the total is too. R: ``strata``. Cost: the sum over the
    designs of the strata.

    Args:
        strata: the stratum of each unit, integers 0 … H − 1 of shape (n,), each with at least one unit.
        designs: one design per stratum, over its units in their order, all with the same batch shape; or a
            class or a name, from which a design is made for each stratum, with ``k`` and ``probs`` or
            ``scores``.
        k: with a class or a name: how many units of each stratum, H integers.
        probs: with a class or a name: inclusion probabilities (…, n), which sum to ``k[h]`` over stratum h.
        scores: with a class or a name, instead of ``probs``: scores (…, n).
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> from khot.designs import SimpleRandom, Systematic
        >>> strata = torch.tensor([0, 1, 0, 1, 1])
        >>> design = Stratified(strata, [SimpleRandom(1, 2), SimpleRandom(2, 3)])
        >>> design.mean
        tensor([0.5000, 0.6667, 0.5000, 0.6667, 0.6667])
        >>> Stratified(strata, Systematic, k=[1, 1], scores=torch.zeros(5)).joint_inclusion[0]
        tensor([0.5000, 0.1667, 0.0000, 0.1667, 0.1667])

    Reference: Neyman (1934), On the Two Different Aspects of the Representative Method.
    """

    def __init__(
        self,
        strata: Tensor,
        designs: Sequence[KHotDistribution] | str | type[KHotDistribution],
        k: Sequence[int] | None = None,
        *,
        probs: Tensor | None = None,
        scores: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        members = _members(strata)
        validate = validates("Stratified", validate_args)
        if isinstance(designs, str | type):
            given = {"probs": probs, "scores": scores}
            made = _of_class(members, get(designs, "Stratified"), k, given, validate)
        else:
            _check_designs(designs)
            if not (k is None and probs is None and scores is None):
                raise ValueError("Stratified: k, probs and scores are for a class; designs are made already")
            made = list(designs)
        _check_parts(members, made)
        self._members = members
        # Off the support of a part is on that of the whole: its probability is 0, and not an error.
        self._parts = [_unchecked(part) for part in made]
        mean = self._gathered([part.mean for part in self._parts])
        super().__init__(sum(int(part.k) for part in made), probs=mean, validate_args=False)
        self._validate_args = validate

    @property
    def parts(self) -> tuple[KHotDistribution, ...]:
        """The designs of the strata."""
        return tuple(self._parts)

    def _gathered(self, values: list[Tensor]) -> Tensor:
        """Values of the strata (…, n_h) in the order of the units."""
        return torch.cat(values, -1)[..., torch.cat(self._members).argsort()]

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        drawn = [
            units[part.sample_indices(sample_shape, generator)]
            for units, part in zip(self._members, self._parts, strict=True)
        ]
        return torch.cat(drawn, -1).sort(-1).values

    def _log_prob(self, x: Tensor) -> Tensor:
        """The sum over strata; −inf where a stratum has not its number of units."""
        x = x.to(self._dtype)
        terms = [part.log_prob(x[..., units]) for units, part in zip(self._members, self._parts, strict=True)]
        return torch.stack(terms).sum(0)

    def _entropy(self) -> Tensor:
        """The sum over strata."""
        return torch.stack([part.entropy() for part in self._parts]).sum(0)

    def _joint_inclusion(self) -> Tensor:
        """Products of π across strata, the joint inclusion of the design within each."""
        pi = self.mean
        joint = (pi.unsqueeze(-1) * pi.unsqueeze(-2)).clone()
        for units, part in zip(self._members, self._parts, strict=True):
            joint[..., units.unsqueeze(-1), units] = part.joint_inclusion
        return joint

    def _mode(self) -> Tensor:
        """The modes of the strata."""
        return self._gathered([part.mode for part in self._parts])

    def expand(self, batch_shape: torch.Size | tuple[int, ...], _instance: Any = None) -> Any:
        """The same design for a larger batch.

        Args:
            batch_shape: the new batch shape, to which the old one must broadcast.
        """
        new = super().expand(batch_shape, _instance)
        new._members = self._members
        new._parts = [part.expand(batch_shape) for part in self._parts]
        return new

    def __repr__(self) -> str:
        """Show the designs of the strata."""
        return f"Stratified({', '.join(map(repr, self._parts))})"


def _members(strata: Tensor) -> list[Tensor]:
    """The units of each stratum, increasing."""
    check_tensor("Stratified", "strata", strata)
    if strata.is_floating_point() or strata.dim() != 1 or strata.numel() == 0:
        got = f"{strata.dtype} of shape {tuple(strata.shape)}"
        raise ValueError(f"Stratified: strata must be integers of shape (n,), got {got}")
    found = sorted({int(label) for label in strata})
    if found != list(range(len(found))):
        raise ValueError(f"Stratified: strata must be 0 … H − 1, each with a unit, got {found}")
    return [(strata == label).nonzero().flatten() for label in found]


def _of_class(
    members: list[Tensor],
    design: type[KHotDistribution],
    k: Sequence[int] | None,
    given: dict[str, Tensor | None],
    validate: bool,
) -> list[KHotDistribution]:
    if k is None or not isinstance(k, Sequence | Tensor) or len(k) != len(members):  # pyright: ignore[reportUnnecessaryIsInstance]
        got = list(k) if isinstance(k, Sequence | Tensor) else k
        raise ValueError(f"Stratified: k must have one size for each of {len(members)} strata, got {got}")
    argument = check_one_of("Stratified", given)
    parameter = cast("Tensor", given[argument])
    n = sum(map(len, members))
    if parameter.shape[-1:] != (n,):
        raise ValueError(f"Stratified: {argument} must have shape (…, {n}), got {tuple(parameter.shape)}")
    if argument not in design.parameters:
        takes = " or ".join(design.parameters)
        raise TypeError(f"Stratified: design {design.__name__} takes {takes}, got {argument}")
    made: list[KHotDistribution] = []
    for h, (given_size, units) in enumerate(zip(k, members, strict=True)):
        name, rows = f"Stratified: stratum {h}", parameter[..., units]
        size = check_size(name, given_size, len(units), whole=False)
        _check_whole(size)
        if validate and argument == "probs":
            check_probabilities(name, rows, size)
        elif validate:
            check_scores(name, argument, rows, size)
        made.append(cast("Any", design)(size, **{argument: rows}, validate_args=validate))
    return made


def _check_designs(designs: Sequence[KHotDistribution]) -> None:
    made = isinstance(designs, Sequence) and all(isinstance(each, KHotDistribution) for each in designs)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not made:
        raise TypeError(
            f"Stratified: designs must be a name, a class or a sequence of designs, got {designs!r}"
        )


def _check_whole(k: float) -> None:
    if not isinstance(k, int):
        raise ValueError(f"Stratified: designs must draw whole numbers of units, got k = {k}")


def _check_parts(members: list[Tensor], parts: list[KHotDistribution]) -> None:
    sizes, given = [len(units) for units in members], [part.n for part in parts]
    if sizes != given:
        raise ValueError(f"Stratified: designs must be over strata of {sizes} units, got {given}")
    shapes = {part.batch_shape for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"Stratified: designs must have one batch shape, got {sorted(map(tuple, shapes))}")
    if any(part._short is not None for part in parts):  # pyright: ignore[reportPrivateUsage]
        raise ValueError("Stratified: designs must have k units to draw in every row, got fewer above -inf")
    for part in parts:
        _check_whole(part.k)


def _unchecked(design: KHotDistribution) -> KHotDistribution:
    copy = design.expand(design.batch_shape)
    copy._validate_args = False
    return copy
