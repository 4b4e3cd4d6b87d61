"""What builtins of the shell may do that calls for a person.

Lives here: `FREE` (commands that need no rule), `EVALUATES`, and `builtin_doubts`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from interlock.policy.shell.analysis import Doubt, Word
from interlock.policy.shell.programs import table

#: They do nothing to anything.
FREE = frozenset(["[", "test", "true", "false", ":", "cd"])
#: They run strings as code.
EVALUATES = frozenset(["eval", "trap"])

_NAMES = frozenset(
    [
        "read",
        "export",
        "declare",
        "typeset",
        "local",
        "readonly",
        "unset",
        "getopts",
        "mapfile",
        "readarray",
        "printf",
        "let",
    ]
)
_VARIABLE = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?(?:\+?=.*)?", re.DOTALL)


def builtin_doubts(words: Sequence[Word]) -> list[Doubt]:
    name = words[0].text
    rest = words[1:]
    texts = [word.text for word in rest]
    match name:
        case "eval":
            return [Doubt("inline-code", "it runs a string as code", "exact")] if rest else []
        case "trap":
            handler = next((text for text in texts if text != "--"), "-")
            harmless = handler in ("-", "", "-l", "-p")
            return [] if harmless else [Doubt("inline-code", "it runs a string as code", "exact")]
        case "source" | ".":
            return _sourced(rest)
        case "alias":
            return (
                [Doubt("program", "it gives a name to something else")]
                if any("=" in t for t in texts)
                else []
            )
        case "shopt":
            changes = {"extglob", "expand_aliases", "lastpipe", "xpg_echo", "sourcepath"} & set(texts)
            unsure = any(word.literal is None for word in rest)
            return [Doubt("unreadable", "it changes how the rest is read")] if changes or unsure else []
        case "set":
            if any(re.match(r"-\w*[kt]", text) for text in texts) or {"keyword", "posix"} & set(texts):
                return [Doubt("unreadable", "it changes how the rest is read")]
            return []
        case "enable" | "complete" | "compgen" | "bind" | "fc":
            return [Doubt("option", f"`{name}` may run or load something", "exact")] if rest else []
        case "hash":
            return [Doubt("program", "it gives a name to something else")] if "-p" in texts else []
        case "exec":
            return []
        case "coproc":
            return [Doubt("unreadable", "`coproc` is not followed")]
        case _:
            return _assigning(name, rest) if name in _NAMES else []


def _sourced(rest: Sequence[Word]) -> list[Doubt]:
    if not rest:
        return []
    first = rest[0]
    if first.literal is None or first.text in ("/dev/stdin", "-") or first.text.startswith("/dev/fd/"):
        return [Doubt("inline-code", "what it runs is not known", "exact")]
    if re.match(r"/|~|(?:\./)*\.\.(?:/|$)", first.text) or ".." in first.text.split("/"):
        return [
            Doubt("foreign-code", "it runs a script from outside the workspace", "program", None, first.text)
        ]
    return []


def _assigning(name: str, rest: Sequence[Word]) -> list[Doubt]:
    """Builtins that put a value into a variable."""
    found: list[Doubt] = []
    texts = [word.text for word in rest]
    if name == "printf" and not (texts and texts[0].startswith("-")):
        return []
    if name in ("mapfile", "readarray") and any(text.startswith(("-C", "-c")) for text in texts):
        found.append(Doubt("inline-code", "it runs a string as code", "exact"))
    if name in ("declare", "typeset", "local") and any(re.match(r"-\w*n", text) for text in texts):
        found.append(Doubt("assignment", "it makes one variable stand for another"))
    targets = [word for word in rest if not word.text.startswith("-")]
    if name == "printf":
        targets = [Word(t[2:], t, (-1, -1), ()) for t in texts[:1] if len(t) > 2] or list(rest[1:2])
    for word in targets:
        variable = _VARIABLE.fullmatch(word.text)
        if variable is None:
            if word.pieces and not word.pieces[0].known and name != "let":
                found.append(Doubt("assignment", "which variable it sets is not known", "exact"))
        elif table().loads(variable[1]) and name != "let":
            found.append(Doubt("assignment", f"{variable[1]} changes what runs", "exact"))
    return found
