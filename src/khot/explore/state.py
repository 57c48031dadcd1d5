"""Check the parameters of the page: each has a rule, and errors name the parameter and its value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from khot.designs import names as design_names
from khot.relaxations import registry

__all__ = ["LOSSES", "MAX_DRAWS", "MAX_N", "MAX_SIDES", "BadParameter", "State", "read_state"]

MAX_N = 64
MAX_SIDES = 4
MAX_DRAWS = 5000
_MAX_SCORE = 100.0
_LONGEST = 2000  # characters of a parameter

LOSSES = {
    "runner_up": "the weight of the best entry that is not selected",
    "position": "the mean position of the selection, from left to right",
    "entropy": "how undecided the weights are",
    "square": "half the sum of squared weights",
}


class BadParameter(ValueError):
    """A parameter that breaks its rule.

    Args:
        parameter: its name.
        rule: the rule.
        value: the value that was given.
    """

    def __init__(self, parameter: str, rule: str, value: str) -> None:
        shown = value if len(value) <= 40 else value[:40] + "…"
        super().__init__(f"{parameter} must be {rule}; got {shown!r}")
        self.parameter = parameter


@dataclass(frozen=True)
class State:
    """The state of the page; everything it shows follows from it.

    Args:
        scores: 2 to 64 scores.
        k: the budget, any number from 0 to n.
        temperature: the temperature of all operators.
        methods: the names of 1 to 4 operators.
        designs: the names of at most 4 designs.
        loss: a key of `LOSSES`.
        draws: the number of samples of each design.
        seed: the seed of samples and of random operators.
    """

    scores: tuple[float, ...]
    k: float
    temperature: float
    methods: tuple[str, ...]
    designs: tuple[str, ...]
    loss: str
    draws: int
    seed: int


def read_state(given: Mapping[str, str]) -> State:
    """The state that the parameters of a link describe.

    Args:
        given: names and texts; all parameters except `scores` and `k` have a default.

    Raises:
        BadParameter: for the first parameter that breaks its rule, or an unknown one.
    """
    known = State.__dataclass_fields__
    for name in given:
        if name not in known:
            raise BadParameter("a parameter", f"one of {', '.join(known)}", name)
    for name in ("scores", "k"):
        if name not in given:
            raise BadParameter(name, "given", "")
    for name, text in given.items():
        if len(text) > _LONGEST:
            raise BadParameter(name, f"at most {_LONGEST} characters long", text)
    scores = _scores(given["scores"])
    n = len(scores)
    return State(
        scores=scores,
        k=_number("k", given["k"], 0, n, f"a number from 0 to n = {n}"),
        temperature=_number(
            "temperature", given.get("temperature", "0.5"), 1e-3, 100, "a number from 0.001 to 100"
        ),
        methods=_names("methods", given.get("methods", "sigmoid"), registry.names(), least=1),
        designs=_names("designs", given.get("designs", ""), design_names(), least=0),
        loss=_names("loss", given.get("loss", "runner_up"), list(LOSSES), least=1, most=1)[0],
        draws=_whole("draws", given.get("draws", "1000"), 1, MAX_DRAWS),
        seed=_whole("seed", given.get("seed", "0"), 0, 2**31 - 1),
    )


def _scores(text: str) -> tuple[float, ...]:
    parts = text.split(",")
    if not 2 <= len(parts) <= MAX_N:
        raise BadParameter("scores", f"2 to {MAX_N} numbers with commas between", f"{len(parts)} numbers")
    rule = f"numbers from −{_MAX_SCORE:g} to {_MAX_SCORE:g}"
    return tuple(_number("scores", part, -_MAX_SCORE, _MAX_SCORE, rule) for part in parts)


def _number(name: str, text: str, low: float, high: float, rule: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadParameter(name, rule, text) from None
    if not (math.isfinite(value) and low <= value <= high):
        raise BadParameter(name, rule, text)
    return value


def _whole(name: str, text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and low <= int(text) <= high):
        raise BadParameter(name, f"a whole number from {low} to {high}", text)
    return int(text)


def _names(name: str, text: str, known: list[str], *, least: int, most: int = MAX_SIDES) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(part for part in text.split(",") if part))
    for one in chosen:
        if one not in known:
            raise BadParameter(name, f"out of {', '.join(known)}", one)
    if not least <= len(chosen) <= most:
        count = f"{least}" if least == most else f"{least} to {most}"
        raise BadParameter(name, f"{count} of the known names", text)
    return chosen
