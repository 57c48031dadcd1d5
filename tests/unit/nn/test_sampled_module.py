"""SampledTopK samples in training and selects in evaluation, with any estimator and design."""

import copy
import io

import pytest
import torch

import khot
from khot.nn import SampledTopK
from khot.schedules import TemperatureScheduler, constant

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([True, True, True, False, True, True])


def seeded():
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, khot.estimators.get("sampled_straight_through")),
        ({"design": "tree_pivotal"}, khot.estimators.get("sampled_straight_through", design="tree_pivotal")),
        (
            {"design": "tree_pivotal", "estimator": "reinmax"},
            khot.estimators.get("reinmax", design="tree_pivotal"),
        ),
        ({"estimator": "simple"}, khot.estimators.get("simple")),
        (
            {"estimator": "gumbel_straight_through", "temperature": 0.25},
            khot.estimators.get("gumbel_straight_through", temperature=0.25),
        ),
        (
            {"estimator": khot.estimators.get("imle", step=3.0)},
            khot.estimators.get("imle", step=3.0),
        ),
    ],
)
def test_training(settings, expected):
    layer = SampledTopK(2, **settings)
    scores = X.clone().requires_grad_()
    x = layer(scores, MASK, generator=seeded())
    y = expected(scores, 2, mask=MASK, generator=seeded())
    assert torch.equal(x, y)
    grads = [torch.autograd.grad((z * X).sum(), scores)[0] for z in (x, y)]
    assert torch.equal(*grads)
    assert f"estimator={expected.name}" in repr(layer)
    assert "k=2" in repr(layer)


@pytest.mark.parametrize("settings", [{}, {"dim": 0}, {"largest": False}])
def test_evaluation_is_the_hard_selection(settings):
    layer = SampledTopK(2, **settings).eval()
    scores = -X if "largest" in settings else X
    expected = khot.hard_topk(scores, 2, dim=settings.get("dim", -1))
    assert torch.equal(layer(X), expected)
    layer.train()
    x = layer(X, generator=seeded())
    assert (x.sum(settings.get("dim", -1)) == 2).all()
    assert f"dim={settings.get('dim', -1)}" in repr(layer)
    assert ("largest=False" in repr(layer)) == ("largest" in settings)


def test_evaluation_takes_the_mask():
    assert (SampledTopK(5).eval()(X, MASK) == MASK).all()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"k": -1}, ValueError, "SampledTopK: k must be finite and not negative, got -1"),
        ({"k": 1.5}, ValueError, "SampledTopK: k must be an integer, got 1.5"),
        ({"k": True}, TypeError, "SampledTopK: k must be a number, got True"),
        ({"eval_mode": "soft"}, ValueError, "SampledTopK: eval_mode must be 'same', 'hard' or 'random'"),
        ({"learn_temperature": True}, ValueError, "learn_temperature needs an estimator with one"),
        ({"estimator": "x"}, ValueError, "unknown estimator 'x'; known estimators: score_function"),
        ({"design": "x"}, ValueError, "unknown design 'x'; known designs: conditional_poisson"),
        ({"design": "systematic", "estimator": "simple"}, TypeError, "simple has no option 'design'"),
        (
            {"estimator": "score_function"},
            ValueError,
            "got 'score_function'; use khot.estimators.score_function_loss",
        ),
        (
            {"estimator": khot.estimators.get("simple"), "design": "systematic"},
            TypeError,
            "SampledTopK: 'design' belongs to the estimator, which was given as simple",
        ),
        ({"temperature": 0.1}, TypeError, "_straight_through has no option 'temperature'; it has design"),
    ],
)
def test_bad_settings_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        SampledTopK(**{"k": 2, **settings})


def test_evaluation_by_its_mode():
    for mode in ("same", "hard"):
        assert torch.equal(SampledTopK(2, eval_mode=mode).eval()(X), khot.hard_topk(X, 2))
    layer = SampledTopK(2, eval_mode="random")
    drawn = layer(X, generator=seeded())
    assert torch.equal(layer.eval()(X, generator=seeded()), drawn)
    assert not torch.equal(layer(X), layer(X))


def test_at_most_takes_all_there_are():
    layer = SampledTopK(9, at_most=True)
    assert (layer(X) == 1).all()
    assert (layer.eval()(X) == 1).all()
    with pytest.raises(ValueError, match="0 <= k <= n = 6"):
        SampledTopK(9)(X)


def test_selected_gives_the_indices_of_the_evaluation():
    layer = SampledTopK(5, largest=False)
    indices = layer.selected(X, MASK)
    assert torch.equal(indices, torch.where(MASK, X, torch.inf).argsort(-1)[:, :5])
    assert (SampledTopK(6).selected(X, MASK)[:, 5] == -1).all()


def test_its_temperature_is_saved_annealed_and_changes_the_gradient():
    layer = SampledTopK(2, estimator="gumbel_straight_through")
    TemperatureScheduler(layer, constant(0.25))
    fresh = SampledTopK(2, estimator="gumbel_straight_through")
    fresh.half().load_state_dict(layer.state_dict())
    assert fresh.temperature.dtype == torch.float32
    scores = X.clone().requires_grad_()
    x = fresh(scores, generator=seeded())
    y = khot.estimators.gumbel_straight_through(scores, 2, temperature=0.25, generator=seeded())
    grads = [torch.autograd.grad((z * X).sum(), scores)[0] for z in (x, y)]
    assert torch.equal(*grads)
    assert not hasattr(SampledTopK(2), "temperature")


@pytest.mark.parametrize("estimator", ["gumbel_straight_through", "relaxed_subset"])
def test_its_temperature_can_be_learned(estimator):
    layer = SampledTopK(2, estimator=estimator, learn_temperature=True)
    (layer(X, generator=seeded()) * X).sum().backward()
    assert layer.log_temperature.grad.item() != 0


def test_a_saved_k_is_compared():
    with pytest.raises(RuntimeError, match="SampledTopK: k was 3 when the state was saved, and is 2 here"):
        SampledTopK(2).load_state_dict(SampledTopK(3).state_dict())


def test_the_state_of_an_adaptive_step_is_part_of_the_layer():
    """What training has learnt of the step is there after loading, and only that of this layer moves."""
    layer, other = (khot.nn.SampledTopK(3, estimator="adaptive_imle") for _ in range(2))
    for seed in range(4):
        scores = torch.randn(8, 12, generator=torch.Generator().manual_seed(seed), requires_grad=True)
        (layer(scores) * torch.linspace(-1, 1, 12)).sum().backward()
    learnt = layer.estimator.options["step"].alpha
    assert learnt != 1
    assert other.estimator.options["step"].alpha == 1
    copied = copy.deepcopy(layer)
    stored = io.BytesIO()
    torch.save(layer.state_dict(), stored)
    stored.seek(0)
    other.load_state_dict(torch.load(stored, weights_only=True))
    assert other.estimator.options["step"].alpha == learnt
    assert copied.estimator.options["step"] is copied.step
    assert copied.step.alpha == learnt


def test_it_is_made_on_the_meta_device():
    with torch.device("meta"):
        assert SampledTopK(3).k == 3


@pytest.mark.parametrize(
    ("settings", "scores", "error", "message"),
    [
        ({}, [1.0, 2.0], TypeError, r"SampledTopK: scores must be a torch\.Tensor, got list"),
        ({"dim": 4}, torch.zeros(3), IndexError, "SampledTopK: dim must be in"),
    ],
)
def test_at_most_checks_the_scores_all_the_same(settings, scores, error, message):
    with pytest.raises(error, match=message):
        SampledTopK(2, at_most=True, **settings)(scores)
