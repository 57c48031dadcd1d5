"""The contract that every relaxation must pass, according to the properties it declares."""

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
    """One check of one operator with one set of options; call it to run it.

    Args:
        name: the name of the check.
        spec: the operator.
        options: the options it is called with.
        function: the check itself, ``function(spec, options)``.

    Example:
        >>> from khot.relaxations import registry
        >>> check = relaxation_checks(registry.get("sparse"))[0]
        >>> check.name, check.spec.name
        ('range_and_sum', 'sparse')
    """

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
    """All checks of an operator, for the default options and each of its ``example_options``.

    Use it with ``pytest.mark.parametrize("check", relaxation_checks(spec), ids=str)``.

    Args:
        spec: a :class:`khot.relaxations.Relaxation`, registered or your own.

    Returns:
        The list of :class:`Check`; call each to run it.

    Example:
        >>> from khot.relaxations import registry
        >>> checks = relaxation_checks(registry.get("sigmoid"))
        >>> checks[0]()  # raises ContractError if it fails
    """
    defaults: Mapping[str, Any] = {}
    return [
        Check(function.__name__.removeprefix("check_"), spec, options, function)
        for options in (defaults, *spec.example_options)
        for function in _CHECKS
    ]


def check_relaxation(spec: Relaxation) -> None:
    """Run the whole contract on an operator and report everything that fails.

    Cost: some seconds to minutes.

    Args:
        spec: a :class:`khot.relaxations.Relaxation`, registered or your own.

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
