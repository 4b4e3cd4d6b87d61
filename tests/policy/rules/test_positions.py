"""Where each value of a settings file stands, for files written in every way that the formats allow."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.policy.rules.positions import json_lines, toml_lines

Path = tuple[str | int, ...]


def paths_of(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in members:
        yield from paths_of(member, (*path, key))


# JSON

words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=6)
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), words
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)


class Marked:
    """A document whose every string is unlike the others, so that its place in the text is known."""

    def __init__(self) -> None:
        self.count = 0

    def made(self, value: Any) -> Any:
        if isinstance(value, str):
            self.count += 1
            return f"\u00a7{self.count}\n{value}"
        if isinstance(value, list):
            return [self.made(one) for one in value]
        if isinstance(value, dict):
            return {self.made(key): self.made(one) for key, one in value.items()}
        return value


@settings(deadline=None)
@given(values, st.sampled_from([None, 0, 1, "\t"]), st.booleans())
def test_each_value_of_a_json_document_is_found_on_its_line(
    value: Any, indent: Any, ascii_only: bool
) -> None:
    value = Marked().made(value)
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    found = json_lines(text)
    assert set(found) == set(paths_of(json.loads(text)))
    for path, line in found.items():
        target = value
        for key in path:
            target = target[key]
        marked = path[-1] if path and isinstance(path[-1], str) else target
        if isinstance(marked, str):
            at = text.index(json.dumps(marked, ensure_ascii=ascii_only))
            assert line == text.count("\n", 0, at) + 1


def test_a_json_document_that_somebody_wrote() -> None:
    text = '{\n  "a": [\n    "x", "]",\n    "y"\n  ],\n\n  "b":\n  {"c": "{", "d":\n 1}\n}\n'
    assert json_lines(text) == {
        (): 1, ("a",): 2, ("a", 0): 3, ("a", 1): 3, ("a", 2): 4, ("b",): 7, ("b", "c"): 8, ("b", "d"): 8,
    }  # fmt: skip


# TOML

bare = st.text("abcXYZ09_-", min_size=1, max_size=4)
toml_words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=6)


class Writer:
    """Writes a document in some of the many ways that TOML has, and notes the line of everything."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.text = ""
        self.lines: dict[Path, int] = {}

    @property
    def line(self) -> int:
        return self.text.count("\n") + 1

    def pick(self, *choices: str) -> str:
        return self.data.draw(st.sampled_from(choices))

    def put(self, text: str) -> None:
        self.text += text

    def blank(self, *, lines: bool) -> None:
        self.put(self.pick("", " ", "\t", *(["\n", " # [x] = 'y' \"\n", "\n\n  "] if lines else [])))

    def note(self, path: Path) -> None:
        self.lines.setdefault(path, self.line)

    def key(self, key: str) -> None:
        if key and all(c in "abcXYZ09_-" for c in key) and self.pick("bare", "quoted") == "bare":
            self.put(key)
        elif "'" not in key and self.pick("basic", "literal") == "literal":
            self.put(f"'{key}'")
        else:
            self.put(json.dumps(key, ensure_ascii=False).replace("\x7f", "\\u007f"))

    def string(self, text: str) -> None:
        basic = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
        ways = ["basic", "long"]
        if "'" not in text and "\x7f" not in text:
            ways += ["literal", "long literal"]
        way = self.pick(*ways)
        if way == "basic":
            self.put(basic)
        elif way == "long":
            self.put('"""' + self.pick("", "\n") + basic[1:-1] + self.pick("", "\\\n   ") + '"""')
        elif way == "literal":
            self.put(f"'{text}'")
        else:
            self.put("'''" + self.pick("", "\n") + text + "'''")

    def value(self, value: Any, path: Path) -> None:
        self.note(path)
        if isinstance(value, str):
            self.string(value)
        elif isinstance(value, bool):
            self.put("true" if value else "false")
        elif isinstance(value, list):
            self.put("[")
            for index, one in enumerate(value):
                if index:
                    self.put(",")
                self.blank(lines=True)
                self.value(one, (*path, index))
                self.blank(lines=True)
            if value:
                self.put(self.pick("", ","))
            self.blank(lines=True)
            self.put("]")
        elif isinstance(value, dict):
            self.put("{")
            for index, (key, one) in enumerate(value.items()):
                if index:
                    self.put(",")
                self.blank(lines=False)
                self.pair(key, one, path)
                self.blank(lines=False)
            self.put("}")
        else:
            self.put(repr(value))

    def pair(self, key: str, value: Any, table: Path) -> None:
        path = (*table, key)
        self.note(path)
        self.key(key)
        while isinstance(value, dict) and len(value) == 1 and self.pick("dotted", "inline") == "dotted":
            [(key, value)] = value.items()
            path = (*path, key)
            self.blank(lines=False)
            self.put(".")
            self.blank(lines=False)
            self.note(path)
            self.key(key)
        self.blank(lines=False)
        self.put("=")
        self.blank(lines=False)
        self.value(value, path)

    def document(self, tables: dict[str, Any]) -> None:
        plain = {key: value for key, value in tables.items() if not isinstance(value, dict)}
        for key, value in plain.items():
            self.blank(lines=True)
            self.pair(key, value, ())
            self.blank(lines=False)
            self.put("\n")
        for key, value in tables.items():
            if not isinstance(value, dict):
                continue
            repeated = self.pick("table", "array of tables") == "array of tables"
            path: Path = (key, 0) if repeated else (key,)
            self.blank(lines=True)
            self.note((key,))
            self.note(path)
            self.put("[[" if repeated else "[")
            self.blank(lines=False)
            self.key(key)
            self.blank(lines=False)
            self.put("]]\n" if repeated else "]\n")
            for inner, member in value.items():
                self.blank(lines=True)
                self.pair(inner, member, path)
                self.put(self.pick("\n", " # ]\n"))


scalars = st.one_of(st.booleans(), st.integers(-99, 99), toml_words)
toml_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(bare | toml_words, inner, max_size=3),
    max_leaves=12,
)
documents = st.dictionaries(
    bare | toml_words,
    scalars | st.lists(toml_values, max_size=3) | st.dictionaries(bare | toml_words, toml_values, max_size=3),
    max_size=4,
)


@settings(deadline=None, max_examples=examples(200))
@given(documents, st.data())
def test_each_value_of_a_toml_document_is_found_on_its_line(
    document: dict[str, Any], data: st.DataObject
) -> None:
    writer = Writer(data)
    writer.document(document)
    parsed = tomllib.loads(writer.text)
    found = toml_lines(writer.text)
    assert {path for path in found if path} == {path for path in paths_of(parsed) if path}
    assert {path: found[path] for path in writer.lines} == writer.lines


@pytest.mark.parametrize("quote", ['"""', "'''"])
def test_quotes_at_the_end_of_a_long_string_belong_to_it(quote: str) -> None:
    inner = quote[0] * 2
    text = f"a = {quote}x{inner}{quote}\nb = 1\n[t]\nc = {quote}{inner}\n{quote}\nd = 2\n"
    assert tomllib.loads(text)["a"] == f"x{inner}"
    assert toml_lines(text) == {("a",): 1, ("b",): 2, ("t",): 3, ("t", "c"): 4, ("t", "d"): 6}


def test_tables_in_tables_and_dates() -> None:
    text = "when = 2026-11-30 10:00:00\n[a.b]\nx = 1\n[[a.c]]\ny = [1, [2,\n3]]\n[[a.c]]\ny = 4\n[a.c.d]\nz = 1979-05-27T07:32:00Z\n"
    assert tomllib.loads(text)["a"]["c"][1] == {
        "y": 4,
        "d": {"z": tomllib.loads("z = 1979-05-27T07:32:00Z")["z"]},
    }
    found = toml_lines(text)
    assert found["a", "c", 0, "y", 1, 1] == 6
    assert found["a", "c", 1, "d", "z"] == 10
    assert found["a", "c"] == 4
    assert found["a", "c", 1] == 7
