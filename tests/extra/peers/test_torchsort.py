"""soft_rank and soft_sort equal torchsort's, in value and gradient.

Needs torchsort, which lives in .venv-peers: ``make test-extra`` runs it there.
"""

import pytest
import torch

from khot import soft_rank, soft_sort

torchsort = pytest.importorskip("torchsort")

PAIRS = {"rank": (soft_rank, torchsort.soft_rank), "sort": (soft_sort, torchsort.soft_sort)}
# torchsort computes in the dtype of its input; ranks go up to n.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 3e-4}


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("regularization", ["l2", "kl"])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n", [1, 2, 17, 100])
def test_value_and_gradient(kind, regularization, temperature, dtype, n):
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(8, n, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    upstream = torch.randn(8, n, generator=generator, dtype=torch.float64).to(dtype)
    ours, theirs = PAIRS[kind]
    value = ours(x, temperature=temperature, regularization=regularization)
    other = theirs(x, regularization=regularization, regularization_strength=temperature)
    bound = TOLERANCE[dtype]
    torch.testing.assert_close(value, other, rtol=bound, atol=bound)
    grads = [torch.autograd.grad(result, x, upstream)[0] for result in (value, other)]
    torch.testing.assert_close(*grads, rtol=bound, atol=bound / min(1, temperature))


def test_descending_is_theirs_of_minus_x():
    x = torch.randn(4, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for regularization in ("l2", "kl"):
        ours = soft_rank(x, descending=True, regularization=regularization)
        theirs = torchsort.soft_rank(-x, regularization=regularization)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
