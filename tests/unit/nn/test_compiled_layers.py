"""Layers under torch.compile and torch.export: one compilation while the temperature is annealed."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import khot
from khot.nn import GumbelTopK, PairwiseTopK, SampledTopK, Select, SigmoidTopK, SparseTopK, TopK
from khot.schedules import TemperatureScheduler, exponential
from strategies.quick_run import costly

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))


def counted(module, backend="eager"):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    return torch.compile(module, backend=counter, fullgraph=True), counter


@pytest.mark.parametrize(
    ("make", "backend"),
    [
        (lambda: SigmoidTopK(2), "aot_eager"),
        costly(lambda: SigmoidTopK(2.5, learn_k=True, k_max=5), "eager"),
        (lambda: SparseTopK(2, norm=1.5), "eager"),
        (lambda: GumbelTopK(2), "eager"),
        costly(lambda: PairwiseTopK(2, window=0.5, largest=False), "eager"),
        costly(lambda: TopK(2, "softsort", at_most=True, eval_mode="hard"), "eager"),
    ],
)
def test_a_schedule_compiles_once(make, backend):
    layer = make()
    compiled, counter = counted(layer, backend)
    scheduler = TemperatureScheduler(compiled, exponential(1.0, 0.01, steps=2))
    seen = []
    for _ in range(3):
        scores = X.clone().requires_grad_()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            y = compiled(scores)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            torch.testing.assert_close(y, layer(scores), rtol=1e-4, atol=1e-5)
        (y * X).sum().backward()
        seen.append((y.detach(), scores.grad))
        scheduler.step()
    assert counter.frame_count == 1
    assert seen[0][1].any()
    assert not torch.allclose(seen[0][0], seen[-1][0], atol=1e-3)


def test_a_learned_temperature_compiles_once():
    layer = SigmoidTopK(2, learn_temperature=True)
    compiled, counter = counted(layer)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    taus = []
    for _ in range(4):
        optimiser.zero_grad()
        compiled(X).square().sum().backward()
        optimiser.step()
        taus.append(layer.temperature.item())
    assert counter.frame_count == 1
    assert len(set(taus)) == 4


class Indices(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, scores, mask):
        return self.layer.selected(scores, mask)


@pytest.mark.parametrize(
    "layer",
    [TopK(3), TopK(2.5, largest=False), SampledTopK(3, at_most=True), Select(2, dim=0), GumbelTopK(2)],
)
def test_the_selected_indices_can_be_compiled_and_exported(layer):
    mask = torch.rand(3, 8, generator=torch.Generator().manual_seed(1)) > 0.2
    expected = layer.selected(X, mask)
    compiled, _ = counted(Indices(layer))
    assert torch.equal(compiled(X, mask), expected)
    exported = torch.export.export(Indices(layer), (X, mask)).module()
    other = X.flip(-1).contiguous()
    assert torch.equal(exported(other, mask), layer.selected(other, mask))


def test_an_exported_layer_keeps_its_temperature_as_state():
    program = torch.export.export(TopK(2, temperature=0.25), (X,))
    assert program.state_dict["temperature"].item() == 0.25
    torch.testing.assert_close(program.module()(X), khot.sigmoid_topk(X, 2, temperature=0.25))


def test_a_layer_that_is_not_yet_calibrated_says_so():
    compiled, _ = counted(TopK(2, calibrate=0.9))
    torch_names_it = hasattr(torch.compiler, "is_exporting")  # not torch 2.6
    with pytest.raises(Exception, match=r"call layer\.calibrate_\(scores\)" if torch_names_it else ""):
        compiled(X)


def test_a_calibrated_layer_compiles_also_after_loading():
    trained, loaded = TopK(2, calibrate=0.9), TopK(2, calibrate=0.9)
    expected = trained(X)
    loaded.load_state_dict(trained.state_dict())
    compiled, counter = counted(loaded)
    torch.testing.assert_close(compiled(X), expected)
    assert counter.frame_count == 1
