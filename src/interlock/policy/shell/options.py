"""Reading the options of a command by what the table says of its program.

Lives here: `OptionReader`, which goes over the words and notes what each option means, and `Effects`, where it notes
it. What the operands mean is left to its subclass in `effects.py`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from interlock.policy.shell.analysis import Access, By, Doubt, PathUse, Piece, Word
from interlock.policy.shell.programs import Program, Sub, folded_program

Locate = Callable[[Word, str | None], tuple[tuple[str, ...], bool, bool]]  # paths, unknown, glob

OUTSIDE = re.compile(r"/|~|(?:\./)*\.\.(?:/|$)")
_TOGETHER = re.compile(r"-[A-Za-z0-9]{2,6}")
_MODULES_OF_CODE = frozenset(
    [
        "timeit",
        "pdb",
        "code",
        "cprofile",
        "profile",
        "trace",
        "runpy",
        "ipython",
        "ipdb",
        "pudb",
        "ptpython",
        "bpython",
        "idlelib",
    ]
)


def mentioned(text: str) -> tuple[str, ...]:
    """The paths that a word may stand for if nothing is known of its program: whole, or behind `-f`, `=`, `@`, `:`."""
    if " " in text or "\n" in text:
        return ()
    found = [] if text.startswith("-") else [text]
    if re.match(r"-[^-].", text):
        found.append(text[2:])
    for mark in re.finditer(r"[=@:]", text):
        found.append(re.split(r"[,;:]", text[mark.end() :])[0])
        found.append(text[mark.end() :])
    return tuple(dict.fromkeys([each for each in found if each not in ("", "-", ".")]))


@dataclass(slots=True)
class Effects:
    """`code`: strings that a shell would run, found by an option. `input`: it runs what comes on its input."""

    paths: list[PathUse] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    code: list[Word] = field(default_factory=list)
    carried: list[tuple[Word, ...]] = field(default_factory=list)
    script: Word | None = None  # the file it runs
    input: bool = False


class OptionReader(ABC):
    """One pass over the words of a command whose program has a table."""

    def __init__(self, program: Program, words: Sequence[Word], locate: Locate, found: Effects) -> None:
        self.program = program
        self.spec: Sub = program
        self.words = words
        self.locate = locate
        self.found = found
        self.options: set[str] = set()
        self.operands: list[Word] = []
        self.spoken: list[str] = []  # the first operands of a program with sub-commands
        self.branches = bool(program.sub or program.acts or program.globals or program.foreign_operands)
        self.base: Word | None = None
        self.coded = False
        self.module: str | None = None

    # Options

    def look(self) -> None:
        ended = False
        index = 1
        while index < len(self.words):
            word = self.words[index]
            index += 1
            text = word.text
            if word.literal is None and not ended and self.may_be_option(word):
                self.doubt("option", "a word that is not known may be an option", "exact")
            if ended or not text.startswith("-") or text == "-" or word.literal is None:
                self.operand(word)
                if self.script_found():
                    break
                continue
            if text == "--":
                ended = True
                continue
            index = self.option(word, index)
            if self.module is not None:
                break
        self.finish()

    def may_be_option(self, word: Word) -> bool:
        if not (
            self.spec.runs or self.spec.writes or self.spec.code or self.program.runs or self.program.carries
        ):
            return False
        return not word.pieces or not word.pieces[0].known or word.pieces[0].glob

    def script_found(self) -> bool:
        """An interpreter's options end at its script: what follows is the script's own."""
        return self.program.stdin and bool(self.program.code) and self.operands[0].text != "-"

    def option(self, word: Word, index: int) -> int:
        """Note an option; where the words go on after its value."""
        text = word.text
        if self.program.single:
            if text.startswith("--"):
                text = text[1:]
            name, has_value, value = text.partition("=")
            return self.named(name, value if has_value else None, word, index)
        if text.startswith("--"):
            name, has_value, value = text.partition("=")
            return self.named(self.full(name), value if has_value else None, word, index)
        known = self.spec.values | self.program.values
        if text in self.known_names():  # `-pe`, `-Command`
            return self.named(text, None, word, index)
        if _TOGETHER.fullmatch(text) and any(f"-{letter}" in self.program.code for letter in text[2:]):
            self.doubt("inline-code", f"`{text}` may give it code to run", "exact")
        for at, letter in enumerate(text[1:], 1):
            name, rest = f"-{letter}", text[at + 1 :]
            if name in self.optional():
                return self.named(name, rest or None, word, index, attached=True)
            if name in known or self.takes_value(name):
                if name in ("-m",) and "-c" in self.program.code and not rest:
                    return self.named(name, None, word, index)
                return self.named(name, rest or None, word, index)
            self.named(name, None, word, len(self.words))
        return index

    def known_names(self) -> set[str]:
        return {
            name
            for spec in (self.spec, self.program)
            for name in (*spec.runs, *spec.code, *spec.writes, *spec.reads)
            if len(name) > 2 and not name.startswith("--")
        }

    def optional(self) -> frozenset[str]:
        return self.spec.optional | self.program.optional

    def takes_value(self, name: str) -> bool:
        return any(
            name in group
            for spec in (self.spec, self.program)
            for group in (spec.writes, spec.reads, spec.code)
        )

    def full(self, name: str) -> str:
        """A long option in full, if it is the beginning of one that asks, writes or reads."""
        known = {
            each
            for spec in (self.spec, self.program)
            for group in (
                spec.runs,
                spec.writes,
                spec.reads,
                spec.code,
                self.program.globals,
                self.program.builds,
                spec.at_reads,
                self.program.in_place,
            )
            for each in group
        }
        plain = self.spec.plain | self.program.plain | self.spec.values | self.program.values | self.spec.tree
        if name in known or name in plain:
            return name
        return next((each for each in sorted(known) if each.startswith(name) and len(name) > 2), name)

    def named(self, name: str, value: str | None, word: Word, index: int, *, attached: bool = False) -> int:
        program, spec = self.program, self.spec
        self.options.add(name)
        takes = (
            not attached
            and value is None
            and (name in spec.values or name in program.values or self.takes_value(name))
            and name not in self.optional()
        )
        holder: Word | None = None
        if takes and index < len(self.words):
            holder, value = self.words[index], self.words[index].text
            index += 1
        elif value is not None:
            holder = word
        if not self.spoken and name in program.globals:
            self.doubt("option", program.globals[name], "option", name)
        for why in (spec.runs.get(name), program.runs.get(name) if spec is not program else None):
            if why is not None and name not in program.globals:
                self.doubt("option", why, "option", name)
                break
        if name in spec.code or name in program.code:
            self.code(name, holder, value)
        if name in program.source and holder is not None:
            self.source(holder, value)
        if name in program.carries:
            index = self.carried(index)
        if holder is None:
            return index
        if name in spec.lists or name in program.lists:
            self.found.paths.append(PathUse((), "read", "option", unknown=True, option=name))
        for group, access in ((spec.writes | program.writes, "write"), (spec.reads | program.reads, "read")):
            if name in group:
                self.path(holder, access, "option", option=name, text=value if holder is word else None)
        if name in spec.at_reads or name in program.at_reads:
            self.at_path(holder, value or "", name)
        if value is not None and not any(
            name in group
            for each in (spec, program)
            for group in (each.writes, each.reads, each.lists, each.code, program.source)
        ):
            self.mention(holder, value)
        if name in program.builds and name not in self.optional():
            self.built(holder, value or "", name)
        if name in program.enters or (name in ("-C", "--directory") and program.archive == "tar"):
            self.base = self.below(holder, value or "")
        if name == "-m" and "-c" in program.code and program.stdin:
            self.module = value or ""
            if folded_program(self.module.partition(".")[0]) in _MODULES_OF_CODE:
                self.doubt("inline-code", f"the module {self.module} runs code on its command line", "exact")
        return index

    def below(self, holder: Word, value: str) -> Word:
        """The folder that an option names, from the one that an earlier one named."""
        known = holder.literal is not None
        if self.base is not None and not value.startswith(("/", "~")):
            known, value = known and self.base.literal is not None, f"{self.base.text}/{value}"
        return Word(value, holder.source, holder.span, (Piece(value, known=known),))

    def doubt(
        self, kind: str, reason: str, excuse: str, option: str | None = None, path: str | None = None
    ) -> None:
        self.found.doubts.append(Doubt(kind, reason, excuse, option, path))  # type: ignore[arg-type]  # literals of this module

    def code(self, name: str, holder: Word | None, value: str | None) -> None:
        self.coded = True
        self.doubt("inline-code", f"`{name}` gives it code to run", "exact")
        if self.program.shell and holder is not None and holder.literal is not None and value is not None:
            self.found.code.append(holder)

    def carried(self, index: int) -> int:
        end = index
        while end < len(self.words) and self.words[end].text not in (";", "+"):
            end += 1
        if end > index:
            self.found.carried.append(tuple(self.words[index:end]))
        return end + 1

    @abstractmethod
    def operand(self, word: Word) -> None:
        """Note a word that is no option."""

    @abstractmethod
    def source(self, word: Word, value: str | None) -> None:
        """Look into a script on the command line."""

    @abstractmethod
    def finish(self) -> None:
        """All words are noted."""

    # Paths

    def path(
        self,
        word: Word,
        access: Access | str,
        by: By,
        *,
        tree: bool = False,
        option: str | None = None,
        text: str | None = None,
        unknown: bool = False,
    ) -> None:
        if word.source.startswith(("<(", ">(")) and word.literal is None and len(word.pieces) == 1:
            return  # a pipe; what is at its other end has been looked at
        if by == "operand" and self.base is not None and self.program.enters:
            plain = word.text if text is None else text
            if not plain.startswith(("/", "~")):
                text, unknown = f"{self.base.text}/{plain}", unknown or self.base.literal is None
        paths, not_known, glob = self.locate(word, text)
        self.found.paths.append(
            PathUse(paths, access, by, unknown or not_known, glob, tree, option)  # type: ignore[arg-type]  # literals of this module
        )

    def mention(self, word: Word, text: str) -> None:
        """Note a word that may be a file, though the table does not say so."""
        if word.literal is None:
            return
        for path in mentioned(text):
            self.path(word, "read", "named", text=path)

    def at_path(self, word: Word, value: str, option: str) -> None:
        at = value.find("@")
        if at < 0:
            return
        before = value[:at]
        if before and not before.endswith("=") and not re.fullmatch(r"\w+", before):
            return
        self.path(word, "read", "option", option=option, text=value[at + 1 :].partition(";")[0])

    def built(self, word: Word, value: str, option: str) -> None:
        if word.literal is None:
            self.doubt("foreign-code", "where it builds is not known", "exact")
        elif OUTSIDE.match(value) or ".." in value.split("/"):
            self.doubt(
                "foreign-code", f"`{option}` makes it build outside the workspace", "program", None, value
            )
        elif value in ("-", "/dev/stdin"):
            self.found.input = True
