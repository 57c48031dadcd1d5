"""Checks of bad input: the error must name the argument and the value before anything is computed."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from khot.relaxations.registry import Relaxation
from khot.testing.requirements import ContractError, require, scores

__all__ = ["CHECKS"]

Options = Mapping[str, Any]


def check_bad_k(spec: Relaxation, options: Options) -> None:
    """A budget that is out of range, not finite, or of the wrong type or shape."""
    for k in (-1, 8, float("nan"), float("inf")):
        _expect(ValueError, spec, options, "k", str(k), k=k)
    for k in ("2", None, True):
        _expect(TypeError, spec, options, "k", repr(k), k=k)
    _expect(ValueError, spec, options, "k", "9", k=torch.tensor([1.0, 9.0, 2.0]))
    _expect(ValueError, spec, options, "k", "(2,)", k=torch.tensor([1.0, 2.0]))
    _expect(ValueError, spec, options, "k", "2.5", k=2.5, hard=True)
    if not spec.real_k:
        _expect(ValueError, spec, options, "k", "2.5", k=2.5)


def check_bad_temperature(spec: Relaxation, options: Options) -> None:
    """A temperature, or the width of windows, that is not positive and finite, or of the wrong type."""
    has_windows = "window" in inspect.signature(spec.weights).parameters
    for argument in ("temperature", "window") if has_windows else ("temperature",):
        for width in (0, -1.5, float("nan"), float("inf")):
            _expect(ValueError, spec, options, argument, str(width), **{argument: width})
        _expect(ValueError, spec, options, argument, "-2", **{argument: torch.tensor([1.0, -2.0, 1.0])})
        _expect(ValueError, spec, options, argument, "(7,)", **{argument: torch.ones(7)})
        for width in ("hot", True):
            _expect(TypeError, spec, options, argument, repr(width), **{argument: width})


def check_bad_scores(spec: Relaxation, options: Options) -> None:
    """Scores that are not floating-point tensors, a dim that does not exist, a bad generator."""
    _expect(TypeError, spec, options, "scores", "int64", scores=torch.arange(21).reshape(3, 7))
    _expect(TypeError, spec, options, "scores", "list", scores=[1.0, 2.0])
    _expect(ValueError, spec, options, "scores", "scalar", scores=torch.tensor(1.0))
    _expect(IndexError, spec, options, "dim", "5", dim=5)
    for dim in (None, "a", 1.0, True):
        _expect(TypeError, spec, options, "dim", repr(dim), dim=dim)
    if spec.stochastic:
        for generator in (3, "seed"):
            _expect(TypeError, spec, options, "generator", repr(generator), generator=generator)


def check_bad_mask(spec: Relaxation, options: Options) -> None:
    """A mask that is not boolean, or does not fit."""
    _expect(TypeError, spec, options, "mask", "float32", mask=torch.ones(3, 7))
    _expect(TypeError, spec, options, "mask", "float", mask=1.0)
    _expect(ValueError, spec, options, "mask", "(3, 6)", mask=torch.ones(3, 6, dtype=torch.bool))
    _expect(ValueError, spec, options, "mask", "(2, 3, 7)", mask=torch.ones(2, 3, 7, dtype=torch.bool))


def _expect(
    kind: type[Exception], spec: Relaxation, options: Options, argument: str, value: str, **bad: Any
) -> None:
    x, k = bad.pop("scores", scores(3, 7)), bad.pop("k", 2)
    try:
        spec.weights(x, k, **options, **bad)
    except kind as error:
        message = str(error)
    except Exception as error:
        raise ContractError(
            f"bad {argument}: {type(error).__name__} instead of {kind.__name__}: {error}"
        ) from error
    else:
        raise ContractError(f"bad {argument} ({value}) is accepted")
    require(
        argument in message and value in message, f"the error does not name {argument} = {value}: {message}"
    )


CHECKS = [check_bad_k, check_bad_temperature, check_bad_scores, check_bad_mask]
