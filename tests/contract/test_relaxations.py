"""Every registered relaxation passes the contract, as its property row allows: compiled and portable.

A check that takes many seconds runs in `make test` for the operators named here, and for all in
`make test-full`.
"""

import inspect
from collections.abc import Iterable, Mapping

import pytest

from khot.kernels import loader
from khot.relaxations import Relaxation, registry
from khot.testing import Check, relaxation_checks

TRACING = ("compile", "compiled_jvp", "inductor", "export")  # the same with the library and without it
ALL = [check for spec in registry.specs().values() for check in relaxation_checks(spec)]
COSTLY = {"compiled_jvp": {"softsort"}, "inductor": {"sigmoid"}}
COSTLY_WITHOUT_THE_LIBRARY = {
    "largest_row": {"sigmoid", "softsort", "gumbel"},
    "small_weights": {"sigmoid", "softsort", "pairwise", "gumbel"},
    "second_order": {"sigmoid", "softsort", "pairwise"},
    "scales": {"sigmoid", "softsort", "pairwise", "gumbel"},
}


def sorted_by_cost(checks: Iterable[Check], costly: Mapping[str, set[str]]) -> list:
    """The checks as parameters, marked `full` where an operator is not one of those named for it."""
    return [
        pytest.param(check, marks=pytest.mark.full if _is_left_out(check, costly) else (), id=str(check))
        for check in checks
    ]


def _is_left_out(check: Check, costly: Mapping[str, set[str]]) -> bool:
    another_graph = check.name in TRACING and bool(check.options)
    return another_graph or check.spec.name not in costly.get(check.name, {check.spec.name})


def test_what_is_left_out_is_checked_for_some_operator():
    for costly in (COSTLY, COSTLY_WITHOUT_THE_LIBRARY):
        for name, operators in costly.items():
            assert {check.spec.name for check in ALL if check.name == name} > operators > set()


@pytest.mark.parametrize("spec", registry.specs().values(), ids=registry.names())
def test_every_function_takes_what_all_take(spec: Relaxation) -> None:
    """So that no check of them, as that of `largest`, is passed by not being run."""
    named = list(inspect.signature(spec.weights).parameters)
    assert named[:2] == ["scores", "k"]
    assert {"temperature", "dim", "mask", "largest", "hard"} <= set(named)
    assert ("generator" in named) == spec.stochastic


@pytest.mark.parametrize("check", sorted_by_cost(ALL, COSTLY))
def test_contract(check: Check) -> None:
    check()


@pytest.mark.parametrize(
    "check", sorted_by_cost((c for c in ALL if c.name not in TRACING), COSTLY_WITHOUT_THE_LIBRARY)
)
def test_contract_without_the_compiled_library(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = (None, loader.NativeStatus(False, "switched off by the test"), False)
    monkeypatch.setattr(loader, "_decision", lambda: absent)
    assert loader.native() is None
    check()
