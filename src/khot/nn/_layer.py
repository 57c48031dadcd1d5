"""The base of all layers that select k entries: k, the dimension, ``eval()``, and the saved state."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from khot.nn._evaluation import EvalMode, check_eval_mode
from khot.nn._tempered import Tempered, shown
from khot.relaxations._arguments import allowed_scores, check_count, directed, position
from khot.relaxations._plain_arguments import check_dim, check_number, check_switch
from khot.relaxations.hard import ranked_indices

__all__ = ["SelectingLayer", "checked_k", "whole_k"]


class SelectingLayer(Tempered):
    """A layer that selects k entries along a dimension; subclasses define how."""

    def __init__(
        self,
        k: float,
        *,
        temperature: float | None,
        learn_temperature: bool,
        eval_mode: EvalMode,
        random: bool,
        dim: int,
        largest: bool,
        at_most: bool,
    ) -> None:
        name = type(self).__name__
        super().__init__(temperature, learn_temperature)
        check_eval_mode(name, eval_mode, random=random)
        check_switch(name, "largest", largest)
        check_switch(name, "at_most", at_most)
        check_dim(name, dim)
        self._k = checked_k(name, k)
        self.dim, self.largest, self.at_most = dim, largest, at_most
        self.eval_mode: EvalMode = eval_mode

    @property
    def k(self) -> float | Tensor:
        """The budget: a number, or a tensor with a gradient if it is learned."""
        return self._k

    @property
    def _draws(self) -> bool:
        return self.training or self.eval_mode == "random"

    def selected(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """The indices of the round(k) best entries along ``dim``, best first; for export.

        The result is the same in training and evaluation, and never has noise. Ties go to the lower index. If
        fewer than k entries are allowed, the remaining indices are −1.
        """
        name = f"{type(self).__name__}.selected"
        last = position(name, scores, self.dim)
        k = round(self.k.item() if isinstance(self.k, Tensor) else self.k)
        k = check_count(name, scores, k, last, at_most=self.at_most)
        rows = allowed_scores(name, directed(name, scores, self.largest), mask)
        indices, exists = ranked_indices(rows.movedim(last, -1), k)
        return torch.where(exists, indices, -1).movedim(-1, last)

    def get_extra_state(self) -> Tensor:
        """Extra state to save: k (k_max if k is learned), and whether the temperature is calibrated.

        It is a tensor, so that every checkpoint format can hold it.
        """
        state = [float(self._fixed_k()), float(self._settled), float(self.kappa is not None)]
        return torch.tensor(state, dtype=torch.float64, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Check that the saved k equals this one; if only one of the two is learned, torch reports it."""
        saved, settled, learned = (number.item() for number in state)
        if bool(learned) == (self.kappa is not None) and saved != self._fixed_k():
            what = "k_max" if learned else "k"
            raise RuntimeError(
                f"{type(self).__name__}: {what} was {saved:g} when the state was saved, and is "
                f"{self._fixed_k():g} here"
            )
        self._settled = bool(settled)

    def _fixed_k(self) -> float:
        """What loading must not change: k itself, or the end of the range of a learned one."""
        return self._k

    def _shown_settings(self) -> list[str]:
        usual = {"largest": True, "at_most": False, "eval_mode": "same"}
        return [f"{name}={getattr(self, name)!r}" for name in usual if getattr(self, name) != usual[name]]

    def _shown_k(self) -> str:
        return f"k={shown(self.k)}"


def checked_k(name: str, k: float, argument: str = "k") -> int | float:
    """A budget as a Python number: an int if its value is an integer."""
    check_number(name, argument, k)
    if not 0 <= k < math.inf:
        raise ValueError(f"{name}: {argument} must be finite and not negative, got {k}")
    return int(k) if k == int(k) else float(k)


def whole_k(name: str, k: float) -> int:
    """A budget that must be an integer, as a Python int."""
    number = checked_k(name, k)
    if isinstance(number, float):
        raise ValueError(f"{name}: k must be an integer, got {k}")
    return number
