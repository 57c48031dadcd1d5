"""The state of a model between steps: tensors in tuples, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor

__all__ = ["mapped", "tensors_in"]


def mapped(function: Callable[[Tensor], Tensor], nested: Any) -> Any:
    """The same structure with the function applied to each tensor; everything else is unchanged."""
    if isinstance(nested, Tensor):
        return function(nested)
    if isinstance(nested, dict):
        items = cast("dict[Any, Any]", nested).items()
        return {key: mapped(function, value) for key, value in items}
    if isinstance(nested, tuple | list):
        parts = [mapped(function, part) for part in cast("tuple[Any, ...]", nested)]
        kind = cast("Any", type(nested))  # pyright: ignore[reportUnknownArgumentType]
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return nested


def tensors_in(nested: Any) -> list[Tensor]:
    """All tensors, in their order."""
    found: list[Tensor] = []
    mapped(lambda tensor: found.append(tensor) or tensor, nested)
    return found
