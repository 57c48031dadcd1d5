"""What a call of sigmoid_topk keeps for its backward pass: scores, weights and two numbers a row."""

import pytest
import torch

import khot
from khot.kernels import loader

pytestmark = pytest.mark.skipif(loader.native() is None, reason="the portable path saves a state of its own")


def saved_bytes(function, x):
    """Memory that autograd keeps beyond x and the result."""
    saved = {}

    def pack(tensor):
        saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = function(x)
    for known in (x, y):
        saved.pop(known.data_ptr(), None)
    return sum(saved.values())


@pytest.mark.parametrize("shape", [(40, 64), (3, 1000), (1, 50_000)])
def test_two_numbers_a_row_are_saved_beside_scores_and_weights(shape):
    x = torch.randn(shape, requires_grad=True)
    assert saved_bytes(lambda x: khot.sigmoid_topk(x, 5), x) == 2 * 4 * shape[0]


@pytest.mark.parametrize("which", ["scores", "weights"])
def test_an_edit_in_place_raises_in_the_backward_pass(which):
    """As for torch.softmax and its weights: better an error than a wrong gradient."""
    x = torch.randn(4, 30, requires_grad=True) * 1.0
    y = khot.sigmoid_topk(x, 5)
    with torch.no_grad():
        (x if which == "scores" else y).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_the_product_of_the_weights_may_be_edited():
    x = torch.randn(4, 30, requires_grad=True)
    y = khot.sigmoid_topk(x, 5) * 2
    y.add_(1)
    y.square().sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("create_graph", [False, True])
def test_batches_of_gradients(create_graph):
    """The backward pass inside vmap: no kernel can read its gradients, and the state is computed anew."""
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    jacobian = torch.autograd.functional.jacobian
    one_by_one = jacobian(lambda x: khot.sigmoid_topk(x, 2), x)
    at_once = jacobian(lambda x: khot.sigmoid_topk(x, 2), x, vectorize=True, create_graph=create_graph)
    torch.testing.assert_close(at_once, one_by_one)
    if create_graph:
        (grad,) = torch.autograd.grad(at_once.square().sum(), x)
        (expected,) = torch.autograd.grad(
            jacobian(lambda x: khot.sigmoid_topk(x, 2), x, create_graph=True).square().sum(), x
        )
        torch.testing.assert_close(grad, expected)


def test_a_gradient_that_is_not_in_order():
    x, direction = torch.randn(4, 30, requires_grad=True), torch.randn(30, 4)
    (grad,) = torch.autograd.grad(khot.sigmoid_topk(x, 5), x, direction.t())
    (expected,) = torch.autograd.grad(khot.sigmoid_topk(x, 5), x, direction.t().contiguous())
    assert torch.equal(grad, expected)


def test_scores_that_are_not_in_order():
    x, direction = torch.randn(30, 4).t().requires_grad_(), torch.randn(4, 30)
    assert not x.is_contiguous()
    (grad,) = torch.autograd.grad(khot.sigmoid_topk(x, 5), x, direction)
    same = x.detach().contiguous().requires_grad_()
    (expected,) = torch.autograd.grad(khot.sigmoid_topk(same, 5), same, direction)
    assert torch.equal(grad, expected)


OPERATORS = {
    "sigmoid": lambda x: khot.sigmoid_topk(x, 2),
    "sigmoid, mask": lambda x: khot.sigmoid_topk(x, 2, mask=torch.arange(6) < 5),
    "sigmoid, dim": lambda x: khot.sigmoid_topk(x, 2, dim=0),
    "laplace": lambda x: khot.laplace_topk(x, 2),
    "entries": lambda x: khot.topk_entries(x, 2).weights,
    "rank": khot.soft_rank,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_parameter_in_a_closure_that_is_transformed(name, dtype):
    """Scores with a gradient are not what ``torch.func`` transforms here, but the call is inside of it."""
    operator = OPERATORS[name]
    x = torch.nn.Parameter(torch.randn(3, 6).to(dtype))
    factors = torch.tensor([2.0, -1.0], dtype=dtype)
    expected = operator(x.detach())
    scaled = torch.func.vmap(lambda factor: factor * operator(x))(factors)
    close = {"rtol": 0, "atol": 4 * torch.finfo(dtype).eps * 6}
    torch.testing.assert_close(scaled[0] / 2, expected, **close)
    by_factor = torch.func.grad(lambda factor: (factor * operator(x)).sum())(factors[0])
    torch.testing.assert_close(by_factor, expected.sum(), rtol=8 * torch.finfo(dtype).eps, atol=0)
    direction = torch.randn_like(expected)
    (grad,) = torch.autograd.grad(scaled[0], x, direction)
    (same,) = torch.autograd.grad(operator(x), x, 2 * direction)
    torch.testing.assert_close(grad, same, rtol=1e-5 if dtype.itemsize > 2 else 2e-2, atol=close["atol"])
