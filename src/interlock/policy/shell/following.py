"""Questions about a part of a command line that need no knowledge of what ran before it.

Lives here: `moves` (may it leave the shell in another folder?), `searches` and `lone_search` (does it print names of
files that a search in the workspace found?).
"""

from __future__ import annotations

import re
from typing import assert_never

from interlock.policy.shell.programs import folded_program
from interlock.policy.shell.syntax import (
    Case,
    Command,
    For,
    Function,
    Group,
    If,
    Sequence,
    Simple,
    Test,
    While,
)

MOVING = frozenset(["pushd", "popd", "eval", "source", ".", "trap"])
_FILTERS = frozenset(["sort", "head", "tail", "uniq", "grep", "egrep", "fgrep"])


def moves(node: Sequence | Command, moving: set[str]) -> bool:
    """Whether it may leave the shell itself in another folder. `moving`: functions that do."""
    match node:
        case Sequence():
            return any(
                moves(pipeline.stages[0], moving)
                for item, background in zip(node.items, node.background, strict=True)
                if not background
                for pipeline in (item.first, *(pipeline for _, pipeline in item.rest))
                if len(pipeline.stages) == 1
            )
        case Simple():
            words = [token.word.literal for token in node.tokens]
            while words and words[0] in ("command", "builtin"):
                words = words[1:]
            return bool(words) and (words[0] is None or words[0] in ("cd", *MOVING) or words[0] in moving)
        case Group():
            return not node.subshell and moves(node.body, moving)
        case If():
            return any(moves(each, moving) for each in (*node.conditions, *node.branches))
        case While():
            return moves(node.condition, moving) or moves(node.body, moving)
        case For():
            return moves(node.body, moving)
        case Case():
            return any(moves(body, moving) for _, body in node.clauses)
        case Test():
            return node.body is not None and moves(node.body, moving)
        case Function():
            return moves(node.body, moving)
        case _:
            assert_never(node)


def searches(stage: Command, *, of_found: bool) -> bool:
    """Whether a stage of a pipeline prints the names of files that a search in the workspace found.

    Args:
        of_found: its input is such names, so that a filter still prints some of them.
    """
    if not isinstance(stage, Simple) or not stage.tokens:
        return False
    words = [token.word.literal or "" for token in stage.tokens]
    name = folded_program(words[0])
    if name in _FILTERS and of_found:
        return True
    if name in ("find", "fd", "fdfind"):
        return True
    options = {word for word in words[1:] if word.startswith("-")}
    lists = any(
        re.fullmatch(r"-\w*l\w*|--files-with-matches|--files|--name-only", option) for option in options
    )
    if name == "git":
        return words[1:2] == ["ls-files"] or (words[1:2] in (["grep"], ["diff"]) and lists)
    return name in ("rg", "grep", "egrep", "fgrep") and lists


def lone_search(sequence: Sequence) -> bool:
    if len(sequence.items) != 1 or sequence.items[0].rest:
        return False
    found = False
    for stage in sequence.items[0].first.stages:
        found = searches(stage, of_found=found)
    return found
