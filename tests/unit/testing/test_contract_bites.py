"""The contract finds what it is for: a right operator passes, and each broken one fails where it should."""

import dataclasses

import pytest
import torch

from khot.relaxations import Relaxation, registry
from khot.testing import ContractError, check_relaxation, contract, relaxation_checks
from strategies.broken_operators import BROKEN
from strategies.contract_checks import TRACING, parameters
from strategies.toy_operator import TOY

COSTLY = {"compiled_jvp", "inductor"}
SLOW = {"first_order", "second_order", "row_derivatives", "scales"}  # and passed by operators elsewhere
COSTLY_PAIRS = {("exports_a_kernel", "export"), ("two_graphs", "export")}
QUICK = [check for check in relaxation_checks(TOY) if check.name not in TRACING]  # the toy cannot be traced


def checks_of(spec: Relaxation) -> dict:
    return {check.name: check for check in relaxation_checks(spec)}


def broken(name: str, **row) -> Relaxation:
    return dataclasses.replace(TOY, weights=BROKEN[name][0], **row)


@pytest.mark.parametrize("check", parameters(QUICK, lambda check: check.name in SLOW))
def test_a_right_operator_passes(check):
    check()


@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(
            name, check, marks=pytest.mark.full if check in COSTLY or (name, check) in COSTLY_PAIRS else ()
        )
        for name in BROKEN
        for check in BROKEN[name][1]
    ],
)
def test_a_broken_operator_fails(name, check):
    raised_by_torch = check in ("first_order", "second_order", "torch_func", "row_derivatives")
    two_graphs = name == "two_graphs"
    with pytest.raises(Exception if raised_by_torch or two_graphs else ContractError):
        checks_of(broken(name))[check]()


def test_every_check_has_something_to_notice():
    noticed = {check for _, checks in BROKEN.values() for check in checks}
    assert noticed == set(checks_of(TOY))


@pytest.mark.parametrize(
    ("name", "row", "check"),
    [
        ("k_times_softmax", {"bounded": False}, "range_and_sum"),
        ("sum_a_little_off", {"sums_to_k": False}, "range_and_sum"),
        ("whole_budgets_only", {"real_k": False}, "range_and_sum"),
        ("of_magnitudes", {"keeps_order": False}, "order"),
        ("prefers_the_first", {"equivariant": False}, "equivariance"),
        ("prefers_the_first", {"ties_share": False}, "ties"),
        ("sharper_far_from_zero", {"shift_invariant": False}, "shift"),
        ("right_first_derivative_only", {"smooth": "C¹"}, "second_order"),
        ("long_rows_lose_some", {"sums_to_k": False}, "largest_row"),
        ("long_rows_lose_some", {"max_n": 500}, "largest_row"),
    ],
)
def test_only_what_is_declared_is_demanded(name, row, check):
    """The same operator that fails above passes when its row does not promise the property."""
    checks_of(broken(name, **row))[check]()


def of_noisy_scores(x, k, *, generator, **kwargs):
    return TOY.weights(x + torch.randn(x.shape, dtype=x.dtype, generator=generator), k, **kwargs)


def always_warm(x, k, *, generator, temperature=1.0, **kwargs):
    return of_noisy_scores(x, k, generator=generator, temperature=1.0, **kwargs)


RANDOM = dataclasses.replace(TOY, weights=of_noisy_scores, stochastic=True, real_k=False, smooth="none")


def test_of_a_random_operator_a_hard_sample_is_demanded_in_the_limit():
    """Not the order of the scores, nor their top-k; but that the temperature does its work."""
    checks_of(RANDOM)["order"]()
    checks_of(RANDOM)["hard_limit"]()
    with pytest.raises(ContractError):
        checks_of(dataclasses.replace(RANDOM, weights=always_warm))["hard_limit"]()


def test_an_operator_without_real_budgets_must_refuse_them():
    with pytest.raises(ContractError, match=r"2\.5"):
        checks_of(dataclasses.replace(TOY, real_k=False))["bad_k"]()


def test_a_failure_says_what_is_wrong():
    with pytest.raises(ContractError, match=r"weight 1\.\d+ > 1"):
        checks_of(broken("k_times_softmax"))["range_and_sum"]()
    with pytest.raises(ContractError, match=r"the input was modified"):
        checks_of(broken("modifies_its_input"))["dims"]()
    with pytest.raises(ContractError, match=r"bad k .* is accepted"):
        checks_of(broken("accepts_any_k"))["bad_k"]()
    with pytest.raises(ContractError, match=r"does not name k"):
        checks_of(broken("errors_say_nothing"))["bad_k"]()


def test_options_are_checked_too():
    """A set of options in which the operator is broken is found, and named."""

    def operator(x, k, *, off=0.0, **kwargs):
        return TOY.weights(x, k, **kwargs) * (1 - off)

    spec = dataclasses.replace(TOY, weights=operator, example_options=({"off": 0.0}, {"off": 0.1}))
    sums = [check for check in relaxation_checks(spec) if check.name == "range_and_sum"]
    assert [str(check) for check in sums] == [
        "sigmoid-range_and_sum",
        "sigmoid-range_and_sum-off=0.0",
        "sigmoid-range_and_sum-off=0.1",
    ]
    sums[0]()
    sums[1]()
    with pytest.raises(ContractError):
        sums[2]()


def test_check_relaxation_reports_every_failure(monkeypatch):
    few = [check.function for check in QUICK if check.name in ("range_and_sum", "shift", "ties", "bad_k")]
    monkeypatch.setattr(contract, "_CHECKS", few)
    check_relaxation(TOY)
    with pytest.raises(ContractError) as failure:
        check_relaxation(broken("prefers_the_first"))
    assert str(failure.value).startswith("sigmoid: 1 failed\nsigmoid-ties: ContractError: ")
    with pytest.raises(ContractError) as failure:
        check_relaxation(dataclasses.replace(TOY, weights=lambda x, k, **kwargs: 1 / 0))
    lines = str(failure.value).splitlines()
    assert lines[0] == "sigmoid: 4 failed"
    assert all("ZeroDivisionError" in line for line in lines[1:])


def test_nothing_here_was_registered():
    assert registry.get("sigmoid").weights is not TOY.weights
