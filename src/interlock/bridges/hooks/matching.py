"""Whether a handler is meant by what happened.

Lives here: `Matcher`, its compilation for each dialect, and `subjects`, what a matcher looks at. A matcher is compiled
once, when its file is read; one that cannot be is refused there. Matching never raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, assert_never

import regex

from interlock.bridges.hooks.event import (
    EventName,
    Notification,
    Occurrence,
    PermissionRequest,
    PostToolBatch,
    PostToolUse,
    PostToolUseFailure,
    PreCompact,
    PreToolUse,
    SessionEnd,
    SessionStart,
    Stop,
    StopFailure,
    SubagentStart,
    SubagentStop,
    UserPromptSubmit,
)

# Where matchers are accepted and ignored: the hook fires always.
UNMATCHED: frozenset[EventName] = frozenset({"UserPromptSubmit", "PostToolBatch", "Stop"})
_PATIENCE = 0.1  # seconds for one search; a name is short, a pattern may be unlucky

Style: TypeAlias = Literal["claude", "narrow", "codex", "gemini", "literal"]
_EXACT: dict[Style, re.Pattern[str]] = {
    "claude": re.compile(r"[A-Za-z0-9_\-, |]+"),
    "narrow": re.compile(r"[A-Za-z0-9_|]+"),
    "codex": re.compile(r"[A-Za-z0-9_|]+"),
}
_LISTED = re.compile(r"\w+(\|\w+)*", re.ASCII)


class BadMatcher(ValueError):
    """`text` is not a pattern that can be matched; `problem` says why."""

    def __init__(self, text: str, problem: str) -> None:
        self.text, self.problem = text, problem
        super().__init__(f"matcher {text!r} is not a regular expression: {problem}")


@dataclass(frozen=True, slots=True)
class Matcher:
    """A compiled matcher. Two of the same text and style are equal."""

    text: str
    style: Style = "claude"
    names: frozenset[str] | None = field(default=None, compare=False)  # any of these, exactly
    pattern: regex.Pattern[str] | None = field(default=None, compare=False, repr=False)

    def meets(self, canonical: str, others: tuple[str, ...] = ()) -> bool:
        """Whether it means what is called `canonical`, in the dialect's words, and `others` besides.

        A list of names means any of its names. A pattern is held to the canonical one: `^(?!Bash$)` must not meet the
        shell tool because that has another name too.
        """
        if self.names is not None and (canonical in self.names or not self.names.isdisjoint(others)):
            return True
        if self.pattern is None:
            return self.names is None
        try:
            return self.pattern.search(canonical, timeout=_PATIENCE) is not None
        except TimeoutError:  # a hook that may be meant runs
            return True


ALWAYS = Matcher("")


def compile_matcher(text: str | None, style: Style) -> Matcher:
    """
    Raises:
        BadMatcher: it is a pattern, and does not compile.
    """
    if text is None or text in ("", "*"):
        return Matcher(text or "", style)
    if style == "literal":
        return Matcher(text, style, names=frozenset({text}))
    exact = _EXACT.get(style)
    if exact is not None and exact.fullmatch(text):
        names = frozenset(name for part in re.split(r"[|,]", text) if (name := part.strip()))
        return Matcher(text, style, names=names)
    try:
        # Gemini's and Claude's are JavaScript, Codex's are Rust, in which `$` and escapes mean the same as there.
        pattern = regex.compile(_translated(text), regex.ASCII)
    except (regex.error, RecursionError, ValueError, OverflowError) as error:
        if style == "gemini":  # as that program does: what does not compile is a name
            return Matcher(text, style, names=frozenset({text}))
        raise BadMatcher(text, str(error)) from None
    listed = frozenset(text.split("|")) if style == "gemini" and _LISTED.fullmatch(text) else None
    return Matcher(text, style, names=listed, pattern=pattern)  # a tool is met by its older names, too


_TOKEN = re.compile(
    r"""
    (?P<escape> \\ (?: k<\w+> | [xu]\{[0-9A-Fa-f]+\} | c[A-Za-z] | . ) )
  | (?P<nothing> \[\] )
  | (?P<anything> \[\^\] )
  | (?P<set> \[ (?: \\. | [^\]\\] )* \] )
  | (?P<name> \(\?<(?=[A-Za-z_$]) )
  | (?P<end> \$ )
    """,
    re.VERBOSE | re.DOTALL,
)
_SAME = set("bBdDwWsSfnrtvxupP0123456789")  # escapes that mean the same here


def _translated(text: str) -> str:
    """A JavaScript pattern in the syntax of `regex`."""

    def one(found: re.Match[str]) -> str:
        match found.lastgroup:
            case "escape":
                return _escape(found[0])
            case "nothing":
                return "(?!)"
            case "anything":
                return r"[\s\S]"
            case "set":
                return re.sub(
                    r"\\(?:c[A-Za-z]|.)", lambda inner: _escape(inner[0]), found[0], flags=re.DOTALL
                )
            case "name":
                return "(?P<"
            case _:
                return r"\Z"  # `$` would also match before a last line break

    return _TOKEN.sub(one, text)


def _escape(escape: str) -> str:
    kind = escape[1]
    if escape.startswith("\\k<"):
        return f"(?P={escape[3:-1]})"
    if escape.startswith(("\\u{", "\\x{")):
        return re.escape(chr(int(escape[3:-1], 16)))
    if kind == "c" and len(escape) == 3:
        return f"\\x{ord(escape[2]) % 32:02x}"
    # JavaScript takes any other escaped letter as itself; here `\A`, `\Z`, `\K` and more would mean something.
    return kind if kind.isalpha() and kind not in _SAME else escape


def subject(occurrence: Occurrence) -> str | None:
    """What matchers look at: our name of the tool, or a word of the event; None where they are ignored."""
    match occurrence.what:
        case PreToolUse(tool=tool) | PermissionRequest(tool=tool):
            return tool
        case PostToolUse(tool=tool) | PostToolUseFailure(tool=tool):
            return tool
        case SessionStart(source=source):
            return source
        case SessionEnd(reason=reason):
            return reason
        case StopFailure(error=error):
            return error
        case Notification(notification_type=kind):
            return kind
        case PreCompact(trigger=trigger):
            return trigger
        case SubagentStart() | SubagentStop():
            return occurrence.agent_type or ""
        case UserPromptSubmit() | PostToolBatch() | Stop():
            return None
        case _:
            assert_never(occurrence.what)


# Whether a call meets one permission rule, `Bash(git push *)`; given by whoever knows rules.
Condition: TypeAlias = Callable[[str, Occurrence], bool]
