"""From a command line to what it is made of.

Lives here: `analyse`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from interlock.policy.paths.characters import hidden_character
from interlock.policy.shell.agreement import disagreement
from interlock.policy.shell.analysis import Analysis, Doubt
from interlock.policy.shell.reader import read
from interlock.policy.shell.syntax import Unreadable
from interlock.policy.shell.tracing import Tracer

LENGTH = 10_000  # characters; longer ones are not read

# A subscript with a substitution in text: harmless as text, code where something evaluates it as arithmetic.
_EVALUATED = re.compile(r"\[[^\]]*(?:\$\(|`)")


@lru_cache(maxsize=256)
def analyse(command: str) -> Analysis:
    """Never raises: what cannot be understood is in `unknown`, or a doubt of its simple command."""
    doubts: list[Doubt] = []
    if hidden := hidden_character(command.replace("\n", "").replace("\t", "")):
        doubts.append(Doubt("characters", hidden))
    if len(command) > LENGTH:
        doubts.append(Doubt("unreadable", f"it is longer than {LENGTH:,} characters"))
        return Analysis((), (), tuple(doubts))
    try:
        sequence = read(command)
        found = Tracer(command).trace(sequence)
    except Unreadable as error:
        doubts.append(Doubt("unreadable", f"it cannot be read: {error.reason}"))
        return Analysis((), (), tuple(doubts))
    except RecursionError:
        doubts.append(Doubt("unreadable", "it cannot be read: it is nested too deeply"))
        return Analysis((), (), tuple(doubts))
    if (problem := disagreement(command, sequence)) is not None:
        doubts.append(Doubt("unreadable", f"it can be read in two ways: {problem}"))
    if _EVALUATED.search(re.sub(r"\$\{#?\w*\[@\]", "", command)) and _quoted_code(command):
        doubts.append(Doubt("unreadable", "it holds text that an arithmetic expression would run"))
    return replace(found, unknown=(*doubts, *found.unknown))


def _quoted_code(command: str) -> bool:
    """Whether a subscript with a substitution stands in single quotes, or behind a backslash."""
    return re.search(r"'[^']*\[[^'\]]*(?:\$\(|`)[^']*'|\[[^\]\s]*\\[$`]", command) is not None
