"""network_topk: the product of literal layer matrices, masks, segments, the contract with Cauchy swaps."""

import dataclasses
import math

import pytest
import torch

import khot
from khot.relaxations import registry
from khot.relaxations.rows import network as network_file
from khot.relaxations.rows.network import network_matrix
from khot.testing import relaxation_checks
from strategies.contract_checks import TRACING, parameters
from strategies.random_scores import scores

KINDS = [(network, cdf) for network in ("bitonic", "odd_even") for cdf in ("logistic", "cauchy")]
kinds = pytest.mark.parametrize(("network", "distribution"), KINDS)


def textbook_comparators(network, n):
    """Pairs (wire of the smaller, wire of the larger) in the order in which they work, for n a power of two.

    The bitonic sorter in its textbook form: blocks alternate between upwards and downwards.
    """
    if network == "odd_even":
        return [(i, i + 1) for layer in range(n) for i in range(layer % 2, n - 1, 2)]
    pairs = []
    size = 2
    while size <= n:
        distance = size // 2
        while distance:
            for i in range(n):
                if not i & distance:
                    up = not i & size
                    pairs.append((i, i + distance) if up else (i + distance, i))
            distance //= 2
        size *= 2
    return pairs


def literal(x, network, distribution, temperature):
    """All n rows, best first: the product of one n × n matrix for each comparator."""
    n = len(x)
    product = torch.eye(n, dtype=x.dtype)
    values = x
    for low, high in textbook_comparators(network, n):
        v = (values[high] - values[low]) / temperature
        stay = torch.sigmoid(v) if distribution == "logistic" else 0.5 + torch.atan(v) / math.pi
        swap = torch.eye(n, dtype=x.dtype)
        swap[low, low] = swap[high, high] = stay
        swap[low, high] = swap[high, low] = 1 - stay
        product, values = swap @ product, swap @ values
    return product.flip(0)


@kinds
@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_rows_are_the_product_of_the_layers(network, distribution, n):
    x = scores(n, seed=n)
    options = {"network": network, "distribution": distribution, "temperature": 0.6}
    expected = literal(x, network, distribution, 0.6)
    for k in {1, n // 2, n}:
        matrix = network_matrix(x, k, **options)
        torch.testing.assert_close(matrix, expected[:k], rtol=1e-12, atol=1e-14)
    y = khot.network_topk(x, n // 2, **options)
    torch.testing.assert_close(y, expected[: n // 2].sum(0), rtol=1e-12, atol=1e-14)


@kinds
@pytest.mark.parametrize("n", [3, 7, 22, 38])
def test_any_length_gives_a_doubly_stochastic_matrix_that_sorts(network, distribution, n):
    x = scores(4, n)
    soft = network_matrix(x, n, network=network, distribution=distribution)
    torch.testing.assert_close(soft.sum(-1), torch.ones(4, n, dtype=x.dtype))
    torch.testing.assert_close(soft.sum(-2), torch.ones(4, n, dtype=x.dtype))
    cold = network_matrix(x, n, network=network, distribution=distribution, temperature=1e-9)
    assert torch.equal(cold.argmax(-1), x.argsort(descending=True))
    assert cold.amax(-1).min() > 0.999


@kinds
def test_a_masked_row_is_the_shorter_row(network, distribution):
    x = scores(5, 13)
    options = {"network": network, "distribution": distribution, "temperature": 0.5}
    for count in (1, 2, 3, 4, 5, 8, 9, 12):
        mask = torch.zeros(13, dtype=torch.bool)
        mask[torch.randperm(13, generator=torch.Generator().manual_seed(count))[:count]] = True
        k = min(3, count)
        matrix = network_matrix(x, 4, mask=mask, **options)
        alone = network_matrix(x[:, mask], k, **options)
        torch.testing.assert_close(matrix[:, :k][..., mask], alone, rtol=1e-12, atol=1e-14)
        assert not matrix[..., ~mask].any()
        assert not matrix[:, count:].any()


@kinds
def test_rows_of_different_length_at_once(network, distribution):
    x = scores(4, 9)
    mask = torch.arange(9) < torch.tensor([[9], [6], [4], [0]])
    options = {"network": network, "distribution": distribution}
    together = khot.network_topk(x, 3, mask=mask, **options)
    for row, allowed, y in zip(x, mask, together, strict=True):
        if allowed.any():
            alone = khot.network_topk(row[allowed], 3, **options)
            torch.testing.assert_close(y[allowed], alone, rtol=1e-12, atol=1e-14)
        assert not y[~allowed].any()


@kinds
def test_entries_at_infinity_share_the_first_rows(network, distribution):
    inf = torch.inf
    x = torch.tensor([0.3, inf, -0.2, inf, 1.0, -inf], dtype=torch.float64)
    finite = torch.tensor([0, 2, 4])
    options = {"network": network, "distribution": distribution}
    matrix = network_matrix(x, 5, **options)
    assert matrix[:2].tolist() == [[0, 0.5, 0, 0.5, 0, 0]] * 2
    torch.testing.assert_close(matrix[2:][:, finite], network_matrix(x[finite], 3, **options))
    torch.testing.assert_close(khot.network_topk(x, 3, **options), matrix[:3].sum(-2))


@kinds
def test_gradient_of_the_rows(network, distribution):
    x = scores(2, 5).requires_grad_()
    temperature = torch.tensor([0.6, 1.4], dtype=torch.float64, requires_grad=True)

    def rows(x, t):
        return network_matrix(x, 2, temperature=t, network=network, distribution=distribution)

    torch.autograd.gradcheck(rows, (x, temperature), check_forward_ad=True)
    torch.autograd.gradgradcheck(rows, (x, temperature), fast_mode=True)


@kinds
def test_derivatives_at_ties_are_those_of_the_literal_product(network, distribution):
    x = torch.tensor([1.0, 1.0, 0.5, 1.0], dtype=torch.float64)
    direction = scores(4, seed=1)

    def by_matrices(x):
        return literal(x, network, distribution, 1.0)[:2].sum(0) @ direction

    def by_network(x):
        return khot.network_topk(x, 2, network=network, distribution=distribution) @ direction

    for derivative in (torch.autograd.functional.jacobian, torch.autograd.functional.hessian):
        torch.testing.assert_close(derivative(by_network, x), derivative(by_matrices, x))


@kinds
def test_segments_change_nothing(network, distribution, monkeypatch):
    x = scores(3, 11).requires_grad_()
    mask = torch.arange(11) < torch.tensor([[11], [8], [5]])
    direction = scores(3, 11, seed=1)

    def run():
        y = khot.network_topk(x, 3, network=network, distribution=distribution, mask=mask)
        (grad,) = torch.autograd.grad(y, x, direction, create_graph=True)
        return y, grad, torch.autograd.grad(grad.square().sum(), x)[0]

    expected = run()
    monkeypatch.setattr(network_file, "_WHOLE", 4)
    for actual, whole in zip(run(), expected, strict=True):
        torch.testing.assert_close(actual, whole, rtol=1e-10, atol=1e-12)
    jacobian = torch.func.jacrev(
        lambda row: khot.network_topk(row, 3, network=network, distribution=distribution)
    )(x[0].detach())
    torch.testing.assert_close(direction[0] @ jacobian, expected[1][0])


def kept_for_backward(n):
    """How many bytes odd-even keeps for its backward pass."""
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = scores(n).float().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        khot.network_topk(x, 4, network="odd_even")
    return sum(kept.values())


@pytest.mark.full
def test_the_memory_of_odd_even_does_not_grow_as_its_work():
    """One tensor of swap probabilities for each of n layers would be n²/4 numbers of 4 bytes."""
    assert kept_for_backward(400) < 400**2 / 2
    assert kept_for_backward(900) < 900**2 / 3


def test_the_order_of_the_entries_matters_as_documented():
    x = scores(8)
    y = khot.network_topk(x, 3)
    moved = khot.network_topk(x[[3, 1, 4, 0, 5, 7, 2, 6]], 3)
    assert (moved - y[[3, 1, 4, 0, 5, 7, 2, 6]]).abs().max() > 1e-3
    assert khot.network_topk(torch.zeros(3), 1).tolist() == [0.25, 0.375, 0.375]
    assert khot.network_topk(torch.zeros(8), 3).tolist() == [0.375] * 8
    nine = khot.network_topk(torch.zeros(9), 3, network="odd_even")
    torch.testing.assert_close(nine[[0, -1]], torch.tensor([0.0391, 0.6562]), rtol=0, atol=1e-4)
    y = khot.network_topk(torch.tensor([-1.0, -6.0, -2.0, 3.0, 2.0, 0.0]), 4, temperature=3.0)
    expected = torch.tensor([0.242, 0.199, 0.848, 0.909, 0.910, 0.892])
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-3)


@kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_values_do_not_wash_out_near_ones(network, distribution, dtype):
    """1e30 beside 1: what a swap leaves of the far value must not hide the difference of the others."""
    x = torch.tensor([-1e30, 5.0, 4.0, -1e30, 3.0, -2e30], dtype=dtype, requires_grad=True)
    y = khot.network_topk(x, 2, network=network, distribution=distribution, temperature=0.01)
    torch.testing.assert_close(y, torch.tensor([0.0, 1, 1, 0, 0, 0], dtype=dtype), rtol=0, atol=0.02)
    assert torch.autograd.grad(y[1], x)[0].isfinite().all()


CAUCHY = dataclasses.replace(registry.get("network"), example_options=({"distribution": "cauchy"},))
# Run for the logistic swaps too; of the rows there is `test_gradient_of_the_rows`.
COSTLY = {"largest_row", "row_derivatives", "scales", "second_order", "small_weights"}
CHECKS = [
    check
    for check in relaxation_checks(CAUCHY)
    # Its tails come to the hard limit only as fast as the temperature falls; tracing is the same code.
    if check.options and check.name not in {"hard_limit", *TRACING}
]


@pytest.mark.parametrize("check", parameters(CHECKS, lambda check: check.name in COSTLY))
def test_the_contract_holds_with_cauchy_swaps(check):
    check()


def test_cauchy_comes_to_the_hard_limit():
    x = scores(5, 10)
    y = khot.network_topk(x, 3, distribution="cauchy", temperature=1e-9)
    torch.testing.assert_close(y, khot.hard_topk(x, 3), rtol=0, atol=1e-6)


def test_unknown_options_are_named():
    with pytest.raises(
        ValueError, match="network_topk: network must be 'bitonic' or 'odd_even', got 'shell'"
    ):
        khot.network_topk(torch.zeros(3), 1, network="shell")
    with pytest.raises(ValueError, match="network_matrix: distribution must be 'logistic' or 'cauchy'"):
        network_matrix(torch.zeros(3), 1, distribution="normal")


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 0)])
def test_a_constant_result_still_has_a_gradient(n, k):
    x = scores(2, n).requires_grad_()
    y = khot.network_topk(x, k)
    assert y.tolist() == [[float(k > 0)] * n] * 2
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [[0.0] * n] * 2
