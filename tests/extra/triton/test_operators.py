"""The operators reach the kernels for GPUs, eagerly and compiled, and get what the CPU gets."""

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

import khot
from khot import designs
from khot.kernels import loader, operations
from strategies.seeded import randn

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of overflow in the interpreter
OPERATIONS = [
    "gated_topk",
    "gate_jacobian",
    "hard_topk",
    "tournament_round",
    "tournament_round_gradient",
    "systematic",
    "pivotal",
]
GATED, ROUND = ["gated_topk", "gate_jacobian"], ["tournament_round", "tournament_round_gradient"]


@pytest.fixture
def calls(monkeypatch):
    """Which operations are called eagerly."""
    found = []
    for name in OPERATIONS:
        operation = getattr(operations, name)

        def called(*arguments, operation=operation, name=name):
            found.append(name)
            return operation(*arguments)

        monkeypatch.setattr(operations, name, called)
    return found


def both(function, request):
    """What the function gives by the compiled library, and then by the interpreter."""
    expected = function()
    request.getfixturevalue("in_the_operators")
    return expected, function()


def with_gradients(operator, k, dtype=torch.float32, **options):
    x, mask = randn(2, 3, 7).to(dtype).movedim(-1, 1), randn(2, 7, 3, seed=2) > -1  # dim=1, not contiguous
    temperature = torch.tensor(0.7, requires_grad=True)

    def run():
        leaf = x.clone().requires_grad_()
        y = operator(leaf, k, dim=1, mask=mask, temperature=temperature, **options)
        return y.detach(), *torch.autograd.grad(y, (leaf, temperature), randn(2, 7, 3, seed=1).to(dtype))

    return run


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (khot.sigmoid_topk, GATED),
        (khot.laplace_topk, GATED),
        (khot.sparse_topk, GATED),
        (khot.successive_halving_topk, ["hard_topk", *ROUND]),
    ],
)
def test_values_and_gradients(operator, expected, calls, request):
    right, mine = both(with_gradients(operator, torch.tensor([[1, 2, 3], [7, 0, 4]])), request)
    for ours, theirs in zip(mine, right, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-6)
    assert set(calls) == set(expected)


def test_half_types_are_read_as_they_are(calls, request):
    right, mine = both(with_gradients(khot.sigmoid_topk, 2.5, torch.bfloat16), request)
    assert mine[0].dtype == mine[1].dtype == torch.bfloat16
    for ours, theirs in zip(mine, right, strict=True):
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=2e-2, atol=1e-2)
    assert set(calls) == set(GATED)


def test_hard_topk(calls, request):
    x = randn(3, 9).round()
    for scores in (x, x.half()):
        right, mine = both(lambda scores=scores: khot.hard_topk(scores, 4), request)
        assert torch.equal(right, mine)
    assert set(calls) == {"hard_topk"}


@pytest.mark.parametrize("name", ["Systematic", "RandomSystematic", "TreePivotal", "RandomTreePivotal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_seed_draws_the_same_units(name, dtype, calls, request):
    design = getattr(designs, name)(4, probs=khot.sparse_topk(randn(2, 11).to(dtype), 4))

    def draw():
        return design.sample((3,), generator=torch.Generator().manual_seed(0))

    right, mine = both(draw, request)
    assert torch.equal(right, mine)
    assert calls == ["systematic" if "System" in name else "pivotal"]


def graph_of(function, *inputs):
    """What Dynamo, AOTAutograd and the operations' own rules make of a function, run by the operations."""
    seen = []

    def look(graph, _):
        seen.extend(str(node.target) for node in graph.graph.nodes if "khot" in str(node.target))
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=look)
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend)(*inputs), seen


@pytest.mark.usefixtures("in_the_operators")
def test_compiled_programs_hold_the_same_operations():
    x = randn(2, 7).requires_grad_()
    y, seen = graph_of(lambda x: khot.sigmoid_topk(x, 2.0, temperature=0.5), x)
    (grad,) = torch.autograd.grad(y.square().sum(), x)
    assert seen == ["khot.gated_topk.default", "khot.gate_jacobian.default"]
    eager = khot.sigmoid_topk(x, 2.0, temperature=0.5)
    torch.testing.assert_close(y, eager)
    torch.testing.assert_close(grad, torch.autograd.grad(eager.square().sum(), x)[0])
    assert graph_of(lambda x: khot.hard_topk(x, 3), x.detach())[1] == ["khot.hard_topk.default"]

    def draw(p):
        return designs.Systematic(2, probs=p, validate_args=False).sample((3,))

    drawn, seen = graph_of(draw, torch.full((4,), 0.5))
    assert seen == ["khot.systematic.default"]
    assert (drawn.sum(-1) == 2).all()


@pytest.mark.usefixtures("in_the_operators")
def test_what_they_do_not_serve_takes_the_portable_path(calls):
    x, layer = randn(2, 7), khot.nn.TopK(2).eval()
    calls.clear()  # those of the layer, which tries its options
    khot.sigmoid_topk(x.double(), 2)
    khot.sparse_topk(x, 2, norm=1.5)
    khot.successive_halving_topk(x, 2, boost="base20")
    torch.func.vmap(lambda row: khot.sigmoid_topk(row, 2))(x)
    torch.func.jvp(lambda row: khot.successive_halving_topk(row, 2), (x,), (x,))
    torch.export.export(layer, (x,))
    assert set(calls) <= {"hard_topk"}
    row = x[0].clone().requires_grad_()  # derivatives of derivatives
    for operator in (khot.sigmoid_topk, khot.successive_halving_topk):
        mine = torch.autograd.functional.hessian(lambda r: operator(r, 2).square().sum(), row)  # noqa: B023
        wide = torch.autograd.functional.hessian(lambda r: operator(r, 2).square().sum(), row.double())  # noqa: B023
        torch.testing.assert_close(mine.double(), wide, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("in_the_operators")
def test_edges():
    assert loader.native() is None
    for operator in (khot.sigmoid_topk, khot.sparse_topk, khot.hard_topk, khot.successive_halving_topk):
        assert operator(torch.ones(0, 4), 2).shape == (0, 4)
        assert operator(torch.ones(3, 0), 0).shape == (3, 0)
        assert operator(torch.ones(()).expand(3), 3).tolist() == [1, 1, 1]
        assert operator(torch.arange(3.0), 0).tolist() == [0, 0, 0]
        with pytest.raises(ValueError, match="k must satisfy"):
            operator(torch.ones(3), 4)
