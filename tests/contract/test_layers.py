"""Every layer of khot.nn: saved and loaded, half types, eval(), padding, k at its ends, compiled."""

import io

import pytest
import torch
from torch import nn

import khot.nn
from khot.nn import (
    DifferentiableTopK,
    GumbelTopK,
    PerturbedTopK,
    SampledTopK,
    Select,
    TopK,
    TopKActivation,
)
from strategies.random_scores import scores

K, N = 3, 8
X = scores(4, N, dtype=torch.float32)
PADDED = torch.tensor([[True] * length + [False] * (N - length) for length in (8, 5, 3, 1)])
LAYERS = [getattr(khot.nn, name) for name in khot.nn.__all__]
RANDOM = {GumbelTopK, PerturbedTopK, SampledTopK}
MASKED = [kind for kind in LAYERS if kind is not DifferentiableTopK]  # which has topknets' signature


def weights_of(layer: nn.Module, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """The weights of all n entries."""
    if isinstance(layer, DifferentiableTopK):
        return layer(x).sum(-2)
    if isinstance(layer, Select):
        everything = torch.eye(x.shape[-1], dtype=x.dtype).expand(*x.shape, x.shape[-1])
        return layer(everything, x, mask).values.sum(-2)
    if isinstance(layer, TopKActivation):
        return layer.gates(x, mask)
    return layer(x, mask)


def weights(layer: nn.Module, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """The same, from a fixed seed of torch's own."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return weights_of(layer, x, mask)


def changed(layer: nn.Module) -> nn.Module:
    """The layer after training has moved what it can move."""
    if getattr(layer, "temperature", None) is not None:
        layer.temperature = 0.37
    return layer


every_layer = pytest.mark.parametrize("kind", LAYERS)
every_masked_layer = pytest.mark.parametrize("kind", MASKED)


@every_layer
def test_saved_and_loaded(kind):
    trained, file = changed(kind(K)), io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    fresh = kind(K)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(weights(fresh, X), weights(trained, X))


@every_layer
def test_half_types(kind):
    """The dtype of the scores, near what float32 gives for the same scores, and a finite gradient."""
    x = X.bfloat16()
    layer = kind(K).bfloat16().eval()
    leaf = x.clone().requires_grad_()
    y = weights(layer, leaf)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), weights(layer, x.float()), atol=0.05, rtol=0)
    if y.requires_grad:
        (gradient,) = torch.autograd.grad((y * x).sum(), leaf)
        assert gradient.dtype == torch.bfloat16
        assert gradient.isfinite().all()


@every_layer
def test_eval_removes_randomness_and_nothing_else(kind):
    layer = kind(K)
    in_training = weights(layer, X)
    layer.eval()
    state = torch.get_rng_state()
    assert torch.equal(weights_of(layer, X), weights_of(layer, X))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(weights(layer, X), in_training) != (kind in RANDOM)


@every_masked_layer
@pytest.mark.parametrize("training", [True, False])
def test_padding_changes_nothing(kind, training):
    """What is masked has no weight and no influence, whatever its score; all are taken of k or fewer."""
    layer = kind(K).train(training)
    y = weights(layer, X, PADDED)
    assert (y[~PADDED] == 0).all()
    assert torch.equal(weights(layer, torch.where(PADDED, X, 1e6), PADDED), y)
    torch.testing.assert_close(y[2:], PADDED[2:].float())


@every_layer
@pytest.mark.parametrize("training", [True, False])
def test_none_and_all(kind, training):
    assert (weights(kind(0).train(training), X) == 0).all()
    if kind is DifferentiableTopK:  # rows of ranks sum to 1 each, but columns are as soft as the temperature
        torch.testing.assert_close(weights(kind(N), X).sum(-1), torch.full((4,), float(N)))
    else:
        torch.testing.assert_close(weights(kind(N).train(training), X), torch.ones_like(X))


# One layer with noise, one without, and those of their own kind; the others are further operators.
QUICK = {TopK, TopKActivation, GumbelTopK, SampledTopK, Select, DifferentiableTopK}
# One draws its noise twice from one state of a generator, the other makes a torch.distributions object.
NOT_COMPILED = {(PerturbedTopK, True), (PerturbedTopK, False), (SampledTopK, True)}
COMPILED = [
    pytest.param(kind, training, marks=() if kind in QUICK else pytest.mark.full)
    for kind in LAYERS
    for training in (True, False)
    if (kind, training) not in NOT_COMPILED and (training or kind in RANDOM)
]


@pytest.mark.parametrize(("kind", "training"), COMPILED)
def test_compiled(kind, training):
    """Without a graph break, with the values and the gradient of eager."""
    layer = changed(kind(K)).train(training)
    torch.compiler.reset()
    compiled = torch.compile(lambda x: weights_of(layer, x), fullgraph=True, backend="aot_eager")
    results = []
    for call in (compiled, lambda x: weights_of(layer, x)):
        leaf = X.clone().requires_grad_()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            y = call(leaf)
        results.append((y, *(torch.autograd.grad((y * X).sum(), leaf) if y.requires_grad else ())))
    for ours, eager in zip(*results, strict=True):
        torch.testing.assert_close(ours, eager, atol=1e-5, rtol=1e-4)
