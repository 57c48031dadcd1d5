"""The settings of a sparse autoencoder, checked once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from khot.relaxations._plain_arguments import check_switch, is_integer, is_number

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
    """The settings of :class:`khot.apps.sae.SparseAutoencoder`, which documents them; None for a default."""

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
        """Refuse what cannot be, by name, and fill in defaults."""
        self._fill("subtract_b_dec", not self.transcoder)
        for field in _SWITCHES:
            check_switch("SparseAutoencoder", field, getattr(self, field))
            self._set(field, bool(getattr(self, field)))  # also NumPy's, which JSON lacks
        self._fill("d_out", self.d_in)
        for field in ("d_in", "num_latents", "d_out"):
            self._require_integer(field, "≥ 1", 1)
        self._require_integer("k", f"in 1 … {self.num_latents}", 1, self.num_latents)
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
        self._set_prefixes()
        self._fill("k_aux", max(self.d_out // 2, 1))
        self._require_integer("k_aux", "≥ 1", 1)
        self._require("k_start", "a number ≥ 1", _is_finite(self.k_start) and self.k_start >= 1)
        pair = self.temperature
        self._require(
            "temperature",
            "two numbers > 0, at first and at last",
            _is_sequence(pair) and len(pair) == 2 and all(_is_finite(tau) and tau > 0 for tau in pair),
        )
        self._set("k_start", float(self.k_start))
        self._set("temperature", tuple(float(tau) for tau in pair))
        most = min(self.k * self.k_start, self.num_latents)
        self._fill("candidates", min(max(4 * self.k, math.ceil(most)), self.num_latents))
        self._require_integer(
            "candidates",
            f"in {math.ceil(most)} (k · k_start) … {self.num_latents}",
            math.ceil(most),
            self.num_latents,
        )
        if self.multi_topk and self.activation != "topk":
            raise ValueError(
                f"SparseAutoencoder: multi_topk needs activation='topk', got {self.activation!r}"
            )
        if self.activation == "jumprelu" and self.k_start != 1:
            raise ValueError(f"SparseAutoencoder: k_start has no meaning for jumprelu, got {self.k_start}")

    def _set_prefixes(self) -> None:
        """Integers that rise up to the number of latents, which may be left out."""
        ends, last = self.prefixes, self.num_latents
        right = _is_sequence(ends) and all(map(is_integer, ends))
        if right and ends:
            ends = (*ends, last) if ends[-1] != last else tuple(ends)
            right = ends[0] >= 1 and all(a < b for a, b in itertools.pairwise(ends))
        self._require("prefixes", f"rising integers in 1 … {last}, the last {last}", right)
        self._set("prefixes", tuple(int(end) for end in ends))

    def _fill(self, field: str, default: Any) -> None:
        if getattr(self, field) is None:
            self._set(field, default)

    def _set(self, field: str, value: Any) -> None:
        object.__setattr__(self, field, value)

    def _require_integer(self, field: str, rule: str, least: int, most: float = math.inf) -> None:
        value = getattr(self, field)
        self._require(field, f"an integer {rule}", is_integer(value) and least <= value <= most)
        self._set(field, int(value))  # also NumPy's, which JSON lacks

    def _require(self, field: str, rule: str, holds: bool) -> None:
        if not holds:
            raise ValueError(f"SparseAutoencoder: {field} must be {rule}, got {getattr(self, field)!r}")


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)
