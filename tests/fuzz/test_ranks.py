"""Soft ranks, sorts and order statistics, bounds, and the search for a temperature."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

import khot
from strategies.fuzzed_outcomes import cases, check_gradient, refusal
from strategies.fuzzed_problems import VALUES, problems

FINITE = tuple(kind for kind in VALUES if kind not in ("infinite", "NaN", "all excluded"))
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-3, torch.bfloat16: 8e-3}
RENAMED = ["x", "temperature", "dim", "mask", "q"]


def of_x(call, problem, **more):
    """Calls a function whose first argument is x, without k and largest."""
    named = problem.without("scores", "k", "largest")
    problem.arguments["largest"] = True
    result, message = refusal(call, problem.arguments["scores"], names=RENAMED, **named, **more)
    if problem.wrong in (None, "k"):
        assert not message, message
        return result
    assert message, f"{problem.wrong} was accepted"
    return None


@cases(0.03)
@given(problems(kinds=FINITE, longest=130), st.sampled_from(["l2", "kl"]), st.booleans(), st.booleans())
def test_soft_rank_and_soft_sort(problem, regularization, descending, sort):
    call = khot.soft_sort if sort else khot.soft_rank
    y = of_x(call, problem, regularization=regularization, descending=descending)
    if y is None:
        return
    x = problem.scores
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    finite = problem.rows().isfinite().all(-1)
    rows = y.detach().double().movedim(problem.dim, -1)[finite]
    assert not rows.isnan().any()
    n = rows.shape[-1]
    if not sort and regularization == "l2" and x.dtype in (torch.float32, torch.float64) and n:
        assert (rows.sum(-1) - n * (n + 1) / 2).abs().le(1e-4 * n * n).all()
    if finite.all():
        check_gradient(problem, y)


@cases(0.02)
@given(
    problems(spoil=False, kinds=FINITE, longest=33, least_n=1),
    st.sampled_from(["l2", "kl"]),
    st.booleans(),
)
def test_soft_ranks_are_those_of_the_row_without_the_excluded(problem, regularization, descending):
    mask, temperature = problem.arguments["mask"], problem.arguments["temperature"]
    if mask is None or isinstance(temperature, torch.Tensor):
        return
    settings = {"regularization": regularization, "descending": descending, "temperature": temperature}
    x = problem.scores.detach()
    y = khot.soft_rank(x, dim=problem.dim, mask=mask, **settings)
    n = x.shape[problem.dim]
    parts = (part.expand(x.shape).movedim(problem.dim, -1).reshape(-1, n)[:4] for part in (x, y, mask))
    for row, ranks, allowed in zip(*parts, strict=True):
        alone = khot.soft_rank(row[allowed], **settings)
        torch.testing.assert_close(ranks[allowed], alone, rtol=0, atol=n * ROUNDING[x.dtype])
        assert (ranks[~allowed] == 0).all()


@cases(0.02)
@given(
    problems(kinds=FINITE, longest=130, least_n=1),
    st.sampled_from([0.0, 0.25, 0.5, 1.0, -0.1, 1.1, math.nan, "a"]),
)
def test_soft_quantile(problem, q):
    if q not in (0.0, 0.25, 0.5, 1.0):
        if problem.wrong is None:
            _, message = refusal(khot.soft_quantile, problem.arguments["scores"], q, names=["q"])
            assert message, f"q = {q} was accepted"
        return
    y = of_x(khot.soft_quantile, problem, q=q)
    if y is not None and bool(problem.rows().isfinite().all()):
        assert not y.isnan().any()
        check_gradient(problem, y)


@cases(0.01)
@given(
    problems(
        spoil=False, kinds=("normal", "close", "ties", "equal", "wide", "excluded"), longest=33, least_n=2
    )
)
def test_calibrate_temperature(problem):
    """A positive temperature, or an error that says why there is none."""
    scores, k = problem.scores.detach(), problem.arguments["k"]
    settings = problem.without("scores", "k", "temperature")
    names = ["entropy", "weight_on_topk", "scores", "k", "temperature"]
    found, _ = refusal(khot.calibrate_temperature, scores, k, names=names, weight_on_topk=0.9, **settings)
    assert found is None or 0 < found < math.inf


@cases(0.01)
@given(
    problems(spoil=False, kinds=("normal", "ties", "equal", "wide", "huge"), longest=17, least_n=1),
    st.booleans(),
)
def test_rank_bounds(problem, crossed):
    """Sound: the ranks of the lower ends, and of the upper ends, are within."""
    low = problem.rows().to(problem.scores.dtype)
    if not low.numel() or problem.arguments["mask"] is not None:
        return
    high = low + torch.rand(low.shape, generator=problem.generator()).to(low.dtype)
    if crossed and bool((high > low).any()):
        _, message = refusal(khot.rank_bounds, high, low, names=["lb", "ub"])
        assert message
        return
    bounds = khot.rank_bounds(low, high)
    ranks = (low.unsqueeze(-2) > low.unsqueeze(-1)).sum(-1) + 1
    assert not any(bound.isnan().any() for bound in bounds if isinstance(bound, torch.Tensor))
    assert ranks.min() >= 1
