"""Following a command line: what is known of variables and folders at each simple command.

Lives here: `Tracer`, which walks what the reader made and gathers simple commands, paths and doubts. It never guesses:
a variable is known only where its one assignment has surely run before, a folder only after a `cd` to a known one.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Literal

from interlock.policy.shell.analysis import (
    Analysis,
    Assignment,
    Doubt,
    PathUse,
    Piece,
    SimpleCommand,
    View,
    Word,
)
from interlock.policy.shell.builtins import EVALUATES, FREE, builtin_doubts
from interlock.policy.shell.effects import effects_of
from interlock.policy.shell.following import MOVING, lone_search, moves, searches
from interlock.policy.shell.knowledge import State, Steady, either
from interlock.policy.shell.options import Effects, mentioned
from interlock.policy.shell.programs import folded_program, table
from interlock.policy.shell.reader import read
from interlock.policy.shell.syntax import (
    AndOr,
    Assign,
    Case,
    Command,
    For,
    Function,
    Group,
    If,
    Pipeline,
    Redirect,
    Sequence,
    Simple,
    Test,
    Token,
    Unreadable,
    While,
)
from interlock.policy.shell.wrappers import APPENDED, peel

ALTERNATIVES = 24  # values of variables that are tried one by one
NESTED = 4  # code in strings in code in strings

Fed = Literal["", "pipe", "search", "file", "text"]  # what comes on the input; search: names of files found

_NUMBER = re.compile(r"[0-9]+-?|-")
_DEVICE = frozenset(
    [
        "/dev/null",
        "/dev/stdout",
        "/dev/stderr",
        "/dev/stdin",
        "/dev/tty",
        "/dev/zero",
        "/dev/random",
        "/dev/urandom",
    ]
)
_SIMPLE_EXPANSION = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_KEEPS = frozenset(
    ["chmod", "chown", "chgrp", "setfacl", "mkdir", "rmdir", "rm", "unlink", "shred", "trash"]
)  # no new content
_PLACES = {"HOME": "~", "PWD": "."}
# To search in what a search found is to search; to count tells nothing.
_LOOKERS = frozenset(["grep", "egrep", "fgrep", "rg", "wc"])
_TILDE = re.compile(r"~|\"?\$\{?HOME|\"?\$")
_SPECIAL = re.compile(r"([*?\[\]\\])")


class Tracer:
    """One command line. `shadow`: it is code that another command carries."""

    def __init__(self, source: str, *, shadow: bool = False, depth: int = 0) -> None:
        self.source = source
        self.shadow = shadow
        self.depth = depth
        self.commands: list[SimpleCommand] = []
        self.paths: list[PathUse] = []
        self.unknown: list[Doubt] = []
        self.state = State()
        self.fed: Fed = ""
        self._found: set[tuple[int, int]] = set()  # words that are what a search found
        self._looks = False
        self._moving: set[str] = set()  # functions that go to another folder
        self._fallen: list[State] = []  # where it may be if a `cd` failed
        self._made: set[str] = set()  # paths whose content this command line makes
        self._made_unknown = False
        self._run: list[tuple[int, Word, tuple[str, ...]]] = []  # commands that run a file, and which
        self._steady = Steady(source)

    def trace(self, sequence: Sequence) -> Analysis:
        self.sequence(sequence)
        self.scripts()
        return Analysis(tuple(self.commands), tuple(self.paths), tuple(self.unknown))

    # Lists and compound commands

    def sequence(self, sequence: Sequence) -> None:
        for item, background in zip(sequence.items, sequence.background, strict=True):
            if background:
                with_ = self.state.copy()
                self.and_or(item)
                self.state = with_
            else:
                self.and_or(item)

    def nested(self, sequences: Iterable[Sequence]) -> None:
        """In a subshell: what it changes is gone afterwards."""
        for sequence in sequences:
            before = self.state.copy()
            self.sequence(sequence)
            self.state = before

    def and_or(self, node: AndOr) -> None:
        fallen, self._fallen = self._fallen, []
        left: list[State] = []  # where it may be if the rest is skipped
        self.pipeline(node.first)
        for operator, pipeline in node.rest:
            left.append(self.state.copy())
            if operator == "||":
                for state in (*left, *self._fallen):
                    self.state = self.state.or_(state)
            self.pipeline(pipeline)
        for state in (*left, *self._fallen):
            self.state = self.state.or_(state)
        self._fallen = fallen

    def pipeline(self, node: Pipeline) -> None:
        if len(node.stages) == 1:
            self.command(node.stages[0])
            return
        fed = self.fed
        for index, stage in enumerate(node.stages):
            before = self.state.copy()
            if index:
                found = searches(node.stages[index - 1], of_found=self.fed == "search")
                self.fed = "search" if found else "pipe"
            self.command(stage)
            self.state = before
        self.fed = fed

    def command(self, node: Command) -> None:
        if isinstance(node, Simple):
            self.simple(node)
            return
        if isinstance(node, Function):
            self.function(node)
            return
        fed = self.fed
        for redirect in node.redirects:
            self.redirect(redirect)
        match node:
            case Group():
                if node.subshell:
                    self.nested([node.body])
                else:
                    self.sequence(node.body)
            case If():
                self.conditional(node)
            case While():
                before = self.state.copy()
                self.looping(node.condition, node.body)
                self.sequence(node.condition)
                self.sequence(node.body)
                self.state = self.state.or_(before)
            case For():
                self.loop(node)
            case Case():
                self.token(node.subject)
                before = self.state.copy()
                after = before.copy()
                for patterns, body in node.clauses:
                    for pattern in patterns:
                        self.token(pattern)
                    self.state = before.copy()
                    self.sequence(body)
                    after = after.or_(self.state)
                self.state = after
            case Test():
                self.nested(node.inside)
                if node.body is not None:
                    before = self.state.copy()
                    self.looping(node.body)
                    self.sequence(node.body)
                    self.state = self.state.or_(before)
        self.fed = fed

    def looping(self, *bodies: Sequence) -> None:
        """What runs again may begin in the folder where it ended."""
        if any(moves(body, self._moving) for body in bodies):
            self.state.folders = None

    def conditional(self, node: If) -> None:
        ends: list[State] = []
        for condition, branch in zip(node.conditions, node.branches, strict=False):
            self.sequence(condition)
            before = self.state.copy()
            self.sequence(branch)
            ends.append(self.state)
            self.state = before
        if len(node.branches) > len(node.conditions):
            self.sequence(node.branches[-1])
        for end in ends:
            self.state = self.state.or_(end)

    def loop(self, node: For) -> None:
        if table().loads(node.name):
            self.unknown.append(Doubt("assignment", f"{node.name} changes what runs"))
        values: list[Word] = []
        for token in node.values or ():
            self.token(token)
            values.extend(self.alternatives(token) or [token.word])
        before = self.state.copy()
        self.looping(node.body)
        self.state.variables.pop(node.name, None)
        usable = node.values is not None and 0 < len(values) <= ALTERNATIVES
        if usable and self._steady.variable(node.name) and all(_piecewise(word) for word in values):
            self.state.variables[node.name] = tuple(dict.fromkeys(values))
        self.sequence(node.body)
        self.state = self.state.or_(before)
        self.state.variables.pop(node.name, None)

    def function(self, node: Function) -> None:
        """The body may run at any time later: nothing is known of variables and folders in it."""
        if table().program(node.name) is not None or table().wrapper(node.name) is not None:
            self.unknown.append(Doubt("program", f"it gives the name {node.name} to something else"))
        if moves(node.body, self._moving):
            self._moving.add(node.name)
        before, fed = self.state.copy(), self.fed
        self.state = State({}, None, before.functions | {node.name})
        self.fed = "pipe"
        self.command(node.body)
        self.state, self.fed = before, fed
        self.state.functions |= {node.name}

    # Simple commands

    def simple(self, node: Simple) -> None:
        for assign in node.assigns:
            self.nested(assign.subscript)
            for value in assign.values:
                self.token(value)
        for token in node.tokens:
            self.token(token)
            if len(token.inside) == len(token.word.pieces) == 1 and lone_search(token.inside[0]):
                self._found.add(token.word.span)
        fed = self.fed
        heredoc: list[Token] = []
        for redirect in node.redirects:
            self.redirect(redirect)
            if redirect.op in ("<<", "<<-", "<<<"):
                heredoc.append(redirect.target)
        assigns = [self.assignment(assign) for assign in node.assigns]
        if not node.tokens:
            self.alone(node, assigns)
            self.fed = fed
            return
        start, end = node.span
        text = " ".join(
            [*(assign.source for assign in node.assigns), *_sources(token.word for token in node.tokens)]
        )
        for words in self.combinations(node.tokens):
            if words:
                self.built(text, (start, end), words, tuple(assigns), tuple(heredoc))
            else:
                self.commands.append(
                    SimpleCommand(
                        text,
                        (start, end),
                        (View(tuple(t.word for t in node.tokens)),),
                        tuple(assigns),
                        doubts=(_UNKNOWN_PROGRAM,),
                        shadow=self.shadow,
                    )
                )
        self.fed = fed

    def alone(self, node: Simple, assigns: list[Assignment]) -> None:
        """Assignments without a command stay in force."""
        for assign in node.assigns:
            self.state.variables.pop(assign.name, None)
            if (
                self._steady.variable(assign.name)
                and not assign.array
                and not assign.append
                and not assign.subscript
            ):
                value = self.alternatives(assign.values[0]) if assign.values else [_plain("")]
                if value and all(_piecewise(word) for word in value):
                    self.state.variables[assign.name] = tuple(value)
        if not assigns:
            return
        doubts = tuple(_loading(assigns))
        text = " ".join(assign.source for assign in node.assigns)
        view = View((), tuple(assigns))
        self.commands.append(
            SimpleCommand(
                text, node.span, (view,), tuple(assigns), doubts=doubts, free=True, shadow=self.shadow
            )
        )

    def assignment(self, assign: Assign) -> Assignment:
        value = assign.values[0].word.literal if assign.values else ""
        if assign.array or assign.append:
            value = None
        safe = table().safe(assign.name) and not assign.array
        return Assignment(assign.name, value, assign.source, safe, table().loads(assign.name))

    def built(
        self,
        text: str,
        span: tuple[int, int],
        words: tuple[Word, ...],
        assigns: tuple[Assignment, ...],
        heredoc: tuple[Token, ...],
        *,
        shadow: bool = False,
    ) -> None:
        """Note one simple command with these words."""
        shadow = shadow or self.shadow
        if words[0].literal == "read":  # `IFS= read line` is how a line is read
            assigns = tuple(replace(a, safe=True, loads=False) if a.name == "IFS" else a for a in assigns)
        peeled = peel(words, assigns)
        doubts = list(peeled.doubts)
        inner = peeled.views[-1].words if peeled.certain else ()
        effects = Effects()
        free = False
        name = inner[0].literal if inner else None
        doubts += _loading(peeled.assigns)
        if inner and name is None:
            doubts.append(_UNKNOWN_PROGRAM)
        elif name is not None and inner:
            self._looks = folded_program(name) in _LOOKERS
            effects = effects_of(inner, self.locate)
            self._looks = False
            doubts += builtin_doubts(inner)
            for view in _module(inner):
                self.module(view.words, effects)
            doubts += effects.doubts
            free = name in FREE or (name in self.state.functions and len(peeled.views) == 1)
        paths = [
            *(use for use in effects.paths if use.paths or use.unknown),
            *(self.used(use) for use in peeled.paths),
            *self.named(inner),
        ]
        code = [*effects.code, *peeled.code]
        if name in EVALUATES and inner:
            code += evaluated(name, inner)
        if effects.input or (peeled.input and self.fed):
            doubts.append(self.input_doubt(heredoc))
            if name is not None and (program := table().program(name)) is not None and program.shell:
                code += [token.word for token in heredoc]
        extra = peeled.extra
        if name in ("source", ".") and len(inner) > 1:
            effects.script = inner[1]
            located, unknown, glob = self.locate(inner[1], None)
            paths.append(PathUse(located, "read", "operand", unknown, glob))
        if effects.script is not None and effects.script.literal is not None:
            located, _, _ = self.locate(effects.script, None)
            self._run.append((len(self.commands), effects.script, located))
        if name is not None and folded_program(name) not in _KEEPS:
            for use in paths:
                self.makes(use)
        self.commands.append(
            SimpleCommand(
                text,
                span,
                (*extra, *_module(inner), *peeled.views),
                tuple(peeled.assigns),
                peeled.wrappers,
                tuple(dict.fromkeys(doubts)),
                tuple(paths),
                tuple(effects.urls),
                free,
                shadow,
            )
        )
        if name is not None:
            self.shell_state(name, inner)
        for carried in effects.carried:
            self.built(" ".join(_sources(carried)), span, _replaced(carried, "{}"), (), (), shadow=True)
        for word in code:
            self.inner_code(word)
        for word in peeled.maybe:
            self.possible_code(word)

    def module(self, words: tuple[Word, ...], effects: Effects) -> None:
        """`python -m` a module: what is known of the program of that name; else its words may be files that it reads."""
        if words[0].literal is None:
            return
        if table().program(words[0].text) is not None:
            found = effects_of(words, self.locate)
            effects.paths += found.paths
            effects.doubts += found.doubts
            return
        for word in words[1:]:
            if not word.text.startswith("-"):
                paths, unknown, glob = self.locate(word, None)
                effects.paths.append(PathUse(paths, "read", "operand", unknown, glob))

    def named(self, words: tuple[Word, ...]) -> Iterator[PathUse]:
        """What a program without a table may open: any of its words."""
        if not words or words[0].literal is None or table().program(words[0].text) is not None:
            return
        for word in words[1:]:
            if any(not piece.known for piece in word.pieces):
                continue
            for text in mentioned(word.text):
                paths, unknown, glob = self.locate(word, text)
                yield PathUse(paths, "read", "named", unknown, glob)

    def input_doubt(self, heredoc: tuple[Token, ...]) -> Doubt:
        if heredoc or self.fed == "text":
            return Doubt("inline-code", "it runs code that the command itself holds", "exact")
        return Doubt("foreign-code", "it runs what comes on its input", "program")

    def inner_code(self, word: Word) -> None:
        """Shell code in a string: what it would run is looked at for what forbids."""
        if self.depth >= NESTED:
            self.unknown.append(Doubt("unreadable", "code in code is nested too deeply"))
            return
        if word.literal is None:
            return  # the command that carries it asks already
        inner = Tracer(word.text, shadow=True, depth=self.depth + 1)
        inner.state.folders = self.state.folders
        inner.fed = self.fed
        try:
            found = inner.trace(read(word.text))
        except Unreadable as error:
            self.unknown.append(Doubt("unreadable", f"in code that it carries, {error.reason}"))
            return
        self.commands += found.commands
        self.paths += found.paths
        self.unknown += found.unknown

    def possible_code(self, word: Word) -> None:
        """A string that a program without a table might run: what it names may be what is forbidden, no more."""
        if self.depth >= NESTED:
            return
        try:
            found = Tracer(word.text, shadow=True, depth=self.depth + 1).trace(read(word.text))
        except Unreadable:
            return
        for command in found.commands:
            views = tuple(
                replace(view, words=_replaced(view.words, "{"), allows=False, certain=False)
                for view in command.views
            )
            paths = tuple(replace(use, by="named") for use in command.paths if use.access == "read")
            self.commands.append(SimpleCommand(command.text, command.span, views, paths=paths, shadow=True))

    # Words

    def token(self, token: Token) -> None:
        self.nested(token.inside)

    def combinations(self, tokens: tuple[Token, ...]) -> Iterator[tuple[Word, ...]]:
        """The words, once for each combination of values of the variables that are known."""
        names = {name for token in tokens for name in token.variables if name in self.state.variables}
        counts = 1
        for name in names:
            counts *= len(self.state.variables[name])
        known = sorted(names) if counts <= ALTERNATIVES else []
        for values in product(*(self.state.variables[name] for name in known)):
            chosen = dict(zip(known, values, strict=True))
            yield tuple(word for token in tokens for word in self.substituted(token.word, chosen))

    def alternatives(self, token: Token) -> list[Word]:
        """What one word may be; empty if it may be several words."""
        found: list[Word] = []
        for words in self.combinations((token,)):
            if len(words) != 1:
                return []
            found.append(words[0])
        return found

    def substituted(self, word: Word, values: dict[str, Word]) -> list[Word]:
        """The word with the variables that are known put in; several words where a value splits."""
        if word.literal is not None:
            return [word]
        pieces: list[Piece] = []
        changed = False
        for piece in word.pieces:
            name = _SIMPLE_EXPANSION.fullmatch(piece.text) if not piece.known else None
            key = (name[1] or name[2]) if name else ""
            value = values.get(key)
            if key in _PLACES and not pieces and key not in values and self._steady.untouched(key):
                pieces.append(Piece(_PLACES[key]))
                changed = True
            elif value is None:
                pieces.append(piece)
            elif not piece.splits:
                pieces.extend(value.pieces)
                changed = True
            elif (
                value.literal is None
                or re.search(r"[*?\[\\]", value.text)
                or (len(word.pieces) > 1 and (not value.text or re.search(r"\s", value.text)))
            ):
                pieces.append(piece)
            elif len(word.pieces) == 1:
                return [_plain(part, word) for part in value.text.split()]
            else:
                pieces.extend(value.pieces)
                changed = True
        if not changed:
            return [word]
        made = tuple(pieces)
        return [replace(word, text="".join(piece.text for piece in made), pieces=made)]

    # Paths

    def locate(self, word: Word, text: str | None) -> tuple[tuple[str, ...], bool, bool]:
        """What paths a word may be, whether it may be any, and whether they are patterns."""
        glob = any(piece.glob for piece in word.pieces)
        if self._looks and (word.span in self._found or (word is APPENDED and self.fed == "search")):
            return (), False, False  # as if it searched itself
        if any(not piece.known for piece in word.pieces):
            return (text if text is not None else word.text,), True, glob
        if text is None:
            text = (
                "".join(
                    piece.text if piece.glob or not glob else _SPECIAL.sub(r"\\\1", piece.text)
                    for piece in word.pieces
                )
                or word.text
            )
            if text.startswith("~") and not _TILDE.match(word.source):
                text = f"./{text}"  # quoted: a name like any other
        return *self.joined(text), glob

    def joined(self, text: str) -> tuple[tuple[str, ...], bool]:
        if text.startswith(("/", "~")):
            return (text,), False
        if self.state.folders is None:
            return (text,), True
        found: list[str] = []
        for folder in self.state.folders:
            path = f"{folder}/{text}" if folder else text
            found.append(path)
            if ".." in folder.split("/"):
                found.append(posixpath.normpath(path))  # `cd a/..` does not look where a link leads
        return tuple(dict.fromkeys(found)), False

    def used(self, use: tuple[Word, str, str]) -> PathUse:
        """A path that a wrapper reads or writes."""
        word, access, option = use
        paths, unknown, glob = self.locate(word, None)
        return PathUse(
            paths, "write" if access == "write" else "read", "option", unknown, glob, option=option
        )

    def redirect(self, redirect: Redirect) -> None:
        self.token(redirect.target)
        operator, word = redirect.op, redirect.target.word
        if operator in ("<<", "<<-", "<<<"):
            self.fed = "text"
            return
        if operator in (">&", "<&") and word.literal is not None and _NUMBER.fullmatch(word.text):
            return
        if operator == "<&" or (operator == ">&" and word.literal is None):
            self.unknown.append(Doubt("unreadable", f"where `{operator}{word.source}` leads is not known"))
            return
        if operator in ("<", "<>"):
            self.fed = "file"
        if word.text.startswith(("<(", ">(")) and word.literal is None:
            return  # what is in it has been looked at
        for words in self.combinations((redirect.target,)):
            if len(words) != 1:
                self.unknown.append(Doubt("unreadable", "where a redirection leads is not known"))
                continue
            target = words[0]
            if target.literal is not None and (
                target.text in _DEVICE or re.fullmatch(r"/dev/fd/[0-9]+", target.text)
            ):
                continue
            if re.match(r"/dev/(?:tcp|udp)/", posixpath.normpath(target.text)):
                self.unknown.append(Doubt("option", "a redirection opens a connection"))
                continue
            paths, unknown, glob = self.locate(target, None)
            if operator in ("<", "<>"):
                self.paths.append(PathUse(paths, "read", "redirection", unknown, glob))
            if operator != "<":
                use = PathUse(paths, "write", "redirection", unknown, glob)
                self.paths.append(use)
                self.makes(use)

    def makes(self, use: PathUse) -> None:
        if use.access == "write":
            self._made |= {posixpath.normpath(path) for path in use.paths}
            self._made_unknown |= use.unknown or use.glob or use.tree

    def scripts(self) -> None:
        """Commands that run what this command line itself has written."""
        for index, word, located in self._run:
            at = {posixpath.normpath(path) for path in located}
            inside = any(path.startswith(f"{made}/") for path in at for made in self._made)
            if (at & self._made) or inside or (self._made_unknown and self._made):
                command = self.commands[index]
                doubt = Doubt("inline-code", f"it runs {word.text}, which the same command writes", "exact")
                self.commands[index] = replace(command, doubts=(*command.doubts, doubt))
        names = {posixpath.basename(made) for made in self._made}
        for index, command in enumerate(self.commands):
            program = command.program
            recipe = next((name for name in names if table().recipe(name, program)), None)
            if recipe is not None:
                doubt = Doubt(
                    "inline-code", f"it runs what {recipe} says, which the same command writes", "exact"
                )
                self.commands[index] = replace(command, doubts=(*command.doubts, doubt))

    # What builtins change for the commands after them

    def shell_state(self, name: str, words: tuple[Word, ...]) -> None:
        if name == "cd":
            self.change_folder(words)
        elif name in MOVING or name in self._moving:
            self.state.folders = None
        if name in (
            "read",
            "declare",
            "typeset",
            "local",
            "export",
            "readonly",
            "unset",
            "mapfile",
            "readarray",
            "printf",
            "getopts",
            "let",
            "eval",
            "source",
            ".",
            "trap",
        ):
            for word in words[1:]:
                for known in list(self.state.variables):
                    if word.literal is None or known in word.text:
                        self.state.variables.pop(known)
            if name in ("eval", "source", ".", "trap"):
                self.state.variables.clear()

    def change_folder(self, words: tuple[Word, ...]) -> None:
        targets = [word for word in words[1:] if word.text not in ("-P", "-L", "-e", "--")]
        target = targets[0] if targets else _plain("~")
        self._fallen.append(State(dict(self.state.variables), self.state.folders, self.state.functions))
        paths, unknown, glob = self.locate(target, None)
        if unknown or glob or len(targets) > 1 or target.text.startswith("-"):
            self.paths.append(PathUse(paths, "enter", "operand", True))
            self.state.folders = None
            return
        self.paths.append(PathUse(paths, "enter", "operand"))
        self.state.folders = either(paths, paths)


_UNKNOWN_PROGRAM = Doubt("program", "which program it runs is not known")


def _plain(text: str, of: Word | None = None) -> Word:
    if of is None:
        return Word(text, text, (-1, -1), (Piece(text),) if text else ())
    return Word(text, of.source, of.span, (Piece(text),))


def _piecewise(word: Word) -> bool:
    """Whether a word can stand for a variable's value: nothing unknown in it."""
    return all(piece.known for piece in word.pieces)


def _sources(words: Iterable[Word]) -> Iterator[str]:
    last = (-2, -2)
    for word in words:
        if word.span != last:
            yield word.source
        last = word.span


def _loading(assigns: Iterable[Assignment]) -> Iterator[Doubt]:
    for assign in assigns:
        if assign.loads:
            yield Doubt("assignment", f"{assign.name} changes what runs", "exact")


def _module(words: tuple[Word, ...]) -> tuple[View, ...]:
    """`python -m pip` is pip, for what forbids."""
    if not words or words[0].literal is None:
        return ()
    program = table().program(words[0].text)
    if program is None or "-c" not in program.code or not program.stdin:
        return ()
    for index, word in enumerate(words[1:-1], 1):
        if re.fullmatch(r"-[A-Za-z]*m", word.text):
            return (View(words[index + 1 :], allows=False),)
    attached = next((i for i, w in enumerate(words) if re.match(r"-m\w", w.text)), None)
    if attached is None or not attached:
        return ()
    module = words[attached].text[2:]
    return (View((_plain(module), *words[attached + 1 :]), allows=False),)


def _replaced(words: tuple[Word, ...], mark: str) -> tuple[Word, ...]:
    """With each word that holds the mark made unknown."""
    return tuple(
        replace(word, pieces=(Piece(word.text, known=False),)) if mark in word.text else word
        for word in words
    )


def evaluated(name: str, words: tuple[Word, ...]) -> list[Word]:
    """The code that `eval` and `trap` would run."""
    rest = [word for word in words[1:] if word.text != "--"]
    if name == "trap":
        rest = rest[:1] if rest and rest[0].text not in ("-", "-l", "-p", "") else []
    if not rest:
        return []
    if any(word.literal is None for word in rest):
        return [replace(rest[0], pieces=(Piece(rest[0].text, known=False),))]
    return [_plain(" ".join(word.text for word in rest))]
