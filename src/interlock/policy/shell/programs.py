"""What is known about programs: their options, sub-commands and operands, from `programs.toml`.

Lives here: `Program`, `Wrapper`, `Assignments` (the shapes of that file) and `Table`, which finds a program by the name
it was called by. `table()` is the one that comes with the package; `Table.of(text)` makes one of other text.
"""

from __future__ import annotations

import re
import unicodedata
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal

import msgspec

from interlock.errors import ConfigError

Operands = Literal["none", "named", "read", "write", "copy", "copy_if_two", "move", "url"]
_VERSION = re.compile(r"-?[0-9]+(?:\.[0-9]+)*$")


class Sub(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for one sub-command, or for a whole program. The fields are described in `programs.toml`."""

    values: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    alike: tuple[tuple[str, ...], ...] = ()
    runs: dict[str, str] = {}
    plain: frozenset[str] = frozenset()
    acts: dict[str, str] = {}
    writes: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    at_reads: frozenset[str] = frozenset()
    operands: Operands | None = None
    skip: int = 0
    skip_unless: frozenset[str] = frozenset()
    tree: frozenset[str] = frozenset()
    code: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    revisions: bool = False
    scatters: frozenset[str] | None = None


class Program(Sub, frozen=True, forbid_unknown_fields=True, kw_only=True):
    names: tuple[str, ...]
    same: dict[str, str] = {}
    globals: dict[str, str] = {}
    queries: tuple[str, ...] = ()
    enters: frozenset[str] = frozenset()
    builds: frozenset[str] = frozenset()
    bulk: tuple[str, ...] = ()
    archive: Literal["tar", "zip"] | None = None
    in_place: frozenset[str] = frozenset()
    shell: bool = False
    stdin: bool = False
    language: Literal["sed", "awk"] | None = None
    source: frozenset[str] = frozenset()
    single: bool = False
    carries: frozenset[str] = frozenset()
    carries_rest: int = 0
    critical: bool = False
    foreign: str | None = None
    foreign_operands: tuple[str, ...] = ()
    assigned: dict[str, Literal["read", "write"]] = {}
    assigned_asks: frozenset[str] = frozenset()
    acting: tuple[str, ...] = ()
    carrying: tuple[str, ...] = ()
    sub: dict[str, Sub] = {}


class Wrapper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program that runs the program named by its arguments.

    `values`, `flags`: its options, with and without a value. `operands`: so many words come before the command.
    `allows`: an allow rule for the inner command is enough. `assigns`: it takes `NAME=value` before the command.
    `appends`: it adds words of its own. `queries`: with these it only looks the command up. `joins`: the words are
    joined to a line for a shell. `shell_code`: options whose value is such a line. `input`: it runs what comes on its
    input. `loose`: its options are not known.
    """

    names: tuple[str, ...]
    values: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    operands: int = 0
    allows: bool = False
    assigns: bool = False
    appends: bool = False
    numeric: bool = False
    joins: bool = False
    input: bool = False
    loose: bool = False
    queries: frozenset[str] = frozenset()
    shell_code: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()


class Assignments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of variables; a star stands for any ending or beginning."""

    safe: tuple[str, ...]
    loads: tuple[str, ...]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    program: tuple[Program, ...]
    wrapper: tuple[Wrapper, ...]
    assignments: Assignments
    recipes: dict[str, tuple[str, ...]]


class Table:
    """Programs and wrappers by name."""

    def __init__(self, file: _File) -> None:
        self._programs: dict[str, Program] = {}
        self._wrappers: dict[str, Wrapper] = {}
        for program in file.program:
            for name in program.names:
                if folded(name) in self._programs:
                    raise ValueError(f"there are two tables for the program {name!r}")
                self._programs[folded(name)] = program
        for wrapper in file.wrapper:
            for name in wrapper.names:
                if folded(name) in self._programs or folded(name) in self._wrappers:
                    raise ValueError(f"there are two tables for the program {name!r}")
                self._wrappers[folded(name)] = wrapper
        self._recipes = {folded(name): frozenset(programs) for name, programs in file.recipes.items()}
        self._safe = _Names(file.assignments.safe)
        self._loads = _Names(file.assignments.loads)

    @staticmethod
    def of(text: str, where: str = "programs.toml") -> Table:
        """
        Raises:
            ConfigError: not TOML, a field that is not known, a name that is given twice.
        """
        try:
            return Table(msgspec.toml.decode(text, type=_File))
        except (msgspec.MsgspecError, ValueError) as error:
            raise ConfigError(f"{where}: {error}") from error

    def program(self, name: str) -> Program | None:
        """The program of this name, whatever folder, case or version it is called with."""
        return self._programs.get(folded_program(name)) or self._programs.get(unversioned(name))

    def wrapper(self, name: str) -> Wrapper | None:
        return self._wrappers.get(folded_program(name))

    def safe(self, variable: str) -> bool:
        return variable in self._safe

    def loads(self, variable: str) -> bool:
        return variable in self._loads and variable not in self._safe

    def recipe(self, file: str, program: str) -> bool:
        """Whether a file of this name says what the program runs."""
        return unversioned(program) in self._recipes.get(folded(file), frozenset())


class _Names:
    """Names of variables, some of them with a star."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._exact = frozenset(name for name in names if "*" not in name)
        self._open = tuple(name for name in names if "*" in name)

    def __contains__(self, name: str) -> bool:
        return name in self._exact or any(fnmatchcase(name, pattern) for pattern in self._open)


@lru_cache(maxsize=4096)
def folded(text: str) -> str:
    """For comparing names: one Unicode form, no case, no dots or blanks at the end."""
    return unicodedata.normalize("NFC", text).casefold().rstrip(". ") or text


@lru_cache(maxsize=1024)
def folded_program(name: str) -> str:
    """The name of a program without its folder, and without `.exe`."""
    return folded(name.rpartition("/")[2]).removesuffix(".exe")


@lru_cache(maxsize=1024)
def unversioned(name: str) -> str:
    """`python3.12` is python, `pip3` is pip; a name that is only a version stays."""
    plain = folded_program(name)
    return _VERSION.sub("", plain) or plain


@cache
def table() -> Table:
    """The table that comes with the package."""
    source = files("interlock.policy.shell") / "programs.toml"
    return Table.of(source.read_text("utf-8"))
