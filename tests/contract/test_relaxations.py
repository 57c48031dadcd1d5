"""Every registered relaxation passes the contract, as its property row allows: compiled and portable.

A check that takes many seconds runs in `make test` for the operators named here, and for all in
`make test-full`.
"""

import inspect

import pytest

from khot.kernels import loader
from khot.relaxations import Relaxation, registry
from khot.testing import Check, relaxation_checks
from strategies.contract_checks import TRACING, parameters

ALL = [check for spec in registry.specs().values() for check in relaxation_checks(spec)]
COSTLY = {"compiled_jvp": {"softsort"}, "inductor": {"sigmoid"}}
COSTLY_WITHOUT_THE_LIBRARY = {
    "largest_row": {"sigmoid", "softsort", "gumbel"},
    "small_weights": {"sigmoid", "softsort", "pairwise", "gumbel"},
    "second_order": {"sigmoid", "softsort", "pairwise"},
    "scales": {"sigmoid", "softsort", "pairwise", "gumbel"},
}


def left_out(check: Check, costly: dict[str, set[str]]) -> bool:
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


@pytest.mark.parametrize("check", parameters(ALL, lambda check: left_out(check, COSTLY)))
def test_contract(check: Check) -> None:
    check()


@pytest.mark.parametrize(
    "check",
    parameters(
        (check for check in ALL if check.name not in TRACING),
        lambda check: left_out(check, COSTLY_WITHOUT_THE_LIBRARY),
    ),
)
def test_contract_without_the_compiled_library(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = (None, loader.NativeStatus(False, "switched off by the test"), False)
    monkeypatch.setattr(loader, "_decision", lambda: absent)
    assert loader.native() is None
    check()
