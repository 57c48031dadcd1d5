"""What ``eval()`` means, the same for every layer: it removes randomness, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from khot.relaxations._arguments import check_choice
from khot.relaxations.facade import options_of
from khot.relaxations.registry import Relaxation, get

__all__ = ["EvalMode", "check_eval_mode", "noise_free"]

EvalMode = Literal["same", "hard", "random"]


def check_eval_mode(name: str, eval_mode: str, *, random: bool) -> None:
    """Raise unless it is one of the three, and can be had."""
    check_choice(name, "eval_mode", eval_mode, ("same", "hard", "random"))
    if eval_mode == "random" and not random:
        raise ValueError(f"{name}: eval_mode = 'random' needs a random method; this one has no randomness")


def noise_free(
    spec: Relaxation, options: Mapping[str, Any], device: torch.device
) -> tuple[Relaxation, dict[str, Any]]:
    """A random method without its randomness: the method to call instead, and its options.

    A method that names its noiseless form (``Relaxation.noiseless``) is that; any other takes one fixed
    noise, the same in every call, and in every row where the method can share it: then what becomes of a
    row does not depend on the batch that it is in.
    """
    if spec.noiseless is not None:
        return get(spec.noiseless), {}
    fixed: dict[str, Any] = {**options}
    if device.type != "meta":
        fixed["generator"] = torch.Generator(device).manual_seed(0)
    if "same_noise" in options_of(spec.weights):
        fixed["same_noise"] = True
    return spec, fixed
