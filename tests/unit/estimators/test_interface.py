"""The interface of estimators: options, laws, state and messages; what holds for all is in the contract."""

import copy

import pytest
import torch

import khot
from khot import estimators
from khot.designs import TreePivotal
from khot.estimators import AdaptiveStep, estimate_gradient, get, names
from strategies.subset_oracles import nonlinear, probabilities, seeded, subsets

NAMES = names()
X = torch.randn(3, 4, 9, generator=seeded(1), dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
def test_functions_are_what_get_gives(name):
    one = getattr(estimators, name)(X, 4, generator=seeded())
    assert torch.equal(one, get(name)(X, 4, generator=seeded()))
    assert torch.equal(one, get(getattr(estimators, name))(X, 4, generator=seeded()))
    chosen = get(name)
    assert get(chosen) is chosen


def test_a_design_may_be_a_class():
    for name in ("sampled_straight_through", "reinmax", "score_function"):
        by_class, by_name = get(name, design=TreePivotal), get(name, design="tree_pivotal")
        assert by_class.design == by_name.design == "tree_pivotal"
        assert torch.equal(by_class(X, 4, generator=seeded()), by_name(X, 4, generator=seeded()))


def test_the_parameter_of_other_designs():
    for name in ("sampled_straight_through", "reinmax", "score_function"):
        assert get(name, design="sampford").parameter == "scores"
        assert get(name, design="conditional_poisson").parameter == "logits"


def test_the_state_of_an_adaptive_step_is_saved():
    step = AdaptiveStep(alpha=0.25)
    other = AdaptiveStep()
    other.load_state_dict(step.state_dict())
    assert other.alpha == 0.25
    holder = torch.nn.ModuleList([AdaptiveStep()])
    holder.load_state_dict(torch.nn.ModuleList([step]).half().state_dict())
    assert holder[0].alpha == 0.25
    step.correct(0.0)
    assert step.half().state_dict()["_extra_state"].dtype == torch.float64
    assert copy.deepcopy(step).alpha == step.alpha == pytest.approx(0.251)


@pytest.mark.parametrize("law", ["conditional_poisson", "plackett_luce"])
def test_samples_have_the_law_they_say(law):
    theta = torch.linspace(-2, 2, 6, dtype=torch.float64)
    wanted = probabilities(law, theta, 3) @ subsets(6, 3)
    for name in NAMES:
        if get(name).design != law or name == "relaxed_subset":
            continue
        share = get(name)(theta.expand(40_000, -1), 3, generator=seeded(4)).mean(0)
        assert (share - wanted).abs().max() < 0.012
    assert (probabilities("conditional_poisson", theta, 3) @ subsets(6, 3) - wanted).abs().max() > 0.02 or (
        law == "conditional_poisson"
    )


def test_a_sample_of_the_score_function_has_no_gradient():
    x = estimators.score_function(torch.zeros(4, requires_grad=True), 2)
    with pytest.raises(RuntimeError, match="score_function: a sample has no gradient of its own"):
        x.sum().backward()


def test_score_function_loss_is_the_mean_loss_and_trains_the_loss_too():
    slope = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    scores = torch.zeros(5, 4, requires_grad=True)
    seen = []

    def f(x):
        seen.append(x)
        return x @ slope

    loss = estimators.score_function_loss(f, scores, 2, samples=3, generator=seeded())
    torch.testing.assert_close(loss, (seen[0] @ slope).mean(0))
    loss.sum().backward()
    torch.testing.assert_close(slope.grad, seen[0].mean(0).sum(0))


def test_relaxed_subset_options():
    scores = 3 * X
    plain = estimators.relaxed_subset(scores, 4, generator=seeded())
    capped = estimators.relaxed_subset(scores, 4, capped=True, generator=seeded())
    assert plain.max() > 1
    assert capped.max() <= 1
    cold = estimators.relaxed_subset(scores, 4, temperature=1e-6, generator=seeded())
    hard = estimators.relaxed_subset(scores, 4, hard=True, generator=seeded())
    torch.testing.assert_close(cold, hard)
    assert ((hard == 0) | (hard == 1)).all()


def test_gumbel_straight_through_is_the_hard_gumbel_operator():
    scores = X.clone().requires_grad_()
    ours = estimators.gumbel_straight_through(scores, 4, temperature=0.3, generator=seeded())
    theirs = khot.gumbel_topk(scores, 4, temperature=0.3, hard=True, generator=seeded())
    assert torch.equal(ours, theirs)
    v = torch.randn_like(X)
    assert torch.equal(*(torch.autograd.grad((y * v).sum(), scores)[0] for y in (ours, theirs)))


@pytest.mark.parametrize("symmetric", [False, True])
def test_imle_is_a_difference_of_two_sorted_selections(symmetric):
    scores = X.clone().requires_grad_()
    g = torch.randn(X.shape, generator=seeded(8), dtype=torch.float64)
    x = estimators.imle(scores, 4, step=0.7, symmetric=symmetric, generator=seeded(2))
    ours = torch.autograd.grad((x * g).sum(), scores)[0]
    u = torch.rand(X.shape, generator=seeded(2), dtype=torch.float64)
    noisy = X - torch.log(-torch.log(u))

    def largest(z):
        return torch.zeros_like(z).scatter(-1, z.argsort(-1)[..., -4:], 1.0)

    assert torch.equal(x.detach(), largest(noisy))
    above = largest(noisy + 0.7 * g) if symmetric else largest(noisy)
    expected = (above - largest(noisy - 0.7 * g)) / (1.4 if symmetric else 0.7)
    torch.testing.assert_close(ours, expected)
    assert (ours != 0).any()


def test_adaptive_imle_does_not_depend_on_the_scale_of_the_loss_and_steers_its_step():
    grads = []
    for scale in (1.0, 1e-6):
        scores = X.clone().requires_grad_()
        x = estimators.adaptive_imle(scores, 4, generator=seeded())
        loss = scale * (x * torch.linspace(-1, 1, 9)).sum()
        grads.append(torch.autograd.grad(loss, scores)[0] / scale)
    torch.testing.assert_close(*grads)
    wide, narrow = AdaptiveStep(wanted=0.5), AdaptiveStep(wanted=9)
    for step in (wide, narrow):
        estimator = get("adaptive_imle", step=step)
        for seed in range(5):
            scores = X.clone().requires_grad_()
            (estimator(scores, 4, generator=seeded(seed)) * torch.linspace(-1, 1, 9)).sum().backward()
    assert wide.alpha == pytest.approx(1 - 5e-3)
    assert narrow.alpha == pytest.approx(1 + 5e-3)
    kept = get("adaptive_imle")
    (kept(X.clone().requires_grad_(), 4) * X).sum().backward()
    assert kept.options["step"].alpha != 1
    assert get("adaptive_imle").options["step"].alpha == 1


def test_estimate_gradient_takes_rows_one_by_one():
    """Each row has a gradient of its own, the mean over its samples."""
    f = nonlinear(9)
    rows = X[0]
    together = estimate_gradient(f, rows, 3, "simple", samples=20_000, generator=seeded())
    for row, grad in zip(rows, together, strict=True):
        alone = estimate_gradient(f, row, 3, "simple", samples=20_000, generator=seeded(1))
        assert (alone - grad).norm() < 0.05 * grad.norm()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: get("nothing"),
            ValueError,
            "unknown estimator 'nothing'; known estimators: score_function, ",
        ),
        (
            lambda: get("reinmax", temperature=1.0),
            TypeError,
            "reinmax has no option 'temperature'; it has design",
        ),
        (
            lambda: get("simple", design="tree_pivotal"),
            TypeError,
            "simple has no option 'design'; it has none",
        ),
        (
            lambda: get("sampled_straight_through", design="x"),
            ValueError,
            "sampled_straight_through: unknown design 'x'; known designs: conditional_poisson",
        ),
        (lambda: get("reinmax", design="random_systematic"), ValueError, "must have a log-probability"),
        (lambda: get("reinforce"), ValueError, "unknown estimator 'reinforce'; use 'score_function'; known"),
        (
            lambda: get("straight_through"),
            ValueError,
            "unknown estimator 'straight_through'; use 'sampled_straight_through'; known",
        ),
        (lambda: get(3), TypeError, "estimator must be a name or one of khot.estimators, got 3"),
        (
            lambda: get(get("imle"), step=2.0),
            TypeError,
            "'step' belongs to the estimator, which was given as imle",
        ),
        (
            lambda: get("score_function", design="brewer"),
            ValueError,
            "must have a log-probability, got 'brewer'; these have: .*random_pivotal",
        ),
        (lambda: get("score_function", design="x"), ValueError, "unknown design 'x'; known designs: "),
        (lambda: get("imle", step=0.0), ValueError, "imle: step must be positive and finite, got 0.0"),
        (
            lambda: AdaptiveStep(rate=-1.0),
            ValueError,
            "AdaptiveStep: rate must be positive and finite, got -1.0",
        ),
        (lambda: estimators.simple(X, 2.5), ValueError, "simple: k must be an integer .*, got k = 2.5"),
        (lambda: estimators.simple(X, True), TypeError, "simple: k must be a number or a tensor, got True"),
        (lambda: estimators.simple(X, torch.tensor(2)), TypeError, "simple: k must be a number, got"),
        (lambda: estimators.simple(X, 10), ValueError, "simple: k must satisfy 0 <= k <= n = 9"),
        (lambda: estimators.imle(X.long(), 2), TypeError, "imle: scores must have a floating-point dtype"),
        (
            lambda: estimators.score_function_loss(lambda x: x.sum(-1), X, 2, samples=1),
            ValueError,
            "samples must be at least 2, got 1",
        ),
        (
            lambda: estimators.score_function_loss(lambda x: x.sum(), X, 2),
            ValueError,
            r"f must give one loss for each sample, shape \(4, 3, 4\), got \(\)",
        ),
        (
            lambda: estimate_gradient(lambda x: x.sum(), X, 2, "simple"),
            ValueError,
            r"estimate_gradient: f must give one loss for each sample, shape \(4, 3, 4\), got \(\)",
        ),
        (
            lambda: estimate_gradient(lambda x: x.sum(-1), X, 2, "simple", samples=0),
            ValueError,
            "estimate_gradient: samples must be at least 1, got 0",
        ),
        *(
            (
                lambda step=step: estimators.adaptive_imle(X, 2, step=step),
                TypeError,
                "adaptive_imle: step must be an AdaptiveStep or None, got",
            )
            for step in ("no", -1, float("nan"), [], 1.0)
        ),
        *(
            (
                lambda step=step: estimators.imle(X, 2, step=step),
                TypeError,
                "imle: step must be a number, got",
            )
            for step in ("2", None, True, [1.0])
        ),
        (
            lambda: AdaptiveStep(alpha="1"),
            TypeError,
            "AdaptiveStep: alpha must be a number, got '1'",
        ),
        (lambda: AdaptiveStep(wanted=True), TypeError, "AdaptiveStep: wanted must be a number, got True"),
        (
            lambda: estimators.gumbel_straight_through(X, 2, temperature=-1.0),
            ValueError,
            "^gumbel_straight_through: temperature must be positive",
        ),
        (
            lambda: estimators.gumbel_straight_through(X, 2, temperature=torch.ones(5)),
            ValueError,
            "^gumbel_straight_through: temperature must broadcast to",
        ),
        (
            lambda: estimators.relaxed_subset(X, 2, temperature="1"),
            TypeError,
            "^relaxed_subset: temperature must be a number",
        ),
        (
            lambda: estimators.relaxed_subset(X, 2, hard="no"),
            TypeError,
            "^relaxed_subset: hard must be True or False, got 'no'",
        ),
        (
            lambda: estimators.relaxed_subset(X, 2, capped=1),
            TypeError,
            "^relaxed_subset: capped must be True or False, got 1",
        ),
        *(
            (
                lambda f=f, call=call: call(f),
                TypeError,
                f"^{name}: f must {rule}",
            )
            for f, rule in (
                (None, "be a function, got None"),
                (lambda x: None, "return a real tensor, one loss for each sample, got NoneType"),
                (lambda x: 1.0, "return a real tensor, one loss for each sample, got float"),
                (
                    lambda x: x.sum(-1) * 1j,
                    "return a real tensor, one loss for each sample, got torch.complex",
                ),
                (lambda x: x[..., 0] > 0, "return a real tensor, one loss for each sample, got torch.bool"),
            )
            for name, call in (
                ("score_function_loss", lambda f: estimators.score_function_loss(f, X, 2)),
                ("estimate_gradient", lambda f: estimate_gradient(f, X, 2, "simple")),
                ("estimate_gradient", lambda f: estimate_gradient(f, X, 2, "score_function")),
            )
        ),
        *(
            (
                lambda f=f: estimate_gradient(f, X, 2, "simple"),
                ValueError,
                "^estimate_gradient: f must be differentiable for the estimator 'simple', got losses without",
            )
            for f in (lambda x: x.detach().sum(-1), lambda x: x.long().sum(-1))
        ),
        (lambda: estimate_gradient(lambda x: x, X, "2", "imle"), TypeError, "^estimate_gradient: k must be"),
        (
            lambda: estimate_gradient(lambda x: x, X, 2, "score_function", samples=1),
            ValueError,
            "^estimate_gradient: samples must be at least 2, got 1",
        ),
    ],
)
def test_messages(call, error, message):
    with pytest.raises(error, match=message):
        call()


def total(name):
    """A loss of one row, linear in its sample."""
    weights = torch.linspace(-1, 1, X.shape[-1], dtype=X.dtype)
    return lambda row: (getattr(estimators, name)(row, 4) * weights).sum()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "score_function"])
def test_the_gradient_of_torch_func(name):
    """Of many draws, as they may come by another path from the same generator."""

    def loss(row):
        return total(name)(row.expand(4000, -1))

    torch.manual_seed(3)
    ours = torch.func.grad(loss)(X[0, 0])
    row = X[0, 0].clone().requires_grad_()
    torch.manual_seed(3)
    (theirs,) = torch.autograd.grad(loss(row), row)
    assert theirs.norm() > 0
    assert (ours - theirs).norm() < (0.2 if name == "reinmax" else 1e-9) * theirs.norm()


@pytest.mark.parametrize("name", NAMES)
def test_vmap_maps_or_says_what_to_do(name):
    def draw(row):
        return getattr(estimators, name)(row, 4)

    if name in ("imle", "gumbel_straight_through", "relaxed_subset"):
        x = torch.func.vmap(draw, randomness="different")(X[0])
        torch.testing.assert_close(x.sum(-1), torch.full((4,), 4.0, dtype=X.dtype))
        grads = torch.func.vmap(torch.func.grad(total(name)), randomness="different")(X[0])
        assert grads.isfinite().all()
        assert (grads != 0).any()
    else:
        with pytest.raises(RuntimeError, match=f"{name}: torch.func.vmap cannot map"):
            torch.func.vmap(draw, randomness="different")(X[0])


def test_the_score_function_under_torch_func():
    with pytest.raises(RuntimeError, match="score_function: a sample has no gradient of its own"):
        torch.func.grad(total("score_function"))(X[0, 0])
    f = nonlinear(9)

    def loss(row):
        return estimators.score_function_loss(f, row, 3, samples=20_000)

    row = X[0, 0].clone().requires_grad_()
    (theirs,) = torch.autograd.grad(loss(row), row)
    assert (torch.func.grad(loss)(X[0, 0]) - theirs).norm() < 0.1 * theirs.norm()


TRACED = pytest.mark.skipif(
    torch.__version__ < "2.7", reason="torch 2.6 traces no backward pass that asks where a tensor is"
)


@pytest.mark.parametrize(
    "name", [pytest.param("imle", marks=TRACED), "gumbel_straight_through", "relaxed_subset"]
)
def test_compiled_whole(name):
    compiled = torch.compile(getattr(estimators, name), fullgraph=True, backend="aot_eager")
    scores = X[0].clone().requires_grad_()
    x = compiled(scores, 4)
    torch.testing.assert_close(x.sum(-1), torch.full((4,), 4.0, dtype=X.dtype))
    (grad,) = torch.autograd.grad((x * torch.linspace(-2, 2, 9)).sum(), scores)
    assert grad.isfinite().all()
    assert (grad != 0).any()
