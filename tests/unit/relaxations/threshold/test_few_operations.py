"""The solvers for graphs and other devices give what the one for the CPU gives, in few operations."""

import pytest
import torch

import khot
from khot.relaxations.threshold import _functions
from khot.relaxations.threshold._functions import _in_few_operations
from khot.relaxations.threshold._gates import LAPLACE, LOGISTIC, NORMAL, Sparse
from khot.relaxations.threshold._solver import solve
from strategies.adversarial_rows import problems
from strategies.quick_run import in_turn

GATES = {"logistic": LOGISTIC, "laplace": LAPLACE, "normal": NORMAL, "sparse": Sparse(2.0)}
OPERATORS = [khot.sigmoid_topk, khot.laplace_topk, khot.normal_topk, khot.sparse_topk]


@pytest.mark.parametrize(("name", "dtype"), in_turn(GATES, [torch.float32, torch.float64]))
def test_hard_rows_and_budgets(name, dtype):
    gate = GATES[name]
    allowed = 1e-6 if dtype == torch.float32 else 1e-13
    for what, x, k in problems(dtype):
        x, k = x[::16], k[::16]
        a, settled, fixed = solve(gate, x.double(), k.double(), torch.ones_like(k).double(), None)
        expected = torch.where(settled, fixed, gate.weights(a))
        y, _ = _in_few_operations(gate)(gate, x, k, torch.ones_like(k), None)
        worst = (y.double() - expected).abs().max().item()
        assert worst <= allowed, f"{what}: {worst:.2g}"


@pytest.fixture
def few_operations(monkeypatch):
    """Eager calls take the solvers for graphs too."""
    monkeypatch.setattr(_functions, "is_plain", lambda *tensors: False)
    monkeypatch.setattr("khot.relaxations.threshold._family.native", lambda: None)
    monkeypatch.setattr("khot.relaxations.threshold.sigmoid.plain_sigmoid", lambda *arguments: None)


@pytest.mark.parametrize("path", ["kernels", "search", "few operations"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_nan_makes_its_row_nan_whatever_k_and_mask_are(operator, path, request, monkeypatch):
    if path == "few operations":
        request.getfixturevalue("few_operations")
    elif path == "search":
        monkeypatch.setattr("khot.relaxations.threshold._family.native", lambda: None)
        monkeypatch.setattr("khot.relaxations.threshold._plain_gates.native", lambda: None)
        monkeypatch.setattr("khot.relaxations.threshold.sigmoid.plain_sigmoid", lambda *arguments: None)
    x = torch.tensor([[1.0, torch.nan, 0.0, 2.0], [1.0, 3.0, 0.0, 2.0]])
    for k in (0, 2, 4):
        y = operator(x, k)
        assert y[0].isnan().all()
        assert y[1].isfinite().all()
    y = operator(x, 1, mask=torch.tensor([True, True, False, True]))
    assert y[0].isnan().all()
    assert y[1, 2] == 0


@pytest.mark.usefixtures("few_operations")
@pytest.mark.parametrize("operator", OPERATORS)
def test_infinities_masks_and_budgets_of_nothing_and_all(operator):
    inf = torch.inf
    x = torch.tensor(
        [[inf, inf, inf, 0.0], [inf, 1.0, 0.5, -inf], [-inf, -inf, 3.0, 2.0], [1.0, 2.0, 3.0, 4.0]]
    )
    x = x.double().requires_grad_()
    y = operator(x, 2)
    between = y[1, 1].item()
    expected = torch.tensor([[2 / 3] * 3 + [0], [1, between, 1 - between, 0], [0, 0, 1, 1]], dtype=y.dtype)
    torch.testing.assert_close(y[:3].detach(), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(y.detach().sum(-1), torch.full((4,), 2.0, dtype=y.dtype))
    (grad,) = torch.autograd.grad(y, x, torch.arange(16.0, dtype=y.dtype).view(4, 4))
    assert grad.isfinite().all()
    assert not grad[x.isinf()].any()
    assert not grad[2].any()
    for k, all_are in ((0, 0.0), (4, 1.0)):
        y = operator(x[3:], k)
        assert (y == all_are).all()
        assert not torch.autograd.grad(y.sum(), x)[0].any()


@pytest.mark.usefixtures("few_operations")
@pytest.mark.parametrize("operator", OPERATORS)
def test_long_rows_keep_their_sum(operator):
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    for k, temperature in ((1, 0.1), (300, 1.0), (99_999, 1.0), (0.5, 1e3)):
        y = operator(x, k, temperature=temperature)
        assert abs(y.double().sum().item() - k) <= 2e-6 * k + 1e-6, (k, temperature)


@pytest.mark.usefixtures("few_operations")
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_nan_makes_its_row_nan(operator):
    x = torch.tensor([[1.0, torch.nan, 2.0], [1.0, 0.0, 2.0]])
    y = operator(x, 1)
    assert y[0].isnan().all()
    assert y[1].isfinite().all()


@pytest.mark.parametrize(
    ("operator", "most"), [(khot.sigmoid_topk, 250), (khot.sparse_topk, 130), (khot.hard_topk, 45)]
)
def test_exported_graphs_are_small(operator, most):
    """Nodes of torch.export, which counts constants and changes of type; those of ONNX: tests/extra/doors."""

    class Layer(torch.nn.Module):
        def forward(self, x):
            return operator(x, 3)

    program = torch.export.export(Layer(), (torch.randn(4, 16),))
    assert sum(node.op == "call_function" for node in program.graph.nodes) <= most
