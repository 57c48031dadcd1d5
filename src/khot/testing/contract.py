"""The contract that every relaxation passes, as its declared row allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from khot.relaxations.registry import Relaxation
from khot.testing import derivatives, extremes, facades, misuse, properties, rows, tracing
from khot.testing.requirements import ContractError

__all__ = ["Check", "check_relaxation", "relaxation_checks"]

_CHECKS: list[Callable[[Relaxation, Mapping[str, Any]], None]] = [
    *properties.CHECKS,
    *facades.CHECKS,
    *rows.CHECKS,
    *derivatives.CHECKS,
    *extremes.CHECKS,
    *misuse.CHECKS,
    *tracing.CHECKS,
]


@dataclass(frozen=True)
class Check:
    """One check of one operator with one set of options; call it to run it."""

    name: str
    spec: Relaxation
    options: Mapping[str, Any]
    function: Callable[[Relaxation, Mapping[str, Any]], None]

    def __call__(self) -> None:
        """Run the check; raises :class:`ContractError` if the operator fails it."""
        self.function(self.spec, self.options)

    def __str__(self) -> str:
        """Operator, check and options, as a test id."""
        options = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.spec.name}-{self.name}" + (f"-{options}" if options else "")


def relaxation_checks(spec: Relaxation) -> list[Check]:
    """All checks of ``spec``, for the default options and each of its ``example_options``.

    Meant for ``pytest.mark.parametrize("check", relaxation_checks(spec), ids=str)``.
    """
    defaults: Mapping[str, Any] = {}
    return [
        Check(function.__name__.removeprefix("check_"), spec, options, function)
        for options in (defaults, *spec.example_options)
        for function in _CHECKS
    ]


def check_relaxation(spec: Relaxation) -> None:
    """Run the whole contract on ``spec`` and report everything that fails.

    Works on any :class:`khot.relaxations.Relaxation`, registered or your own.

    Raises:
        ContractError: with one line per failed check.

    Example:
        >>> from khot.relaxations import registry
        >>> check_relaxation(registry.get("sigmoid"))  # doctest: +SKIP
    """
    failures: list[str] = []
    for check in relaxation_checks(spec):
        try:
            check()
        except Exception as error:  # noqa: PERF203  # every failure is wanted, not the first
            failures.append(f"{check}: {type(error).__name__}: {error}")
    if failures:
        raise ContractError(f"{spec.name}: {len(failures)} failed\n" + "\n".join(failures))
