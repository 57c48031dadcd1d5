"""TopK(calibrate=...) and calibrate_: the temperature from a batch of scores, once, and saved."""

import copy

import pytest
import torch

import khot
from khot.nn import SigmoidTopK, TopK
from khot.relaxations.registry import names, specs

X = torch.randn(16, 9, generator=torch.Generator().manual_seed(0))
CERTAIN = [name for name in names() if not specs()[name].stochastic]


def share(y, x=X, k=3):
    """The mean share of the budget on the k largest scores, counted plainly."""
    return sum(y[row, x[row].topk(k).indices].sum().item() / k for row in range(len(x))) / len(x)


@pytest.mark.parametrize("method", CERTAIN)
def test_the_first_training_batch_sets_it(method):
    layer = TopK(3, method, calibrate=0.8)
    assert share(layer(X)) == pytest.approx(0.8, abs=1e-4)
    layer(100 * X)
    assert share(layer(X)) == pytest.approx(0.8, abs=1e-4)  # once


def test_with_the_settings_of_the_layer():
    mask = torch.rand(9, generator=torch.Generator().manual_seed(1)) > 0.3
    layer = SigmoidTopK(3, calibrate=0.7, largest=False, dim=0)
    y = layer(X.T, mask.unsqueeze(-1)).T
    wanted = torch.where(mask, -X, -torch.inf)
    assert share(y, wanted) == pytest.approx(0.7, abs=1e-4)


def test_a_learned_temperature_starts_there():
    layer = SigmoidTopK(3, calibrate=0.8, learn_temperature=True, learn_k=True, k_max=6)
    assert share(layer(X)) == pytest.approx(0.8, abs=1e-4)
    assert layer.log_temperature.item() != 0


def test_it_is_recorded_in_the_state():
    trained = TopK(3, calibrate=0.8)
    fresh = copy.deepcopy(trained)
    trained(X)
    fresh.load_state_dict(trained.state_dict())
    fresh(100 * X)
    assert fresh.temperature.item() == trained.temperature.item()
    untrained = TopK(3, calibrate=0.8)
    untrained.load_state_dict(TopK(3, calibrate=0.8).state_dict())
    assert share(untrained(X)) == pytest.approx(0.8, abs=1e-4)


def test_a_state_with_a_temperature_that_was_given_is_not_calibrated_anew():
    layer = TopK(3, calibrate=0.8)
    layer.load_state_dict(TopK(3, temperature=0.25).state_dict())
    assert torch.equal(layer(X), khot.sigmoid_topk(X, 3, temperature=0.25))
    without = TopK(3)
    without.load_state_dict(TopK(3, calibrate=0.8).state_dict())
    assert torch.equal(without(X), khot.sigmoid_topk(X, 3))


def test_nor_is_one_that_was_assigned():
    layer = TopK(3, calibrate=0.8)
    layer.temperature = 0.25
    layer(X)
    assert layer.temperature.item() == 0.25


def test_calibrate_now():
    layer = TopK(3)
    layer.calibrate_(X, weight_on_topk=0.6)
    assert share(layer(X)) == pytest.approx(0.6, abs=1e-4)
    layer.calibrate_(5 * X)
    assert share(layer(5 * X), 5 * X) == pytest.approx(0.9, abs=1e-4)
    waiting = TopK(3, calibrate=0.8)
    waiting.calibrate_(X, weight_on_topk=0.6)
    waiting(7 * X)
    assert share(waiting(X)) == pytest.approx(0.6, abs=1e-4)


def test_the_mask_counts():
    mask = torch.arange(9) < 5
    layer = TopK(3)
    layer.calibrate_(X, mask=mask)
    assert share(layer(X, mask), X.masked_fill(~mask, -torch.inf)) == pytest.approx(0.9, abs=1e-4)


def test_evaluation_before_it_is_a_warning():
    layer = TopK(3, calibrate=0.8).eval()
    with pytest.warns(UserWarning, match=r"TopK: evaluated before calibrate = 0\.8 was done"):
        y = layer(X)
    assert torch.equal(y, khot.sigmoid_topk(X, 3))
    assert share(layer.train()(X)) == pytest.approx(0.8, abs=1e-4)


@pytest.mark.parametrize("scores", [torch.zeros(4, 9), torch.ones(4, 9).requires_grad_()])
def test_equal_scores_name_the_cure(scores):
    for make in (lambda: TopK(3, calibrate=0.8)(scores), lambda: TopK(3).calibrate_(scores)):
        with pytest.raises(ValueError, match=r"TopK\.calibrate_: .*; give temperature=, or call layer\."):
            make()


def test_what_cannot_be_reached_leaves_the_layer_as_it_was():
    layer = TopK(9, calibrate=0.8)
    with pytest.raises(ValueError, match="give temperature="):
        layer(X)
    assert layer.temperature.item() == 1
    assert layer.state_dict()["_extra_state"].tolist() == [9, 0, 0]


def test_rows_that_are_taken_whole_leave_it_to_a_later_batch():
    layer = TopK(3, calibrate=0.8, at_most=True)
    for n in (1, 3):
        assert torch.equal(layer(X[:, :n]), torch.ones(16, n))
    assert layer.temperature.item() == 1
    assert layer.state_dict()["_extra_state"].tolist() == [3, 0, 0]
    assert share(layer(X)) == pytest.approx(0.8, abs=1e-4)
    layer(X[:, :2])
    assert share(layer(X)) == pytest.approx(0.8, abs=1e-4)
    with pytest.raises(ValueError, match=r"TopK\.calibrate_: k takes all 2 entries, whatever"):
        layer.calibrate_(X[:, :2])


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"temperature": 0.5}, ValueError, r"TopK: give temperature or calibrate, got 0\.5 and 0\.9"),
        ({"calibrate": 1.0}, ValueError, r"TopK: calibrate must lie between 0 and 1, got 1\.0"),
        ({"calibrate": True}, TypeError, "TopK: calibrate must be a number, got True"),
        ({"calibrate": "0.9"}, TypeError, r"TopK: calibrate must be a number, got '0\.9'"),
        ({"k": 2.5}, ValueError, r"TopK: k must be an integer with calibrate, got 2\.5"),
        (
            {"method": "gumbel"},
            ValueError,
            "TopK: calibrate needs a method without randomness, got 'gumbel'; give temperature=",
        ),
    ],
)
def test_bad_settings(settings, error, message):
    with pytest.raises(error, match=message):
        TopK(**{"k": 3, "calibrate": 0.9, **settings})


def test_a_random_method_has_no_calibrate_either():
    with pytest.raises(ValueError, match=r"TopK\.calibrate_: weight_on_topk needs a method without random"):
        TopK(3, "perturbed").calibrate_(X)


def test_capped_weights_are_calibrated_too():
    layer = TopK(2, "softsort", capped=True, calibrate=0.9)
    y = layer(torch.randn(4, 9, generator=torch.Generator().manual_seed(0)))
    assert y.max() <= 1
    assert layer.temperature != 1


@pytest.mark.parametrize("scores", [[1.0], None, torch.tensor(1.0), torch.tensor([1, 2, 3])])
def test_scores_to_calibrate_by_are_checked(scores):
    with pytest.raises((TypeError, ValueError), match=r"^TopK\.calibrate_: scores must "):
        TopK(2).calibrate_(scores)
