"""FeatureGate and InstanceSelector: values by the operators they are made of, exactly k in evaluation."""

import pytest
import torch
from torch import nn

import khot
from khot.apps.features import FeatureGate, InstanceSelector
from khot.schedules import TemperatureScheduler, exponential


def with_scores(gate, seed=0):
    with torch.no_grad():
        gate.scores.copy_(torch.randn(gate.scores.shape, generator=torch.Generator().manual_seed(seed)))
    return gate


def test_features_times_weights_and_exactly_k_in_evaluation():
    gate = with_scores(FeatureGate(7, k=3, temperature=0.5))
    x = torch.randn(4, 2, 7)
    weights = khot.sigmoid_topk(gate.scores, 3, temperature=0.5)
    assert torch.equal(gate(x), x * weights)
    gate.eval()
    best = gate.scores.topk(3).indices.sort().values
    assert torch.equal(gate.selected(), best)
    kept = torch.zeros(7).index_fill(0, best, 1.0)
    assert torch.equal(gate(x), x * kept)
    same = with_scores(FeatureGate(7, k=3, temperature=0.5, eval_mode="same")).eval()
    assert torch.equal(same(x), x * weights)


def test_the_gradient_reaches_the_scores():
    for options in ({}, {"hard": True}, {"method": "sparse"}):
        gate = with_scores(FeatureGate(6, k=2, **options))
        gate(torch.randn(5, 6)).square().sum().backward()
        assert gate.scores.grad.abs().max() > 0
    hard = with_scores(FeatureGate(6, k=2, hard=True))
    assert set(hard.weights().tolist()) == {0.0, 1.0}


def test_none_and_all():
    x = torch.randn(3, 5)
    assert torch.equal(FeatureGate(5, k=0)(x), torch.zeros(3, 5))
    assert torch.equal(FeatureGate(5, k=5)(x), x)
    assert FeatureGate(5, k=0).selected().tolist() == []


def test_masked_features_never_pass():
    mask = torch.tensor([True, False, True, True, False])
    gate = with_scores(FeatureGate(5, k=2, mask=mask))
    assert (gate.weights()[~mask] == 0).all()
    assert set(gate.selected().tolist()) <= {0, 2, 3}
    few = FeatureGate(5, k=4, mask=mask)
    assert few.selected().tolist() == [0, 2, 3]
    assert "mask" in few.state_dict()


def test_saved_annealed_and_in_bfloat16():
    gate = with_scores(FeatureGate(6, k=2))
    other = FeatureGate(6, k=2)
    other.load_state_dict(gate.state_dict())
    x = torch.randn(3, 6)
    assert torch.equal(other(x), gate(x))
    with pytest.raises(RuntimeError, match="k was 2 when the state was saved, and is 3 here"):
        FeatureGate(6, k=3).load_state_dict(gate.state_dict())
    model = nn.Sequential(gate, nn.Linear(6, 2))
    scheduler = TemperatureScheduler(model, exponential(1.0, 0.01, 2))
    scheduler.step()
    assert gate.topk.temperature.item() == pytest.approx(0.1)
    low = gate.bfloat16()(x.bfloat16())
    assert low.dtype == torch.bfloat16
    gate.reset_parameters()
    assert not gate.scores.any()


def test_compiled():
    gate = with_scores(FeatureGate(6, k=2))
    x = torch.randn(3, 6)
    compiled = torch.compile(gate, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), gate(x))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_features": 0, "k": 0}, "FeatureGate: num_features must be at least 1, got 0"),
        ({"num_features": 5, "k": 6}, "FeatureGate: k must be at most num_features = 5, got 6"),
        ({"num_features": 5, "k": 1.5}, r"FeatureGate: k must be an integer, got 1\.5"),
        (
            {"num_features": 5, "k": 1, "mask": torch.ones(5)},
            r"mask must be boolean of shape \(5,\), got torch.f",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        FeatureGate(**arguments)


def test_bad_input():
    with pytest.raises(TypeError, match="FeatureGate: num_features must be an integer, got True"):
        FeatureGate(True, 1)
    with pytest.raises(TypeError, match=r"FeatureGate: mask must be a torch\.Tensor, got list"):
        FeatureGate(2, 1, mask=[True, False])
    with pytest.raises(TypeError, match="InstanceSelector: scorer must be a module of torch, got NoneType"):
        InstanceSelector(None, 2)
    with pytest.raises(ValueError, match=r"x must have the last dimension 5, got the shape \(2, 4\)"):
        FeatureGate(5, 2)(torch.zeros(2, 4))
    with pytest.raises(
        ValueError, match=r"scorer must give a score for each feature, \(2, 4\), got the shape"
    ):
        InstanceSelector(nn.Linear(4, 3), 2)(torch.zeros(2, 4))


def test_each_row_keeps_its_own():
    selector = InstanceSelector(nn.Identity(), k=2, temperature=0.3)
    x = torch.randn(5, 6)
    values, weights = selector(x)
    assert torch.equal(weights, khot.sigmoid_topk(x, 2, temperature=0.3))
    assert torch.equal(values, x * weights)
    values, weights = selector.eval()(x)
    assert torch.equal(weights, khot.hard_topk(x, 2))
    assert torch.equal(selector.selected(x), x.topk(2).indices)
    mask = torch.tensor([True, True, False, False, False, True])
    assert (selector(x, mask).weights[:, 2:5] == 0).all()


def test_a_random_method_draws_in_training_alone():
    selector = InstanceSelector(nn.Identity(), k=2, method="gumbel", hard=True)
    x = torch.zeros(3, 8)
    draws = [selector(x, generator=torch.Generator().manual_seed(s)).weights for s in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(selector.eval()(x).weights, selector(x).weights)


def test_rows_are_explained_by_what_decides_them():
    """The first column says which of the others the label is the sign of."""
    torch.manual_seed(0)
    x = torch.randn(600, 4)
    where = torch.where(x[:, 0] > 0, 1, 2)
    y = (x.gather(1, where.unsqueeze(1)).squeeze(1) > 0).long()
    selector = InstanceSelector(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 4)), k=1)
    reader = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam([*selector.parameters(), *reader.parameters()], lr=0.01)
    scheduler = TemperatureScheduler(selector, exponential(1.0, 0.05, 250))
    for _ in range(300):
        loss = nn.functional.cross_entropy(reader(selector(x).values), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    assert (selector.selected(x).squeeze(1) == where).float().mean() > 0.9


def test_what_does_not_pass_can_be_anything():
    x = torch.tensor([[3.0, float("nan"), float("inf"), 2.0]], requires_grad=True)
    gate = FeatureGate(4, 2)
    with torch.no_grad():
        gate.scores.copy_(torch.tensor([2.0, 0.0, 0.0, 1.0]))
    found = gate.eval()(x)
    assert found.tolist() == [[3.0, 0.0, 0.0, 2.0]]
    found.sum().backward()
    assert x.grad.tolist() == [[1.0, 0.0, 0.0, 1.0]]
    assert gate.scores.grad is None or gate.scores.grad.isfinite().all()
    assert FeatureGate(4, 2, eval_mode="same").eval()(x)[0, 1].isnan()  # there it does pass, in part
    selector = InstanceSelector(nn.Identity(), k=2).eval()
    mask = x.isfinite()
    assert selector(x, mask).values.tolist() == [[3.0, 0.0, 0.0, 2.0]]


def test_a_closed_gate_still_has_a_gradient():
    gate = with_scores(FeatureGate(6, k=2, hard=True, temperature=1.0))
    gate(torch.arange(1.0, 7.0)).sum().backward()
    closed = gate.weights() == 0
    assert (gate.scores.grad[closed] != 0).any()


def test_what_the_mask_excludes_can_be_anything():
    gate = FeatureGate(3, 1, mask=torch.tensor([True, True, False]))
    x = torch.tensor([[1.0, 2.0, float("nan")]])
    assert gate(x).isfinite().all()
    assert gate.eval()(x)[0, 2] == 0


def test_weights_are_never_cut_to_integers():
    """They would be in the dtype of such features, and without a gradient."""
    for module in (FeatureGate(3, 2), InstanceSelector(nn.Identity(), 2)):
        name = type(module).__name__
        for x in (torch.tensor([[3, 5, 7]]), torch.tensor([[True, False, True]])):
            with pytest.raises(TypeError, match=f"{name}: x must have a floating-point dtype, got {x.dtype}"):
                module(x)
        with pytest.raises(TypeError, match=rf"{name}: x must be a torch\.Tensor, got list"):
            module([[3.0, 5.0, 7.0]])
        with pytest.raises(TypeError, match=f"{name}: generator must be a torch.Generator or None, got 'x'"):
            module(torch.ones(1, 3), generator="x")
