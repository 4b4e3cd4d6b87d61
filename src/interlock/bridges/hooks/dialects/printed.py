"""Reading what a handler printed, before it means anything.

Lives here: `parse`, which tells a JSON object from text and from something that wanted to be JSON; `misplaced` and
`hides_an_answer`, which find a no that would be overheard; and `Shape`, the checks of a field's type that dialects are
declared with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

NO_REASON = "A hook blocked this and gave no reason."
_SHOWN = 200  # characters of what could not be understood


@dataclass(frozen=True, slots=True)
class Text:
    """Not JSON, and not meant to be."""

    text: str


@dataclass(frozen=True, slots=True)
class Broken:
    """It begins like a JSON object and is none, or its fields have wrong types; `problem` says what is wrong.

    detail: the place in it. is_json: it could be read, and says something that is not allowed.
    """

    problem: str
    text: str
    detail: str = ""
    is_json: bool = True


@dataclass(frozen=True, slots=True)
class Object:
    """A JSON object."""

    value: Mapping[str, Any]


Parsed: TypeAlias = Text | Broken | Object


def parse(output: str) -> Parsed:
    text = output.lstrip().removeprefix("\ufeff").lstrip()
    if not text.startswith("{"):
        return Text(output.strip())
    try:
        value = load(text)
    except (ValueError, RecursionError) as error:
        return Broken("not valid JSON", output.strip(), f"{said(error)}: {shortened(text)}", is_json=False)
    assert isinstance(value, dict)
    return Object(value)


def load(text: str) -> Any:
    """
    Raises:
        ValueError: it is no JSON, or an object has a name twice: which of the two is meant nobody can say.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_members)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise ValueError(f"{name!r} is there twice")
        made[name] = value
    return made


#: What a no is written in, by any spelling; on a gate none of them is overheard.
_DECIDES = {
    "continue": "continue",
    "decision": "decision",
    "hookspecificoutput": "hookSpecificOutput",
    "permissiondecision": "permissionDecision inside hookSpecificOutput",
}
_TRIED = 20  # lines of a text that may begin an answer, from its end


def misplaced(value: Mapping[str, Any], known: Collection[str]) -> str | None:
    """What is wrong with a field by which a no would be overheard; None if there is none."""
    for name in value:
        meant = _DECIDES.get(name.replace("_", "").lower())
        if meant is not None and name not in known:
            return f"{shortened(name)}, which is no field: write {meant}"
    return None


def hides_an_answer(text: str) -> bool:
    """Whether a line of the text begins what would be an answer if it stood alone."""
    lines = text.split("\n")
    begins = [index for index, line in enumerate(lines) if line.lstrip().startswith("{")]
    for index in begins[-_TRIED:]:
        for end in (len(lines), index + 1):
            parsed = parse("\n".join(lines[index:end]))
            if isinstance(parsed, Object) and misplaced(parsed.value, ()) is not None:
                return True
    return False


TEXT_FIRST = "text before the JSON: print nothing else"


def said(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


Shape: TypeAlias = Callable[[Any], str | None]  # what it should be, when it is not that


def text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a string"


def flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def mapping(value: Any) -> str | None:
    return None if isinstance(value, dict) else "an object"


def anything(value: Any) -> str | None:
    return None


def array(value: Any) -> str | None:
    return None if isinstance(value, list) else "an array"


def word(*words: str) -> Shape:
    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and value in words else f"one of {', '.join(words)}"

    return check


def misshapen(value: Mapping[str, Any], shapes: Mapping[str, Shape], at: str = "") -> str | None:
    """The first field that has the wrong type, in words. An absent or null field has none."""
    for name, shape in shapes.items():
        if (given := value.get(name)) is not None and (expected := shape(given)) is not None:
            return f"{at}{name} is {expected}, not {shortened(json.dumps(given))}"
    return None


def as_text(value: Any) -> str:
    """A JSON value as text for the model: a string as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
