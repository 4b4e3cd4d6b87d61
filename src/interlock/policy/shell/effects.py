"""What the words of one command say that it does: paths, addresses, and what calls for a person.

Lives here: `effects_of`. It goes by the table of programs; of one without a table only its name is known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from interlock.policy.shell.analysis import Access, Doubt, PathUse, Word
from interlock.policy.shell.options import OUTSIDE, Effects, Locate, OptionReader
from interlock.policy.shell.programs import table
from interlock.policy.shell.scripts import awk_problem, sed_problem

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|git@|git\+|[\w.-]+@[\w.-]+:")
_SYSTEM = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/opt/homebrew/bin/")
_CRITICAL = frozenset(
    ["/", "~", ".", "..", "*", "./*", "../*", "/*", "~/*", ".*", "./.*", ".git", "./.git", "~/.*", "{}"]
)


def effects_of(words: Sequence[Word], locate: Locate) -> Effects:
    """
    Args:
        words: the program first, its name known.
        locate: what paths a word may be, joined to the folder that the command runs in; a text replaces the word's.
    """
    found = Effects()
    name = words[0].text
    if "/" in name and not name.startswith(_SYSTEM):
        if OUTSIDE.match(name) or ".." in name.split("/"):
            found.doubts.append(
                Doubt("foreign-code", "it runs a program from outside the workspace", "program", None, name)
            )
        found.script = words[0]
    program = table().program(name)
    if program is not None:
        _Look(program, words, locate, found).look()
    return found


class _Look(OptionReader):
    """One pass over the words of a command whose program has a table."""

    # Operands

    def operand(self, word: Word) -> None:
        self.operands.append(word)
        if not self.branches or len(self.spoken) > 2:
            return
        self.spoken.append(word.text)
        if len(self.spoken) == 1:
            name = self.program.same.get(word.text, word.text)
            self.spec = self.program.sub.get(name, self.program)
        elif len(self.spoken) == 2:
            name = self.program.same.get(" ".join(self.spoken[:2]), "")
            self.spec = self.program.sub.get(name, self.spec)

    def finish(self) -> None:
        program = self.program
        self.acts()
        if program.foreign is not None:
            self.foreign()
        if program.stdin and self.module is None and not self.coded:
            self.interpreter()
            return
        if program.language is not None and not (program.skip_unless & self.options) and self.operands:
            self.source(self.operands[0], None)
        if program.archive is not None:
            self.archive()
            return
        for word in self.operands:
            self.assigned(word)
            if program.acting:
                self.acting(word)
        self.operand_paths()

    def acts(self) -> None:
        program = self.program
        if not self.spoken:
            return
        said = {self.spoken[0], *(" ".join(self.spoken[:n]) for n in (2, 3))}
        said |= {f"{base} {option}" for base in tuple(said) for option in self.options}
        canonical = program.same.get(self.spoken[0])
        if canonical is not None:
            said |= {" ".join([canonical, *self.spoken[1:n]]) for n in (1, 2)}
        for query in program.queries:
            if query in said:
                return
        for act in sorted(said, key=len, reverse=True):
            if act in program.acts:
                self.doubt("option", program.acts[act], "option", act.split()[-1])
                break
        if any(act in said for act in program.bulk):
            self.found.paths.append(PathUse((*self.located_here(),), "read", "operand", tree=True))
        if program.foreign_operands and any(act in said for act in program.foreign_operands):
            self.foreign_operands()

    def located_here(self) -> tuple[str, ...]:
        dot = Word(".", ".", (-1, -1), ())
        paths, unknown, _ = self.locate(dot, ".")
        return ("/",) if unknown else paths

    def foreign(self) -> None:
        assert self.program.foreign is not None
        name = self.operands[0].literal if self.operands else None
        installed = (
            f"node_modules/.bin/{name}" if name is not None and re.fullmatch(r"[\w.-]+", name) else None
        )
        fetches = {"-p", "--package", "--from", "--with", "-y", "--yes", "--spec"} & self.options
        self.found.doubts.append(
            Doubt("foreign-code", self.program.foreign, "program", None, None if fetches else installed, True)
        )

    def foreign_operands(self) -> None:
        for word in self.operands[1:]:
            text = word.text
            if _URL.match(text) or re.search(r"@\s*(?:git\+|https?:|file:)|^(?:github|gitlab|file):", text):
                self.doubt("foreign-code", "it fetches code from an address", "program")
                return
            if OUTSIDE.match(text) or ".." in text.split("/"):
                self.doubt("foreign-code", "it takes code from outside the workspace", "program", None, text)
        if self.spoken and self.spoken[0] in ("run", "exec", "x") and len(self.operands) > 1:
            text = self.operands[1].text
            if "@" in text and not text.startswith(("@", ".")):
                self.doubt("foreign-code", "it fetches code", "program")

    def interpreter(self) -> None:
        """A shell or an interpreter: which file it runs, or that it runs its input."""
        first = self.operands[0] if self.operands else None
        if first is None or first.text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
            if not {"--version", "-V", "-v", "--help", "-h"} & self.options or "-s" in self.options:
                self.found.input = True
            return
        if "-s" in self.options and self.program.shell:
            self.found.input = True
            return
        if self.program.operands == "write":  # an editor
            for word in self.operands:
                self.acting(word)
                self.path(word, "write", "operand")
            return
        if self.spoken and self.spoken[0] in (
            "test",
            "run",
            "task",
            "fmt",
            "lint",
            "check",
            "install",
            "compile",
            "build",
        ):
            return  # a sub-command of bun or deno
        self.found.script = first
        if first.literal is None:
            self.doubt("inline-code", "which script it runs is not known", "exact")
        elif _URL.match(first.text):
            self.doubt("foreign-code", "it runs code from an address", "program")
        elif OUTSIDE.match(first.text) or ".." in first.text.split("/"):
            self.doubt(
                "foreign-code", "it runs a script from outside the workspace", "program", None, first.text
            )
        self.path(first, "read", "operand")

    def source(self, word: Word, value: str | None) -> None:
        text = word.literal if value is None else value
        if word.literal is None or text is None:
            self.doubt("inline-code", "its script is not known", "exact")
            return
        problem = sed_problem(text) if self.program.language == "sed" else awk_problem(text)
        if problem is not None:
            self.doubt("inline-code", problem, "exact")

    def assigned(self, word: Word) -> None:
        name, equals, _ = word.text.partition("=")
        if not equals:
            return
        access = self.program.assigned.get(name)
        if access is not None:
            self.path(word, access, "option", option=f"{name}=", text=word.text[len(name) + 1 :])
        if name in self.program.assigned_asks:
            self.doubt("option", f"{name} changes what it runs", "exact")

    def acting(self, word: Word) -> None:
        text = word.text.casefold()
        if text.startswith(self.program.acting) and not text[1:].isdigit() and len(text) > 1:
            self.doubt("inline-code", f"`{word.text}` runs something", "exact")

    def archive(self) -> None:
        """tar and zip: what goes into an archive is copied, what comes out of one is written."""
        operands = list(self.operands)
        if self.program.archive == "zip":
            if operands:
                self.path(operands[0], "write", "operand")
                for word in operands[1:]:
                    self.path(word, "read", "operand", tree=True)
            return
        letters = "".join(option[1:] for option in self.options if len(option) == 2)
        if operands and len(self.words) > 1 and operands[0] is self.words[1]:
            letters += operands.pop(0).text  # the old style: `tar czf x.tar dir`
            if "f" in letters and operands:
                self.archive_file(operands.pop(0), letters)
        file = next(
            (
                self.words[i + 1]
                for i, w in enumerate(self.words[:-1])
                if w.text == "--file" or re.fullmatch(r"-[A-Za-z]*f", w.text)
            ),
            None,
        )
        if file is not None:
            self.archive_file(file, letters)
        making = bool({"--create", "--append", "--update", "--catenate"} & self.options) or any(
            c in letters for c in "cruA"
        )
        if making:
            for word in operands:
                text = word.text
                if self.base is not None and not text.startswith(("/", "~")):
                    joined = f"{self.base.text}/{text}"
                    unknown = self.base.literal is None or word.literal is None
                    self.path(word, "read", "operand", tree=True, text=joined, unknown=unknown)
                else:
                    self.path(word, "read", "operand", tree=True)
        elif "x" in letters or {"--extract", "--get"} & self.options:
            self.path(self.base or Word(".", ".", (-1, -1), ()), "write", "operand", tree=True)

    def archive_file(self, word: Word, letters: str) -> None:
        making = bool({"--create", "--append", "--update"} & self.options) or any(
            c in letters for c in "cruA"
        )
        self.path(word, "write" if making else "read", "option" if making else "operand", option="-f")

    def operand_paths(self) -> None:
        only = self.spec.scatters
        if only is not None and not (only & self.options or {"--help", "--version"} & self.options):
            self.found.paths.append(PathUse((), "write", "operand", unknown=True))
        kind = self.spec.operands or self.program.operands or "none"
        words = self.operands
        if self.spoken and self.spec is not self.program and self.spec.operands:
            words = words[1:]
        skip = 0 if self.spec.skip_unless & self.options else self.spec.skip
        paths = words[skip:]
        if self.spec.revisions:
            for word in paths:
                if ":" in word.text:
                    self.path(word, "read", "operand", text=word.text.partition(":")[2])
        tree = "*" in self.program.tree or bool(self.program.tree & self.options)
        if kind == "url":
            for word in words:
                self.found.urls.append(word.text)
                if "@" in word.text and "://" not in word.text:  # `http post host file@name`
                    self.mention(word, word.text)
                if word.text.casefold().startswith("file:"):
                    self.path(word, "read", "operand", text=word.text.partition("://")[2])
            if (
                self.program.names[0] == "wget"
                and words
                and not {"-O", "--output-document", "--spider"} & self.options
            ):
                self.doubt("option", "writes a file named by the address", "exact")
            return
        if kind == "none":
            return
        if kind == "named":
            for word in words:
                self.mention(word, word.text)
            return
        if kind in ("copy", "copy_if_two"):
            target = self.options & self.program.writes & {"-t", "--target-directory"}
            last = None if target or len(paths) < 2 else paths[-1]
            for word in paths:
                if word is last:
                    self.local(word, "write", tree=False)
                else:
                    self.local(word, "read", tree=tree)
            return
        if kind == "move":
            for word in paths:
                self.local(word, "read", tree=tree)
                self.local(word, "write", tree=False)
            return
        access: Access = "write" if kind == "write" else "read"
        changing = bool(self.program.in_place & self.options)
        for word in paths:
            if word.text == "-":
                continue
            self.path(word, access, "operand", tree=tree)
            if changing:
                option = next(iter(sorted(self.program.in_place & self.options)))
                self.path(word, "write", "option", option=option)
        if self.program.critical and (tree or self.program.names[0] != "rm"):
            self.critical(paths, tree)

    def local(self, word: Word, access: Access, *, tree: bool) -> None:
        """An operand that may name another machine."""
        if re.match(r"(?:[\w.-]+@)?[\w.-]+:|[\w+.-]+://", word.text) and self.program.names[0] in (
            "scp",
            "rsync",
        ):
            return
        self.path(word, access, "operand", tree=tree)

    def critical(self, words: Sequence[Word], tree: bool) -> None:
        for word in words:
            text = re.sub(r"/+", "/", word.text)
            plain = text.rstrip("/") or "/"
            first_unknown = bool(word.pieces) and not word.pieces[0].known
            if self.program.names[0] != "rm":
                if tree and (plain in ("/", "~", "/*", "~/*") or first_unknown):
                    self.doubt("critical", f"it would change everything in {word.text}", "nothing")
                continue
            top = re.fullmatch(r"/[^/]+(?:/\*)?", plain) and plain not in ("/tmp",)
            if plain in _CRITICAL or top or re.fullmatch(r"(?:\.\./)*\.\.(?:/\*)?", plain):
                self.doubt("critical", f"it would remove {word.text}", "nothing")
            elif first_unknown:
                self.doubt("critical", f"what it would remove by {word.text} is not known", "nothing")
