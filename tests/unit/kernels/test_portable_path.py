"""What tensors on a GPU get: torch operations that never wait for a value, nor bring one to the host."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import khot
from khot.kernels import operations, triton
from khot.relaxations import registry

# What looks at values, makes shapes of them, or copies them to the host.
WAITING = {"_local_scalar_dense", "item", "nonzero", "masked_select", "unique_dim", "_unique2", "equal"}
FAMILY = ["sigmoid", "laplace", "sparse", "normal"]
NAMES = [name for name in registry.names() if not registry.get(name).stochastic]


def traced(function, *shapes):
    """The graph of a function of tensors on no device, which have no values."""
    return make_fx(function)(*(torch.empty(shape, device="meta") for shape in shapes))


def looks_at_values(graph):
    found = []
    for node in graph.graph.nodes:
        name = getattr(node.target, "_opname", str(node.target))
        to_host = (
            name in ("_to_copy", "to") and torch.device(node.kwargs.get("device") or "cuda").type == "cpu"
        )
        if name in WAITING or to_host:
            found.append(str(node))
    return found


def forward_and_backward(weights):
    def step(x, temperature):
        x, temperature = x.detach().requires_grad_(), temperature.detach().requires_grad_()
        y = weights(x, temperature)
        return y, torch.autograd.grad(y.square().sum(), (x, temperature), allow_unused=True)

    return step


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.full
def test_no_operator_waits_for_a_value(name):
    weights = registry.get(name).weights
    step = forward_and_backward(lambda x, temperature: weights(x, 3, temperature=temperature))
    assert looks_at_values(traced(step, (2, 8), ())) == []


def test_hard_topk_does_not_wait():
    for function in (lambda x, k: khot.hard_topk(x, 3), lambda x, k: khot.hard_topk(x, k)):
        assert looks_at_values(traced(function, (2, 8), (2,))) == []


def test_the_check_notices_who_looks():
    with pytest.raises(RuntimeError, match="_local_scalar_dense"):
        traced(lambda x: x * x.sum().item(), (3,))
    with pytest.raises(NotImplementedError, match="meta"):
        traced(lambda x: x.cpu(), (3,))


@pytest.mark.parametrize("name", FAMILY)
def test_shapes_and_types(name):
    """Also of half types, which are computed in float32."""
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.empty(2, 8, device="meta", dtype=dtype)
        y = registry.get(name).weights(x, 3)
        assert (y.shape, y.dtype, y.device.type) == (x.shape, dtype, "meta")


@pytest.fixture
def portable(monkeypatch):
    """Tensors on the CPU take the path of those on a GPU."""
    monkeypatch.setattr("khot.relaxations.threshold._family.native", lambda: None)
    monkeypatch.setattr("khot.relaxations.threshold._functions.is_plain", lambda *tensors: False)
    monkeypatch.setattr("khot.relaxations.threshold.sigmoid.plain_sigmoid", lambda *arguments: None)


@pytest.mark.usefixtures("portable")
@pytest.mark.parametrize("name", FAMILY)
def test_autocast_does_not_change_the_precision(name):
    weights, x = registry.get(name).weights, torch.randn(3, 8, requires_grad=True)
    plain = weights(x, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = weights(x, 3)
    assert torch.equal(y, plain)
    grads = [torch.autograd.grad(out.square().sum(), x)[0] for out in (plain, y)]
    assert torch.equal(*grads)


@pytest.mark.usefixtures("portable")
@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.full
def test_deterministic_mode(name):
    """No operation that torch names as one without a deterministic implementation is in either pass."""
    weights = registry.get(name).weights
    graph = traced(forward_and_backward(lambda x, t: weights(x, 3, temperature=t)), (2, 8), ())
    alert = {"scatter_add", "scatter_add_", "index_put", "put_", "histc", "kthvalue", "median", "index_add"}
    assert {getattr(n.target, "_opname", "") for n in graph.graph.nodes} & alert == set()
    torch.use_deterministic_algorithms(True)
    try:
        x = torch.randn(3, 8, requires_grad=True)
        first, second = (torch.autograd.grad(weights(x, 3).square().sum(), x)[0] for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(first, second)


def _at_three(operator):
    return lambda x, temperature: operator(x, 3, temperature=temperature)


def _without_temperature(operator):
    return lambda x: operator(x, 3)


def operations_in(graph):
    return {str(node.target) for node in graph.graph.nodes if "khot" in str(node.target)}


def test_triton_is_not_taken_unless_asked_for(monkeypatch):
    monkeypatch.delenv("KHOT_TRITON", raising=False)
    assert not triton.switched_on.__wrapped__()
    assert not operations.taken_on_gpu(torch.ones(3))
    assert operations_in(traced(lambda x: khot.sigmoid_topk(x, 3), (2, 8))) == set()


@pytest.mark.full
def test_triton_is_reached_by_the_operations_of_the_cpu_kernels(monkeypatch):
    """As if no device was a GPU: torch without CUDA has no other tensors that stand for one."""
    monkeypatch.setattr(operations, "taken_on_gpu", lambda *tensors: bool(tensors))
    for operator in (khot.sigmoid_topk, khot.laplace_topk, khot.sparse_topk):
        step = forward_and_backward(_at_three(operator))
        both = {"khot.gated_topk.default", "khot.gate_jacobian.default"}
        assert operations_in(traced(step, (2, 8), ())) == both
    assert operations_in(traced(lambda x: khot.hard_topk(x, 3), (2, 8))) == {"khot.hard_topk.default"}
    for operator in (khot.normal_topk, lambda x, k: khot.sparse_topk(x, k, norm=1.5)):  # no kernel: portable
        assert operations_in(traced(_without_temperature(operator), (2, 8))) == set()
    for name in ("gated_topk", "gate_jacobian", "hard_topk"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"khot::{name}", "CUDA")


def test_without_triton_the_switch_says_what_to_install(monkeypatch):
    monkeypatch.setenv("KHOT_TRITON", "1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "khot\[triton\]"'):
        triton.switched_on.__wrapped__()
