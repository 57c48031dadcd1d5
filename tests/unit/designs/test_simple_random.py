"""Simple random sampling: all sets are equally likely."""

import math
import re

import pytest
import scipy.stats
import torch

from khot.constraints import k_hot
from khot.designs import KHotDistribution, SimpleRandom
from strategies.design_examples import SIZES, subsets


@pytest.mark.parametrize(("n", "k"), [*SIZES, (6, 0), (6, 6), (1, 0)])
def test_closed_forms(n, k):
    design = SimpleRandom(k, n, dtype=torch.float64)
    x = subsets(n, k)
    p = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
    torch.testing.assert_close(design.log_prob(x).exp(), p)
    torch.testing.assert_close(design.mean, p @ x)
    torch.testing.assert_close(design.joint_inclusion, torch.einsum("s,si,sj->ij", p, x, x))
    torch.testing.assert_close(design.entropy(), torch.tensor(math.log(len(x)), dtype=torch.float64))
    torch.testing.assert_close(design.log_prob(design.mode), -design.entropy())
    assert (design.sample((10,)).sum(-1) == k).all()


@pytest.mark.parametrize(("n", "k"), [(6, 3), (9, 2), (20, 19)])
def test_counts_of_subsets(n, k):
    """One by one where k² ≤ 8n, and by random orders."""
    x = SimpleRandom(k, n, dtype=torch.float64).sample((200_000,), generator=torch.Generator().manual_seed(0))
    codes = x @ 2.0 ** torch.arange(n, dtype=torch.float64)
    counts = codes.unique(return_counts=True)[1]
    assert len(counts) == math.comb(n, k)
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_a_trillion_units_take_no_memory():
    x = SimpleRandom(5, 10**12, (2,)).sample_indices((3,), generator=torch.Generator().manual_seed(0))
    assert x.shape == (3, 2, 5)
    assert (x.diff(dim=-1) > 0).all()
    assert x.max() > 2**32


@pytest.mark.parametrize(("n", "k"), [(1000, 10), (1000, 900)])
def test_shapes_dtypes_and_seeds(n, k):
    design = SimpleRandom(k, n, (2, 3), dtype=torch.float32)
    x = design.sample((4,), generator=torch.Generator().manual_seed(1))
    assert (x.shape, x.dtype) == ((4, 2, 3, n), torch.float32)
    assert (x.sum(-1) == k).all()
    assert torch.equal(x, design.sample((4,), generator=torch.Generator().manual_seed(1)))
    assert not torch.equal(x, design.sample((4,), generator=torch.Generator().manual_seed(2)))
    assert design.sample((0,)).shape == (0, 2, 3, n)
    wide = SimpleRandom(k, n).expand((5,))
    assert wide.sample().shape == (5, n)
    assert wide.entropy().shape == (5,)


def test_conventions():
    design = SimpleRandom(2, 5)
    assert isinstance(design, KHotDistribution)
    assert isinstance(design.support, k_hot)
    assert design.enumerate_support().shape == (10, 5)
    assert repr(design) == "SimpleRandom(k: 2, n: 5, batch_shape: ())"
    with pytest.raises(ValueError, match="support"):
        design.log_prob(torch.ones(5))
    unchecked = SimpleRandom(2, 5, validate_args=False)
    assert unchecked.log_prob(torch.ones(5)) == -math.inf
    with pytest.raises(
        ValueError, match=re.escape("SimpleRandom: k must satisfy 0 <= k <= n = 5, got k = 6")
    ):
        SimpleRandom(6, 5)
    with pytest.raises(ValueError, match="SimpleRandom: n must be at least 1, got 0"):
        SimpleRandom(0, 0)
    with pytest.raises(TypeError, match=r"SimpleRandom: n must be an integer, got 5\.0"):
        SimpleRandom(1, 5.0)
