"""neuralsort_topk: the literal formula with its n × n differences, accuracy, ties."""

from fractions import Fraction

import pytest
import torch

import khot
from khot.relaxations.rows.neuralsort import neuralsort_matrix
from strategies.random_scores import scores


def literal(x, temperature):
    """Every row, by the formula with all pairs."""
    n = x.shape[-1]
    sums = (x.unsqueeze(-1) - x.unsqueeze(-2)).abs().sum(-1)
    slopes = torch.arange(n - 1, -n, -2, dtype=x.dtype)
    return torch.softmax((slopes.unsqueeze(-1) * x.unsqueeze(-2) - sums.unsqueeze(-2)) / temperature, -1)


@pytest.mark.parametrize("temperature", [0.05, 0.7, 5.0])
def test_rows_are_the_first_of_the_literal_matrix(temperature):
    x = scores(3, 9)
    expected = literal(x, temperature)[..., :4, :]
    matrix = neuralsort_matrix(x, 4, temperature=temperature)
    torch.testing.assert_close(matrix, expected, rtol=1e-12, atol=1e-14)
    weights = khot.neuralsort_topk(x, 4, temperature=temperature)
    torch.testing.assert_close(weights, expected.sum(-2), rtol=1e-12, atol=1e-14)


def test_gradient_of_the_rows():
    x = scores(2, 6).requires_grad_()
    temperature = torch.tensor([0.6, 1.4], dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(
        lambda x, t: neuralsort_matrix(x, 3, temperature=t), (x, temperature), check_forward_ad=True
    )


def test_the_gradient_at_ties_has_sign_zero():
    """As autograd of the formula with all pairs, where |0| has derivative 0; so ties keep equal gradients."""
    direction = scores(3, 5, seed=1)
    grads = []
    for rows in (lambda x: literal(x, 0.8)[:3], lambda x: neuralsort_matrix(x, 3, temperature=0.8)):
        x = torch.tensor([1.0, 0.5, 1.0, 0.5, 0.5], dtype=torch.float64, requires_grad=True)
        grads += torch.autograd.grad(rows(x), x, direction)
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-14)


def test_float32_with_an_offset_is_right_at_n_1e5():
    """Exact sums of distances; in float32, 1e5 differences at an offset of 100 are off by thousands."""
    n, k = 100_000, 2
    x = scores(n).float() + 100
    best = x.sort(descending=True).values[:300].tolist()
    total = sum(Fraction(v) for v in x.tolist())
    # Σ_l |x_j − x_l| for the i-th largest: those above it, then all others below.
    logits = []
    for i, value in enumerate(map(Fraction, best)):
        above = sum(Fraction(v) for v in best[:i])
        distances = (above - i * value) + ((n - i) * value - (total - above))
        logits.append([(n + 1 - 2 * r) * value - distances for r in range(1, k + 1)])
    y = khot.neuralsort_topk(x, k, temperature=2.0)
    order = x.argsort(descending=True)[:300]
    expected = torch.zeros(300, dtype=torch.float64)
    for r in range(k):
        shifted = torch.tensor([float((row[r] - logits[r][r]) / 2) for row in logits], dtype=torch.float64)
        expected += torch.softmax(shifted, 0)
    torch.testing.assert_close(y[order].double(), expected, rtol=1e-5, atol=1e-6)
    assert expected[:k].max() < 0.999  # not merely the hard answer


def test_a_mask_leaves_the_rows_of_the_others():
    x = scores(7)
    mask = torch.tensor([True, False, True, True, False, True, True])
    matrix = neuralsort_matrix(x, 6, temperature=2.0, mask=mask)
    torch.testing.assert_close(matrix[:5, mask], literal(x[mask], 2.0), rtol=1e-12, atol=1e-14)
    assert not matrix[:, ~mask].any()
    assert not matrix[5].any()


def test_infinities_are_the_limit_of_large_scores():
    x = torch.tensor([0.3, 1e7, -0.2, 1e7, 1.0], dtype=torch.float64)
    expected = literal(x, 0.5)
    x[x == 1e7] = torch.inf
    torch.testing.assert_close(neuralsort_matrix(x, 5, temperature=0.5), expected, rtol=1e-7, atol=1e-7)
    weights = khot.neuralsort_topk(x, 3, temperature=0.5)
    torch.testing.assert_close(weights, expected[:3].sum(-2), rtol=1e-7, atol=1e-7)


def test_weights_exceed_one_and_break_the_order_as_documented():
    y = khot.neuralsort_topk(torch.tensor([9.0, 8.0, 8.0, -7.0]), 3)
    torch.testing.assert_close(y, torch.tensor([0.756, 1.122, 1.122, 0.0]), rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_ends_of_the_range_give_numbers(dtype):
    big = torch.finfo(dtype).max / (1 if dtype == torch.float32 else 1e4)
    x = torch.tensor([big, -big, big / 2, 0.0, -big], dtype=dtype, requires_grad=True)
    y = khot.neuralsort_topk(x, 2)
    assert y.tolist() == [1, 0, 1, 0, 0]
    assert torch.autograd.grad(y[0], x)[0].isfinite().all()


def test_scores_of_any_size_do_not_hide_the_others():
    x = torch.tensor([1e30, 5.0, 4.5, -1e30, 3.0], dtype=torch.float64)
    # Among these the far ones only add constants: row 2 of 5 is row 1 of the three in the middle, at slope 0.
    logits = -torch.tensor([0.5 + 2.0, 0.5 + 1.5, 2.0 + 1.5], dtype=torch.float64)
    shift = torch.tensor([5.0, 4.5, 3.0], dtype=torch.float64) * 2
    expected = torch.softmax(shift + logits, -1)
    matrix = neuralsort_matrix(x, 2)
    torch.testing.assert_close(matrix[1, [1, 2, 4]], expected, rtol=1e-12, atol=0)
