"""JSON without surprises, for the edges: what a model wrote, what a caller hands in, what a tool returns.

Lives here: `parse` (text to value) and `freeze` (value to an immutable, lossless copy). Strict means: no NaN or
Infinity, no duplicate keys, text that is valid Unicode, integers within 2^53, bounded depth and size. msgspec, which
writes the log, does not check these, so they are checked once, where a value comes in, and never per event.
Imports nothing of this package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

JSON: TypeAlias = Any  # None, bool, int, float, str, FrozenDict[str, JSON] or tuple[JSON, ...] once frozen

MAX_INTEGER = 2**53 - 1  # the largest that every JSON reader keeps exactly (RFC 8259, section 6)
MAX_DEPTH = 100
MAX_ARGUMENTS = 1 << 20  # bytes of argument text parsed on the event loop


class NotJSON(ValueError):
    """The value or text is not strict JSON. `path` says where, as in `$.items[3].name`."""

    def __init__(self, problem: str, path: str = "$") -> None:
        self.problem, self.path = problem, path
        super().__init__(f"{problem} (at {path})")


class FrozenDict(dict[str, Any]):
    """A JSON object that cannot change; equal to a plain dict with the same items."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this JSON object is frozen: make a changed copy with {**value, key: new}")

    __setitem__ = __delitem__ = _refuse  # refusing is the point
    clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # immutable, hence hashable where its values are
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: object) -> FrozenDict:
        return self


EMPTY = FrozenDict()


def _pairs(pairs: list[tuple[str, Any]]) -> FrozenDict:
    made = FrozenDict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotJSON(f"the key {key!r} appears twice in one object")
            seen.add(key)
    return made


def _constant(text: str) -> NoReturn:
    raise NotJSON(f"{text} is not JSON")


def _integer(text: str) -> int:
    if len(text) <= 15:
        return int(text)
    if len(text) > 17 or abs(int(text)) > MAX_INTEGER:
        raise NotJSON(f"the integer {text[:20]} is outside ±(2^53 - 1); send it as a string")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotJSON(f"the number {text[:20]} is too large for a double")
    return value


_decoder = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_constant, parse_int=_integer, parse_float=_float, strict=True
)


# What `decode` calls after it has looked for white space.
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # type: ignore[attr-defined]  # not in typeshed


def parse(text: str) -> JSON:
    """The frozen value of one JSON text.

    Raises:
        NotJSON: not strict JSON; the message says what and where.
    """
    try:
        try:
            value, end = _scan(text, 0)
        except StopIteration:  # white space comes first, or nothing at all
            value, end = None, -1
        if end != len(text):
            value = _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise NotJSON(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise NotJSON(f"nested deeper than {MAX_DEPTH} levels") from None
    if (
        type(value) is FrozenDict
        and len(text) < 2 * MAX_DEPTH
        and "\\u" not in text
        and "[" not in text
        and text.isascii()
    ):
        return value  # flat enough and without anything left to check: the usual arguments of a call
    return freeze(value)


def check_text(text: str, path: str = "$") -> str:
    """The text itself, if it is valid Unicode (no lone surrogates)."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise NotJSON(f"invalid Unicode: a lone surrogate at character {error.start}", path) from None
    return text


def checked_text(value: object) -> str:
    """The value itself, if it is text of valid Unicode."""
    if type(value) is str and value.isascii():  # nearly always
        return value
    if not isinstance(value, str):
        raise NotJSON(f"{type(value).__name__} is not text")
    return check_text(value)


def freeze(value: object) -> JSON:
    """A deep, immutable copy of a JSON value: mappings become `FrozenDict`, lists and tuples become tuples.

    Raises:
        NotJSON: the value would not survive being written and read as JSON; the message says where.
    """
    return _freeze(value, "$", 0)


def _freeze(value: object, path: str, depth: int) -> JSON:
    kind = type(value)
    if kind is str:
        return check_text(value, path)  # type: ignore[arg-type]  # `kind` is exactly str
    if value is None or kind is bool:
        return value
    if kind is int:
        if abs(value) > MAX_INTEGER:  # type: ignore[arg-type]  # `kind` is exactly int
            raise NotJSON("an integer outside ±(2^53 - 1); use a string", path)
        return value
    if kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]  # `kind` is exactly float
            raise NotJSON(f"{value} is not a JSON number", path)
        return value
    if depth >= MAX_DEPTH:
        raise NotJSON(f"nested deeper than {MAX_DEPTH} levels", path)
    if isinstance(value, Mapping):
        made = {}
        for key, item in value.items():
            if type(key) is not str:
                raise NotJSON(f"the key {key!r} is {type(key).__name__}, not str", path)
            check_text(key, path)
            made[key] = _freeze(item, f"{path}.{key}", depth + 1)
        return FrozenDict(made)
    if isinstance(value, (list, tuple)):
        return tuple([_freeze(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)])
    raise NotJSON(f"{kind.__name__} is not a JSON value", path)


def thaw(value: JSON) -> Any:
    """A mutable copy: dicts and lists, as a caller may want to change them."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [thaw(item) for item in value]
    return value
