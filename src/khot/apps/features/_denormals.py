"""Flush denormal numbers to zero for a while: closing gates produce many of them, and they are slow."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch

__all__ = ["denormals_flushed"]


@contextlib.contextmanager
def denormals_flushed() -> Generator[None]:
    """A context in which this thread flushes denormal results to zero; the old setting is restored."""
    before = _flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _flushed() -> bool:
    """Torch can set the state but not tell it: see what becomes of a product that is denormal."""
    small = torch.full((), torch.finfo(torch.float32).tiny, dtype=torch.float32, device="cpu")
    return (small * 0.5).item() == 0.0
