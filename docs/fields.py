"""Every field that a line of the log may have, as JSON: tables that are made from the classes of the facts.

Lives here: `fields`, of the facts, `values`, of what stands inside them, and `formats`, the numbers of what is stored.
What a field means is the comment behind it in the code.
"""

from __future__ import annotations

import inspect
import io
import json
import tokenize
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import inspect as types

from interlock.log.facts import FORMAT, Fact, known_facts
from interlock.log.stores.postgres import database as postgres_database
from interlock.log.stores.sqlite import database as database

Row = list[str]
Table = tuple[list[str], list[Row]]


def own_facts() -> list[type[Fact]]:
    """The facts of this package, without those that a plugin has registered in this process."""
    return [cls for cls in known_facts().values() if cls.__module__ == "interlock.log.facts"]


def fields() -> Table:
    return ["event", "field", "value", "default", ""], [
        row for cls in own_facts() for row in _rows(cls, f"`{cls.type}`")
    ]


def values() -> Table:
    found: dict[type, None] = {}
    for cls in own_facts():
        for one in _inside(types.type_info(cls)):
            found.setdefault(one)
    rows = [row for cls in sorted(found, key=lambda cls: cls.__name__) for row in _rows(cls, cls.__name__)]
    return ["value", "field", "value", "default", ""], rows


def formats() -> Table:
    return ["what", "where its number stands", "now"], [
        ["the log", "`format` of `session/created`, line 0", f"`{FORMAT}`"],
        ["the SQLite file", "`user_version`", f"{database.FORMAT}"],
        ["the tables in PostgreSQL", "the highest `number` in `migration`", f"{postgres_database.FORMAT}"],
    ]


def _rows(cls: Any, name: str) -> Iterator[Row]:
    """A row for each field of a struct, the name in the first one."""
    comments = _comments(cls)
    tag = cls.__struct_config__.tag
    if tag is not None:
        yield [name, f"`{cls.__struct_config__.tag_field}`", f"`{json.dumps(tag)}`", "", ""]
        name = ""
    for field in msgspec.structs.fields(cls):
        info = types.type_info(cls)
        assert isinstance(info, types.StructType)
        kind = next(one.type for one in info.fields if one.name == field.name)
        default = "" if field.required else _default(field)
        yield [name, f"`{field.encode_name}`", _shown(kind), default, comments.get(field.name, "")]
        name = ""
    if name:
        yield [name, "", "", "", ""]


def _default(field: Any) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return f"`{msgspec.json.encode(value).decode()}`" if value is not None else "none"


def _shown(kind: types.Type) -> str:
    match kind:
        case types.IntType():
            return "integer"
        case types.FloatType():
            return "number"
        case types.StrType():
            return "text"
        case types.BoolType():
            return "boolean"
        case types.AnyType():
            return "any JSON"
        case types.NoneType():
            return ""
        case types.LiteralType(values=values):
            return ", ".join([f"`{json.dumps(value)}`" for value in values])
        case types.VarTupleType(item_type=item):
            return f"list of {_shown(item)}"
        case types.TupleType(item_types=items):
            return f"[{', '.join(map(_shown, items))}]"
        case types.StructType(cls=cls):
            return cls.__name__
        case types.UnionType(types=several):
            return " or ".join([shown for one in several if (shown := _shown(one))])
        case types.DictType(key_type=key, value_type=value):
            return f"object from {_shown(key)} to {_shown(value)}"
        case _:
            raise TypeError(f"docs/fields.py has no words for {kind}")


def _inside(kind: types.Type) -> Iterator[type]:
    """The structs that a value may hold, itself left out."""
    for one in _parts(kind):
        if isinstance(one, types.StructType):
            yield one.cls
        yield from _inside(one)


def _parts(kind: types.Type) -> tuple[types.Type, ...]:
    match kind:
        case types.StructType(fields=fields_):
            return tuple([one.type for one in fields_])
        case types.UnionType(types=several):
            return tuple(several)
        case types.VarTupleType(item_type=item):
            return (item,)
        case types.TupleType(item_types=items):
            return tuple(items)
        case types.DictType(key_type=key, value_type=value):
            return (key, value)
        case _:
            return ()


def _comments(cls: type) -> dict[str, str]:
    """What stands behind each field in the code."""
    return _comments_of(inspect.getmodule(cls)).get(cls.__name__, {})


@cache
def _comments_of(module: Any) -> dict[str, dict[str, str]]:
    """By class and field: the comment at the end of the line in which the field is declared."""
    found: dict[str, dict[str, str]] = {}
    inside, name, at = "", "", -1
    tokens = list(tokenize.generate_tokens(io.StringIO(inspect.getsource(module)).readline))
    for before, token in pairwise(tokens):
        if before.string == "class" and before.start[1] == 0:
            inside = token.string
        elif token.string == ":" and before.type == tokenize.NAME and before.start[1] == 4:
            name, at = before.string, before.start[0]
        elif token.type == tokenize.COMMENT and token.start[0] == at:
            found.setdefault(inside, {})[name] = token.string.removeprefix("#").strip()
    return found
