"""The shape of a command line: what the reader makes and the tracer follows.

Lives here: one frozen class per construct of the shell. Words keep what is nested in them (`$(…)`, backticks, `<(…)`)
as sequences of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from interlock.policy.shell.analysis import Word


class Unreadable(Exception):  # says what happened
    """The command uses a form that is not followed. `reason` is one clause, `at` the position in the source."""

    def __init__(self, reason: str, at: int) -> None:
        self.reason, self.at = reason, at
        super().__init__(f"{reason} (at character {at})")


@dataclass(frozen=True, slots=True)
class Token:
    """A word of the source, and the commands nested in it. `variables`: the names it expands.

    `lone`: the name, if the word is nothing but that variable, and whether it stood in double quotes.
    """

    word: Word
    inside: tuple[Sequence, ...] = ()
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assign:
    """`name=value`; an array has all its elements in `values`. `subscript` holds what is nested in `name[…]`."""

    name: str
    values: tuple[Token, ...]
    source: str
    span: tuple[int, int]
    array: bool = False
    append: bool = False
    subscript: tuple[Sequence, ...] = ()


@dataclass(frozen=True, slots=True)
class Redirect:
    """`op` without the descriptor; `target` of a here-document is its body."""

    op: str
    target: Token
    descriptor: str = ""


@dataclass(frozen=True, slots=True)
class Simple:
    assigns: tuple[Assign, ...]
    tokens: tuple[Token, ...]
    redirects: tuple[Redirect, ...]
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`stages` joined by `|` or `|&`; more than one run in subshells."""

    stages: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class AndOr:
    """`first`, then each with the operator before it."""

    first: Pipeline
    rest: tuple[tuple[Literal["&&", "||"], Pipeline], ...] = ()


@dataclass(frozen=True, slots=True)
class Sequence:
    """Lists one after the other; `background` says which of them ended in `&`."""

    items: tuple[AndOr, ...]
    background: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`{ …; }` or `( … )`."""

    body: Sequence
    subshell: bool
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    conditions: tuple[Sequence, ...]
    branches: tuple[Sequence, ...]  # the last one more than conditions: `else`
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class While:
    condition: Sequence
    body: Sequence
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class For:
    """`for` or `select`. `values` None: over the positional parameters."""

    name: str
    values: tuple[Token, ...] | None
    body: Sequence
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    subject: Token
    clauses: tuple[tuple[tuple[Token, ...], Sequence], ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    body: Command
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Test:
    """`[[ … ]]`, `(( … ))`, or the head of a C-like `for`: only what is nested in it runs anything."""

    inside: tuple[Sequence, ...]
    body: Sequence | None = None
    redirects: tuple[Redirect, ...] = ()


Command: TypeAlias = Simple | Group | If | While | For | Case | Function | Test
