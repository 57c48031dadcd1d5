r"""The tree of pairwise duels behind tree pivotal sampling, in closed form.

Below each node T of a balanced binary tree the expected count is :math:`\mu_T = f_T + \rho_T`, floor and
fraction, and the drawn count is always :math:`f_T + z_T` with :math:`z_T \in \{0, 1\}`, :math:`P(z_T = 1) =
\rho_T`. Let a and b be the fractions of the children of T, and s = a + b. Then z of the children follows from
z of T:

    s < 1:  z = 0 → (0, 0);   z = 1 → one of the two children, the left with probability a/s
    s ≥ 1:  z = 1 → (1, 1);   z = 0 → one of the two children, the left with probability (1 − b)/(2 − s)

so z is a Markov chain down the tree, and all its properties are sums over nodes.

Rounding: fractions go up the tree by ρ = s − [s ≥ 1], and floors are counted, never taken of a sum. The root
starts with z = k − f, because rounding makes ρ at the root either 0 or almost 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "Level",
    "PivotalTree",
    "draw_all",
    "draw_paths",
    "duels",
    "lowered",
    "pivotal_tree",
    "raised",
    "uniforms",
]


class Level(NamedTuple):
    """The inner nodes of one level, shape (…, nodes).

    ``left`` is the probability that the left child gets the unit that only one of the two can have, ``over``
    whether s ≥ 1.
    """

    over: Tensor
    left: Tensor


class PivotalTree(NamedTuple):
    """Fractions and floors of all levels, leaves first, and the inner nodes of each level above them."""

    rho: list[Tensor]
    floor: list[Tensor]
    levels: list[Level]


def pivotal_tree(inclusion: Tensor) -> PivotalTree:
    """Build the tree over float64 probabilities (…, n); the leaves are padded to a power of two."""
    n = inclusion.shape[-1]
    leaves = 1 << max(0, n - 1).bit_length()
    certain = inclusion >= 1
    rho = [torch.nn.functional.pad(torch.where(certain, 0.0, inclusion), (0, leaves - n))]
    floor = [torch.nn.functional.pad(certain.int(), (0, leaves - n))]
    levels: list[Level] = []
    while rho[-1].shape[-1] > 1:
        above = raised(rho[-1], floor[-1])
        rho.append(above[0])
        floor.append(above[1])
        levels.append(above[2])
    return PivotalTree(rho, floor, levels)


def raised(rho: Tensor, floor: Tensor) -> tuple[Tensor, Tensor, Level]:
    """Fractions and floors of the parents of nodes (…, 2m), and the decisions at these parents."""
    a, b = rho[..., 0::2], rho[..., 1::2]
    s = a + b
    over = s >= 1
    # Where s = 0 or s = 2 there is nothing to share, and any denominator will do.
    chance = torch.where(over, 1 - b, a) / torch.where(over, 2 - s, torch.where(s > 0, s, 1.0))
    return s - over.to(s.dtype), floor[..., 0::2] + floor[..., 1::2] + over.int(), Level(over, chance)


def lowered(z: Tensor, level: Level, left: Tensor) -> Tensor:
    """z of the children (…, 2m) from z of the nodes, given which of the left children win."""
    one, both = z ^ level.over, z & level.over
    return torch.stack([both | (one & left), both | (one & ~left)], -1).flatten(-2)


def draw_all(tree: PivotalTree, k: int, shape: torch.Size, decide: Callable[[Level], Tensor]) -> Tensor:
    """Booleans (*shape, leaves), all nodes of a level at a time: O(n) work per draw.

    Args:
        tree: the tree over the units.
        k: how many are drawn.
        shape: the shape of the draws; it ends with the batch shape of the tree.
        decide: returns, for each node of a level, whether the left child wins.
    """
    z = (k - tree.floor[-1] > 0).expand(*shape, 1)
    for level in reversed(tree.levels):
        z = lowered(z, level, decide(level))
    return z | (tree.floor[0] > 0)


def uniforms(shape: torch.Size, n: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
    """A uniform variable for each inner node of a tree over n units, the root first, level by level."""
    inner = (1 << max(0, n - 1).bit_length()) - 1
    return torch.rand((*shape, inner), dtype=torch.float64, device=device, generator=generator)


def duels(u: Tensor) -> Callable[[Level], Tensor]:
    """The decisions, for `draw_all`, that given uniform variables lead to."""

    def decide(level: Level) -> Tensor:
        nodes = level.over.shape[-1]
        return u[..., nodes - 1 : 2 * nodes - 1] < level.left

    return decide


def draw_paths(tree: PivotalTree, k: int, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    """Increasing indices (*shape, k) by k paths down the tree: O(k log n) work per draw.

    The paths through a node are neighbours, and each knows its rank among them. The first path makes the
    node's decision, and the others follow it.
    """
    batch = tree.rho[0].shape[:-1]
    device = tree.rho[0].device
    slot = torch.arange(k, device=device).expand(*shape, k)
    node = torch.zeros_like(slot)
    rank = slot
    z = (k - tree.floor[-1] > 0).expand(*shape, k)

    def at(values: Tensor, nodes: Tensor) -> Tensor:
        """Values (*batch, nodes) at (*sample, *batch, k)."""
        return values.expand(*shape[: len(shape) - len(batch)], *values.shape).gather(-1, nodes)

    for depth in range(len(tree.levels) - 1, -1, -1):
        level = tree.levels[depth]
        u = torch.rand((*shape, k), dtype=torch.float64, device=device, generator=generator)
        left = u.gather(-1, slot - rank) < at(level.left, node)
        over = at(level.over, node)
        one, both = z ^ over, z & over
        z_left, z_right = both | (one & left), both | (one & ~left)
        on_left = at(tree.floor[depth], 2 * node) + z_left.int()
        goes_left = rank < on_left
        node = torch.where(goes_left, 2 * node, 2 * node + 1)
        rank = torch.where(goes_left, rank, rank - on_left)
        z = torch.where(goes_left, z_left, z_right)
    return node
