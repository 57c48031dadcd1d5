"""topk_entries in a compiled graph gives what it gives without."""

import pytest
import torch

import khot
from strategies.quick_run import costly


def some(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def gradients(entries, inputs):
    at = torch.arange(1.0, entries.weights.shape[-1] + 1)
    loss = ((entries.weights * at).sin() + entries.weights * entries.values + at * entries.values).sum()
    return torch.autograd.grad(loss, inputs)


@pytest.mark.parametrize(
    ("masked", "settings"),
    [
        (False, {}),
        (True, {"hard": True}),
        costly(True, {"order": "position"}),
        costly(False, {"method": "laplace"}),
    ],
)
def test_compiled_whole(masked, settings):
    scores = some((4, 50)).requires_grad_()
    temperature = torch.tensor([0.5, 1, 2, 3.0]).requires_grad_()
    mask = some((4, 50), seed=1) > 0 if masked else None

    def call(scores, temperature):
        return khot.topk_entries(scores, 6, temperature=temperature, mask=mask, **settings)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    found, eager = compiled(scores, temperature), call(scores, temperature)
    assert torch.equal(found.indices, eager.indices)
    assert torch.equal(found.values, eager.values)
    torch.testing.assert_close(found.weights, eager.weights)
    for a, b in zip(
        gradients(found, (scores, temperature)), gradients(eager, (scores, temperature)), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_compiled_with_other_sizes_and_types():
    compiled = torch.compile(khot.topk_entries, fullgraph=True, backend="aot_eager", dynamic=True)
    for shape, dtype in (((3, 20), torch.float32), ((5, 31), torch.float32), ((5, 31), torch.bfloat16)):
        scores = some(shape).to(dtype)
        for a, b in zip(compiled(scores, 4), khot.topk_entries(scores, 4), strict=True):
            torch.testing.assert_close(a, b)


def test_compiled_inside_vmap():
    scores = some((3, 4, 30))
    call = torch.vmap(lambda s: tuple(khot.topk_entries(s, 4)), in_dims=1)
    found = torch.compile(call, fullgraph=True, backend="aot_eager")(scores)
    for a, b in zip(found, khot.topk_entries(scores.transpose(0, 1), 4), strict=True):
        torch.testing.assert_close(a, b)
