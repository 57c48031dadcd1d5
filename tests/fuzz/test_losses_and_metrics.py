"""Losses and metrics: finite, in their range, with finite gradients."""

import dataclasses

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import khot
from strategies.fuzzed_outcomes import called, cases, check_gradient
from strategies.fuzzed_problems import VALUES, problems

FINITE = tuple(kind for kind in VALUES if kind not in ("infinite", "NaN", "all excluded", "excluded"))
REDUCTIONS = ["mean", "sum", "none"]


def beside(problem, form):
    """A target or relevance like the scores; of any floating type where the scores are wrong."""
    x = problem.scores
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not x.dim():
        return torch.zeros(3)
    made = torch.rand(x.shape, generator=problem.generator())
    return made.to(x.dtype) if form == "real" else (made > 0.5).to(x.dtype)


def loss_of(call, problem, argument, form, left_out, **more):
    for name in left_out:
        del problem.arguments[name]
    if problem.wrong in left_out:
        return
    wanted, mask = beside(problem, form), problem.arguments["mask"]
    if problem.wrong not in ("mask", "dim", "scores") and mask is not None:
        wanted = torch.where(mask, wanted, 0)
    loss = called(call, problem, **{argument: wanted}, **more)
    if loss is None:
        return
    assert loss.dtype == problem.scores.dtype
    if more.get("reduction") == "none" or problem.scores.numel():
        assert not loss.isnan().any()
        problem.arguments.setdefault("largest", True)
        check_gradient(problem, loss)


@cases(0.01)
@given(
    problems(kinds=FINITE, longest=33),
    st.sampled_from(REDUCTIONS),
    st.sampled_from(["sigmoid", "laplace", "sparse"]),
)
def test_fenchel_young_loss(problem, reduction, method):
    loss_of(
        khot.losses.fenchel_young_loss,
        problem,
        "target",
        "binary",
        ["k", "largest"],
        reduction=reduction,
        method=method,
    )


@cases(0.01)
@given(
    problems(kinds=FINITE, longest=33, per_row=False),
    st.sampled_from(REDUCTIONS),
    st.sampled_from(["linear", "exponential"]),
)
def test_ndcg_loss(problem, reduction, gain):
    k = problem.arguments["k"]
    if k is None or (problem.wrong != "k" and (not isinstance(k, int | np.integer) or k < 1)):
        return  # no cut-off, or one of nothing
    loss_of(khot.losses.ndcg_loss, problem, "relevance", "real", ["largest"], reduction=reduction, gain=gain)


@cases(0.01)
@given(problems(kinds=FINITE, longest=33, real_k=True), st.sampled_from(REDUCTIONS))
def test_recall_loss(problem, reduction):
    loss_of(khot.losses.recall_loss, problem, "target", "binary", ["largest"], reduction=reduction)


@cases(0.01)
@given(problems(kinds=FINITE, longest=33), st.sampled_from(REDUCTIONS))
def test_spearman_loss(problem, reduction):
    loss_of(khot.losses.spearman_loss, problem, "target", "real", ["k", "largest"], reduction=reduction)


@cases(0.01)
@given(
    problems(per_row=False, longest=64, least_n=1),
    st.sampled_from(["recall_at_k", "precision_at_k", "hit_rate", "mrr", "ndcg_at_k"]),
)
def test_ranking_metrics(problem, name):
    if problem.wrong is None and bool(problem.rows().isnan().any()):
        problem = dataclasses.replace(problem, wrong="scores")  # a ranking has no place for NaN
    for argument in ("temperature", "largest"):
        del problem.arguments[argument]
    if problem.wrong == "temperature" or (problem.wrong == "k" and problem.arguments["k"] is None):
        return
    if problem.wrong != "k" and int(problem.arguments["k"]) == 0:
        return  # of nothing
    value = called(getattr(khot.metrics, name), problem, relevance=beside(problem, "binary"))
    if value is not None and value.numel():
        assert ((value >= 0) & (value <= 1 + 1e-3)).logical_or(value.isnan()).all()


@cases(0.01)
@given(problems(longest=64, least_n=1, kinds=FINITE), st.sampled_from(["topk_overlap", "weight_on_topk"]))
def test_selection_metrics(problem, name):
    for argument in ("temperature", "largest"):
        del problem.arguments[argument]
    if problem.wrong == "temperature":
        return
    weights = beside(problem, "real")
    value = called(getattr(khot.metrics, name), problem, weights=weights)
    if value is not None:
        assert not value.isinf().any()
