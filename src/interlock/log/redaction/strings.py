"""The strings of a fact, or of anything else that a log can hold.

Lives here: `with_strings`, which makes the value anew with each free string replaced. What is of a closed vocabulary, a
role or a kind, is left alone, or the line could not be read back; all else is looked at, keys of objects among it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from interlock.log.strictjson import FrozenDict

T = TypeVar("T")

_FIXED = (int, float, bool, type(None))


def with_strings(value: T, replaced: Callable[[str], str]) -> T:
    """The value with every free string of it replaced; the same object, if nothing changed."""
    made: T = _walk(value, replaced)
    return made


def _walk(value: Any, replaced: Callable[[str], str]) -> Any:
    kind: Any = type(value)
    if kind is str:
        return replaced(value)
    if kind in _FIXED:
        return value
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in _open_fields(kind))
        changed = _changed(fields, replaced)
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, (tuple, list)):
        items = [_walk(item, replaced) for item in value]
        same = all(item is old for item, old in zip(items, value, strict=True))
        return value if same else items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return _object(value, replaced)
    if isinstance(value, (set, frozenset)):
        made = frozenset(_walk(item, replaced) for item in value)
        return value if made == value else made
    if isinstance(value, str):  # of a class of its own
        return replaced(str(value))
    if isinstance(value, (bytes, bytearray)):
        return replaced(bytes(value).decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        changed = _changed(fields, replaced)
        return dataclasses.replace(value, **changed) if changed else value
    return value


def _changed(fields: Any, replaced: Callable[[str], str]) -> dict[str, Any]:
    made = {}
    for name, old in fields:
        new = _walk(old, replaced)
        if new is not old:
            made[name] = new
    return made


def _object(value: dict[Any, Any], replaced: Callable[[str], str]) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    same = True
    for key, old in value.items():
        new_key, new = _walk(key, replaced), _walk(old, replaced)
        same = same and new_key is key and new is old
        free, n = new_key, 2
        while free in made:  # two keys that differed in what was taken out
            free, n = f"{new_key}-{n}", n + 1
        made[free] = new
    return value if same else FrozenDict(made) if isinstance(value, FrozenDict) else made


@cache
def _open_fields(cls: Any) -> tuple[str, ...]:
    """The fields that may hold free text."""
    try:
        described = inspect.type_info(cls)
    except (TypeError, NameError):  # of a plugin, with types that cannot be told: all of them
        return tuple(cls.__struct_fields__)
    assert isinstance(described, inspect.StructType)
    return tuple([field.name for field in described.fields if not _closed(field.type)])


def _closed(type_: inspect.Type) -> bool:
    if isinstance(type_, inspect.UnionType):
        return all(map(_closed, type_.types))
    return isinstance(
        type_,
        (
            inspect.LiteralType,
            inspect.NoneType,
            inspect.BoolType,
            inspect.IntType,
            inspect.FloatType,
            inspect.EnumType,
        ),
    )
