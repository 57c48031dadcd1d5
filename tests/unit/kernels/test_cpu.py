"""When may the compiled path be taken?"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from khot.kernels import cpu, loader
from khot.kernels.cpu import passing

pytestmark = pytest.mark.usefixtures("library")


class Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ordinary_tensors_are_usable(dtype):
    x = torch.randn(3, 4, dtype=dtype)
    assert cpu.usable(x, x.T, x[0], x.sum(), x.clone().requires_grad_(), torch.nn.Parameter(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3).half(),
        lambda: torch.randn(3).bfloat16(),
        lambda: torch.arange(3),
        lambda: torch.randn(3, dtype=torch.complex64),
        lambda: torch.randn(3, device="meta"),
        lambda: torch.randn(3).to_sparse(),
        lambda: torch.randn(3).as_subclass(Subclass),
        lambda: torch._efficientzerotensor(3),
        lambda: torch.empty(0),
    ],
)
def test_other_tensors_are_not(make):
    assert not cpu.usable(make())
    assert not cpu.usable(torch.randn(3), make())


def test_without_library_nothing_is(monkeypatch):
    monkeypatch.setattr(passing, "native", lambda: None)
    assert not cpu.usable(torch.randn(3))
    with pytest.raises(RuntimeError, match="compiled library is not available"):
        cpu.gate_jacobian(torch.randn(3), torch.randn(3), torch.ones(1))


def answers_inside(transform):
    """What usable says of the argument of a transformed function."""
    answers = []

    def function(x):
        answers.append(cpu.usable(x))
        return (x * x).sum()

    transform(function)
    return answers


def test_functorch_wrappers_are_not():
    x = torch.randn(3, 4)
    assert answers_inside(lambda f: torch.func.vmap(f)(x)) == [False]
    assert answers_inside(lambda f: torch.func.grad(f)(x)) == [False]
    assert answers_inside(lambda f: torch.func.jvp(f, (x,), (x,))) == [False]
    assert answers_inside(lambda f: torch.func.functionalize(f)(x)) == [False]


def test_forward_mode_duals_are_not():
    x = torch.randn(3)
    with forward_ad.dual_level():
        assert not cpu.usable(forward_ad.make_dual(x, torch.ones(3)))
        assert cpu.usable(x)


def test_nothing_is_where_the_operations_are_watched():
    x = torch.randn(3)
    with FakeTensorMode() as mode:
        assert not cpu.usable(x)
        assert not cpu.usable(torch.randn(3))
    assert not cpu.usable(mode.from_tensor(x))
    with FlopCounterMode(display=False):
        assert not cpu.usable(x)
    assert cpu.usable(x)


def test_nothing_is_under_compile_and_export():
    def function(x):
        return x + (1.0 if cpu.usable(x) else 0.0)

    x = torch.randn(3)
    assert torch.equal(function(x), x + 1)
    assert torch.equal(torch.compile(function, backend="eager", fullgraph=True)(x), x)

    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)

    assert torch.equal(torch.export.export(Model(), (x,)).module()(x), x)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_nothing_is_under_jit_trace():
    x = torch.randn(3)
    traced = torch.jit.trace(lambda x: x + (1.0 if cpu.usable(x) else 0.0), (x,), check_trace=False)
    assert torch.equal(traced(x), x)


def test_library_and_loader_agree_on_the_abi(library):
    assert library.ABI == loader.ABI
