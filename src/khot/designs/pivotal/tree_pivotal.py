"""Tree pivotal sampling: units duel in pairs up a balanced tree, and each duel decides one of the two.

Cost: O(n) work in log n steps, or k paths of log n steps. References: Deville & Tillé (1998), the pivotal
method; the closed forms follow from the tree being a Markov chain (`_duels.py`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.designs._arguments import normalised
from khot.designs._places import places_of_ones
from khot.designs._random_order import RandomOrder
from khot.designs._with_phantom import phantom_indicator, phantom_probability
from khot.designs.base import KHotDistribution
from khot.designs.pivotal._duels import PivotalTree, draw_all, draw_paths, duels, pivotal_tree, uniforms
from khot.designs.registry import register
from khot.kernels import cpu, operations
from khot.relaxations._chunks import at_once
from khot.relaxations._special import xlogy

__all__ = ["RandomTreePivotal", "TreePivotal"]


@register
class TreePivotal(KHotDistribution):
    r"""Pivotal sampling over a balanced binary tree, with everything in closed form.

    .. math:: \Big| \sum_{i \in T} x_i - \sum_{i \in T} \pi_i \Big| < 1 \quad \text{for every node } T

    so the draw is spread evenly over the order of the units. Inclusion probabilities are exact, covariances
    are never positive. Cost of a draw: O(n) work in log n steps, or O(k log n) if k is small.

    Args:
        k: Σπ; if it is not an integer, ⌊k⌋ or ⌈k⌉ units are drawn.
        probs: inclusion probabilities, shape (…, n).
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = TreePivotal(2, probs=torch.tensor([0.5, 0.5, 0.5, 0.5]))
        >>> design.joint_inclusion[0]
        tensor([0.5000, 0.0000, 0.2500, 0.2500])
        >>> design.entropy() / math.log(2)
        tensor(2.)

    Reference: Deville & Tillé (1998), Unequal Probability Sampling Without Replacement Through a Splitting
    Method.
    """

    takes_fractions = True

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        tree, k = self._tree(self._inclusion.detach()), math.ceil(self.k)
        shape = sample_shape + self.batch_shape
        if k * max(1, self.n - 1).bit_length() < self.n:  # k paths are less work than the whole tree
            return draw_paths(tree, k, shape, generator)
        u = uniforms(shape, tree.rho[0].shape[-1], tree.rho[0].device, generator)
        return places_of_ones(draw_all(tree, k, shape, duels(u)), k)

    def _draw_k_hot(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        rows = self._rows
        by_kernel = cpu.usable(rows) or operations.draws_taken(rows)
        if not isinstance(self.k, int) or not by_kernel:
            return super()._draw_k_hot(sample_shape, generator)
        draw = cpu.pivotal if cpu.usable(rows) else operations.pivotal
        drawn: list[Tensor] = []
        left = sample_shape.numel()
        while left:  # in parts, so that there are not too many uniform variables at a time
            part = min(left, at_once(rows.numel()))
            u = uniforms(torch.Size((part, *self.batch_shape)), self.n, rows.device, generator)
            drawn.append(draw(rows, self.k, u, None))
            left -= part
        x = drawn[0] if len(drawn) == 1 else torch.cat(drawn) if drawn else rows.new_empty(0)
        return x.view(self._extended_shape(sample_shape))

    def _tree(self, inclusion: Tensor) -> PivotalTree:
        return pivotal_tree(phantom_probability(inclusion, self.k))

    def _log_prob(self, x: Tensor) -> Tensor:
        """The sum over nodes of the logarithms of what happened there."""
        tree = self._tree(self._inclusion)
        x = phantom_indicator(x, self.k).int()
        count = torch.nn.functional.pad(x, (0, tree.rho[0].shape[-1] - x.shape[-1]))
        total = 0 * tree.rho[-1].squeeze(-1)  # with the graph of π, also if there is one unit
        possible = count.sum(-1) == math.ceil(self.k)
        for depth, level in enumerate(tree.levels):
            z = count - tree.floor[depth]
            # No unit with π = 0, none missing with π = 1; above the leaves, no count two away from the mean.
            possible = possible & ((z == 0) | ((z == 1) & (tree.rho[depth] > 0))).all(-1)
            z_left = z[..., 0::2]
            count = count[..., 0::2] + count[..., 1::2]
            duel = ((count - tree.floor[depth + 1]) == 1) ^ level.over
            chance = torch.where(z_left == 1, level.left, 1 - level.left)
            possible = possible & ~(duel & (chance <= 0)).any(-1)
            counts = duel & (chance > 0)
            total = total + torch.where(counts, torch.where(counts, chance, 1.0).log(), 0.0).sum(-1)
        return torch.where(possible, total, -math.inf)

    def _entropy(self) -> Tensor:
        """The sum over nodes of P(there is a duel) times the entropy of its outcome."""
        tree = self._tree(self._inclusion)
        total = 0 * tree.rho[-1].squeeze(-1)
        for depth, level in enumerate(tree.levels):
            rho = tree.rho[depth + 1]
            duel = torch.where(level.over, 1 - rho, rho)
            open_ = (level.left > 0) & (level.left < 1)
            left = torch.where(open_, level.left, 0.5)
            each = -xlogy(left, left) - xlogy(1 - left, 1 - left)
            total = total + torch.where(open_, duel * each, 0.0).sum(-1)
        return total

    def _joint_inclusion(self) -> Tensor:
        """From P(xᵢ = 1 | z) of each node above i; two units meet at the lowest node above both."""
        tree = self._tree(self._inclusion)
        certain = (tree.floor[0] > 0).double()
        given = torch.stack([certain, torch.ones_like(certain)], -1).unsqueeze(-2)  # (…, nodes, units, z)
        joint = (tree.rho[0] + certain)[..., None, None]
        for depth, level in enumerate(tree.levels):
            a, b = tree.rho[depth][..., 0::2], tree.rho[depth][..., 1::2]
            s = a + b
            zero = torch.zeros_like(s)
            neither, both = torch.where(level.over, zero, 1 - s), torch.where(level.over, s - 1, zero)
            only_left, only_right = torch.where(level.over, 1 - b, a), torch.where(level.over, 1 - a, b)
            pair = torch.stack([neither, only_right, only_left, both], -1).view(*s.shape, 2, 2)
            left, right = given[..., 0::2, :, :], given[..., 1::2, :, :]
            across = left @ pair @ right.mT
            upper = torch.cat([joint[..., 0::2, :, :], across], -1)
            lower = torch.cat([across.mT, joint[..., 1::2, :, :]], -1)
            joint = torch.cat([upper, lower], -2)
            given = torch.cat(
                [_raise(left, level.over, level.left), _raise(right, level.over, 1 - level.left)], -2
            )
        return joint[..., 0, : self.n, : self.n]

    def _mode(self) -> Tensor:
        """A most likely draw, by max-product up the tree; the k largest π may be impossible together."""
        tree = self._tree(self._inclusion.detach())
        best = torch.zeros(*tree.rho[0].shape, 2, dtype=torch.float64, device=tree.rho[0].device)
        take_left: list[Tensor] = []
        for level in tree.levels:
            left, right = best[..., 0::2, :], best[..., 1::2, :]
            if_left = level.left.log() + left[..., 1] + right[..., 0]
            if_right = (1 - level.left).log() + left[..., 0] + right[..., 1]
            duel = torch.maximum(if_left, if_right)
            neither, both = left[..., 0] + right[..., 0], left[..., 1] + right[..., 1]
            best = torch.stack(
                [torch.where(level.over, duel, neither), torch.where(level.over, both, duel)], -1
            )
            take_left.append(if_left >= if_right)
        x = draw_all(tree, math.ceil(self.k), self.batch_shape, lambda _: take_left.pop())
        return x[..., : self.n]


@register
class RandomTreePivotal(RandomOrder):
    r"""Tree pivotal sampling after a random permutation, a fresh one for each draw.

    .. math:: P(x_i = 1) = \pi_i \text{ exactly}

    The entropy is close to the maximum for any n and k, and no weights have to be solved for.
    Log-probability, entropy and joint inclusion are sums over n! orders and are not available; for a given
    order they are those of ``TreePivotal(k, probs[..., order])``. Cost of a draw: O(n) and a shuffle.

    Args:
        k: how many units are drawn.
        probs: inclusion probabilities, shape (…, n), with sum k.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = RandomTreePivotal(2, probs=torch.tensor([0.9, 0.1, 0.6, 0.4]))
        >>> x = design.sample((1000,), generator=torch.Generator().manual_seed(0))
        >>> x.sum(-1).unique(), (x.mean(0) - design.mean).abs().max() < 0.05
        (tensor([2.]), tensor(True))

    Reference: Deville & Tillé (1998).
    """

    ordered = TreePivotal

    def _draw_in_order(self, rows: Tensor, order: Tensor, generator: torch.Generator | None) -> Tensor:
        k = int(self.k)
        u = uniforms(rows.shape[:-1], self.n, rows.device, generator)
        if cpu.usable(rows):
            return cpu.pivotal(rows, k, u.unsqueeze(0), order.unsqueeze(0)).squeeze(0)
        if operations.draws_taken(rows):
            return operations.pivotal(rows, k, u.unsqueeze(0), order.unsqueeze(0)).squeeze(0)
        tree = pivotal_tree(normalised(rows, k).gather(-1, order))
        x = draw_all(tree, k, rows.shape[:-1], duels(u))[..., : self.n]
        return torch.zeros_like(rows).scatter_(-1, order, x.to(rows.dtype))


def _raise(given: Tensor, over: Tensor, chance: Tensor) -> Tensor:
    """P(xᵢ = 1 | z) of the parent from that of a child, which wins a duel with that chance."""
    never, always = given[..., 0], given[..., 1]
    duel = torch.lerp(never, always, chance.unsqueeze(-1))
    over = over.unsqueeze(-1)
    return torch.stack([torch.where(over, duel, never), torch.where(over, always, duel)], -1)
