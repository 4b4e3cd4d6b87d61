"""Asking at the terminal: what would happen, why it is asked, and one line for the answer.

Lives here: `TerminalApprover`, and `question`, the same as plain text. It shows the call as it would run, and takes only
a clear yes for a yes, typed after the question was on the screen.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from interlock.log.strictjson import FrozenDict, NotJSON, parse, thaw
from interlock.policy.approval import ApprovalRequest, Approved, Rejected
from interlock.policy.aside import aside
from interlock.policy.lines import Lines, LineTooLong
from interlock.policy.preview import Kind, Line, preview
from interlock.policy.printable import one_line, printable
from interlock.tools.arguments import InvalidArguments

if TYPE_CHECKING:
    from rich.console import Console

_STYLES: dict[Kind, str] = {
    "plain": "",
    "added": "green",
    "removed": "red",
    "place": "cyan",
    "note": "dim",
    "command": "bold",
}
NOBODY = "nobody answered at the terminal"


class TerminalApprover:
    """Asks on a terminal, one question at a time. An end of the input is a no."""

    how = "tty"
    channel = "terminal"

    def __init__(
        self,
        *,
        reading: TextIO | None = None,
        writing: TextIO | None = None,
        around: Callable[[bool], None] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """
        Args:
            reading, writing: streams; the process's own by default, the question on stderr.
            around: called with True before a question is shown and with False after the answer, so that a live
                display can step aside.
            environ: VISUAL or EDITOR names the program for editing arguments.
        """
        self._writing = writing or sys.stderr
        self._reading = reading or sys.stdin
        self._lines = Lines(self._reading)
        self._around = around
        self._editor = environ.get("VISUAL") or environ.get("EDITOR") or ""
        self._console: Console | None = None
        self._turn = asyncio.Lock()
        self._ended = True  # the cursor is at the beginning of a line

    async def __call__(self, request: ApprovalRequest, /) -> Approved | Rejected:
        async with self._turn:
            if self._around is not None:
                self._around(True)
            try:
                return await self._ask(request)
            except asyncio.CancelledError as withdrawn:
                why = str(withdrawn.args[0]) if withdrawn.args else ""
                if why:
                    self._print(Line("note", f"\n({printable(why)})"))
                raise
            finally:
                if not self._ended:  # nobody pressed Enter
                    self._say("\n")
                if self._around is not None:
                    self._around(False)

    async def _ask(self, request: ApprovalRequest) -> Approved | Rejected:
        edited: FrozenDict | None = None
        while True:
            for line in await aside(partial(_shown, request, edited)):
                self._print(line)
            said = await self._type(_prompt(request, edited is not None))
            if said is None:
                return Rejected(NOBODY)
            match said.lower():
                case "y" | "yes":
                    return Approved(arguments=edited, digest=request.digest)
                case "s" if edited is None and request.rule("session") is not None:
                    return Approved("session", digest=request.digest)
                case "a" if edited is None and request.rule("always") is not None:
                    return Approved("always", digest=request.digest)
                case "e":
                    edited = await self._edit(request, edited)
                case "n" | "no" | "":
                    return Rejected()
                case _:
                    return Rejected(said)

    # Editing

    async def _edit(self, request: ApprovalRequest, edited: FrozenDict | None) -> FrozenDict | None:
        """The arguments that are to run instead; what they were before if nothing came of it."""
        before = edited if edited is not None else request.call.arguments
        text = (
            await self._edited_in_editor(before) if self._by_editor else await self._edited_on_a_line(before)
        )
        if text is None or not text.strip():
            return edited
        try:
            value = parse(text.strip())
            if type(value) is not FrozenDict:
                raise NotJSON("arguments are a JSON object")
            request.call.tool.arguments.validate(value)
        except (NotJSON, InvalidArguments) as error:
            self._print(Line("note", f"Not taken: {printable(str(error))}"))
            return edited
        return value if value != request.call.arguments else None

    @property
    def _by_editor(self) -> bool:
        return bool(self._editor) and self._reading.isatty() and self._writing.isatty()

    async def _edited_on_a_line(self, before: FrozenDict) -> str | None:
        self._print(Line("plain", printable(json.dumps(thaw(before), ensure_ascii=False))))
        return await self._type("The arguments as JSON, on one line, or nothing to leave them: ")

    async def _edited_in_editor(self, before: FrozenDict) -> str | None:
        with tempfile.TemporaryDirectory(prefix="interlock-") as folder:
            file = Path(folder) / "arguments.json"
            file.touch(0o600)
            file.write_text(json.dumps(thaw(before), ensure_ascii=False, indent=2) + "\n")
            try:
                running = await asyncio.create_subprocess_exec(
                    *shlex.split(self._editor),
                    str(file),
                    stdin=self._reading.fileno(),
                    stdout=self._writing.fileno(),
                    stderr=self._writing.fileno(),
                )
            except (OSError, ValueError) as error:
                self._print(Line("note", f"{printable(self._editor)} cannot be started: {error}"))
                return None
            try:
                code = await running.wait()
            except asyncio.CancelledError:
                with suppress(ProcessLookupError):
                    running.terminate()
                await running.wait()
                raise
            if code:
                self._print(Line("note", f"{printable(self._editor)} ended with {code}: nothing is changed"))
                return None
            return file.read_text(errors="replace")

    # The screen

    async def _type(self, prompt: str) -> str | None:
        """What is typed after this was shown; None at the end of the input."""
        self._lines.forget()
        self._say(prompt)
        self._ended = False
        try:
            line = await self._lines.next()
        except LineTooLong:
            self._ended = True
            return "the answer was too long to read"
        self._ended = line.endswith(b"\n")
        return line.decode(errors="replace").strip() if line else None

    def _print(self, line: Line) -> None:
        from rich.console import Console
        from rich.text import Text

        if self._console is None:
            self._console = Console(file=self._writing, highlight=False, markup=False, emoji=False)
        self._console.print(Text(line.text, _STYLES[line.kind]), soft_wrap=True)
        self._ended = True

    def _say(self, text: str) -> None:
        print(text, end="", file=self._writing, flush=True)
        self._ended = text.endswith("\n")


def question(request: ApprovalRequest) -> str:
    """The question as plain text. It may read a file that the call would change."""
    lines = [line.text for line in _shown(request, None)]
    return "\n".join([*lines, _prompt(request, False)])


def _shown(request: ApprovalRequest, edited: Mapping[str, Any] | None) -> list[Line]:
    call = request.call
    lines = [Line("plain", f"\n{one_line(call.name)} wants to run: {one_line(request.question)}")]
    if edited is not None:
        lines = [Line("plain", f"\n{one_line(call.name)}, as you changed it:")]
    elif by := asked_by(request):
        lines.append(Line("note", f"  asked by {one_line(by)}"))
    lines += [
        Line(line.kind, f"  {line.text}")
        for line in preview(edited or call.arguments, call.tool.subject, call.cwd)
    ]
    if edited is not None:
        return lines
    session, always = request.rule("session"), request.rule("always")
    if session is not None:
        lines.append(Line("plain", f"  s = yes, and not asked again in this session: {one_line(session)}"))
    if always is not None:
        lines.append(Line("plain", f"  a = yes, and never asked again in this folder: {one_line(always)}"))
    if request.expires is not None:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(request.expires / 1000))
        lines.append(Line("note", f"  without an answer by {moment} it is a no"))
    return lines


def asked_by(request: ApprovalRequest) -> str:
    """Who made it ask: the rule with its file and line, the listener, or the preset."""
    asking = [said for said in request.call.said if said.answer in ("ask", "advise ask")]
    parts = []
    for said in asking:
        at = f"{said.file}:{said.line}" if said.file and said.line is not None else said.file or ""
        rule = f" {said.rule}" if said.rule and said.rule not in said.who else ""
        parts.append(f"{said.who}{rule}{f' ({at})' if at else ''}")
    return ", ".join(parts) or request.by


def _prompt(request: ApprovalRequest, edited: bool) -> str:
    if edited:
        return "Allow it so, once? [y/e/N, or say what to do instead] "
    more = "".join([f"{key}/" for key, name in (("s", "session"), ("a", "always")) if _offers(request, name)])
    return f"Allow it once? [y/{more}e/N, or say what to do instead] "


def _offers(request: ApprovalRequest, remember: str) -> bool:
    return any(option.startswith(f"{remember} ") for option in request.options)
