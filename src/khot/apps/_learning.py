"""Let ``fit`` train even if its caller has switched gradients off."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch

__all__ = ["learning"]


@contextlib.contextmanager
def learning() -> Generator[None]:
    """A context with gradients on, even in ``no_grad`` or ``inference_mode``, and new tensors on the CPU."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":  # a device that is named slows every call
            stack.enter_context(torch.device("cpu"))
        yield
