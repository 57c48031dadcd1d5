"""Sorting networks as lists of layers: which wires are compared, and which of them matter for the k best.

After the last layer, wire 0 holds the largest value. Every comparator takes two wires and puts the larger
value on the one with the lower number. So empty wires at the end stay empty, and a network for n values is a
larger network without its last wires.

The k best of n values end on the wires 0 … k − 1. Going backwards, each layer needs some more wires, always
the first ones; each layer is cut to the wires it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["Layer", "Network", "schedule"]

Network = Literal["bitonic", "odd_even"]


@dataclass(frozen=True)
class Layer:
    """Comparators that work at the same time.

    Groups of 2·``distance`` wires follow each other from the wire ``first`` on. The i-th wire of a group's
    first half is compared with the i-th wire of its second half; if ``mirrored``, the second half is taken
    backwards. All other wires pass through unchanged.

    Attributes:
        distance: half the size of a group.
        mirrored: whether the second half is taken backwards.
        first: the wire at which the first group begins.
        beyond: the layer belongs to the networks for more than this many values.
        groups: how many groups there are.
        wires: how many wires go in, from wire 0.
        keep: how many come out.
    """

    distance: int
    mirrored: bool
    first: int
    beyond: int
    groups: int = 0
    wires: int = 0
    keep: int = 0


def schedule(network: Network, n: int, k: int) -> tuple[Layer, ...]:
    """The layers that bring the ``k`` ≥ 1 largest of ``n`` values to the first wires, largest first."""
    width = 1 << (n - 1).bit_length() if network == "bitonic" else n
    layers = _bitonic(width) if network == "bitonic" else _odd_even(n)
    needed = k
    pruned: list[Layer] = []
    for layer in reversed(list(layers)):
        group = 2 * layer.distance
        groups = min(-((layer.first - needed) // group), (width - layer.first) // group)
        if groups > 0:
            wires = max(needed, layer.first + groups * group)
            pruned.append(
                Layer(layer.distance, layer.mirrored, layer.first, layer.beyond, groups, wires, needed)
            )
            needed = wires
    return tuple(reversed(pruned))


def _bitonic(width: int) -> Iterator[Layer]:
    """Sorted runs of ``half`` wires are merged in pairs: O(log² n) layers."""
    half = 1
    while half < width:
        yield Layer(half, True, 0, half)
        distance = half // 2
        while distance:
            yield Layer(distance, False, 0, half)
            distance //= 2
        half *= 2


def _odd_even(n: int) -> Iterator[Layer]:
    """Neighbours, from wire 0 and from wire 1 in turn: n layers."""
    for layer in range(n):
        yield Layer(1, False, layer % 2, layer)
