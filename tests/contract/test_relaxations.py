"""Every registered relaxation passes the contract, as its property row allows: compiled and portable.

A check that takes seconds is left out of `make test` for the operators named here and with options other than
the default; `make test-full` runs it for all.
"""

import inspect

import pytest

from khot.kernels import loader
from khot.relaxations import Relaxation, registry
from khot.testing import Check, relaxation_checks
from strategies.contract_checks import TRACING, parameters

ALL = [check for spec in registry.specs().values() for check in relaxation_checks(spec)]
NAMES = set(registry.names())
LEFT_OUT = {
    "compile": {"iterative", "network", "neuralsort", "pairwise", "successive_halving", "successive_softmax"},
    "compiled_jvp": NAMES - {"softsort"},
    "inductor": NAMES - {"sigmoid"},
    "export": {"laplace", "network", "normal", "sinkhorn", "sparse"},
    "largest_row": {"network", "pairwise", "perturbed", "successive_halving"},
    "small_weights": {"network", "pairwise"},
    "second_order": {"network", "normal", "pairwise", "sinkhorn"},
    "scales": {"iterative", "network", "pairwise", "perturbed"},
}
LEFT_OUT_WITHOUT_THE_LIBRARY = {
    "largest_row": NAMES - {"sigmoid", "softsort", "gumbel"},
    "small_weights": NAMES - {"sigmoid", "softsort", "gumbel"},
    "second_order": NAMES - {"sparse", "softsort"},
    "scales": NAMES - {"sigmoid", "softsort", "soft_rank", "gumbel"},
}


def left_out(check: Check, operators: dict[str, set[str]]) -> bool:
    return check.name in operators and (bool(check.options) or check.spec.name in operators[check.name])


def test_what_is_left_out_is_checked_for_some_operator():
    for chosen in (LEFT_OUT, LEFT_OUT_WITHOUT_THE_LIBRARY):
        for name, operators in chosen.items():
            assert operators < {check.spec.name for check in ALL if check.name == name}
    assert set(LEFT_OUT) >= TRACING


@pytest.mark.parametrize("spec", registry.specs().values(), ids=registry.names())
def test_every_function_takes_what_all_take(spec: Relaxation) -> None:
    """So that no check of them, as that of `largest`, is passed by not being run."""
    named = list(inspect.signature(spec.weights).parameters)
    assert named[:2] == ["scores", "k"]
    assert {"temperature", "dim", "mask", "largest", "hard"} <= set(named)
    assert ("generator" in named) == spec.stochastic


@pytest.mark.parametrize("check", parameters(ALL, lambda check: left_out(check, LEFT_OUT)))
def test_contract(check: Check) -> None:
    check()


@pytest.mark.parametrize(
    "check",
    parameters(
        (check for check in ALL if check.name not in TRACING),
        lambda check: left_out(check, LEFT_OUT_WITHOUT_THE_LIBRARY),
    ),
)
def test_contract_without_the_compiled_library(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = (None, loader.NativeStatus(False, "switched off by the test"), False)
    monkeypatch.setattr(loader, "_decision", lambda: absent)
    assert loader.native() is None
    check()
