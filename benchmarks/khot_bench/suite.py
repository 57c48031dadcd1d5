"""What a suite is: cases, sides, a baseline, and the map it is about."""

from __future__ import annotations

from dataclasses import dataclass

from khot.compare.cost.case import Case

__all__ = ["Suite"]


@dataclass(frozen=True)
class Suite:
    """A question with its inputs and its candidates.

    Args:
        name: the same as its module's.
        title: one line for tables and listings.
        baseline: source of the side every ratio refers to.
        sides: sources of our own and PyTorch's sides, in the order of the tables.
        peers: sources of the peers' sides.
        cases: the inputs.
        quick_cases: small inputs for `--quick`.
        seconds: what one call of a side may take, if not the usual.
        threads: the counts to measure at if no others are asked for.
        instruction_set: the one of the compiled kernels that it is about, if it is about one.
        map: the map the suite is about; tables say of the other sides that theirs is another.
    """

    name: str
    title: str
    baseline: str
    sides: tuple[str, ...]
    peers: tuple[str, ...]
    cases: tuple[Case, ...]
    quick_cases: tuple[Case, ...]
    map: str = ""
    seconds: float | None = None
    threads: tuple[int, ...] = (1,)
    instruction_set: str | None = None
