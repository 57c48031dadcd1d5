"""The compiled and the portable sigmoid_topk give the same weights and gradients."""

import pytest
import torch

import khot
from khot.kernels import cpu, loader


def results(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Weights and gradients of rows of all kinds: ordinary, crowded, saturated, nearly hard, masked."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(6, 33, generator=generator, dtype=torch.float64).to(dtype)
    x[1, :7] = torch.inf
    x[2, 4:] = -torch.inf
    x[3] *= 30
    mask = torch.ones(6, 33, dtype=torch.bool)
    mask[4, ::2] = False
    k = torch.tensor([3, 5, 6, 7, 2.5, 32.5], dtype=dtype)
    temperature = torch.tensor([1, 2, 0.5, 1, 3, 0.1], dtype=dtype)
    inputs = tuple(leaf.requires_grad_() for leaf in (x, k, temperature))
    y = khot.sigmoid_topk(x, k, temperature=temperature, mask=mask)
    direction = torch.randn(6, 33, generator=generator, dtype=torch.float64).to(dtype)
    return y.detach(), *torch.autograd.grad(y, inputs, direction)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_and_portable_agree(dtype, monkeypatch):
    if loader.native() is None:
        pytest.skip(f"needs the compiled library: {loader.status().reason}")
    calls = []
    kernel = cpu.gate_jacobian
    monkeypatch.setattr(cpu, "gate_jacobian", lambda *args: calls.append(args) or kernel(*args))
    compiled = results(dtype)
    assert calls, "the compiled kernel was not used"

    calls.clear()
    monkeypatch.setattr(loader, "_decision", lambda: (None, loader.NativeStatus(False, "off"), False))
    portable = results(dtype)
    assert not calls
    eps = torch.finfo(dtype).eps
    for a, b in zip(compiled, portable, strict=True):
        assert a.isfinite().all()
        # sums of 33 terms; those of the temperature are up to ten times as large as the sum
        torch.testing.assert_close(a, b, rtol=64 * eps, atol=640 * eps)


def test_works_without_the_compiled_library(run_python):
    """In a process of its own, where the library is switched off from the start."""
    code = (
        "import torch, khot; x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)\n"
        "y = khot.sigmoid_topk(x, 2); y[0].backward(); print(*y.tolist(), *x.grad.tolist())"
    )
    numbers = torch.tensor([float(word) for word in run_python(code, KHOT_NO_NATIVE="1").split()])
    y, grad = numbers[:3], numbers[3:]
    w = y * (1 - y)
    expected = -w[0] * w / w.sum() + torch.tensor([w[0], 0, 0])
    assert abs(y.sum() - 2) <= 1e-6
    torch.testing.assert_close(grad, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 0), (0, 5), (0, 0)])
def test_a_compiled_graph_takes_tensors_without_elements(shape):
    x = torch.empty(shape, requires_grad=True)
    y = torch.compile(lambda x: khot.sigmoid_topk(x, 0), fullgraph=True, backend="aot_eager")(x)
    assert y.shape == shape
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert grad.shape == shape
