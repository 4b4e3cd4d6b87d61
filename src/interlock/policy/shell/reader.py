"""Reading a command line as bash would, strictly: what is not known for certain is refused.

Lives here: `read`, a recursive descent over the part of the grammar that people and models write. It refuses
(`Unreadable`) extended globs, line breaks inside words, escapes inside backticks and other places in which shells and
parsers have their own ideas. `agreement.py` holds it against tree-sitter.
"""

from __future__ import annotations

import re

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
from interlock.policy.shell.wording import ENDS_WORD, META, Pieces, WordReader

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=|\[)")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)+")
_REDIRECT = re.compile(r"([0-9]*)(<<<|<<-|<<|<>|<&|<|>>|>&|>\||>)|(&>>|&>)")
_JOINED = re.compile(r"[$<>&|;(]\\\n[<>&|;({)=]|\$\\\n")  # an operator over two lines
_RESERVED = frozenset(
    [
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "while",
        "until",
        "do",
        "done",
        "for",
        "select",
        "in",
        "case",
        "esac",
        "function",
        "{",
        "}",
        "!",
        "[[",
        "]]",
        "time",
        "coproc",
    ]
)
_OPENING = frozenset(["if", "while", "until", "for", "select", "case", "function", "{", "[[", "coproc"])
_DECLARES = frozenset(["declare", "typeset", "local", "export", "readonly"])


def read(source: str) -> Sequence:
    """
    Raises:
        Unreadable: broken, or a form that is not followed.
    """
    if joined := _JOINED.search(source):
        raise Unreadable("an operator is broken over two lines", joined.start())
    reader = _Reader(source)
    sequence = reader.sequence(())
    if reader.at < len(source):
        raise Unreadable(f"{source[reader.at]!r} is not expected here", reader.at)
    reader.settled()
    return sequence


class _Reader(WordReader):
    """The part that reads lists and commands."""

    # Moving

    def blanks(self) -> None:
        """Past blanks, continued lines and a comment."""
        if found := _BLANKS.match(self.source, self.at, self.end):
            self.at = found.end()
        if self.char == "#":
            before = self.source[self.at - 1] if self.at else " "
            if before in ENDS_WORD or before == "`":
                line = self.source.find("\n", self.at, self.end)
                self.at = self.end if line < 0 else line

    def lines(self) -> None:
        """Past blanks and ends of lines."""
        self.blanks()
        while self.char == "\n":
            self.newline()
            self.blanks()

    def newline(self) -> None:
        self.at += 1
        waiting, self.waiting = self.waiting, []
        for delimiter, quoted, tabs, done in waiting:
            done(self.document(delimiter, quoted, tabs))

    def settled(self) -> None:
        if self.waiting:
            raise self.refuse("a here-document has no body")

    def commands(self, start: int, end: int) -> tuple[Sequence, int]:
        inner = _Reader(self.source, start, end, self.deeper())
        found = inner.sequence(())
        inner.settled()
        return found, inner.at

    # Lists

    def sequence(self, until: tuple[str, ...]) -> Sequence:
        """Up to the end, `)`, `;;` or one of these reserved words, which is left to be read."""
        items: list[AndOr] = []
        background: list[bool] = []
        while True:
            self.lines()
            if self.at >= self.end or self.char == ")" or self.peek(";;") or self.peek(";&"):
                break
            if until and self.reserved() in until:
                break
            items.append(self.and_or())
            self.blanks()
            background.append(False)
            if self.peek(";;") or self.peek(";&"):
                break
            if self.char == ";":
                self.at += 1
            elif self.char == "&":
                self.at += 1
                background[-1] = True
            elif self.char == "\n":
                self.newline()
            elif self.at < self.end and self.char != ")":
                raise self.refuse(f"{self.char!r} is not expected here")
        return Sequence(tuple(items), tuple(background))

    def body(self, *until: str) -> Sequence:
        """A list that must not be empty, and the reserved word after it."""
        found = self.sequence(until)
        if not found.items:
            raise self.refuse("a list of commands is empty")
        return found

    def and_or(self) -> AndOr:
        first = self.pipeline()
        rest: list[tuple[str, Pipeline]] = []
        while True:
            self.blanks()
            if not (self.peek("&&") or self.peek("||")):
                return AndOr(first, tuple(rest))  # type: ignore[arg-type]  # the two operators, just checked
            op = self.source[self.at : self.at + 2]
            self.at += 2
            self.lines()
            rest.append((op, self.pipeline()))

    def pipeline(self) -> Pipeline:
        while (word := self.reserved()) in ("!", "time"):
            self.at += len(word)
            self.blanks()
            if word == "time":
                while found := re.compile(r"-p(?=[ \t])|--(?=[ \t])").match(self.source, self.at, self.end):
                    self.at = found.end()
                    self.blanks()
                if self.char == "-":
                    raise self.refuse("`time` has options that are not followed")
        stages = [self.command()]
        while True:
            self.blanks()
            if self.char != "|" or self.peek("||"):
                return Pipeline(tuple(stages))
            self.at += 2 if self.peek("|&") else 1
            self.lines()
            stages.append(self.command())

    def reserved(self) -> str:
        """The reserved word here, not yet read; empty if there is none."""
        end = self.at
        while end < self.end and self.source[end] not in ENDS_WORD:
            end += 1
            if end - self.at > 8:
                return ""
        word = self.source[self.at : end]
        return word if word in _RESERVED else ""

    # Commands

    def command(self) -> Command:
        self.blanks()
        word = self.reserved()
        if self.char == "(":
            return self.arithmetic_command() if self.peek("((") else self.subshell()
        if word in _OPENING:
            self.at += len(word)
            depth, self.depth = self.depth, self.deeper()
            try:
                return self.compound(word)
            finally:
                self.depth = depth
        if word and word != "time":
            raise self.refuse(f"`{word}` is not expected here")
        return self.simple()

    def compound(self, word: str) -> Command:
        match word:
            case "{":
                if self.char and self.char not in META:
                    raise self.refuse("`{` is part of a word")
                body = self.body("}")
                self.closing("}")
                return Group(body, False, self.redirects())
            case "if":
                return self.conditional()
            case "while" | "until":
                condition = self.body("do")
                return While(condition, self.do_group(), self.redirects())
            case "for" | "select":
                return self.loop()
            case "case":
                return self.choice()
            case "function":
                start = self.at
                self.blanks()
                name = self.plain_word("a function's name")
                self.blanks()
                if self.peek("("):
                    self.at += 1
                    self.blanks()
                    self.expect(")")
                return self.function(name, start)
            case "[[":
                return self.test()
            case _:
                raise self.refuse(f"`{word}` is not followed")

    def closing(self, word: str) -> None:
        if self.reserved() != word:
            raise self.refuse(f"`{word}` is missing")
        self.at += len(word)

    def subshell(self) -> Group:
        depth, self.depth = self.depth, self.deeper()
        self.expect("(")
        body = self.body()
        self.expect(")")
        self.depth = depth
        return Group(body, True, self.redirects())

    def conditional(self) -> If:
        conditions = [self.body("then")]
        branches: list[Sequence] = []
        self.closing("then")
        while True:
            branches.append(self.body("elif", "else", "fi"))
            word = self.reserved()
            self.at += len(word)
            if word == "elif" and len(branches) == len(conditions):
                conditions.append(self.body("then"))
                self.closing("then")
            elif word == "else" and len(branches) == len(conditions):
                branches.append(self.body("fi"))
                self.closing("fi")
                break
            elif word == "fi":
                break
            else:
                raise self.refuse("`fi` is missing")
        return If(tuple(conditions), tuple(branches), self.redirects())

    def do_group(self) -> Sequence:
        self.lines()
        self.closing("do")
        body = self.body("done")
        self.closing("done")
        return body

    def loop(self) -> Command:
        self.blanks()
        if self.peek("(("):
            self.at += 2
            inside = self.arithmetic("))")
            self.blanks()
            if self.char == ";":
                self.at += 1
            return Test(inside, self.do_group(), self.redirects())
        name = self.plain_word("a variable's name")
        if not _NAME.fullmatch(name):
            raise self.refuse("a variable's name is expected")
        self.lines()
        values: list[Token] | None = None
        if self.reserved() == "in":
            self.at += 2
            values = []
            self.blanks()
            while self.char and self.char not in ";\n":
                if self.char in ENDS_WORD and not self.substitutes():
                    raise self.refuse(f"{self.char!r} is not expected here")
                values.extend(self.words())
                self.blanks()
        if self.char == ";":
            self.at += 1
        return For(name, None if values is None else tuple(values), self.do_group(), self.redirects())

    def choice(self) -> Case:
        self.blanks()
        subject = self.token()
        self.lines()
        self.closing("in")
        clauses: list[tuple[tuple[Token, ...], Sequence]] = []
        while True:
            self.lines()
            if self.reserved() == "esac":
                self.at += 4
                return Case(subject, tuple(clauses), self.redirects())
            if self.char == "(":
                self.at += 1
                self.blanks()
            patterns = [self.token()]
            self.blanks()
            while self.char == "|":
                self.at += 1
                self.blanks()
                patterns.append(self.token())
                self.blanks()
            self.expect(")")
            clauses.append((tuple(patterns), self.sequence(("esac",))))
            for end in (";;&", ";;", ";&"):
                if self.peek(end):
                    self.at += len(end)
                    break
            else:
                if self.reserved() != "esac":
                    raise self.refuse("`esac` is missing")

    def function(self, name: str, start: int) -> Function:
        self.lines()
        body = self.command()
        if isinstance(body, Simple | Function):
            raise self.refuse("a function has no body")
        return Function(name, body, (start, self.at))

    def arithmetic_command(self) -> Test:
        self.at += 2
        inside = self.arithmetic("))")
        return Test(inside, None, self.redirects())

    def test(self) -> Test:
        inside: list[Sequence] = []
        while True:
            self.lines()
            if self.at >= self.end:
                raise self.refuse("`]]` is missing")
            if self.reserved() == "]]":
                self.at += 2
                return Test(tuple(inside), None, self.redirects())
            for op in ("&&", "||", "(", ")", "<", ">"):
                if self.peek(op):
                    if self.substitutes():
                        raise self.refuse("a process substitution in a test is not followed")
                    self.at += len(op)
                    break
            else:
                inside.extend(self.token(test=True).inside)

    # Simple commands

    def simple(self) -> Command:
        start = self.at
        assigns: list[Assign] = []
        tokens: list[Token] = []
        redirects: list[Redirect] = []
        end = start
        while True:
            self.blanks()
            if redirect := self.redirect():
                redirects.append(redirect)
                end = self.at
                continue
            if not self.char or (self.char in ENDS_WORD and not self.substitutes()):
                if self.char == "(" and len(tokens) == 1 and not assigns and not redirects:
                    return self.definition(tokens[0], start)
                if self.char == "(":
                    raise self.refuse("`(` is not expected here")
                break
            declares = bool(tokens) and tokens[0].word.literal in _DECLARES
            if (not tokens or declares) and (assign := self.assign()):
                if tokens:
                    tokens.extend(_as_tokens(assign, self.source))
                else:
                    assigns.append(assign)
            else:
                tokens.extend(self.words())
            end = self.at
        if not assigns and not tokens and not redirects:
            raise self.refuse("a command is missing")
        if tokens and any(assign.array for assign in assigns):
            raise self.refuse("an array before a command")
        return Simple(tuple(assigns), tuple(tokens), tuple(redirects), (start, end))

    def definition(self, token: Token, start: int) -> Function:
        name = token.word.literal
        if name is None or token.word.quoted:
            raise self.refuse("a function's name is not plain")
        self.at += 1
        self.blanks()
        self.expect(")")
        depth, self.depth = self.depth, self.deeper()
        found = self.function(name, start)
        self.depth = depth
        return found

    def plain_word(self, what: str) -> str:
        token = self.token()
        if token.word.literal is None or token.word.quoted:
            raise self.refuse(f"{what} is expected")
        return token.word.text

    def assign(self) -> Assign | None:
        found = _ASSIGNED.match(self.source, self.at, self.end)
        if not found:
            return None
        start = self.at
        subscript: list[Sequence] = []
        if found[2] == "[":
            close = self.subscript(found.end())
            if close is None:
                return None
            subscript, at = close
            operator = "+=" if self.source.startswith("+=", at) else "="
            self.at = at + len(operator)
        else:
            operator = found[2]
            self.at = found.end()
        values: list[Token] = []
        array = self.char == "("
        if array:
            self.at += 1
            while True:
                self.lines()
                if self.char == ")":
                    self.at += 1
                    break
                if not self.char or (self.char in ENDS_WORD and not self.substitutes()):
                    raise self.refuse("an array is not closed")
                values.extend(self.words())
        elif self.char and (self.char not in ENDS_WORD or self.substitutes()):
            values.append(self.token(value=True))
        if self.char and self.char not in ENDS_WORD:
            raise self.refuse("a word follows an array")
        source = self.source[start : self.at]
        return Assign(
            found[1], tuple(values), source, (start, self.at), array, operator == "+=", tuple(subscript)
        )

    def subscript(self, at: int) -> tuple[list[Sequence], int] | None:
        """What is nested in `name[…]`, and where its `=` is; None if it is a word after all."""
        before, self.at = self.at, at
        pieces = Pieces()
        while self.char and self.char not in ENDS_WORD and self.char != "]":
            self.step(pieces)
        closed = self.at + 1
        self.at, found = before, self.source[self.at : self.at + 1] == "]"
        if found and (self.source.startswith("=", closed) or self.source.startswith("+=", closed)):
            return pieces.inside, closed
        return None

    def redirects(self) -> tuple[Redirect, ...]:
        """Those after a compound command."""
        found: list[Redirect] = []
        while True:
            self.blanks()
            redirect = self.redirect()
            if redirect is None:
                return tuple(found)
            found.append(redirect)

    def redirect(self) -> Redirect | None:
        found = _REDIRECT.match(self.source, self.at, self.end)
        if not found:
            return None
        operator = found[2] or found[3]
        if operator in ("<", ">") and self.source.startswith("(", found.end()):
            return None  # a process substitution
        if found[3] is None and found[1] and self.at and self.source[self.at - 1] not in ENDS_WORD:
            return None
        self.at = found.end()
        self.blanks()
        if not self.char or (self.char in ENDS_WORD and not self.substitutes()):
            raise self.refuse("a redirection has no target")
        target = self.token()
        if self.char and self.char in "<>" and target.word.source.isdigit():
            raise self.refuse("a redirection has no target")
        if operator in ("<<", "<<-"):
            return self.here(operator, target)
        return Redirect(operator, target, found[1] or "")

    def here(self, operator: str, mark: Token) -> Redirect:
        """A here-document: its body is filled in when its lines come."""
        if any(not piece.known for piece in mark.word.pieces) or "\\" in mark.word.source:
            raise self.refuse("the end mark of a here-document is not plain")
        redirect = Redirect(operator, mark)

        def done(body: Token) -> None:
            object.__setattr__(redirect, "target", body)

        self.waiting.append((mark.word.text, mark.word.quoted, operator == "<<-", done))
        return redirect

    def document(self, delimiter: str, quoted: bool, tabs: bool) -> Token:
        start = at = self.at
        continued = False
        while True:
            if at >= self.end:
                raise self.refuse("a here-document has no end")
            line_end = self.source.find("\n", at, self.end)
            line_end = self.end if line_end < 0 else line_end
            line = self.source[at:line_end]
            if (line.lstrip("\t") if tabs else line) == delimiter:
                if continued:
                    raise self.refuse("a here-document ends after a continued line")
                break
            continued = not quoted and (len(line) - len(line.rstrip("\\"))) % 2 == 1
            at = line_end + 1
        after = min(line_end + 1, self.end)
        if quoted:
            body = Pieces()
            body.quoted = True
            body.add(self.source[start:at])
            token = body.token(self.source, start, at)
        else:
            inner = _Reader(self.source, start, at, self.deeper())
            token = inner.quoted_text(heredoc=True)
        # The newline before the mark belongs to the body; the one after it ends the line that is read on.
        self.at = after
        return token


def _as_tokens(assign: Assign, source: str) -> list[Token]:
    """An assignment that is an argument of `declare` and the like."""
    if assign.array or assign.subscript:
        pieces = Pieces()
        for value in assign.values:
            pieces.inside.extend(value.inside)
        pieces.inside.extend(assign.subscript)
        pieces.unknown(assign.source, splits=False)
        return [pieces.token(source, *assign.span)]
    pieces = Pieces()
    head = f"{assign.name}+=" if assign.append else f"{assign.name}="
    pieces.add(head)
    for value in assign.values:
        pieces.pieces.extend(value.word.pieces)
        pieces.inside.extend(value.inside)
        pieces.variables.extend(value.variables)
        pieces.quoted |= value.word.quoted
    return [pieces.token(source, *assign.span)]
