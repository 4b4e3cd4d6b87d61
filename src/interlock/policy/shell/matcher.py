"""What the specifier of a `Bash(...)` rule matches.

Lives here: `CommandMatcher`, and `command_matcher`, which makes it of a pattern. Allowing compares text exactly.
Forbidding compares what the text means: `likeness.py` does that.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from functools import lru_cache

from interlock.policy.shell.analysis import Doubt, PathUse, SimpleCommand, View
from interlock.policy.shell.likeness import Likeness, Sought
from interlock.policy.shell.starred import starred

_NEEDS_QUOTES = re.compile(r"\s|^$")


@dataclass(frozen=True, slots=True)
class CommandMatcher:
    """A pattern: exact; `*` is any characters of one simple command; a last ` *` or `:*` is a word boundary."""

    pattern: str
    _allowed: re.Pattern[str] = field(repr=False, compare=False)
    _words: tuple[str, ...] = field(repr=False, compare=False)
    _sought: Sought = field(repr=False, compare=False)

    @property
    def blanket(self) -> bool:
        """Whether it matches every command, as `Bash` alone does."""
        return self._words == ("*",)

    def allows(self, command: SimpleCommand) -> bool:
        """Whether an allow rule with this pattern covers the command: exact, through harmless wrappers only."""
        return any(
            self._allowed.fullmatch(form) is not None
            for view in command.views
            if view.allows and self._begins(view)
            for form in _forms(view)
        )

    def _begins(self, view: View) -> bool:
        """Whether the first words may be the same: most rules are about another program."""
        first = self._words[0]
        return not view.words or "*" in first or "=" in first or view.words[0].text == first

    def excuses(self, doubt: Doubt, command: SimpleCommand) -> bool:
        """Whether an allow rule with this pattern, which allows the command, takes this doubt of it away."""
        exact = "*" not in self.pattern
        match doubt.excuse:
            case "nothing":
                return False
            case "exact":
                return exact
            case "option":
                return exact or self._names(doubt.option)
            case "program":
                return "*" not in self._words[0]

    def covers(self, path: PathUse) -> bool:
        """Whether the pattern names the option by which this path is written or read: no other rule is needed."""
        return path.by == "option" and ("*" not in self.pattern or self._names(path.option))

    def _names(self, option: str | None) -> bool:
        return option is not None and any(
            word == option or word.startswith(f"{option}=") for word in self._words
        )

    def catches(self, command: SimpleCommand) -> bool:
        """Whether a deny or ask rule with this pattern covers the command: wide, through everything known."""
        return self._likeness(command) is Likeness.YES

    def may_catch(self, command: SimpleCommand) -> bool:
        """Whether it would for some value of what is not known in the command: then a deny rule asks."""
        return self._likeness(command) is not Likeness.NO

    def _likeness(self, command: SimpleCommand) -> Likeness:
        return max((self._sought.in_view(view) for view in command.views), default=Likeness.NO)


@lru_cache(maxsize=4096)
def command_matcher(pattern: str) -> CommandMatcher:
    """
    Args:
        pattern: what stands between the parentheses of `Bash(...)`; empty is `*`.
    """
    text = pattern.strip() or "*"
    if text.endswith(":*"):
        text = f"{text[:-2].rstrip()} *".lstrip()
    words = _split(text)
    return CommandMatcher(text, _regex(text, words), words, Sought.of(text, words))


def _regex(text: str, words: tuple[str, ...]) -> re.Pattern[str]:
    """For the texts of a view: the pattern as it is written, and with the least quoting that says the same."""
    inside = any("*" in word for word in words[:-1]) or ("*" in words[-1] and words[-1] != "*")
    plain = text if inside else " ".join(_quoted(word, known=word != "*") for word in words)
    return re.compile("|".join(dict.fromkeys(map(starred, (text, plain)))), re.DOTALL)


def _split(text: str) -> tuple[str, ...]:
    """The words of a pattern without their quotes; as they stand where the quotes are not closed."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    return tuple(words) or ("*",)


def _forms(view: View) -> set[str]:
    """The texts of a view that an allow rule may match: as written, and with the least quoting that says the same.

    Assignments that may change something are part of it; harmless ones may be left out.
    """
    written: list[str] = []
    last = (-1, -1)
    for word in view.words:
        if word.span != last:  # the words of one brace expansion share their source
            written.append(word.source)
        last = word.span
    plain = [_quoted(word.text, known=word.literal is not None) for word in view.words]
    needed = [assign.source for assign in view.assignments if not assign.safe]
    forms = {" ".join([*needed, *words]) for words in (written, plain)}
    if len(needed) < len(view.assignments):
        every = [assign.source for assign in view.assignments]
        forms |= {" ".join([*every, *words]) for words in (written, plain)}
    return forms


def _quoted(text: str, *, known: bool) -> str:
    return shlex.quote(text) if known and _NEEDS_QUOTES.search(text) else text
