"""Rows in which fewer than k units can be drawn: all of these are drawn, and nothing is random.

Scores of −inf are never drawn, so a mask may leave fewer than k units. The relaxations then select all that
are allowed, and so do designs: such a row is computed with harmless scores instead of its own, and its
results are then replaced by the known ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["ShortRows", "short_rows"]


class ShortRows(NamedTuple):
    """Which rows are short, and their units that can be drawn; booleans (…, 1) and (…, n)."""

    where: Tensor
    allowed: Tensor

    def harmless(self, scores: Tensor) -> Tensor:
        """Scores (…, n) that are safe to compute with."""
        return torch.where(self.where, 0.0, scores)

    def vectors(self, of_others: Tensor) -> Tensor:
        """Vectors (*sample, …, n), k-hot or of probabilities, with the known values in short rows."""
        return torch.where(self.where, self.allowed.to(of_others.dtype), of_others)

    def pairs(self, of_others: Tensor) -> Tensor:
        """Matrices (…, n, n) of joint probabilities, with the known values in short rows."""
        both = (self.allowed.unsqueeze(-1) & self.allowed.unsqueeze(-2)).to(of_others.dtype)
        return torch.where(self.where.unsqueeze(-1), both, of_others)

    def indices(self, of_others: Tensor) -> Tensor:
        """Indices (*sample, …, m): first those of the drawn units, then n."""
        n, drawn = self.allowed.shape[-1], of_others.shape[-1]
        place = torch.where(self.allowed, torch.arange(n, device=of_others.device), n)
        place = place.sort(-1).values[..., :drawn]
        return torch.where(self.where, place, of_others)

    def log_prob(self, x: Tensor, of_others: Tensor) -> Tensor:
        """Logarithms (*sample, …) of the probabilities of booleans (*sample, …, n)."""
        settled = torch.where((x == self.allowed).all(-1), 0.0, -math.inf).to(of_others.dtype)
        return torch.where(self.where.squeeze(-1), settled, of_others)

    def zero(self, of_others: Tensor) -> Tensor:
        """Numbers (…), with 0 in short rows."""
        return torch.where(self.where.squeeze(-1), 0.0, of_others)

    def sizes(self, k: float) -> Tensor:
        """How many units are drawn, (…)."""
        return torch.where(self.where, self.allowed.sum(-1, keepdim=True), k).squeeze(-1)

    def expand(self, batch_shape: tuple[int, ...]) -> ShortRows:
        """The same for a larger batch."""
        return ShortRows(*(part.expand(*batch_shape, part.shape[-1]) for part in self))


def short_rows(scores: Tensor, k: float, *, look: bool) -> ShortRows | None:
    """The short rows of scores (…, n); None if there are none, or if values must not be read (``look``)."""
    allowed = scores.detach() > -math.inf
    where = allowed.sum(-1, keepdim=True) < k
    return None if look and not bool(where.any()) else ShortRows(where, allowed)
