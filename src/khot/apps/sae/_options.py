"""The settings of a sparse autoencoder, checked once."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from khot.relaxations._plain_arguments import check_switch

__all__ = ["ACTIVATIONS", "Activation", "Options"]

Activation = Literal["topk", "batch_topk", "sigmoid_topk", "jumprelu"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
_SWITCHES = (
    "transcoder",
    "skip",
    "subtract_b_dec",
    "normalize_decoder",
    "scale_by_decoder_norm",
    "multi_topk",
)


@dataclass(frozen=True)
class Options:
    """The settings of :class:`khot.apps.sae.SparseAutoencoder`, which documents them."""

    d_in: int
    num_latents: int
    k: int
    activation: Activation
    d_out: int
    transcoder: bool
    skip: bool
    subtract_b_dec: bool
    normalize_decoder: bool
    scale_by_decoder_norm: bool
    prefixes: tuple[int, ...]
    k_aux: int
    multi_topk: bool
    k_start: float
    temperature: tuple[float, float]
    candidates: int

    def __post_init__(self) -> None:
        """Refuse what cannot be, by name."""
        for field in _SWITCHES:
            check_switch("SparseAutoencoder", field, getattr(self, field))
            object.__setattr__(self, field, bool(getattr(self, field)))  # also NumPy's, which JSON lacks
        for field in ("d_in", "num_latents", "d_out"):
            self._require(
                field, "an integer ≥ 1", _is_integer(getattr(self, field)) and getattr(self, field) >= 1
            )
        self._require(
            "k",
            f"an integer in 1 … {self.num_latents}",
            _is_integer(self.k) and 1 <= self.k <= self.num_latents,
        )
        self._require("activation", f"one of {', '.join(ACTIVATIONS)}", self.activation in ACTIVATIONS)
        if self.subtract_b_dec and self.transcoder:
            raise ValueError(
                "SparseAutoencoder: subtract_b_dec must be False for a transcoder, whose b_dec is of "
                "its output"
            )
        if self.d_out != self.d_in and not self.transcoder:
            raise ValueError(
                f"SparseAutoencoder: d_out must be d_in = {self.d_in} unless transcoder=True, got "
                f"{self.d_out}"
            )
        if self.scale_by_decoder_norm and self.activation == "jumprelu":
            raise ValueError(
                "SparseAutoencoder: scale_by_decoder_norm must be False for jumprelu: its thresholds "
                "are of each latent"
            )
        ends = self.prefixes
        rising = all(a < b for a, b in itertools.pairwise(ends))
        self._require(
            "prefixes",
            f"rising integers in 1 … {self.num_latents}, the last {self.num_latents}",
            not ends
            or (all(map(_is_integer, ends)) and rising and ends[0] >= 1 and ends[-1] == self.num_latents),
        )
        self._require("k_aux", "an integer ≥ 1", _is_integer(self.k_aux) and self.k_aux >= 1)
        self._require("k_start", "a number ≥ 1", _is_number(self.k_start) and self.k_start >= 1)
        pair = self.temperature
        self._require(
            "temperature",
            "two numbers > 0, at first and at last",
            len(pair) == 2 and all(_is_number(tau) and tau > 0 for tau in pair),
        )
        self._require(
            "candidates",
            f"an integer in {math.ceil(self.k * self.k_start)} (k · k_start) … {self.num_latents}",
            _is_integer(self.candidates)
            and min(math.ceil(self.k * self.k_start), self.num_latents)
            <= self.candidates
            <= self.num_latents,
        )
        if self.multi_topk and self.activation != "topk":
            raise ValueError(
                f"SparseAutoencoder: multi_topk needs activation='topk', got {self.activation!r}"
            )
        if self.activation == "jumprelu" and self.k_start != 1:
            raise ValueError(f"SparseAutoencoder: k_start has no meaning for jumprelu, got {self.k_start}")

    def _require(self, field: str, rule: str, holds: bool) -> None:
        if not holds:
            raise ValueError(f"SparseAutoencoder: {field} must be {rule}, got {getattr(self, field)!r}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
