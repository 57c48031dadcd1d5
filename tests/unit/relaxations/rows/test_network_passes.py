"""A network as one operation: its weights and gradients are those of its layers one by one, with autograd."""

import pytest
import torch
from torch.library import opcheck

from khot.relaxations.rows import network as network_file
from khot.relaxations.rows._sorting_networks import schedule
from strategies.random_scores import scores

KINDS = [(network, cdf) for network in ("bitonic", "odd_even") for cdf in ("logistic", "cauchy")]
kinds = pytest.mark.parametrize(("network", "distribution"), KINDS)
SIZES = [(1, 1), (2, 1), (8, 3), (16, 5), (10, 4), (7, 7)]


def problem(network, n, k, m=2):
    """Values on the wires, what is wanted after the network, and how many values are present."""
    layers = schedule(network, n, k)
    wires = layers[0].wires if layers else n
    generator = torch.Generator().manual_seed(n)
    wanted = torch.rand(2, 3, m, k, dtype=torch.float64, generator=generator)
    some = torch.randint(1, n + 1, (2, 3, 1), generator=generator)
    return layers, scores(2, 3, wires, seed=n), wanted, some, torch.full_like(some, wires)


@kinds
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_weights_and_gradients_are_those_of_the_layers(network, distribution, n, k):
    layers, z, wanted, *counts = problem(network, n, k)
    for count in counts:
        leaf = z.clone().requires_grad_()
        expected = network_file._through(leaf, wanted, count, layers, distribution)
        weights, *saved = torch.ops.khot.network_weights(z, wanted, count, network, distribution, n)
        torch.testing.assert_close(weights[..., : expected.shape[-1]], expected.detach(), rtol=0, atol=1e-13)
        if not layers:
            continue
        cotangent = scores(*weights.shape, seed=1)
        (grad,) = torch.autograd.grad(expected, leaf, cotangent)
        actual = torch.ops.khot.network_gradients(cotangent, *saved, network, distribution, n, k)
        torch.testing.assert_close(actual, grad, rtol=0, atol=1e-12)


def test_the_values_are_left_alone():
    """Also where one row, or one wire, needs no copy to be turned."""
    for shape in ((1, 8), (4, 8), (8,)):
        z = scores(*shape)
        before = z.clone()
        wanted = torch.ones(*shape[:-1], 1, 3, dtype=z.dtype)
        count = torch.full((*shape[:-1], 1), 8)
        torch.ops.khot.network_weights(z, wanted, count, "bitonic", "logistic", 8)
        assert z.equal(before)


def test_values_far_apart_keep_their_digits():
    """A value beyond all others passes; it costs the one that it meets nothing."""
    z = torch.tensor([[-1e20, 1.0, 0.5, 2.0]], dtype=torch.float64)
    wanted, count = torch.ones(1, 1, 2, dtype=z.dtype), torch.tensor([[4]])
    far = torch.ops.khot.network_weights(z, wanted, count, "bitonic", "logistic", 4)[0]
    z[0, 0] = -1e3
    torch.testing.assert_close(
        far, torch.ops.khot.network_weights(z, wanted, count, "bitonic", "logistic", 4)[0]
    )


def test_the_operations_are_what_they_say_they_are():
    """Shapes, strides and schema, also for arguments that are not contiguous, and for empty batches."""
    for layout in (lambda t: t, lambda t: t.transpose(0, 1), lambda t: t[:0]):
        _, z, wanted, some, _ = (
            layout(t) if isinstance(t, torch.Tensor) else t for t in problem("bitonic", 8, 3)
        )
        kind = ("bitonic", "logistic", 8)
        opcheck(torch.ops.khot.network_weights.default, (z, wanted, some, *kind))
        weights, *saved = torch.ops.khot.network_weights(z, wanted, some, *kind)
        opcheck(torch.ops.khot.network_gradients.default, (weights, *saved, *kind, 3))


def test_vmap_is_one_more_dimension_of_the_batch():
    _, z, wanted, some, _ = problem("bitonic", 8, 3)
    kind = ("bitonic", "logistic", 8)
    expected = torch.ops.khot.network_weights(z, wanted, some, *kind)
    batched = torch.vmap(torch.ops.khot.network_weights, in_dims=(1, 1, 1, None, None, None))
    for actual, right in zip(batched(z, wanted, some, *kind), expected, strict=True):
        torch.testing.assert_close(actual, right.transpose(0, 1))
    same = wanted[0, 0].expand_as(wanted)
    expected = torch.ops.khot.network_weights(z, same, some, *kind)[0]
    batched = torch.vmap(
        torch.vmap(torch.ops.khot.network_weights, in_dims=(0, None, 0, None, None, None)),
        in_dims=(0, None, 0, None, None, None),
    )
    torch.testing.assert_close(batched(z, wanted[0, 0], some, *kind)[0], expected)
