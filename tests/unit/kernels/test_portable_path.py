"""What tensors on a GPU get: torch operations that never wait for a value, nor bring one to the host."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import khot
from khot.relaxations import registry

# What looks at values, makes shapes of them, or copies them to the host.
WAITING = {"_local_scalar_dense", "item", "nonzero", "masked_select", "unique_dim", "_unique2", "equal"}
NAMES = [name for name in registry.names() if not registry.get(name).stochastic]


def traced(function, *shapes, device="cuda"):
    """The graph of a function of fake tensors on a device that is not there."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(shape, device=device) for shape in shapes]
        return make_fx(function, tracing_mode="fake")(*inputs)


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
def test_no_operator_waits_for_a_value(name):
    weights = registry.get(name).weights
    step = forward_and_backward(lambda x, temperature: weights(x, 3, temperature=temperature))
    graph = traced(step, (2, 8), ())
    assert looks_at_values(graph) == []
    assert all(node.meta["val"].device.type == "cuda" for node in graph.graph.nodes if "val" in node.meta
               and isinstance(node.meta["val"], torch.Tensor) and node.meta["val"].dim())  # fmt: skip


@pytest.mark.parametrize("k_is", ["a number", "a tensor"])
def test_hard_topk_does_not_wait(k_is):
    graph = traced(lambda x, k: khot.hard_topk(x, 3 if k_is == "a number" else k), (2, 8), (2,))
    assert looks_at_values(graph) == []


def test_the_check_notices_an_item():
    with pytest.raises(Exception, match=r"(?i)data.dependent|item"):
        traced(lambda x: x * x.sum().item(), (3,))
    with pytest.raises(Exception, match=r"(?i)data.dependent|nonzero|dynamic"):
        traced(lambda x: x.nonzero(), (3,))
    assert looks_at_values(traced(lambda x: x.cpu(), (3,))) != []


@pytest.mark.parametrize("name", ["sigmoid", "laplace", "sparse", "normal"])
@pytest.mark.parametrize("device", ["cuda", "mps", "xpu", "meta"])
def test_shapes_and_types_on_every_device(name, device):
    """Also of a layer in half precision, where computation is in float32."""
    weights = registry.get(name).weights
    with FakeTensorMode():
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.empty(2, 8, device=device, dtype=dtype)
            y = weights(x, 3)
            assert (y.shape, y.dtype, y.device.type) == (x.shape, dtype, device)


@pytest.mark.parametrize("name", ["sigmoid", "sparse"])
def test_autocast_does_not_change_the_precision(name):
    """No product of matrices and nothing that autocast lowers is in the graph."""
    weights = registry.get(name).weights
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=True):
        graph = traced(lambda x: weights(x, 3), (2, 8))
    kinds = {n.meta["val"].dtype for n in graph.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)}
    assert torch.bfloat16 not in kinds
    assert torch.float16 not in kinds


@pytest.mark.parametrize("name", ["sigmoid", "laplace", "sparse", "normal"])
def test_deterministic_mode(name, monkeypatch):
    """torch refuses operations without a deterministic implementation: there is none in either pass."""
    monkeypatch.setattr("khot.relaxations.threshold._family.native", lambda: None)
    monkeypatch.setattr("khot.relaxations.threshold._functions.is_plain", lambda *tensors: False)
    weights = registry.get(name).weights
    graph = traced(forward_and_backward(lambda x, t: weights(x, 3, temperature=t)), (2, 8), ())
    # The list of torch.use_deterministic_algorithms, as far as such graphs could hold it.
    alert = {"scatter_add", "scatter_add_", "index_put", "put_", "histc", "kthvalue", "median", "index_add"}
    assert {getattr(n.target, "_opname", "") for n in graph.graph.nodes} & alert == set()
    torch.use_deterministic_algorithms(True)
    try:
        x = torch.randn(3, 8, requires_grad=True)
        first, second = (torch.autograd.grad(weights(x, 3).square().sum(), x)[0] for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(first, second)


def test_triton_is_not_taken_unless_asked_for():
    graph = traced(lambda x: khot.sigmoid_topk(x, 3), (2, 8))
    assert not any("khot" in str(node.target) for node in graph.graph.nodes)


def test_triton_is_taken_as_the_same_operation(monkeypatch):
    from khot.kernels import triton

    monkeypatch.setattr(triton, "switched_on", lambda: True)
    for operator, expected in (
        (khot.sigmoid_topk, "khot.gated_topk"),
        (khot.laplace_topk, "khot.gated_topk"),
        (khot.sparse_topk, "khot.gated_topk"),
        (khot.hard_topk, "khot.hard_topk"),
    ):
        graph = traced(lambda x, operator=operator: operator(x, 3), (2, 8))
        assert [n for n in graph.graph.nodes if expected in str(n.target)], operator
    step = forward_and_backward(lambda x, temperature: khot.sigmoid_topk(x, 3, temperature=temperature))
    held = [str(n.target) for n in traced(step, (2, 8), ()).graph.nodes]
    assert "khot.gate_jacobian.default" in held
    for operator in (khot.normal_topk, lambda x, k: khot.sparse_topk(x, k, norm=1.5)):  # no kernel: portable
        held = [str(n.target) for n in traced(lambda x, f=operator: f(x, 3), (2, 8)).graph.nodes]
        assert not any("khot" in target for target in held)


def test_without_triton_the_switch_says_what_to_install(monkeypatch):
    from khot.kernels import triton

    monkeypatch.setenv("KHOT_TRITON", "1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "khot\[triton\]"'):
        triton.switched_on.__wrapped__()
