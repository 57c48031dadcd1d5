"""The meaning of ``eval()``, the same for every layer: it removes randomness and changes nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from khot.relaxations._plain_arguments import check_choice
from khot.relaxations.facade import options_of
from khot.relaxations.registry import Relaxation, get

__all__ = ["EvalMode", "check_eval_mode", "noise_free"]

EvalMode = Literal["same", "hard", "random"]


def check_eval_mode(name: str, eval_mode: str, *, random: bool) -> None:
    """Raise unless ``eval_mode`` is a known one; ``"random"`` also needs a random method."""
    check_choice(name, "eval_mode", eval_mode, ("same", "hard", "random"))
    if eval_mode == "random" and not random:
        raise ValueError(f"{name}: eval_mode = 'random' needs a random method; this one has no randomness")


def noise_free(
    spec: Relaxation, options: Mapping[str, Any], device: torch.device
) -> tuple[Relaxation, dict[str, Any]]:
    """Replace a random method by one without randomness: the method to call instead, and its options.

    If the method names a noiseless form (``Relaxation.noiseless``), that is used. Otherwise the method gets
    fixed noise, the same in every call. If the method can share its noise between rows, it does, so that the
    result of a row does not depend on the rest of the batch.
    """
    if spec.noiseless is not None:
        return get(spec.noiseless), {}
    fixed: dict[str, Any] = {**options}
    if device.type != "meta":
        fixed["generator"] = torch.Generator(device).manual_seed(0)
    if "same_noise" in options_of(spec.weights):
        fixed["same_noise"] = True
    return spec, fixed
