"""What tensors on a GPU get: torch operations that never wait for a value, nor bring one to the host."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import khot
from khot import designs
from khot.kernels import operations, triton
from khot.relaxations import registry
from khot.relaxations._cumulative import cumulative

# What looks at values, makes shapes of them, or copies them to the host.
WAITING = {"_local_scalar_dense", "item", "nonzero", "masked_select", "unique_dim", "_unique2", "equal"}
FAMILY = ["sigmoid", "laplace", "sparse", "normal"]
NAMES = registry.names()


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


def refused(graph):
    """Operations that raise an error in deterministic mode: see torch.use_deterministic_algorithms."""
    always = {"put_", "histc", "median", "kthvalue", "bincount", "scatter_reduce", "grid_sampler_2d"}
    names = [(getattr(node.target, "_opname", ""), node.meta.get("val")) for node in graph.graph.nodes]
    return [
        name
        for name, value in names
        if name in always or (name == "cumsum" and value is not None and value.is_floating_point())
    ]


def forward_and_backward(weights):
    def step(x, temperature):
        x, temperature = x.detach().requires_grad_(), temperature.detach().requires_grad_()
        y = weights(x, temperature)
        return y, torch.autograd.grad(y.square().sum(), (x, temperature), allow_unused=True)

    return step


def steps_of(name):
    """Forward and backward, with numbers, and with a mask and a budget for each row."""
    weights = registry.get(name).weights

    def masked(x, temperature):
        k = torch.full((2,), 3.0, device="meta")
        return weights(x, k, temperature=temperature, mask=x.detach() > 0)

    return [forward_and_backward(lambda x, t: weights(x, 3, temperature=t)), forward_and_backward(masked)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.full
def test_no_operator_waits_for_a_value(name):
    """Nor does it hold, in deterministic mode, what torch then refuses on a GPU."""
    torch.use_deterministic_algorithms(True)
    try:
        graphs = [traced(step, (2, 8), ()) for step in steps_of(name)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert [looks_at_values(graph) for graph in graphs] == [[], []]
    assert [refused(graph) for graph in graphs] == [[], []]


@pytest.mark.parametrize("name", ["Systematic", "RandomSystematic", "TreePivotal", "RandomTreePivotal"])
@pytest.mark.full
def test_draws_do_not_wait(name):
    design = getattr(designs, name)
    for k in (2, 6):
        for draw in ("sample", "sample_indices"):
            graph = traced(lambda p: getattr(design(k, probs=p, validate_args=False), draw)((3,)), (2, 8))  # noqa: B023
            assert looks_at_values(graph) == []


def test_hard_topk_does_not_wait():
    for function in (lambda x, k: khot.hard_topk(x, 3), lambda x, k: khot.hard_topk(x, k)):
        assert looks_at_values(traced(function, (2, 8), (2,))) == []


def test_the_check_notices_who_looks():
    with pytest.raises(RuntimeError, match="_local_scalar_dense"):
        traced(lambda x: x * x.sum().item(), (3,))
    with pytest.raises(NotImplementedError, match="meta"):
        traced(lambda x: x.cpu(), (3,))


def test_the_check_notices_what_deterministic_mode_refuses():
    assert refused(traced(lambda x: x.cumsum(-1), (3,))) == ["cumsum"]
    assert refused(traced(lambda x: (x > 0).cumsum(-1), (3,))) == []
    torch.use_deterministic_algorithms(True)
    try:
        assert refused(traced(cumulative, (5,))) == []
    finally:
        torch.use_deterministic_algorithms(False)


def test_cumulative_sums_by_shifted_rows(monkeypatch):
    x = torch.randn(3, 13, dtype=torch.float64, requires_grad=True)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    monkeypatch.setattr(Tensor, "is_cpu", False)
    for n in (0, 1, 8, 13):
        torch.testing.assert_close(cumulative(x[:, :n]), x[:, :n].cumsum(-1))
    (mine,) = torch.autograd.grad(cumulative(x).square().sum(), x)
    torch.testing.assert_close(mine, torch.autograd.grad(x.cumsum(-1).square().sum(), x)[0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.full
def test_shapes_and_types(name):
    """Also of half types, which are computed in float32."""
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.empty(2, 8, device="meta", dtype=dtype)
        y = registry.get(name).weights(x, 3)
        assert (y.shape, y.dtype, y.device.type) == (x.shape, dtype, "meta")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.full
def test_fake_tensors(name):
    """What torch.compile traces with; those of a GPU cannot be made by a torch without CUDA."""
    with FakeTensorMode():
        x = torch.empty(2, 8, requires_grad=True)
        y = registry.get(name).weights(x, 3)
        (grad,) = torch.autograd.grad(y.sum(), x)
    assert (y.shape, y.dtype, grad.shape) == (x.shape, x.dtype, x.shape)


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
def test_deterministic_mode(name):
    """Values of the path that is traced above."""
    weights, x = registry.get(name).weights, torch.randn(3, 8, requires_grad=True)
    expected = torch.autograd.grad(weights(x, 3).square().sum(), x)[0]
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (torch.autograd.grad(weights(x, 3).square().sum(), x)[0] for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, expected)


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
    monkeypatch.setattr(operations, "taken_on_gpu", lambda *tensors, doubles=False: bool(tensors))
    for operator in (khot.sigmoid_topk, khot.laplace_topk, khot.sparse_topk):
        step = forward_and_backward(_at_three(operator))
        both = {"khot.gated_topk.default", "khot.gate_jacobian.default"}
        assert operations_in(traced(step, (2, 8), ())) == both
    assert operations_in(traced(lambda x: khot.hard_topk(x, 3), (2, 8))) == {"khot.hard_topk.default"}
    for operator in (khot.normal_topk, lambda x, k: khot.sparse_topk(x, k, norm=1.5)):  # no kernel: portable
        assert operations_in(traced(_without_temperature(operator), (2, 8))) == set()
    step = forward_and_backward(_at_three(khot.successive_halving_topk))
    rounds = {"khot.tournament_round.default", "khot.tournament_round_gradient.default"}
    assert operations_in(traced(step, (2, 8), ())) == rounds | {"khot.hard_topk.default"}
    for name, operation in (("Systematic", "systematic"), ("RandomTreePivotal", "pivotal")):
        graph = traced(lambda p: getattr(designs, name)(2, probs=p, validate_args=False).sample(), (2, 8))  # noqa: B023
        assert operations_in(graph) == {f"khot.{operation}.default"}
    drawn = ("tournament_round", "tournament_round_gradient", "systematic", "pivotal")
    for name in ("gated_topk", "gate_jacobian", "hard_topk", *drawn):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"khot::{name}", "CUDA")


def test_without_triton_the_switch_says_what_to_install(monkeypatch):
    monkeypatch.setenv("KHOT_TRITON", "1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "khot\[triton\]"'):
        triton.switched_on.__wrapped__()
