"""Estimators learn whatever their caller has switched off around ``fit``."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch

__all__ = ["learning"]


@contextlib.contextmanager
def learning() -> Generator[None]:
    """Gradients are on in ``no_grad`` and ``inference_mode`` too, and new tensors are on the CPU."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":  # a device that is named slows every call
            stack.enter_context(torch.device("cpu"))
        yield
