"""Every loss in a half type is the loss of the same numbers in float32, rounded, and so is its gradient.

Rows are long: what is summed along them in a half type would have two or three digits.
"""

import pytest
import torch

from khot import losses

N = 3000


def rows(dtype: torch.dtype) -> torch.Tensor:
    return (2 * torch.randn(3, N, generator=torch.Generator().manual_seed(0))).to(dtype)


def shares(dtype: torch.dtype) -> torch.Tensor:
    return torch.rand(3, N, generator=torch.Generator().manual_seed(1)).to(dtype)


def fenchel_young(scores, target):
    return losses.fenchel_young_loss(scores, target)


def soft_fenchel_young(scores, target):
    return losses.fenchel_young_loss(scores, target, method="sparse", temperature=3.0)


def cross_entropy(scores, target):
    return losses.topk_cross_entropy(scores, target > 0.5, [0.5, *[0.0] * 1000, 0.5])


def recall(scores, target):
    return losses.recall_loss(scores, target > 0.5, 1300)


def ndcg(scores, target):
    return losses.ndcg_loss(scores, target, k=1300, temperature=30.0)


def spearman(scores, target):
    return losses.spearman_loss(scores, target, temperature=30.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("loss", [fenchel_young, soft_fenchel_young, cross_entropy, recall, ndcg, spearman])
def test_a_half_type_rounds_the_result_alone(loss, dtype):
    scores, target = rows(dtype), shares(dtype)
    values, gradients = [], []
    for kind in (dtype, torch.float32):
        leaf = scores.to(kind).requires_grad_()
        values.append(loss(leaf, target.to(kind)))
        # The factor lifts half types out of their subnormal numbers.
        gradients.append(torch.autograd.grad(values[-1], leaf, torch.tensor(2048, dtype=kind))[0])
    assert values[0].dtype == dtype
    assert torch.equal(values[0], values[1].to(dtype))
    assert torch.equal(gradients[0], gradients[1].to(dtype))
    assert gradients[1].abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_gradient_of_a_fenchel_young_loss_sums_to_zero(dtype):
    """The budget is the sum of the target, which neither half type can hold."""
    scores = torch.zeros(1, N, dtype=dtype, requires_grad=True)
    target = torch.zeros(1, N, dtype=dtype)
    target[:, :2051] = 1
    loss = losses.fenchel_young_loss(scores, target, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, scores)
    exact = torch.full((1, N), 2051 / N, dtype=torch.float64) - target.double()
    torch.testing.assert_close(gradient.double(), exact, rtol=torch.finfo(dtype).eps, atol=0)
