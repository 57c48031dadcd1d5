"""khot.nn.SigmoidTopK: settings, learned temperature and budget."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch

import khot
from khot.nn import SigmoidTopK
from strategies import random_scores

scores = partial(random_scores.scores, dtype=torch.float32)


def test_it_is_the_function_with_its_settings():
    x = scores(3, 5, 4)
    mask = scores(3, 5, 4, seed=1) > -1
    layer = SigmoidTopK(2.5, temperature=0.3, dim=1)
    assert torch.equal(layer(x), khot.sigmoid_topk(x, 2.5, temperature=0.3, dim=1))
    assert torch.equal(layer(x, mask), khot.sigmoid_topk(x, 2.5, temperature=0.3, dim=1, mask=mask))
    assert torch.equal(layer(x, mask=mask)[~mask], torch.zeros(int((~mask).sum())))
    hard = SigmoidTopK(2, hard=True)
    assert torch.equal(hard(x), khot.hard_topk(x, 2))


def test_hard_has_the_soft_gradient():
    x = scores(4, 6).requires_grad_()
    grads = [
        torch.autograd.grad(SigmoidTopK(2, hard=hard)(x), x, scores(4, 6, seed=1))[0]
        for hard in (True, False)
    ]
    assert torch.equal(*grads)
    assert grads[0].any()


def test_without_learning_there_are_no_parameters():
    layer = SigmoidTopK(2, temperature=0.5)
    assert not list(layer.parameters())
    assert layer.k == 2
    assert layer.temperature == 0.5


def test_learned_values_start_where_they_are_told_to():
    layer = SigmoidTopK(3, temperature=0.7, learn_temperature=True, learn_k=True, k_max=10)
    assert layer.k.item() == pytest.approx(3, rel=1e-6)
    assert layer.temperature.item() == pytest.approx(0.7, rel=1e-6)
    x = scores(2, 10)
    torch.testing.assert_close(layer(x), khot.sigmoid_topk(x, 3, temperature=0.7))


@pytest.mark.parametrize("target", [0.05, 7.5])
def test_a_learned_temperature_stays_positive_and_finds_its_target(target):
    """Steps that are too large at first, from both sides: e^θ cannot become negative."""
    x = scores(8, 20, seed=2)
    wanted = khot.sigmoid_topk(x, 5, temperature=target)
    layer = SigmoidTopK(5, learn_temperature=True)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.3)
    for _ in range(300):
        optimiser.zero_grad()
        (layer(x) - wanted).square().sum().backward()
        optimiser.step()
        assert 0 < layer.temperature.item() < math.inf
    assert layer.temperature.item() == pytest.approx(target, rel=2e-2)


def test_a_planted_budget_is_learned():
    x = scores(8, 20, seed=3)
    wanted = khot.sigmoid_topk(x, 13.4)
    layer = SigmoidTopK(2, learn_k=True, k_max=20)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(300):
        optimiser.zero_grad()
        (layer(x) - wanted).square().sum().backward()
        optimiser.step()
        assert 0 < layer.k.item() < 20
    assert layer.k.item() == pytest.approx(13.4, abs=1e-2)


def test_the_state_makes_a_round_trip():
    settings = {"learn_temperature": True, "learn_k": True, "k_max": 8}
    trained = SigmoidTopK(2, temperature=0.4, **settings)
    with torch.no_grad():
        trained.kappa.add_(0.3)
    fresh = SigmoidTopK(5, **settings)
    fresh.load_state_dict(trained.state_dict())
    x = scores(3, 8)
    assert torch.equal(fresh(x), trained(x))
    assert torch.equal(copy.deepcopy(trained)(x), trained(x))
    assert set(trained.state_dict()) == {"kappa", "log_temperature", "_extra_state"}
    assert set(SigmoidTopK(2).state_dict()) == {"temperature", "_extra_state"}


def test_the_temperature_can_be_set():
    """For schedules; a learned one continues from there, and keeps its parameter."""
    x = scores(2, 6)
    for learn in (False, True):
        layer = SigmoidTopK(2, learn_temperature=learn)
        parameters = list(layer.parameters())
        layer.temperature = 0.25
        assert torch.as_tensor(layer.temperature).item() == pytest.approx(0.25)
        torch.testing.assert_close(layer(x), khot.sigmoid_topk(x, 2, temperature=0.25))
        assert all(a is b for a, b in zip(layer.parameters(), parameters, strict=True))
    with pytest.raises(ValueError, match=r"temperature must be positive and finite, got 0"):
        layer.temperature = 0


def test_scores_of_another_dtype():
    layer = SigmoidTopK(2, learn_temperature=True, learn_k=True, k_max=5).double()
    y = layer(scores(3, 6).double())
    assert y.dtype == torch.float64
    y[:, 0].sum().backward()
    assert layer.kappa.grad.dtype == torch.float32
    assert layer.kappa.grad.item() != 0
    assert layer.log_temperature.grad.item() != 0


def test_repr_shows_the_settings():
    layer = SigmoidTopK(2, temperature=0.5, dim=1)
    assert repr(layer) == "SigmoidTopK(k=2, temperature=0.5, dim=1, hard=False)"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": -1}, "k must be finite and not negative, got -1"),
        ({"k": math.nan}, "k must be finite"),
        ({"k": math.inf}, "k must be finite"),
        ({"k": 2, "temperature": 0}, "temperature must be positive and finite, got 0"),
        ({"k": 2, "temperature": math.inf}, "temperature must be positive and finite"),
        ({"k": 2, "learn_k": True}, "needs 0 < k < k_max, got k = 2, k_max = None"),
        ({"k": 2, "learn_k": True, "k_max": 2}, "needs 0 < k < k_max"),
        ({"k": 0, "learn_k": True, "k_max": 2}, "needs 0 < k < k_max"),
        ({"k": 2.5, "hard": True}, "k must be an integer with hard=True, got 2.5"),
        ({"k": 2, "k_max": 4}, "k_max = 4 has no effect without learn_k=True"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        SigmoidTopK(**settings)


@pytest.mark.parametrize("k", [True, np.True_, "2", None, torch.tensor(2.0), 2j])
def test_k_must_be_a_number(k):
    with pytest.raises(TypeError, match="SigmoidTopK: k must be a number, got "):
        SigmoidTopK(k)


@pytest.mark.parametrize("k", [7.0, np.int64(7), np.float32(7)])
def test_a_whole_number_is_an_integer(k):
    layer = SigmoidTopK(k)
    assert type(layer.k) is int
    assert layer.k == 7


def test_a_budget_larger_than_the_row_is_an_error_of_the_call():
    with pytest.raises(ValueError, match=r"0 <= k <= n = 4"):
        SigmoidTopK(5)(torch.zeros(4))
