"""softsort_topk: the literal formula with all n rows, masks, extremes."""

import pytest
import torch

import khot
from khot.relaxations import _chunks
from khot.relaxations.rows.softsort import softsort_matrix
from strategies.random_scores import scores


def literal(x, temperature):
    """Every row of one vector of scores, element by element."""
    rows = []
    for value in sorted(x.tolist(), reverse=True):
        numerators = [
            torch.exp(-abs(torch.tensor(value, dtype=x.dtype) - other) / temperature) for other in x
        ]
        rows.append(torch.stack(numerators) / sum(numerators))
    return torch.stack(rows)


@pytest.mark.parametrize("temperature", [0.05, 0.7, 5.0])
def test_rows_are_the_first_of_the_literal_matrix(temperature):
    x = scores(3, 9)
    expected = torch.stack([literal(row, temperature)[:4] for row in x])
    torch.testing.assert_close(
        softsort_matrix(x, 4, temperature=temperature), expected, rtol=1e-12, atol=1e-14
    )
    weights = khot.softsort_topk(x, 4, temperature=temperature)
    torch.testing.assert_close(weights, expected.sum(-2), rtol=1e-12, atol=1e-14)


def test_gradient_of_the_rows():
    x = scores(2, 6).requires_grad_()
    temperature = torch.tensor([0.6, 1.4], dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(
        lambda x, t: softsort_matrix(x, 3, temperature=t), (x, temperature), check_forward_ad=True
    )


def test_weights_exceed_one_and_break_the_order_as_documented():
    y = khot.softsort_topk(torch.tensor([5.0, 4.0, 4.0, -13.0]), 3)
    torch.testing.assert_close(y, torch.tensor([0.887, 1.057, 1.057, 0.0]), rtol=0, atol=1e-3)


def test_a_mask_leaves_the_rows_of_the_others():
    x = scores(7)
    mask = torch.tensor([True, False, True, True, False, True, True])
    matrix = softsort_matrix(x, 6, temperature=0.4, mask=mask)
    torch.testing.assert_close(matrix[:5, mask], literal(x[mask], 0.4), rtol=1e-12, atol=1e-14)
    assert not matrix[:, ~mask].any()
    assert not matrix[5].any()


def test_entries_at_infinity_share_the_first_rows():
    inf = torch.inf
    x = torch.tensor([0.3, inf, -0.2, inf, 1.0, -inf], dtype=torch.float64)
    matrix = softsort_matrix(x, 5, temperature=0.5)
    finite = torch.tensor([0, 2, 4])
    assert matrix[:2].tolist() == [[0, 0.5, 0, 0.5, 0, 0]] * 2
    torch.testing.assert_close(matrix[2:][:, finite], literal(x[finite], 0.5), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(khot.softsort_topk(x, 3, temperature=0.5), matrix[:3].sum(-2))


def test_blocks_of_rows_change_nothing(monkeypatch):
    x = scores(2, 8).requires_grad_()
    direction = scores(2, 8, seed=1)
    whole = khot.softsort_topk(x, 5, temperature=0.5)
    (expected,) = torch.autograd.grad(whole, x, direction)
    monkeypatch.setattr(_chunks, "AT_ONCE", 16)  # two rows at a time
    parts = khot.softsort_topk(x, 5, temperature=0.5)
    (actual,) = torch.autograd.grad(parts, x, direction)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)
    jacobian = torch.func.jacrev(lambda x: khot.softsort_topk(x, 5, temperature=0.5))(x[0].detach())
    torch.testing.assert_close(direction[0] @ jacobian, expected[0], rtol=1e-12, atol=1e-14)


def test_a_budget_per_row():
    x = scores(3, 7)
    k = torch.tensor([1, 4, 7])
    together = khot.softsort_topk(x, k, temperature=0.3)
    alone = [khot.softsort_topk(row, int(b), temperature=0.3) for row, b in zip(x, k, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-12, atol=1e-14)


def test_large_scores_keep_their_differences():
    x = torch.tensor([1e30, 9e29, -1e30, 1e30], requires_grad=True)
    y = khot.softsort_topk(x, 2)
    assert y.tolist() == [1, 0, 0, 1]
    assert torch.autograd.grad(y[0], x)[0].isfinite().all()
    beside = torch.tensor([1e30, 5.0, 4.0, -1e30])
    small = literal(torch.tensor([5.0, 4.0]), 1.0)[0]
    torch.testing.assert_close(khot.softsort_topk(beside, 2)[1:3], small)


def test_the_matrix_moves_dim_last_and_takes_no_rows():
    x = scores(6, 3)
    torch.testing.assert_close(softsort_matrix(x, 2, dim=0), softsort_matrix(x.t(), 2))
    assert softsort_matrix(x, 0, dim=0).shape == (3, 0, 6)
    with pytest.raises(ValueError, match="softsort_matrix: k must satisfy 0 <= k <= n = 3"):
        softsort_matrix(x, 4)


@pytest.mark.parametrize("name", ["softsort", "neuralsort", "network"])
@pytest.mark.parametrize("tau", [1e-37, 1e-20, 1e20])
def test_a_tiny_temperature_has_a_finite_gradient(name, tau):
    x = torch.tensor([1e30, 5.0, 4.0, -1e30, 3.0], requires_grad=True)
    temperature = torch.tensor(tau, requires_grad=True)
    y = khot.topk(x, 2, name, temperature=temperature)
    assert y.isfinite().all()
    grads = torch.autograd.grad(y[1] + 2 * y[2], (x, temperature))
    assert all(grad.isfinite().all() for grad in grads)
