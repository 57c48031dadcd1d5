"""Systems of any size on any number of threads, and what stands on them."""

import pytest
import torch

import khot
from khot.relaxations._linear_systems import solved


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def systems(*shape):
    generator = torch.Generator().manual_seed(0)
    matrices = torch.randn(*shape, shape[-1], generator=generator, dtype=torch.float64)
    return matrices @ matrices.mT + torch.eye(shape[-1]), torch.randn(*shape, generator=generator).double()


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("shape", [(3,), (2, 128), (200,), (3, 200), (2, 2, 150), (0, 200), (1, 200)])
def test_solutions(shape):
    """torch's own solve raises an error for batches of 150 and more rows on two threads, on some CPUs."""
    matrices, right = systems(*shape)
    matrices.requires_grad_()
    found = solved(matrices, right)
    torch.testing.assert_close((matrices @ found.unsqueeze(-1)).squeeze(-1), right, atol=1e-8, rtol=0)
    (gradient,) = torch.autograd.grad(found.sum(), matrices)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("n", [3, 130])
def test_singular_and_undefined_systems_do_not_raise(n):
    matrices = torch.stack([torch.zeros(n, n), torch.full((n, n), torch.nan), torch.eye(n)])
    found = solved(matrices, torch.ones(3, n))
    assert not found[:2].isfinite().all(-1).any()
    assert found[2].eq(1).all()


@pytest.mark.usefixtures("two_threads")
def test_many_anchors_and_many_units_on_two_threads():
    x = torch.randn(2, 220, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = khot.topk_matrix(x, 150, "sinkhorn", temperature=0.5)
    torch.testing.assert_close(rows.sum(-1), torch.ones(2, 150).double(), atol=1e-6, rtol=0)
    x.requires_grad_()
    design = khot.designs.ConditionalPoisson(20, scores=x)
    design.log_prob(design.sample(generator=torch.Generator().manual_seed(1))).sum().backward()
    assert x.grad.isfinite().all()
