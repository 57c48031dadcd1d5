"""The settings for training a sparse autoencoder."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from khot.apps.sae._options import ACTIVATIONS, Activation
from khot.apps.sae.autoencoder import SparseAutoencoder
from khot.relaxations._plain_arguments import check_switch, is_integer, is_number

__all__ = ["TrainSettings"]


@dataclass(frozen=True)
class TrainSettings:
    """Settings for training a sparse autoencoder with Adam.

    The learning rate rises in a warm-up, stays constant, and at the end falls linearly to 0.

    Args:
        num_latents: the number of latents.
        k: how many latents are active per token.
        activation: see :class:`khot.apps.sae.SparseAutoencoder`, also for the next four.
        prefixes: for a Matryoshka autoencoder.
        k_start: training starts with this many times k active latents.
        temperature: for ``sigmoid_topk``: the first and the last temperature, for standardised activations.
        candidates: for ``sigmoid_topk``; 0 for 4 k.
        steps: the number of steps.
        batch_size: tokens per step.
        learning_rate: the peak learning rate.
        warmup: the share of steps, at the beginning, in which the learning rate grows.
        decay: the share of steps, at the end, in which it falls; annealing ends when the decay begins.
        auxk: the weight of AuxK; 0 for none.
        dead_after: a latent is dead if it was not active for this many tokens.
        clip: the largest norm of a gradient; 0 for no limit.
        unit_decoder: keep the decoder's rows at norm 1, and gradients orthogonal to them.
        seed: the seed for the initial weights and the order of the tokens.
        checkpoint_steps: save the state every this many steps; 0 for the end only.

    Example:
        >>> TrainSettings(k=0)
        Traceback (most recent call last):
        ValueError: TrainSettings: k must be an integer ≥ 1, got 0
    """

    num_latents: int = 4096
    k: int = 32
    activation: Activation = "batch_topk"
    prefixes: tuple[int, ...] = ()
    k_start: float = 1.0
    temperature: tuple[float, float] = (0.5, 0.05)
    candidates: int = 0
    steps: int = 2000
    batch_size: int = 1024
    learning_rate: float = 2e-3
    warmup: float = 0.05
    decay: float = 0.3
    auxk: float = 1 / 32
    dead_after: int = 100_000
    clip: float = 1.0
    unit_decoder: bool = True
    seed: int = 0
    checkpoint_steps: int = 500

    def __post_init__(self) -> None:
        """Refuse what cannot be, by name; lists, as JSON has them, become tuples."""
        check_switch("TrainSettings", "unit_decoder", self.unit_decoder)
        object.__setattr__(self, "unit_decoder", bool(self.unit_decoder))  # JSON lacks NumPy's
        for field in ("prefixes", "temperature"):
            if isinstance(getattr(self, field), list):
                object.__setattr__(self, field, tuple(getattr(self, field)))
        integers = {"num_latents": 1, "k": 1, "steps": 1, "batch_size": 2, "candidates": 0, "dead_after": 1}
        for field, least in {**integers, "seed": 0, "checkpoint_steps": 0}.items():
            value = getattr(self, field)
            if not is_integer(value) or value < least:
                raise ValueError(f"TrainSettings: {field} must be an integer ≥ {least}, got {value!r}")
            object.__setattr__(self, field, int(value))
        if self.activation not in ACTIVATIONS or self.activation == "jumprelu":
            raise ValueError(
                "TrainSettings: activation must be topk, batch_topk or sigmoid_topk (jumprelu is not "
                "trained: "
                f"train batch_topk, whose threshold makes it one), got {self.activation!r}"
            )
        for field in ("learning_rate", "auxk", "clip", "warmup", "decay"):
            value = getattr(self, field)
            right = is_number(value) and math.isfinite(value) and value >= 0
            if not right or (field == "learning_rate" and value == 0):
                raise ValueError(
                    f"TrainSettings: {field} must be a number ≥ 0 (learning_rate > 0), got {value!r}"
                )
            object.__setattr__(self, field, float(value))
        if self.k > self.num_latents:
            raise ValueError(
                f"TrainSettings: k must be at most num_latents = {self.num_latents}, got {self.k}"
            )
        if self.warmup + self.decay > 1:
            raise ValueError(
                f"TrainSettings: warmup + decay must be at most 1, got {self.warmup} + {self.decay}"
            )
        # Refuses prefixes, candidates and temperatures that cannot be.
        made = self.autoencoder(1, device="meta")
        object.__setattr__(self, "k_start", made.options.k_start)  # as JSON takes them
        object.__setattr__(self, "temperature", made.options.temperature)
        object.__setattr__(self, "prefixes", tuple(map(int, self.prefixes)))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> TrainSettings:
        """Settings from a dictionary; an unknown field is an error that names it."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = [name for name in fields if name not in known]
        if unknown:
            raise ValueError(f"TrainSettings: no field {unknown[0]!r}; there are {', '.join(known)}")
        return cls(**dict(fields))

    def autoencoder(self, d_in: int, device: str | None = None) -> SparseAutoencoder:
        """A new autoencoder with these settings, for inputs of length ``d_in``."""
        return SparseAutoencoder(
            d_in,
            self.num_latents,
            self.k,
            self.activation,
            prefixes=self.prefixes,
            k_start=self.k_start,
            temperature=self.temperature,
            candidates=self.candidates or None,
            device=device,
        )

    def learning_rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        share = step / self.steps
        rise = (step + 1) / max(self.warmup * self.steps, 1)
        fall = (1 - share) / self.decay if self.decay else 1.0
        return self.learning_rate * min(1.0, rise, fall)

    def progress_at(self, step: int) -> float:
        """The progress of annealing: it reaches 1 when the learning rate begins to fall."""
        return min(step / max((1 - self.decay) * self.steps, 1), 1.0)
