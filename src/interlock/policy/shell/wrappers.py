"""Seeing through programs that run the program named by their arguments.

Lives here: `peel`, `Peeled`. Known wrappers are taken off one by one; what stays is the command that runs. Where it
cannot be told which words are the command, every place is a view that is not certain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from interlock.policy.shell.analysis import Assignment, Doubt, Piece, View, Word
from interlock.policy.shell.programs import Program, Wrapper, table

LAYERS = 8
APPENDED = Word("…", "", (-1, -1), (Piece("…", known=False, splits=True),))  # what comes on the input
_ASSIGN = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(slots=True)
class Peeled:
    """`views`: from the whole to the innermost that is certain; `extra`: those that are not. `certain`: the last of
    `views` is what runs. `paths`: word, access and option of paths that the wrappers use. `code`: strings that a shell would run;
    `maybe`: strings that something might run."""

    views: list[View]
    assigns: list[Assignment]
    wrappers: tuple[str, ...] = ()
    doubts: list[Doubt] = field(default_factory=list)
    extra: list[View] = field(default_factory=list)
    paths: list[tuple[Word, str, str]] = field(default_factory=list)
    code: list[Word] = field(default_factory=list)
    maybe: list[Word] = field(default_factory=list)
    certain: bool = True
    input: bool = False


def peel(words: tuple[Word, ...], assigns: tuple[Assignment, ...]) -> Peeled:
    found = Peeled([View(words, assigns)], list(assigns))
    allows = True
    for _ in range(LAYERS):
        words = found.views[-1].words
        name = words[0].literal
        if name is None:
            return found
        wrapper = table().wrapper(name)
        if wrapper is None:
            _arguments(words, found)
            return found
        if wrapper.loose:
            lines = wrapper.appends and all(word.text.startswith("-") for word in words[1:])
            found.input = found.input or wrapper.input or lines  # each line that comes is a command
            _anywhere(words, found, appends=wrapper.appends)
            return found
        layer = _Layer(wrapper, words, found)
        inner = layer.inner()
        if not inner:
            return found
        allows = allows and wrapper.allows and layer.plain and name in wrapper.names
        found.wrappers += (" ".join(word.source for word in words[: layer.at]),)
        found.views.append(View(inner, tuple(found.assigns), allows))
    found.doubts.append(Doubt("unreadable", "it is wrapped too often"))
    found.certain = False
    return found


def _anywhere(words: tuple[Word, ...], found: Peeled, *, appends: bool = False) -> None:
    """The wrapper's own options are not known: any word may begin the command."""
    for index in range(1, min(len(words), 16)):
        word = words[index]
        if not word.text.startswith("-"):
            inner = (*words[index : index + 1], APPENDED, *words[index + 1 :]) if appends else words[index:]
            found.extra.append(View(inner, allows=False, certain=False))
        if " " not in word.text or word.literal is None:
            continue
        if not word.text.startswith("-"):
            found.maybe.append(word)
            continue
        first = word.text.partition(" ")[0]  # a line behind `--command=`, or behind letters: `-qc`
        starts = [first.index("=") + 1] if "=" in first else range(2, min(len(first), 6))
        found.maybe += [_valued(word, word.text[start:]) for start in starts if first[start:]]


def _arguments(words: tuple[Word, ...], found: Peeled) -> None:
    """A program without a table might run its arguments."""
    program = table().program(words[0].text)
    if program is None:
        _anywhere(words, found)
    elif program.carries_rest or any(word.text in _carrying(program) for word in words[1:5]):
        for index in range(1, min(len(words), 16)):
            if not words[index].text.startswith("-"):
                found.extra.append(View(words[index:], allows=False, certain=False))


def _carrying(program: Program) -> set[str]:
    return {spoken.split()[-1] for spoken in program.carrying}


class _Layer:
    """One wrapper: its options, its own operands, and what is left."""

    def __init__(self, wrapper: Wrapper, words: tuple[Word, ...], found: Peeled) -> None:
        self.wrapper = wrapper
        self.words = words
        self.found = found
        self.at = 1
        self.plain = True  # nothing but what an allow rule may see through
        self.mark: str | None = None  # what xargs replaces

    def inner(self) -> tuple[Word, ...]:
        while self.at < len(self.words) and self.option():
            pass
        if self.at < 0:
            return ()
        self.at += self.wrapper.operands
        while self.wrapper.assigns and self.at < len(self.words) and self.assigned():
            self.at += 1
        inner = self.words[self.at :]
        wrapper = self.wrapper
        if wrapper.appends:
            inner = self.appended(inner)
        if wrapper.joins and inner:
            self.found.doubts.append(Doubt("inline-code", "it runs a string as code", "exact"))
            self.shell_code(inner)
        if not inner and wrapper.names[0] == "sudo":
            self.found.input = True
        return inner

    def shell_code(self, words: tuple[Word, ...]) -> None:
        if all(word.literal is not None for word in words):
            text = " ".join(word.text for word in words)
            self.found.code.append(Word(text, text, (-1, -1), (Piece(text),)))

    def option(self) -> bool:
        """Past one option; False at the first word that is none."""
        wrapper = self.wrapper
        word = self.words[self.at]
        text = word.text
        if word.literal is None:
            if not word.pieces or not word.pieces[0].known or word.pieces[0].glob:
                self.doubt("a word that is not known may be an option")
                self.found.certain = self.found.certain and False
            return False
        if text == "--":
            self.at += 1
            return False
        if not text.startswith("-") or (text == "-" and "-" not in wrapper.flags):
            return False
        if text in wrapper.queries:
            self.at = -1
            return False
        self.plain = self.plain and not wrapper.appends
        name, has_value, value = text.partition("=") if text.startswith("--") else (text, "", "")
        name = self.full(name)
        if name in wrapper.shell_code:
            self.found.doubts.append(Doubt("inline-code", f"`{name}` gives it code to run", "exact"))
            self.shell_code(self.words[self.at + 1 : self.at + 2])
            self.at += 2
            return True
        if name in wrapper.values:
            if has_value:
                self.value(name, word, value)
                self.at += 1
            else:
                following = self.words[self.at + 1] if self.at + 1 < len(self.words) else None
                if following is not None:
                    self.value(name, following, following.text)
                self.at += 2
            return True
        if name in wrapper.flags:
            self.at += 1
            return True
        if not text.startswith("--"):
            if self.cluster(word):
                return True
            if wrapper.numeric and re.fullmatch(r"--?[0-9]+", text):
                self.at += 1
                return True
        elif wrapper.numeric and re.fullmatch(r"--[0-9]+", text):
            self.at += 1
            return True
        self.doubt(f"its option `{text}` is not known")
        self.at += 1
        return True

    def full(self, name: str) -> str:
        if not name.startswith("--") or len(name) < 3:
            return name
        known = self.wrapper.values | self.wrapper.flags | self.wrapper.shell_code
        if name in known:
            return name
        return next((each for each in sorted(known) if each.startswith(name)), name)

    def cluster(self, word: Word) -> bool:
        """Short options run together, or with their value attached."""
        text = word.text
        for index, letter in enumerate(text[1:], 1):
            name = f"-{letter}"
            if name in self.wrapper.values:
                rest = text[index + 1 :]
                if rest:
                    self.value(name, word, rest)
                    self.at += 1
                elif self.at + 1 < len(self.words):
                    self.value(name, self.words[self.at + 1], self.words[self.at + 1].text)
                    self.at += 2
                else:
                    self.at += 1
                return True
            if name not in self.wrapper.flags:
                if letter.isalpha() and name in ("-i", "-l", "-e") and self.wrapper.appends:
                    self.mark = text[index + 1 :] or "{}"
                    self.at += 1
                    return True
                return False
        self.at += 1
        return True

    def value(self, name: str, word: Word, value: str) -> None:
        wrapper = self.wrapper
        if name in wrapper.writes:
            self.found.paths.append((_valued(word, value), "write", name))
            self.plain = False
        elif name in wrapper.reads:
            self.found.paths.append((_valued(word, value), "read", name))
        if wrapper.appends and name in ("-I", "-J", "--replace"):
            self.mark = value
        if wrapper.assigns and wrapper.names[0] == "env":
            if name in ("-S", "--split-string"):
                self.found.doubts.append(Doubt("inline-code", "it splits a string into a command", "exact"))
                if word.literal is not None:
                    self.found.code.append(_valued(word, value))
                    rest = self.words[self.at + (1 if value != word.text else 2) :]
                    text = " ".join([value, *(each.text for each in rest)])
                    self.found.code.append(Word(text, text, (-1, -1), (Piece(text),)))
            if name in ("-C", "--chdir"):
                self.plain = False
                self.doubt("it runs in another folder")
        if wrapper.names[0] == "exec":
            self.plain = False

    def assigned(self) -> bool:
        word = self.words[self.at]
        found = _ASSIGN.fullmatch(word.text)
        if not found or (word.pieces and not word.pieces[0].known):
            return False
        name = found[1]
        value = found[2] if word.literal is not None else None
        self.found.assigns.append(
            Assignment(name, value, word.source, table().safe(name), table().loads(name))
        )
        return True

    def appended(self, inner: tuple[Word, ...]) -> tuple[Word, ...]:
        """xargs adds words from its input, or puts them where a mark is."""
        if not inner:
            return ()
        if self.mark:
            return tuple(
                replace(word, pieces=(Piece(word.text, known=False),)) if self.mark in word.text else word
                for word in inner
            )
        return (*inner, APPENDED)

    def doubt(self, why: str) -> None:
        name = self.words[0].text
        self.found.doubts.append(Doubt("option", f"`{name}`: {why}", "exact"))
        self.plain = False


def _valued(word: Word, value: str) -> Word:
    """The value of an option, where it is attached to its name."""
    if value == word.text:
        return word
    if word.literal is not None:
        return replace(word, text=value, pieces=(Piece(value),))
    return replace(word, text=value, pieces=(Piece(value, known=False),))
