"""softsort, neuralsort and network beside the published code, in float64: the same matrices and gradients."""

import pytest
import torch

from khot import topk_values
from khot.relaxations.rows.network import network_matrix
from khot.relaxations.rows.neuralsort import neuralsort_matrix
from khot.relaxations.rows.softsort import softsort_matrix
from khot_bench.peers import import_quietly


def load(name):
    pytest.importorskip(name)
    return import_quietly(name, name=name, package=name)


@pytest.fixture(scope="module")
def difftopk():
    return load("difftopk")


@pytest.fixture(scope="module")
def diffsort():
    return load("diffsort")


@pytest.fixture(autouse=True)
def _double():
    """The peers make constants of the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def agree(ours, theirs, n):
    """Equal values and gradients at scores of n entries."""
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(3, n, generator=generator).requires_grad_()
    mine, published = ours(x), theirs(x)
    torch.testing.assert_close(mine, published, rtol=1e-10, atol=1e-13)
    direction = torch.randn(mine.shape, generator=generator)
    torch.testing.assert_close(
        *(torch.autograd.grad(rows, x, direction)[0] for rows in (mine, published)), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(("n", "k"), [(5, 2), (16, 7), (60, 8)])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 4.0])
def test_softsort(difftopk, n, k, temperature):
    peer = difftopk.SoftSort(tau=temperature)
    agree(lambda x: softsort_matrix(x, k, temperature=temperature), lambda x: peer(x)[:, :k], n)


@pytest.mark.parametrize(("n", "k"), [(5, 2), (16, 7), (60, 8)])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_neuralsort(difftopk, monkeypatch, n, k, temperature):
    # It asks for float32 constants by name.
    monkeypatch.setattr(torch, "FloatTensor", torch.DoubleTensor)
    peer = difftopk.NeuralSort(tau=temperature)

    def rows(x):
        """Its matrix is transposed and ascending."""
        return peer(x)[:, :, -k:].flip(-1).transpose(-1, -2)

    agree(lambda x: neuralsort_matrix(x, k, temperature=temperature), rows, n)


@pytest.mark.parametrize("distribution", ["logistic", "cauchy"])
@pytest.mark.parametrize(
    ("network", "n", "k"),
    [("bitonic", 8, 3), ("bitonic", 32, 5), ("bitonic", 12, 12), ("odd_even", 6, 2), ("odd_even", 20, 7)],
)
def test_networks(difftopk, diffsort, network, distribution, n, k):
    """Steepness is 1/temperature; the networks sort upwards, the best in the last column."""

    def ours(x):
        return network_matrix(x, k, temperature=0.7, network=network, distribution=distribution)

    settings = {"steepness": 1 / 0.7, "distribution": distribution}
    topk_net = difftopk.DiffTopkNet(network, n, k, **settings)
    topk_net.sorting_network = [[m.double() for m in layer] for layer in topk_net.sorting_network]
    agree(ours, lambda x: topk_net(x)[1].flip(-1).transpose(-1, -2), n)
    sort_net = diffsort.DiffSortNet(network, n, **settings)
    agree(ours, lambda x: sort_net(x)[1][..., -k:].flip(-1).transpose(-1, -2), n)


@pytest.mark.parametrize(("method", "ours"), [("softsort", "softsort"), ("sorting_network", "network")])
def test_values_of_softtorch(method, ours):
    softtorch = load("softtorch")

    def theirs(x):
        return softtorch.topk(x, 3, softness=0.3, method=method, standardize=False).values

    agree(lambda x: topk_values(x, 3, ours, temperature=0.3), theirs, 8)


def test_the_published_bitonic_network_for_22_entries_does_not_sort(diffsort):
    """Which is why ours differs there: it leaves out comparators instead of padding with sure losers."""
    x = torch.stack([torch.randperm(22, generator=torch.Generator().manual_seed(i)) for i in range(200)])
    values, _ = diffsort.DiffSortNet("bitonic", 22, steepness=1e6, distribution="logistic")(x.double())
    assert (values - x.sort(-1).values).abs().max() > 0.5
    ranks = network_matrix(x.double(), 22, temperature=1e-6).argmax(-1)
    assert torch.equal(ranks, x.argsort(descending=True))
