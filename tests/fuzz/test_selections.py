"""Rows, values, entries and selections by every method."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

import khot
from khot.relaxations import registry
from khot.relaxations.facade import has_rows
from strategies.fuzzed_outcomes import called, cases, check_gradient
from strategies.fuzzed_problems import VALUES, problems

WITH_ROWS = [spec.name for spec in registry.specs().values() if has_rows(spec)]
PLAIN = tuple(kind for kind in VALUES if kind not in ("infinite", "NaN"))
counted = problems(per_row=False, longest=33)


def with_generator(method, problem):
    return {"generator": problem.generator()} if registry.get(method).stochastic else {}


@cases(0.05)
@given(counted, st.sampled_from(WITH_ROWS), st.booleans())
def test_topk_matrix(problem, method, hard):
    rows = called(khot.topk_matrix, problem, method=method, hard=hard, **with_generator(method, problem))
    if rows is None:
        return
    k, x = int(problem.arguments["k"]), problem.rows()
    assert rows.dtype == problem.scores.dtype
    assert rows.shape == (*x.shape[:-1], k, x.shape[-1])
    known = ~x.isnan().any(-1)
    found, x = rows.detach().double()[known], x[known]
    assert not found.isnan().any()
    assert (found >= 0).all()
    exists = torch.arange(k) < (x > -math.inf).sum(-1, keepdim=True)
    off = (found.sum(-1) - exists.double()).abs()
    eps = torch.finfo(rows.dtype).eps
    assert (off <= max(1e-5, 4 * eps, x.shape[-1] * 1e-7 if rows.dtype == torch.float16 else 0)).all(), (
        off.max()
    )
    check_gradient(problem, rows)


@cases(0.03)
@given(counted, st.sampled_from(WITH_ROWS), st.booleans())
def test_topk_values(problem, method, hard):
    values = called(khot.topk_values, problem, method=method, hard=hard, **with_generator(method, problem))
    if values is None or problem.kind in ("infinite", "NaN", "huge", "both ends"):
        return
    k = int(problem.arguments["k"])
    assert values.movedim(problem.dim, -1).shape == (*problem.rows().shape[:-1], k)
    assert not values.isnan().any()


@cases(0.05)
@given(
    counted,
    st.sampled_from(registry.names()),
    st.booleans(),
    st.sampled_from(["score", "position"]),
    st.booleans(),
)
def test_topk_entries(problem, method, hard, order, at_most):
    if problem.wrong == "k" and at_most:
        return
    more = {"method": method, "hard": hard, "order": order, "at_most": at_most}
    entries = called(khot.topk_entries, problem, **more, **with_generator(method, problem))
    if entries is None:
        return
    k, x = int(problem.arguments["k"]), problem.rows()
    indices, weights, values = (part.movedim(problem.dim, -1) for part in entries)
    assert indices.shape == weights.shape == values.shape == (*x.shape[:-1], k)
    assert ((indices >= 0) & (indices < max(x.shape[-1], 1))).all()
    ordered = indices.sort(-1).values
    assert (ordered.diff(dim=-1) > 0).all(), "an entry twice"
    known = ~x.isnan().any(-1)
    scores = problem.scores.detach().movedim(problem.dim, -1)
    exists = x.gather(-1, indices) != -math.inf if k else torch.ones_like(indices, dtype=torch.bool)
    assert not weights.detach()[known].isnan().any()
    assert not weights.detach()[~exists].any()
    both = exists & known.unsqueeze(-1)
    if k:
        assert torch.equal(values.detach()[both], scores.gather(-1, indices)[both])
    if order == "score" and not registry.get(method).stochastic and k:
        best = torch.sort(x, dim=-1, descending=True, stable=True).indices[..., :k]
        assert torch.equal(indices[exists], best[exists])
    check_gradient(problem, entries.weights)


@cases(0.04)
@given(counted, st.sampled_from(registry.names()), st.booleans(), st.booleans())
def test_select(problem, method, hard, shared):
    x = problem.scores
    if isinstance(x, torch.Tensor) and problem.wrong not in ("scores", "dim"):
        n = x.shape[problem.dim]
        shape = (n, 3) if shared else (*x.shape, 3)
        values = torch.randn(shape, generator=problem.generator()).to(x.dtype)
    else:
        values = torch.zeros(2, 3)
    chosen = called(
        khot.select, problem, values=values, method=method, hard=hard, **with_generator(method, problem)
    )
    if chosen is None:
        return
    k = int(problem.arguments["k"])
    moved = chosen.values.movedim(problem.dim % x.dim(), -2)
    assert moved.shape == (*problem.rows().shape[:-1], k, 3)
    known = ~problem.rows().isnan().any(-1)
    assert not moved.detach()[known].isnan().any()
    check_gradient(problem, chosen.values)


@cases(0.02)
@given(problems(per_row=False, longest=64, least_n=1, kinds=PLAIN), st.booleans())
def test_kth_best(problem, hard):
    x = problem.scores
    if problem.wrong in ("scores", "dim", "k") or int(problem.arguments["k"]) < 1:
        return
    values = torch.randn((*x.shape, 2), generator=problem.generator()).to(x.dtype)
    found = called(khot.kth_best, problem, values=values, hard=hard)
    if found is not None:
        assert found.dtype == x.dtype
        assert not found.isnan().any()
