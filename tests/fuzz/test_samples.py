"""Every design by `sample`, and its distribution object."""

import inspect
import math
import warnings

import torch
from hypothesis import given
from hypothesis import strategies as st

import khot
from strategies.fuzzed_outcomes import called, cases, refusal
from strategies.fuzzed_problems import VALUES, problems

DESIGNS = khot.designs.names()
NO_NAN = tuple(kind for kind in VALUES if kind != "NaN")


def of_scores(design):
    """Whether it can be made of scores alone."""
    kind = khot.designs.get(design)
    needs = [
        p
        for p in inspect.signature(kind).parameters.values()
        if p.default is p.empty and p.kind != p.VAR_KEYWORD
    ]
    return "scores" in kind.parameters and [p.name for p in needs] == ["k"]


@cases(0.04)
@given(
    problems(per_row=False, longest=64, least_n=1, kinds=NO_NAN),
    st.sampled_from([name for name in DESIGNS if of_scores(name)]),
    st.sampled_from([(), (2,), (0,), (2, 3)]),
)
def test_sample(problem, design, sample_shape):
    """Exactly k of those allowed, all of them if they are fewer, and at +inf always."""
    if problem.wrong == "temperature" or (problem.wrong == "k" and problem.arguments["k"] is None):
        return
    del problem.arguments["temperature"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scores that look like probabilities
        x = called(
            khot.sample, problem, design=design, sample_shape=sample_shape, generator=problem.generator()
        )
    if x is None:
        return
    assert x.shape == (*sample_shape, *problem.scores.shape)
    assert x.dtype == problem.scores.dtype
    place = problem.dim % problem.scores.dim() + len(sample_shape)
    drawn, rows = x.double().movedim(place, -1), problem.rows()
    assert ((drawn == 0) | (drawn == 1)).all()
    assert not drawn[(rows == -math.inf).expand(drawn.shape)].any(), "drawn, though excluded"
    wanted = torch.minimum(problem.budgets, (rows > -math.inf).sum(-1)).expand(drawn.shape[:-1])
    if khot.designs.get(design).__name__ != "Poisson":
        assert torch.equal(drawn.sum(-1), wanted)


@cases(0.02)
@given(problems(per_row=False, longest=12, least_n=1, spoil=False, kinds=NO_NAN), st.sampled_from(DESIGNS))
def test_distributions(problem, design):
    """Probabilities in [0, 1], entropies that are numbers, and samples that are possible."""
    if not of_scores(design):
        return
    kind, scores = khot.designs.get(design), problem.rows().to(problem.scores.dtype)
    made, message = refusal(kind, problem.arguments["k"], scores=scores, names=["scores", "k"])
    assert not message, message
    pi = made.mean
    assert not pi.isnan().any()
    assert (pi >= 0).all()
    assert (pi <= 1).all()
    x = made.sample((2,), problem.generator())
    for what in ("log_prob", "entropy"):
        try:
            value = made.log_prob(x) if what == "log_prob" else made.entropy()
        except NotImplementedError:  # no closed form
            continue
        assert not value.isnan().any(), what
        if what == "log_prob":
            assert (value > -math.inf).all()


@cases(0.01)
@given(problems(real_k=True, spoil=False, longest=17, least_n=1, kinds=NO_NAN), st.sampled_from(DESIGNS))
def test_probabilities_that_do_not_sum_to_k_are_refused(problem, design):
    kind = khot.designs.get(design)
    if "probs" not in kind.parameters or not of_scores(design):
        return
    probs = torch.rand(problem.rows().shape, generator=problem.generator(), dtype=torch.float64)
    k = probs.shape[-1] // 2
    right = bool((probs.sum(-1) - k).abs().le(1e-9 * max(k, 1)).all())
    _, message = refusal(kind, k, probs=probs, names=["probs", "k"])
    assert bool(message) != right
