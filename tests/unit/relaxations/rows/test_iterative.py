"""Iterative softmax against Algorithm 1 of Pietruszka et al. (2021), literally."""

import numpy as np
import pytest
import torch

from khot import iterative_topk
from khot.relaxations.rows.iterative import iterative_matrix
from strategies.random_scores import scores


def algorithm(v, k, temperature, printed):
    v = v.copy()
    rows = []
    for _ in range(k):
        m, a = v.max(), v.argmax()
        logits = -((v - m) ** 2) / temperature
        terms = np.exp(logits)
        with np.errstate(divide="ignore"):  # as printed, a term that underflows leaves 1/0
            rows.append(terms / (terms.sum() - np.exp(logits.max()) if printed else terms.sum()))
        v[a] = -1e4
    return np.stack(rows)


@pytest.mark.parametrize("variant", ["corrected", "as-printed"])
@pytest.mark.parametrize("temperature", [0.05, 1.0, 7.0])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 3), (12, 5), (40, 1)])
def test_the_algorithm(variant, temperature, n, k):
    x = scores(3, n)
    expected = np.stack([algorithm(v.numpy(), k, temperature, variant == "as-printed") for v in x])
    rows = iterative_matrix(x, k, temperature=temperature, variant=variant)
    np.testing.assert_allclose(rows.numpy(), expected, rtol=1e-9, atol=1e-12)
    weights = iterative_topk(x, k, temperature=temperature, variant=variant)
    np.testing.assert_allclose(weights.numpy(), expected.sum(1), rtol=1e-9, atol=1e-12)


def test_rows_as_printed_do_not_sum_to_one():
    rows = iterative_matrix(scores(4, 6), 2, variant="as-printed")
    assert (rows.sum(-1) > 1.05).all()
    torch.testing.assert_close(iterative_matrix(scores(4, 6), 2).sum(-1), torch.ones(4, 2).double())


def test_a_selected_entry_is_gone():
    rows = iterative_matrix(scores(3, 8), 4, temperature=5.0)
    order = scores(3, 8).argsort(descending=True)
    for r in range(4):
        assert not rows[:, r].gather(-1, order[:, :r]).any()


def test_ties_are_taken_by_index():
    rows = iterative_matrix(torch.zeros(3), 3)
    torch.testing.assert_close(
        rows, torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2], [0, 0, 1]], dtype=rows.dtype)
    )


def test_weights_may_exceed_one():
    weights = iterative_topk(torch.zeros(10, dtype=torch.float64), 9)
    assert weights[-1].item() == pytest.approx(sum(1 / left for left in range(2, 11)))


def test_temperature_is_in_squared_units():
    x = scores(2, 6)
    torch.testing.assert_close(iterative_topk(10 * x, 2, temperature=100.0), iterative_topk(x, 2))
    with pytest.raises(ValueError, match="iterative_topk: temperature must be positive"):
        iterative_topk(x, 2, temperature=-1.0)
    with pytest.raises(ValueError, match="variant must be 'corrected' or 'as-printed', got 'peaked'"):
        iterative_topk(x, 2, variant="peaked")


def test_derivatives():
    x, tau = scores(2, 6).requires_grad_(), torch.tensor([0.7, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, tau: iterative_topk(x, 3, temperature=tau), (x, tau), check_forward_ad=True
    )
