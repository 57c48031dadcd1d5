"""LaplaceTopK, NormalTopK and SparseTopK: their functions with settings, which can be learned."""

import math
from functools import partial

import pytest
import torch

import khot
from khot.nn import LaplaceTopK, NormalTopK, SparseTopK
from strategies import random_scores

scores = partial(random_scores.scores, dtype=torch.float32)

LAYERS = [
    (LaplaceTopK, {}, khot.laplace_topk),
    (NormalTopK, {}, khot.normal_topk),
    (SparseTopK, {}, khot.sparse_topk),
    (SparseTopK, {"norm": 1.5}, khot.sparse_topk),
]
layers = pytest.mark.parametrize(("kind", "options", "function"), LAYERS)


@layers
def test_it_is_the_function_with_its_settings(kind, options, function):
    x, mask = scores(3, 5, 4), scores(3, 5, 4, seed=1) > -1
    layer = kind(2.5, temperature=0.8, dim=1, **options)
    assert torch.equal(layer(x), function(x, 2.5, temperature=0.8, dim=1, **options))
    assert torch.equal(layer(x, mask), function(x, 2.5, temperature=0.8, dim=1, mask=mask, **options))
    assert torch.equal(kind(2, hard=True, **options)(x), khot.hard_topk(x, 2))
    assert not list(layer.parameters())


@layers
def test_hard_has_the_soft_gradient(kind, options, function):
    x = scores(4, 6).requires_grad_()
    grads = [
        torch.autograd.grad(kind(2, hard=hard, **options)(x), x, scores(4, 6, seed=1))[0]
        for hard in (True, False)
    ]
    assert torch.equal(*grads)
    assert grads[0].any()


@layers
def test_a_planted_temperature_is_learned(kind, options, function):
    x = scores(8, 20, seed=2)
    wanted = function(x, 5, temperature=2.5, **options)
    layer = kind(5, learn_temperature=True, **options)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(150):
        optimiser.zero_grad()
        (layer(x) - wanted).square().sum().backward()
        optimiser.step()
        assert 0 < layer.temperature.item() < math.inf
    assert layer.temperature.item() == pytest.approx(2.5, rel=2e-2)


@layers
def test_a_planted_budget_is_learned(kind, options, function):
    x = scores(8, 20, seed=3)
    wanted = function(x, 13.4, **options)
    layer = kind(2, learn_k=True, k_max=20, **options)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        (layer(x) - wanted).square().sum().backward()
        optimiser.step()
        assert 0 < layer.k.item() < 20
    assert layer.k.item() == pytest.approx(13.4, abs=2e-2)


@layers
def test_the_state_makes_a_round_trip(kind, options, function):
    settings = {"learn_temperature": True, "learn_k": True, "k_max": 8, **options}
    trained = kind(2, temperature=0.4, **settings)
    with torch.no_grad():
        trained.kappa.add_(0.3)
    fresh = kind(5, **settings)
    x = scores(3, 8)
    assert not torch.equal(fresh(x), trained(x))
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(fresh(x), trained(x))
    assert set(trained.state_dict()) == {"kappa", "log_temperature", "_extra_state"}


@layers
def test_the_temperature_can_be_set(kind, options, function):
    layer = kind(2, **options)
    layer.temperature = 0.25
    assert torch.equal(layer(scores(2, 6)), function(scores(2, 6), 2, temperature=0.25, **options))
    with pytest.raises(ValueError, match=f"{kind.__name__}: temperature must be positive and finite, got -1"):
        layer.temperature = -1


@pytest.mark.parametrize("kind", [LaplaceTopK, NormalTopK, SparseTopK])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": -1}, "k must be finite and not negative, got -1"),
        ({"k": 2, "temperature": 0}, "temperature must be positive and finite, got 0"),
        ({"k": 2, "learn_k": True}, "learn_k=True needs 0 < k < k_max, got k = 2, k_max = None"),
        ({"k": 2, "k_max": 4}, "k_max = 4 has no effect without learn_k=True"),
    ],
)
def test_bad_settings_name_the_class(kind, settings, message):
    with pytest.raises(ValueError, match=f"{kind.__name__}: {message}"):
        kind(**settings)


def test_a_bad_norm_is_an_error_when_it_is_made():
    with pytest.raises(ValueError, match=r"norm must be in \(1, 2\], got 0\.5"):
        SparseTopK(2, norm=0.5)
    with pytest.raises(TypeError, match="norm must be a number, got str"):
        SparseTopK(2, norm="2")


@pytest.mark.parametrize("kind", [LaplaceTopK, NormalTopK])
def test_repr_shows_the_settings(kind):
    assert repr(kind(2.5, temperature=0.5, dim=1)) == (
        f"{kind.__name__}(k=2.5, temperature=0.5, dim=1, hard=False)"
    )
    learned = kind(2, hard=True, learn_k=True, k_max=9, learn_temperature=True)
    assert repr(learned) == (
        f"{kind.__name__}(k=2 (learned, k_max=9), temperature=1 (learned), dim=-1, hard=True)"
    )


def test_repr_shows_the_norm():
    assert repr(SparseTopK(2, norm=1.5)) == "SparseTopK(k=2, temperature=1, dim=-1, hard=False, norm=1.5)"
