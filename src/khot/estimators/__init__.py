"""Gradient estimators through a hard or sampled selection."""

from khot.relaxations.straight_through import straight_through

__all__ = ["straight_through"]
