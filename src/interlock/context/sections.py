"""The system prompt, from named sections.

Lives here: `sections` and `Instructions`, what it accepts. Names are for people and for diffs of the log; the model
reads the texts in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import TypeAlias

from interlock.errors import ConfigError
from interlock.log.facts import Section

Instructions: TypeAlias = str | Section | Iterable[str | Section] | None

_UNNAMED = "instructions"


def sections(instructions: Instructions) -> tuple[Section, ...]:
    """The sections of a system prompt, in the order given; those without text are left out.

    A plain string is named `instructions`, the next ones `instructions-2` and so on.

    Raises:
        ConfigError: a section without a name, two of one name, or something that is neither text nor section.
    """
    if instructions is None:
        return ()
    given = [instructions] if isinstance(instructions, (str, Section)) else list(instructions)
    taken: set[str] = set()
    for item in given:
        if isinstance(item, Section):
            if not item.name:
                raise ConfigError(f"a section needs a name; its text begins {item.text[:40]!r}")
            if item.name in taken:
                raise ConfigError(f"two sections are named {item.name!r}: give one of them another name")
            taken.add(item.name)
        elif not isinstance(item, str):
            raise ConfigError(
                f"instructions are str or Section, or several of them, not {type(item).__name__}"
            )
    names = (_UNNAMED if n == 1 else f"{_UNNAMED}-{n}" for n in count(1))
    free = (name for name in names if name not in taken)
    made = []
    for item in given:
        text = item if isinstance(item, str) else item.text
        if text.strip():
            made.append(Section(next(free), text) if isinstance(item, str) else item)
    return tuple(made)
