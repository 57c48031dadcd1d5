"""bfloat16 and float16 through the kernel itself: as float64 rounded, forward and backward."""

import pytest
import torch

from khot.kernels import cpu
from khot.kernels.loader import native
from khot.relaxations import sigmoid_topk

pytestmark = pytest.mark.skipif(native() is None, reason="the kernels are not built")

HALVES = [torch.bfloat16, torch.float16]


def rounding(dtype: torch.dtype) -> float:
    """How far half a unit in the last place may be, with float32's own error on top."""
    return 0.51 * torch.finfo(dtype).eps


def gradient(scores: torch.Tensor, k: int, temperature: float, grad: torch.Tensor) -> torch.Tensor:
    leaf = scores.clone().requires_grad_()
    (result,) = torch.autograd.grad(
        sigmoid_topk(leaf, k, temperature=temperature), leaf, grad.to(scores.dtype)
    )
    return result


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(3, 1), (5, 7), (40, 64), (3, 1030), (2, 9000), (1, 40000)])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_float64_rounded(dtype: torch.dtype, shape: tuple[int, int], temperature: float):
    torch.manual_seed(0)
    scores = (2 * torch.randn(shape)).to(dtype)
    grad = torch.randn(shape).to(dtype)
    k = max(1, shape[1] // 5)
    least = 4 * torch.finfo(dtype).smallest_normal  # the kernel makes nothing subnormal
    truth = sigmoid_topk(scores.double(), k, temperature=temperature)
    weights = sigmoid_topk(scores, k, temperature=temperature)
    assert weights.dtype == dtype
    # A score of many τ multiplies the rounding of its difference from the threshold.
    reach = 1 + scores.double().abs().amax() / temperature * 2**-23 / rounding(dtype) * 8
    torch.testing.assert_close(
        weights.double(), truth, rtol=float(rounding(dtype) * reach), atol=float(least)
    )
    slopes = gradient(scores.double(), k, temperature, grad.double())
    mean_error = 2**-20 * grad.abs().amax().item() / temperature  # where g is near its mean
    torch.testing.assert_close(
        gradient(scores, k, temperature, grad).double(),
        slopes,
        rtol=float(rounding(dtype) * reach),
        atol=float(least) + mean_error,
    )


@pytest.mark.parametrize("dtype", HALVES)
def test_every_number_there_is(dtype: torch.dtype):
    """All finite values of the type: read without loss, ranked as they are."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    scores = bits.view(dtype)
    scores = scores[scores.isfinite()].reshape(1, -1)
    temperature = 1e-8 if dtype == torch.float16 else 1e29
    truth = sigmoid_topk(scores.double(), 1000, temperature=temperature)
    weights = sigmoid_topk(scores, 1000, temperature=temperature)
    torch.testing.assert_close(weights.double(), truth, rtol=4 * rounding(dtype), atol=1e-4)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("n", [3, 8, 4100])
def test_rounds_as_torch_does(dtype: torch.dtype, n: int):
    """Ties to even, subnormals, in the vectors and in what is left over."""
    torch.manual_seed(1)
    scores = (4 * torch.randn(50, n)).to(dtype)
    wide = sigmoid_topk(scores.float(), 1, temperature=0.7)
    torch.testing.assert_close(sigmoid_topk(scores, 1, temperature=0.7), wide.to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
def test_settled_rows(dtype: torch.dtype):
    inf, nan = torch.inf, torch.nan
    scores = torch.tensor([[inf, inf, 1, 2], [-inf, -inf, 1, -inf], [nan, 0, 1, 2], [3, 1, inf, -inf]]).to(
        dtype
    )
    weights = sigmoid_topk(scores, 2)
    assert weights[0].tolist() == [1, 1, 0, 0]
    assert weights[1].tolist() == [0, 0, 1, 0]
    assert weights[2].isnan().all()
    moved = gradient(scores, 2, 1.0, torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(4, 4))
    assert moved[:2].eq(0).all()
    assert moved[2].isnan().all()
    assert moved[3, 2:].eq(0).all()
    assert moved[3, :2].ne(0).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_no_gradient_at_a_weight_that_cannot_move(dtype: torch.dtype):
    scores = torch.tensor([[1.0, 2.0, -torch.inf]]).to(dtype)
    grad = torch.tensor([[1.0, 2.0, torch.inf]])
    moved = gradient(scores, 1, 1.0, grad)
    assert moved.isfinite().all()
    assert moved[0, 2] == 0


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("n", [2, 15, 16, 17, 33, 64, 100, 1023, 1025, 5000])
def test_a_gradient_that_is_not_finite_spoils_its_own_row_alone(dtype: torch.dtype, n: int):
    """A row whose sums are not finite is taken again, with care; its neighbours are not."""
    torch.manual_seed(4)
    scores = torch.randn(5, n)
    scores[1, 0] = scores[2, 0] = scores[3, n // 2] = -torch.inf
    scores, grad = scores.to(dtype), torch.randn(5, n).to(dtype)
    spoiled = grad.clone()
    spoiled[1, 0], spoiled[2, 0], spoiled[4, n - 1] = torch.inf, torch.nan, torch.nan
    before = gradient(scores, 1, 0.5, torch.where(scores == -torch.inf, 0, grad))
    moved = gradient(scores, 1, 0.5, spoiled)
    assert torch.equal(moved[0], before[0])
    assert torch.equal(moved[3], before[3])
    torch.testing.assert_close(moved[1:3], before[1:3], rtol=2 * rounding(dtype), atol=1e-6)
    assert moved[1:3, 0].eq(0).all()
    assert moved[4].isnan().all()


def test_gradients_at_the_end_of_the_range():
    """Beside a mean of 3e38 one of −3e38 overflows: not where the weight cannot move."""
    scores = torch.tensor([[1.0, 1.5, -torch.inf, 0.5]]).to(torch.bfloat16)
    grad = torch.tensor([[3e38, 3e38, -3e38, 3e38]])
    moved = gradient(scores, 1, 1.0, grad)
    assert moved[0, 2] == 0
    assert not moved.isnan().any()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("n", [7, 40, 300, 2000])
@pytest.mark.parametrize("temperature", [1e-3, 0.05, 1.0, 1e3])
def test_slopes_are_those_of_float32(dtype: torch.dtype, n: int, temperature: float):
    """Offset, tied, with infinities, few and nearly all selected: rounded once, from float32's own."""
    torch.manual_seed(5)
    scores = torch.randn(8, n)
    scores[1] += 1000
    scores[2] = scores[2].round()
    scores[3] = 2
    scores[4, ::3] = -torch.inf
    scores[5, 1] = torch.inf
    scores[6] *= 100
    scores, grad = scores.to(dtype), torch.randn(8, n).to(dtype)
    for k in (1, n // 2, n - 1):
        expected = gradient(scores.float(), k, temperature, grad)
        moved = gradient(scores, k, temperature, grad).float()
        least = (
            2**-24 + 2**-18 * grad.float().abs().amax().item() / temperature
        )  # a subnormal; g near its mean
        torch.testing.assert_close(
            moved, expected.to(dtype).float(), rtol=1.1 * torch.finfo(dtype).eps, atol=least
        )


@pytest.mark.parametrize("dtype", HALVES)
def test_same_bits_on_any_number_of_threads(dtype: torch.dtype):
    torch.manual_seed(2)
    before = torch.get_num_threads()
    for shape in [(1, 50000), (300, 100)]:
        scores, grad = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append((sigmoid_topk(scores, 9), gradient(scores, 9, 1.0, grad)))
        torch.set_num_threads(before)
        assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("dtype", HALVES)
def test_second_derivatives(dtype: torch.dtype):
    torch.manual_seed(3)
    scores, v = torch.randn(2, 9), torch.randn(2, 9)

    def twice(x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(sigmoid_topk(x, 3), x, v.to(x.dtype), create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0].double()

    half = scores.to(dtype)
    torch.testing.assert_close(twice(half), twice(half.double()), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("dtype", HALVES)
def test_saves_the_scores_and_two_numbers_a_row(dtype: torch.dtype):
    saved: list[torch.Tensor] = []
    scores = torch.randn(6, 50).to(dtype).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = sigmoid_topk(scores, 5)
    assert sorted(t.numel() * t.element_size() for t in saved) == [6 * 2 * 4, 6 * 50 * 2]
    y.sum().backward()
    changed = torch.randn(6, 50).to(dtype).requires_grad_()
    moved = changed * 1
    y = sigmoid_topk(moved, 5)
    moved.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_the_kernel_checks_its_arguments():
    library = native()
    assert library is not None
    x = torch.zeros(1, 3, dtype=torch.bfloat16)
    good = [0, x.data_ptr(), 1.0, 1.0, x.data_ptr(), 0, 1, 3, 1]
    with pytest.raises(ValueError, match="kind must be from 0 to 1"):
        library.sigmoid_topk_half(2, *good[1:])
    with pytest.raises(ValueError, match="x must not be a null address"):
        library.sigmoid_topk_half(0, 0, *good[2:])
    with pytest.raises(TypeError, match="takes 9 arguments"):
        library.sigmoid_jacobian_half(*good[:-1])
    with pytest.raises(ValueError, match="threshold must not be a null address"):
        library.sigmoid_jacobian_half(0, x.data_ptr(), 0, x.data_ptr(), 1.0, x.data_ptr(), 1, 3, 1)
    assert set(cpu.HALVES) == set(HALVES)
