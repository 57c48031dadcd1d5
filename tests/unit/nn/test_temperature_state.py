"""The temperature of every layer is float32 state: saved, never cast, moved, set in place, or learned."""

import copy
import io
import math
import pickle

import pytest
import torch
from torch import nn

import khot.nn
from khot.nn import SampledTopK, Select, SigmoidTopK, SparseTopK, TopK

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
TOPK = [kind for kind in vars(khot.nn).values() if isinstance(kind, type) and issubclass(kind, TopK)]
EVERY = [*TOPK, Select, lambda k, **settings: SampledTopK(k, estimator="gumbel_straight_through", **settings)]
every_layer = pytest.mark.parametrize("make", EVERY)
ODD = 0.30078131  # not a number of any half type


def test_there_are_all_layers():
    named = {kind.__name__ for kind in TOPK}
    assert named == set(khot.nn.__all__) - {"Select", "SampledTopK", "DifferentiableTopK", "TopKActivation"}


@every_layer
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("cast", [torch.float16, torch.bfloat16, torch.float64])
def test_a_cast_changes_nothing(make, learn, cast):
    layer = make(2, temperature=ODD, learn_temperature=learn)
    before = layer.temperature.item()
    for module in (layer.to(cast), nn.Sequential(layer).half()[0], layer.type(cast)):
        assert module.temperature.item() == before
        assert module.temperature.dtype == torch.float32
    assert before == pytest.approx(ODD, rel=1e-6)


@every_layer
def test_the_annealed_temperature_is_in_the_state(make):
    layer, fresh = make(2), make(2)
    layer.temperature = ODD
    fresh.load_state_dict(layer.state_dict())
    assert fresh.temperature.item() == layer.temperature.item() == pytest.approx(ODD)
    assert f"temperature={ODD:.4g}" in repr(fresh)


@every_layer
def test_every_layer_learns_it_also_in_a_model_of_a_half_type(make):
    layer = make(2, learn_temperature=True).to(torch.bfloat16)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1e-4)
    scores = X.to(torch.bfloat16)
    if isinstance(layer, Select):
        loss = layer(scores.unsqueeze(-1), scores).weights.float().square().sum()
    else:
        loss = (layer(scores).float() * torch.linspace(0, 1, 8).square()).sum()
    loss.backward()
    before = layer.log_temperature.item()
    optimiser.step()
    assert layer.log_temperature.dtype == layer.log_temperature.grad.dtype == torch.float32
    moved = before - 1e-4 * layer.log_temperature.grad.item()
    assert layer.log_temperature.item() == pytest.approx(moved, rel=1e-5)
    assert layer.log_temperature.item() != before


@every_layer
@pytest.mark.parametrize("learn", [False, True])
def test_only_a_positive_number_can_be_assigned(make, learn):
    layer = make(2, learn_temperature=learn)
    for value in (-1, 0.0, math.nan, math.inf, torch.tensor(-1.0)):
        with pytest.raises(ValueError, match=f"temperature must be positive and finite.* {float(value):g}"):
            layer.temperature = value
    with pytest.raises(ValueError, match=r"temperature must be one number, got a tensor of shape \(2,\)"):
        layer.temperature = torch.ones(2)
    with pytest.raises(TypeError, match="temperature must be a number"):
        layer.temperature = "1"
    assert layer.temperature.item() == 1


@every_layer
def test_assigning_writes_in_place(make):
    layer = make(2)
    held = layer.state_dict()["temperature"]
    layer.temperature = torch.tensor(0.5, dtype=torch.float64)
    assert held.item() == 0.5
    assert layer.temperature.dtype == torch.float32


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize(("temperature", "expected"), [(1e-60, [1, 0, 0, 0]), (1e200, [0.25] * 4)])
def test_what_float32_cannot_hold_is_the_nearest_that_it_can(learn, temperature, expected):
    made = SigmoidTopK(1, temperature=temperature, learn_temperature=learn)
    assigned = SigmoidTopK(1, learn_temperature=learn)
    assigned.temperature = temperature
    for layer in (made, assigned):
        assert layer(torch.tensor([3.0, 2.0, 1.0, 0.0])).tolist() == expected


@every_layer
def test_copies(make):
    layer = make(2)
    layer.temperature = ODD
    copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
    for other in copies:
        assert other.temperature.item() == layer.temperature.item()
        other.temperature = 2.0
    assert layer.temperature.item() == pytest.approx(ODD)


def test_files():
    """The state is tensors alone: it goes through torch.load(weights_only=True) and safetensors."""
    safetensors = pytest.importorskip("safetensors.torch")
    model = nn.Sequential(nn.Linear(2, 8), TopK(2, calibrate=0.9), SparseTopK(3, learn_temperature=True))
    model(torch.randn(4, 2, generator=torch.Generator().manual_seed(0)))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    for state in (
        torch.load(file, weights_only=True),
        safetensors.load(safetensors.save(model.state_dict())),
    ):
        fresh = nn.Sequential(nn.Linear(2, 8), TopK(2, calibrate=0.9), SparseTopK(3, learn_temperature=True))
        fresh.load_state_dict(state)
        assert torch.equal(fresh[1](X), model[1](X))
        assert torch.equal(fresh[2](X), model[2](X))


@pytest.mark.parametrize("cast", [None, torch.bfloat16])
def test_without_memory(cast):
    """On the meta device, made there or sent there, and filled by a state or by nothing."""
    state = TopK(2, temperature=ODD).state_dict()
    with torch.device("meta"):
        made = TopK(2)
    for layer in (made, TopK(2).to("meta", cast), TopK(2, learn_temperature=True).to("meta")):
        assert layer.temperature.is_meta
        assert "temperature=?" in repr(layer)
        assert layer(X.to("meta")).shape == X.shape
    assert layer.state_dict()["_extra_state"].tolist() == [2, 1, 0]
    made.load_state_dict(state, assign=True)
    assert made.temperature.item() == pytest.approx(ODD)
    with torch.device("meta"):
        empty = TopK(2)
    empty.to_empty(device="cpu").load_state_dict(state)
    assert torch.equal(empty(X), made(X))


def test_a_state_that_was_cast_by_hand_is_float32_again():
    state = {
        name: t.to(torch.bfloat16) if name == "temperature" else t for name, t in TopK(2).state_dict().items()
    }
    for assign in (False, True):
        layer = TopK(2)
        layer.load_state_dict(state, assign=assign)
        assert layer.temperature.dtype == torch.float32


@pytest.mark.parametrize(("learned", "fixed"), [("log_temperature", "temperature"), ("kappa", None)])
def test_learned_and_fixed_are_not_interchangeable(learned, fixed):
    learning = {"learn_temperature": True} if fixed else {"learn_k": True, "k_max": 4}
    a, b = TopK(2, **learning), TopK(2)
    with pytest.raises(RuntimeError, match=f'Unexpected key.*"{learned}"'):
        b.load_state_dict(a.state_dict())
    with pytest.raises(RuntimeError, match=f'Missing key.*"{learned}"'):
        a.load_state_dict(b.state_dict())


def test_a_saved_k_is_compared():
    with pytest.raises(RuntimeError, match="TopK: k was 3 when the state was saved, and is 2 here"):
        nn.Sequential(TopK(2)).load_state_dict(nn.Sequential(TopK(3)).state_dict())
    with pytest.raises(RuntimeError, match=r"TopK: k was 2.5 when the state was saved, and is 2 here"):
        TopK(2).load_state_dict(TopK(2.5).state_dict())


def test_another_temperature_for_one_call():
    layer = TopK(2)
    found = torch.func.functional_call(layer, {"temperature": torch.tensor(0.25)}, (X,))
    assert torch.equal(found, khot.sigmoid_topk(X, 2, temperature=0.25))
    both = torch.vmap(lambda t: torch.func.functional_call(layer, {"temperature": t}, (X,)))(
        torch.tensor([0.25, 1.0])
    )
    torch.testing.assert_close(both, torch.stack([found, layer(X)]))
    assert layer.temperature.item() == 1


def test_what_a_subclass_adds_is_cast_as_anywhere():
    class Gate(TopK):
        def __init__(self):
            super().__init__(2, learn_k=True, k_max=4)
            self.scorer = nn.Linear(3, 8)
            self.scale = nn.Parameter(torch.ones(8))

    gate = Gate()
    gate.kappa.grad, gate.scale.grad = torch.ones(()), torch.ones(8)
    gate.half()
    assert gate.scorer.weight.dtype == gate.scale.dtype == gate.scale.grad.dtype == torch.float16
    assert gate.kappa.dtype == gate.kappa.grad.dtype == gate.temperature.dtype == torch.float32


def test_the_default_dtype_does_not_matter():
    torch.set_default_dtype(torch.float64)
    try:
        layer = TopK(2, learn_temperature=True, learn_k=True, k_max=4)
        fixed = TopK(2)
    finally:
        torch.set_default_dtype(torch.float32)
    assert layer.kappa.dtype == layer.log_temperature.dtype == fixed.temperature.dtype == torch.float32


def test_another_range_of_a_learned_budget_is_an_error():
    """κ says a share of k_max: with another one it would be another budget."""
    state = TopK(3, learn_k=True, k_max=5).state_dict()
    with pytest.raises(RuntimeError, match="TopK: k_max was 5 when the state was saved, and is 50 here"):
        TopK(3, learn_k=True, k_max=50).load_state_dict(state)
    TopK(2, learn_k=True, k_max=5).load_state_dict(state)
