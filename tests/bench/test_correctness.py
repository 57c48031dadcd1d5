import pytest
import torch

from khot.compare.cost.case import SCORES, Case
from khot.compare.cost.side import Side, load_side
from khot_bench.correctness import check, true_gradient, true_weights
from khot_bench.sides.baselines import softmax, topk
from strategies import known_sides


def test_right_result_passes_with_its_errors():
    found = check(known_sides.right(), known_sides.CASE)
    assert found.passed
    assert found.value_error < 1e-6
    assert found.sum_error < 1e-6
    assert found.gradient_error < 1e-4


def test_wrong_result_is_refused_with_the_reason():
    found = check(known_sides.wrong(), known_sides.CASE)
    assert not found.passed
    assert "value error" in found.reason
    assert "exceeds 1e-05" in found.reason
    assert "gradient error" in found.reason


def test_right_values_with_a_wrong_gradient_are_refused():
    def function(x, k):
        y = known_sides.right().function(x, k)
        return y.detach() + 2 * (y - y.detach())

    found = check(known_sides.side("twice", function, map="sigmoid"), known_sides.CASE)
    assert not found.passed
    assert found.reason.startswith("gradient error")


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
    found = check(known_sides.side("formless", function), known_sides.CASE)
    assert not found.passed
    assert found.reason == reason


def test_what_a_side_raises_is_the_reason():
    found = check(known_sides.failing(), known_sides.CASE)
    assert not found.passed
    assert found.reason == "RuntimeError: cannot do this"


def test_sum_of_another_map_is_recorded_not_refused():
    found = check(known_sides.side("half", lambda x, k: torch.softmax(x, -1) * k / 2), known_sides.CASE)
    assert found.passed
    assert found.sum_error == pytest.approx(0.5)
    assert found.reason == ""


def test_no_gradient_is_noticed():
    assert not check(known_sides.hard(), known_sides.CASE).differentiable


def test_backward_is_left_out_on_request():
    def function(x, k):
        assert not x.requires_grad
        return torch.softmax(x, -1) * k

    assert check(known_sides.side("forward only", function), known_sides.CASE, gradient=False).passed


@pytest.mark.parametrize("side", [softmax(), topk()])
def test_sides_of_torch_pass(side):
    assert check(side, known_sides.CASE).passed


@pytest.mark.parametrize("scores", SCORES)
def test_sigmoid_topk_passes(scores):
    side = load_side("khot.compare.cost.side:relaxation:sigmoid")
    found = check(side, Case("c", (8, 300), 7, scores=scores))
    assert found.passed, found.reason


@pytest.mark.parametrize("name", ["sigmoid", "laplace", "normal", "sparse", "softsort", "neuralsort", "hard"])
@pytest.mark.parametrize("k", [1, 7, 19])
def test_the_operator_of_each_map_agrees_with_its_truth(name, k):
    """Whole batches at once, as the suites ask for."""
    case = Case("c", (3, 20), k, dtype="float64")
    sides = {"hard": "khot_bench.sides.operators:hard_topk"}
    found = check(load_side(sides.get(name, f"khot.compare.cost.side:relaxation:{name}")), case)
    assert found.passed, found.reason
    assert found.value_error < 1e-12
    assert (found.gradient_error is not None) == (name in ("sigmoid", "laplace"))


def test_a_map_without_a_truth_has_none():
    x = torch.randn(2, 5)
    assert true_weights("perturbed", x, 2) is None
    assert true_gradient("sparse", x, x) is None


def test_a_wrong_order_is_refused():
    def reverse(x, k):
        return torch.sort(x, stable=True).indices.flip(-1)

    case = Case("c", (3, 20), 20)
    assert check(load_side("khot_bench.sides.operators:argsort"), case).passed
    wrong = Side("reverse", "p", "1", reverse, "peer", "order", "argsort")
    assert "value error" in check(wrong, case).reason
