"""Every registered relaxation passes the contract, as its property row allows: compiled and portable.

A check that takes seconds is left out of `make test` for the operators named here and with options other than
the default; without the compiled library `make test` has the operators that it serves. `make test-full` runs
it for all.
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
    "compile": NAMES - {"sigmoid", "softsort"},
    "compiled_jvp": NAMES - {"softsort"},
    "inductor": NAMES - {"sigmoid"},
    "export": NAMES - {"iterative", "pairwise", "sigmoid", "soft_rank"},
    "largest_row": {"network", "pairwise", "perturbed", "soft_rank", "successive_halving"},
    "small_weights": {"network", "pairwise"},
    "second_order": NAMES - {"successive_softmax"},
    "first_order": {"network", "pairwise"},
    "row_derivatives": {"network", "pairwise", "sinkhorn"},
    "scales": {"iterative", "network", "pairwise", "perturbed", "successive_halving", "successive_softmax"},
}
# Those with weights by a kernel, and one of those that sort and select by one.
SERVED = {"laplace", "normal", "sigmoid", "soft_rank", "softsort", "sparse"}
LEFT_OUT_WITHOUT_THE_LIBRARY = {check.name: NAMES - SERVED for check in ALL if check.name not in TRACING} | {
    "largest_row": NAMES - {"sigmoid", "softsort"},
    "small_weights": NAMES - {"sigmoid", "softsort"},
    "second_order": NAMES,  # but `torch_func` has the Hessian
    "scales": NAMES - {"sigmoid", "softsort", "soft_rank"},
}


def left_out(check: Check, operators: dict[str, set[str]]) -> bool:
    costly = check.name in LEFT_OUT and bool(check.options)
    return costly or check.spec.name in operators.get(check.name, ())


def test_what_is_left_out_is_checked_for_some_operator():
    for chosen in (LEFT_OUT, LEFT_OUT_WITHOUT_THE_LIBRARY):
        for name, operators in chosen.items():
            assert operators < NAMES or (chosen, name) == (LEFT_OUT_WITHOUT_THE_LIBRARY, "second_order")
            assert name in {check.name for check in ALL}
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
