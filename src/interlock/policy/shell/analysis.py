"""What a shell command line is made of, as far as it can be known without running it.

Lives here: `Analysis` and what it is made of: `SimpleCommand`, `Word`, `View`, `Assignment`, `PathUse`, `Doubt`.
Plain data; `analyse` makes it, permission rules read it. Nothing here knows a rule or looks at the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

DoubtKind: TypeAlias = Literal[
    "unreadable",  # not understood: broken, too long, a form that is not followed
    "characters",  # control, invisible or bidirectional characters
    "program",  # what runs is not known: a variable or a glob in the command word, eval, a function of that name
    "inline-code",  # code in another language, or shell code in a string
    "foreign-code",  # code that is not the project's: downloaded, from outside, from a pipe
    "option",  # an option that writes, reads elsewhere or runs something
    "assignment",  # a variable that changes what runs
    "critical",  # removing what must not be removed
]

# What takes a doubt away: nothing; an allow rule without a star for just this command; one that names the option
# literally; one that names the program (so not a blanket `Bash`).
Excuse: TypeAlias = Literal["nothing", "exact", "option", "program"]

Access: TypeAlias = Literal["read", "write", "enter"]  # `enter`: a folder that `cd` goes to
# `named`: a word that the program may open, or not: it has no table, or the table does not say.
By: TypeAlias = Literal["redirection", "operand", "option", "named"]


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a command asks although a rule allows it. `reason` is one clause for model and person."""

    kind: DoubtKind
    reason: str
    excuse: Excuse = "nothing"
    option: str | None = None  # the word that an excuse of kind `option` must name
    path: str | None = None  # it falls if this lies in the workspace ...
    installed: bool = False  # ... and is there


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a word. `known`: its text is what the program gets. Otherwise `text` is its source.

    `splits`: an unknown one outside quotes, which may become no word, one, or several. `glob`: an active pattern
    character; the text is still what the program gets where nothing matches.
    """

    text: str
    known: bool = True
    splits: bool = False
    glob: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """One word. `text` is what the program gets, with unknown pieces as they stand in the source."""

    text: str
    source: str
    span: tuple[int, int]  # characters of the command
    pieces: tuple[Piece, ...]
    quoted: bool = False  # some of it was quoted: an empty one is still a word

    @property
    def known(self) -> bool:
        """Whether the program gets exactly `text` as one word."""
        return all(piece.known and not piece.glob for piece in self.pieces)

    @property
    def literal(self) -> str | None:
        """What the program gets, if that is known."""
        return self.text if self.known else None


@dataclass(frozen=True, slots=True)
class Assignment:
    """`name=value` before a command word, of `env`, or alone. `value` is None where it is not known.

    `safe`: on the short list of variables that change nothing that matters. `loads`: it changes what runs.
    """

    name: str
    value: str | None
    source: str
    safe: bool = False
    loads: bool = False


@dataclass(frozen=True, slots=True)
class PathUse:
    """A path that a command reads, writes or enters, as far as its words say.

    `paths` are all that it may be, as written, `~` not expanded, relative ones relative to the folder that the command
    was started in (a `cd` with a known target is already joined): a rule that forbids must be tried on each, one that
    allows must hold for each. `unknown`: it may be any path at all. `glob`: each path is a shell pattern.
    `tree`: everything below it too (`cp -r`, `tar`, `rm -r`). A write by redirection or by option needs an allow rule
    of its own; an operand is only held to what forbids or asks; what is no more than named asks where reading it is
    forbidden. `option`: the word that made it so.
    """

    paths: tuple[str, ...]
    access: Access
    by: By
    unknown: bool = False
    glob: bool = False
    tree: bool = False
    option: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """One way to see a simple command: with its wrappers, or without the outer ones.

    `allows`: an allow rule may match this view (`timeout 5 npm test` is `npm test`, `sudo npm test` is not).
    `certain`: the program runs these words. False where a program without a table might run its arguments.
    """

    words: tuple[Word, ...]
    assignments: tuple[Assignment, ...] = ()
    allows: bool = True
    certain: bool = True


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One program that would be run. `views`: ways to see it; the last one is the innermost that is certain.

    `free`: it needs no rule (`[[ … ]]`, `true`, an assignment alone). `shadow`: it was found inside code that another
    command carries as a string; what forbids or asks looks at it, allow rules need not.
    """

    text: str  # its source, on one line, without redirections
    span: tuple[int, int]
    views: tuple[View, ...]
    assignments: tuple[Assignment, ...] = ()
    wrappers: tuple[str, ...] = ()  # "timeout 5", outermost first
    doubts: tuple[Doubt, ...] = ()
    paths: tuple[PathUse, ...] = ()
    urls: tuple[str, ...] = ()  # that it would fetch, of programs known to
    free: bool = False
    shadow: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the innermost view: the program first. Empty for an assignment alone."""
        return tuple(word.text for word in self.views[-1].words)

    @property
    def program(self) -> str:
        """Its name without a path; empty for an assignment alone."""
        words = self.words
        return words[0].rpartition("/")[2] if words else ""


@dataclass(frozen=True, slots=True)
class Analysis:
    """Every simple command of a command line, the paths of its redirections, and what could not be understood."""

    commands: tuple[SimpleCommand, ...]
    paths: tuple[PathUse, ...] = ()
    unknown: tuple[Doubt, ...] = ()

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """All of them, those of the commands after those of the whole."""
        return self.unknown + tuple(doubt for command in self.commands for doubt in command.doubts)

    @property
    def reads(self) -> tuple[PathUse, ...]:
        return self._paths("read")

    @property
    def writes(self) -> tuple[PathUse, ...]:
        return self._paths("write")

    def _paths(self, access: Access) -> tuple[PathUse, ...]:
        every = self.paths + tuple(path for command in self.commands for path in command.paths)
        return tuple(path for path in every if path.access == access)
