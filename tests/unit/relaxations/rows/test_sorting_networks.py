"""Schedules of comparators: they sort, and the pruned ones still find the k best."""

import itertools
import random

import pytest
import torch

import khot
from khot.relaxations.rows._sorting_networks import schedule


def comparators(layer):
    """The pairs of wires of a layer, from its description."""
    for group in range(layer.groups):
        begin = layer.first + 2 * layer.distance * group
        for i in range(layer.distance):
            partner = 2 * layer.distance - 1 - i if layer.mirrored else layer.distance + i
            yield begin + i, begin + partner


def best(network, values, k):
    """The first k wires after the network, by running each comparator; nothing is lower than all values."""
    layers = schedule(network, len(values), k)
    wires = list(values)
    wires += [float("-inf")] * (max([layer.wires for layer in layers], default=0) - len(wires))
    for layer in layers:
        wires = wires[: layer.wires]
        for a, b in comparators(layer):
            wires[a], wires[b] = max(wires[a], wires[b]), min(wires[a], wires[b])
        wires = wires[: layer.keep]
    return wires[:k]


@pytest.mark.parametrize("network", ["bitonic", "odd_even"])
@pytest.mark.parametrize("n", range(1, 11))
def test_every_zero_one_row_is_sorted(network, n):
    """The 0–1 principle: a network that sorts these sorts everything."""
    for values in itertools.product((0, 1), repeat=n):
        assert best(network, values, n) == sorted(values, reverse=True)


@pytest.mark.parametrize("network", ["bitonic", "odd_even"])
@pytest.mark.parametrize(("n", "k"), [(22, 5), (38, 8), (64, 1), (100, 63), (33, 32)])
def test_pruned_networks_find_the_best(network, n, k):
    draw = random.Random(0)
    for _ in range(50):
        values = draw.sample(range(1000), n)
        assert best(network, values, k) == sorted(values, reverse=True)[:k]


@pytest.mark.parametrize("network", ["bitonic", "odd_even"])
def test_only_comparators_that_reach_the_best_are_left(network):
    layers = schedule(network, 32, 3)
    reached = set(range(3))
    for layer in reversed(layers):
        for pair in list(comparators(layer)):
            assert reached & set(pair), f"{pair} of {layer} reaches nothing"
        reached |= {wire for pair in comparators(layer) for wire in pair}
    full = sum(len(list(comparators(layer))) for layer in schedule(network, 32, 32))
    assert sum(len(list(comparators(layer))) for layer in layers) < full


def test_an_unknown_network_is_named():
    with pytest.raises(ValueError, match="network must be 'bitonic' or 'odd_even', got 'shell'"):
        khot.network_topk(torch.zeros(3), 1, network="shell")
