"""Annealing: k and the temperature of a sparse autoencoder fall; the progress is in the ``state_dict``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from khot.apps.sae._options import ACTIVATIONS, Options
from khot.relaxations._plain_arguments import is_number

__all__ = ["Anneals"]


class Anneals(nn.Module):
    """The part of :class:`khot.apps.sae.SparseAutoencoder` that anneals k and the temperature."""

    options: Options
    progress: float

    def anneal(self, progress: float) -> None:
        """Set the progress of training: k and the temperature fall geometrically; at 1 the selection is hard.

        Args:
            progress: in [0, 1]; part of the ``state_dict``.
        """
        if not (is_number(progress) and 0 <= progress <= 1):
            raise ValueError(f"SparseAutoencoder: progress must be in [0, 1], got {progress!r}")
        self.progress = float(progress)

    def annealed(self) -> tuple[float, float | None]:
        """The current k, and the temperature of sigmoid top-k; None if the selection is hard."""
        options = self.options
        if self.progress >= 1 or not self.training:
            return float(options.k), None
        k = options.k * options.k_start ** (1 - self.progress)
        if options.activation != "sigmoid_topk":
            return float(round(k)), None
        first, last = options.temperature
        return k, first * (last / first) ** self.progress

    def get_extra_state(self) -> Tensor:
        """Extra state to save: progress, k and activation, as a tensor, which every format can hold."""
        state = [self.progress, float(self.options.k), float(ACTIVATIONS.index(self.options.activation))]
        return torch.tensor(state, dtype=torch.float64, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Check that the saved k and activation equal these; the shapes of tensors do not show them."""
        progress, k, number = (part.item() for part in state)
        activation = ACTIVATIONS[int(number)]
        for what, saved, here in (
            ("k", int(k), self.options.k),
            ("activation", activation, self.options.activation),
        ):
            if saved != here:
                raise RuntimeError(
                    f"SparseAutoencoder: {what} was {saved} when the state was saved, and is {here} here"
                )
        self.anneal(progress)
