"""Read JSON into dataclasses; errors name the place where a document does not fit."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, TypeVar

__all__ = ["SchemaError", "read"]

T = TypeVar("T")


class SchemaError(ValueError):
    """A document does not have the form it should; the message names the place."""


def read(cls: type[T], value: object, place: str = "document") -> T:
    """The dataclass `cls` from parsed JSON, every field checked.

    Args:
        cls: a dataclass whose fields are strings, numbers, booleans, None, tuples, dictionaries with
            string keys, literals, or such dataclasses.
        value: the result of `json.load`.
        place: the name of the value in error messages.
    """
    result = _read(cls, value, place)
    assert isinstance(result, cls)
    return result


def _read(kind: Any, value: Any, place: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, value, place)
    if origin in (types.UnionType, typing.Union):
        return _read_union(arguments, value, place)
    if origin is typing.Literal:
        if value not in arguments:
            raise SchemaError(f"{place} must be one of {', '.join(map(repr, arguments))}; got {value!r}")
        return value
    if origin is tuple:
        _expect(value, list, "a list", place)
        return tuple(_read(arguments[0], item, f"{place}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        _expect(value, dict, "an object", place)
        return {key: _read(arguments[1], item, f"{place}.{key}") for key, item in value.items()}
    if kind is float:
        _expect(value, (int, float), "a number", place)
        return float(value)
    names = {str: "a string", int: "an integer", bool: "true or false", types.NoneType: "null"}
    _expect(value, kind, names[kind], place)
    return value


def _read_dataclass(kind: Any, value: Any, place: str) -> Any:
    _expect(value, dict, "an object", place)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise SchemaError(f"{place} has unknown fields: {', '.join(unknown)}")
    missing = [
        name
        for name, field in fields.items()
        if name not in value
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise SchemaError(f"{place} lacks: {', '.join(missing)}")
    try:
        return kind(**{name: _read(hints[name], item, f"{place}.{name}") for name, item in value.items()})
    except SchemaError:
        raise
    except ValueError as error:
        raise SchemaError(f"{place}: {error}") from error


def _read_union(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    # The unions of a document are all of the form `X | None`.
    if value is None and types.NoneType in kinds:
        return None
    (kind,) = (kind for kind in kinds if kind is not types.NoneType)
    return _read(kind, value, place)


def _expect(value: Any, kind: Any, name: str, place: str) -> None:
    # True is an int to Python, but not to a reader of the document.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise SchemaError(f"{place} must be {name}; got {value!r}")
