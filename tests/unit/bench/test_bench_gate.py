import pytest
import torch

from khot.bench.cases import SCORES, Case
from khot.bench.gate import check
from khot.bench.sides import Side, load_side, softmax, topk
from khot.bench.truths import TRUTHS
from strategies import bench_examples as examples


def test_right_result_passes_with_its_errors():
    gate = check(examples.right(), examples.CASE)
    assert gate.passed
    assert gate.value_error < 1e-6
    assert gate.sum_error < 1e-6
    assert gate.gradient_error < 1e-4


def test_wrong_result_is_refused_with_the_reason():
    gate = check(examples.wrong(), examples.CASE)
    assert not gate.passed
    assert "value error" in gate.reason
    assert "exceeds 1e-05" in gate.reason
    assert "gradient error" in gate.reason


def test_right_values_with_a_wrong_gradient_are_refused():
    def function(x, k):
        y = examples.right().function(x, k)
        return y.detach() + 2 * (y - y.detach())

    gate = check(examples.side("twice", function, map="sigmoid"), examples.CASE)
    assert not gate.passed
    assert gate.reason.startswith("gradient error")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x, k: x[..., :-1] * 1, "shape (4, 31) instead of (4, 32)"),
        (lambda x, k: x / 0, "the result is not finite"),
        (lambda x, k: x * 0 + torch.sqrt(x * 0), "the gradient is not finite"),
        (lambda x, k: (x.mul_(2) if not x.requires_grad else x) * 1, "it changes its input"),
    ],
)
def test_other_maps_must_have_form(function, reason):
    gate = check(examples.side("formless", function), examples.CASE)
    assert not gate.passed
    assert gate.reason == reason


def test_what_a_side_raises_is_the_reason():
    gate = check(examples.failing(), examples.CASE)
    assert not gate.passed
    assert gate.reason == "RuntimeError: cannot do this"


def test_sum_of_another_map_is_recorded_not_refused():
    gate = check(examples.side("half", lambda x, k: torch.softmax(x, -1) * k / 2), examples.CASE)
    assert gate.passed
    assert gate.sum_error == pytest.approx(0.5)
    assert gate.reason == ""


def test_no_gradient_is_noticed():
    assert not check(examples.hard(), examples.CASE).differentiable


def test_backward_is_left_out_on_request():
    def function(x, k):
        assert not x.requires_grad
        return torch.softmax(x, -1) * k

    assert check(examples.side("forward only", function), examples.CASE, gradient=False).passed


@pytest.mark.parametrize("side", [softmax(), topk()])
def test_sides_of_torch_pass(side):
    assert check(side, examples.CASE).passed


@pytest.mark.parametrize("scores", SCORES)
def test_sigmoid_topk_passes(scores):
    side = load_side("khot.bench.sides:relaxation:sigmoid")
    gate = check(side, Case("c", (8, 300), 7, scores=scores))
    assert gate.passed, gate.reason


def test_truths_solve_their_problems():
    x = torch.randn(3, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for name in TRUTHS.keys() - {"argsort"}:
        for k in (1, 7, 19, 20):
            y = TRUTHS[name].weights(x, k)
            assert torch.allclose(y.sum(-1), torch.full((3,), float(k), dtype=torch.float64)), name
            assert y.min() >= 0
            assert y.max() <= 1 or name in ("softsort", "neuralsort")
    sigmoid = torch.logit(TRUTHS["sigmoid"].weights(x, 7)) - x
    assert torch.allclose(sigmoid, sigmoid[:, :1])
    sparse = TRUTHS["sparse"].weights(x, 7)
    shift = sparse - x
    inside = (sparse > 0) & (sparse < 1)
    for row in range(3):
        found = shift[row][inside[row]]
        assert torch.allclose(found, found[:1])


def test_truths_of_sorting_keep_the_order_of_ties():
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0, 1.0]], dtype=torch.float64)
    assert TRUTHS["hard"].weights(x, 2).tolist() == [[1, 0, 1, 0, 0]]
    assert TRUTHS["argsort"].weights(x, 5).tolist() == [[1, 3, 0, 2, 4]]


def test_a_wrong_order_is_refused():
    def reverse(x, k):
        return torch.sort(x, stable=True).indices.flip(-1)

    case = Case("c", (3, 20), 20)
    assert check(load_side("khot.bench.sides:argsort"), case).passed
    wrong = Side("reverse", "p", "1", reverse, "peer", "order", "argsort")
    assert "value error" in check(wrong, case).reason
