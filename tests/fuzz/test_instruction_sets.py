"""The same results with the plainest instruction set as with that of the CPU, up to rounding."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import khot
from khot.kernels import loader
from khot.relaxations import registry
from strategies.base_instructions import BaseInstructions
from strategies.fuzzed_outcomes import cases
from strategies.fuzzed_problems import problems

SPECS = [spec for spec in registry.specs().values() if not spec.stochastic]


@pytest.fixture(scope="module")
def base():
    with BaseInstructions() as process:
        yield process


@pytest.mark.usefixtures("library")
def test_the_other_process_is_another(base):
    if loader.status().isa == "base":
        pytest.skip("this CPU has no other")
    assert base.call("isa") == "base"


@cases(0.03)
@given(
    problems(spoil=False, real_k=True, longest=33),
    st.sampled_from([spec.name for spec in SPECS]),
    st.booleans(),
)
def test_weights(base, problem, name, hard):
    spec = registry.get(name)
    if (hard or not spec.real_k) and not problem.whole:
        return
    arguments = {**problem.arguments, "scores": problem.scores.detach(), "hard": hard}
    mine, other = getattr(khot, f"{name}_topk")(**arguments), base.call(f"{name}_topk", **arguments)
    assert torch.equal(mine.isnan(), other.isnan())
    if hard:
        assert torch.equal(mine.nan_to_num(-1), other.nan_to_num(-1))
        return
    k = max(1.0, float(problem.budgets.max()) if problem.budgets.numel() else 1.0)
    tolerance = max(64 * torch.finfo(mine.dtype).eps * k, 1e-9)
    assert ((mine - other).nan_to_num(0).abs() <= tolerance).all()


@cases(0.01)
@given(problems(spoil=False, per_row=False, longest=300))
def test_entries(base, problem):
    arguments = {**problem.arguments, "scores": problem.scores.detach()}
    mine, other = khot.topk_entries(**arguments), base.call("topk_entries", **arguments)
    assert torch.equal(mine.indices, other.indices)
    assert torch.equal(mine.values.nan_to_num(7), other.values.nan_to_num(7))
