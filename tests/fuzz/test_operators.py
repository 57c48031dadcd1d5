"""Every registered operator, and the facade, on arguments of every kind."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import khot
from khot.relaxations import registry
from strategies.fuzzed_outcomes import (
    called,
    cases,
    check_gradient,
    check_the_same_of_a_copy,
    check_weights,
)
from strategies.fuzzed_problems import problems

NAMES = registry.names()
COSTLY = {"perturbed": 33, "sinkhorn": 33, "network": 17, "successive_softmax": 33}  # longest rows


def options_of(spec):
    return st.sampled_from([{}, *spec.example_options])


def check_operator(spec, problem, y):
    check_weights(problem, y, bounded=spec.bounded, sums_to_k=spec.sums_to_k)
    check_gradient(problem, y)


@pytest.mark.parametrize("name", NAMES)
def test_operators(name):
    spec = registry.get(name)

    @cases(0.34 / len(NAMES))
    @given(
        problems(real_k=spec.real_k, longest=COSTLY.get(name, 300)),
        options_of(spec),
        st.booleans(),
    )
    def fuzz(problem, options, hard):
        if hard and not problem.asked_hard():
            return
        more = {**options, "hard": hard}
        if spec.stochastic:
            more["generator"] = problem.generator()
        y = called(spec.weights, problem, **more)
        if y is None:
            return
        check_operator(spec, problem, y)
        if hard:
            weights = y.detach().movedim(problem.dim, -1)[~problem.rows().isnan().any(-1)]
            assert ((weights == 0) | (weights == 1)).all()
        elif not spec.stochastic:
            check_the_same_of_a_copy(spec.weights, problem, y, **more)

    fuzz()


@cases(0.04)
@given(problems())
def test_hard_topk(problem):
    """Against a stable sort of every row."""
    del problem.arguments["temperature"]
    if problem.wrong == "temperature":
        return
    y = called(khot.hard_topk, problem)
    if y is None:
        return
    check_weights(problem, y)
    rows = problem.rows()
    found = y.movedim(problem.dim, -1)
    order = torch.sort(rows, dim=-1, descending=True, stable=True).indices
    places = torch.arange(rows.shape[-1]).expand(rows.shape)
    chosen = (places < problem.budgets.round().unsqueeze(-1)) & (rows.gather(-1, order) != -math.inf)
    assert torch.equal(found.gather(-1, order) == 1, chosen)


@cases(0.06)
@given(problems(real_k=True, longest=17), st.sampled_from(NAMES), st.booleans(), st.booleans())
def test_topk(problem, method, at_most, capped):
    """The facade: what it accepts, the operator of that name accepts too."""
    spec = registry.get(method)
    if (problem.wrong == "k" and at_most) or not (problem.whole or spec.real_k):
        return
    more = {"generator": problem.generator()} if spec.stochastic else {}
    y = called(khot.topk, problem, method=method, at_most=at_most, capped=capped and spec.sums_to_k, **more)
    if y is not None:
        check_weights(problem, y, bounded=spec.bounded or capped, sums_to_k=spec.sums_to_k)
        check_gradient(problem, y)


@cases(0.03)
@given(problems(real_k=True, longest=17), st.sampled_from(["normal", "uniform"]))
def test_cdf_topk(problem, law):
    # Not by torch.special.ndtr, which has no digits left in its lower tail.
    cdf = (lambda a: torch.erfc(-a / math.sqrt(2)) / 2) if law == "normal" else lambda a: a.clamp(0, 1)
    y = called(khot.cdf_topk, problem, cdf=cdf)
    if y is not None:
        # Above its corner the uniform gate is its argument, of which the last digit alone may be 1e-7.
        held = law == "normal" or not ((problem.budgets > 0) & (problem.budgets < 1e-3)).any()
        check_weights(problem, y, sums_to_k=held)
        check_gradient(problem, y)


@cases(0.02)
@given(problems(real_k=True, spoil=False, least_n=1, longest=64, kinds=("normal", "close", "ties", "equal")))
def test_inverse_sigmoid_topk(problem):
    """Scores that give the weights again."""
    if problem.scores.dtype not in (torch.float32, torch.float64):
        return
    y = khot.sigmoid_topk(problem.scores.detach(), problem.arguments["k"], dim=problem.dim).movedim(
        problem.dim, -1
    )
    x = khot.inverse_sigmoid_topk(y)
    assert not x.isnan().any()
    again = khot.sigmoid_topk(x, problem.budgets)
    assert (again - y).abs().max() <= 1e-4 if y.numel() else True
