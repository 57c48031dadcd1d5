"""SampledTopK samples in training and selects in evaluation, with any estimator and design."""

import copy
import io

import pytest
import torch

import khot
from khot.nn import SampledTopK

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
            {"estimator": "gumbel_straight_through", "temperature": 0.3},
            khot.estimators.get("gumbel_straight_through", temperature=0.3),
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
    assert str(expected) in repr(layer)
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
    assert f"dim={settings.get('dim', -1)}, largest={settings.get('largest', True)}" in repr(layer)


def test_evaluation_takes_the_mask():
    assert (SampledTopK(5).eval()(X, MASK) == MASK).all()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"k": 0}, ValueError, "SampledTopK: k must be a positive integer, got 0"),
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
            "SampledTopK: design and options belong to the estimator",
        ),
        ({"temperature": 0.1}, TypeError, "_straight_through has no option 'temperature'; it has design"),
    ],
)
def test_bad_settings_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        SampledTopK(**{"k": 2, **settings})


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
