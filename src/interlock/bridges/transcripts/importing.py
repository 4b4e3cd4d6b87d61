"""Other tools' transcripts as sessions of ours.

Lives here: `import_transcript` and `import_transcripts`. A file is read twice: once to see that all of it can become a
lawful log, and once to write that log, so that nothing is half imported. It is never held whole; what is held is what
any open session holds, its history. The same file gives the same session, to the id and the time of every line.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from time import gmtime, strftime
from typing import TYPE_CHECKING, Literal, TypeAlias

from interlock.bridges.transcripts.assembling import Assembler
from interlock.bridges.transcripts.claude import ClaudeReader
from interlock.bridges.transcripts.codex import CodexReader
from interlock.bridges.transcripts.lines import BadTranscript, Line, TranscriptFile
from interlock.bridges.transcripts.openai_chat import (
    ChatReader,
    are_conversations,
    conversations,
    is_conversation,
    is_message,
)
from interlock.bridges.transcripts.reading import Malformed, Reader
from interlock.bridges.transcripts.writing import Nowhere, onwards
from interlock.errors import IllegalFact, UsageError
from interlock.log.facts import FORMAT, Origin, SessionCreated, SessionOpened
from interlock.log.session import Session
from interlock.version import VERSION

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.stores.store import Journal, Store

Format: TypeAlias = Literal["claude", "codex", "openai"]
FORMATS: Sequence[Format] = ("claude", "codex", "openai")
_READERS: Mapping[Format, type[ClaudeReader] | type[CodexReader] | type[ChatReader]] = {
    "claude": ClaudeReader,
    "codex": CodexReader,
    "openai": ChatReader,
}
_AT_ONCE = 200  # lines between two breaths
_LOOKED_AT = 50  # lines in which a format is looked for
_CLAUDE = {
    "user",
    "assistant",
    "system",
    "summary",
    "attachment",
    "file-history-snapshot",
    "queue-operation",
    "progress",
}


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a transcript.

    skipped: by kind, lines that say nothing about the conversation; those marked as kept are in the log as they were.
    lossy: by kind, what the log has not exactly as it was.
    """

    session_id: str
    events: int
    skipped: Mapping[str, int]
    lossy: Mapping[str, int] = field(default_factory=dict)
    format: Format = "claude"
    origin: Origin | None = None
    existed: bool = False  # it was imported before, and is as it was, or has been gone on with


async def import_transcript(
    path: str | Path,
    *,
    store: Store,
    format: Format | None = None,  # noqa: A002  # as users call it
    redact: Redactor | None = None,
) -> Imported:
    """Make a session of another tool's transcript.

    Args:
        format: found by looking at the file, if it is not given.
        redact: takes secrets out of every line before anything is made of it.

    Raises:
        BadTranscript: it is none, or holds several conversations; the store is untouched.
        StoreFailed: the store cannot be written. Import again when that is mended: it goes on where it was.
    """
    with closing(TranscriptFile(Path(path))) as file:
        plans = await _plans(file, format, redact)
        if len(plans) > 1:
            problem = f"it holds {len(plans):,} conversations; use import_transcripts, which makes a session of each"
            raise BadTranscript(path, 0, problem)
        return (await _write(file, plans, store, redact))[0]


async def import_transcripts(
    path: str | Path,
    *,
    store: Store,
    format: Format | None = None,  # noqa: A002  # as users call it
    redact: Redactor | None = None,
) -> list[Imported]:
    """As `import_transcript`, for a file that may hold several conversations, as those for fine-tuning do."""
    with closing(TranscriptFile(Path(path))) as file:
        return await _write(file, await _plans(file, format, redact), store, redact)


def format_of(file: TranscriptFile) -> Format:
    """The format of a file, by what its first lines look like.

    Raises:
        BadTranscript: it looks like none that is known.
    """
    whole = file.whole()
    if whole is not None and (is_conversation(whole.value) or are_conversations(whole.value)):
        return "openai"
    for line in file.lines():
        found = _looks_like(line.value)
        if found is not None:
            return found
        if line.number >= _LOOKED_AT:
            break
    raise BadTranscript(
        file.path,
        0,
        f"it looks like no transcript that is known; say which it is with --format {'|'.join(FORMATS)}",
    )


def _looks_like(value: object) -> Format | None:
    if is_conversation(value) or (is_message(value) and isinstance(value, dict) and "type" not in value):
        return "openai"
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    if isinstance(value.get("payload"), dict) or ("instructions" in value and kind is None):
        return "codex"
    if kind in ("message", "reasoning", "function_call") or "record_type" in value:
        return "codex"
    return (
        "claude"
        if kind in _CLAUDE and ("sessionId" in value or "uuid" in value or kind != "system")
        else None
    )


# Two passes


@dataclass(slots=True)
class _Plan:
    """A conversation that can be imported; what the first pass has found out about it."""

    format: Format
    modified: int  # the file, epoch ms
    events: int = 0
    origin: Origin | None = None
    reader: Reader | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    lossy: Counter[str] = field(default_factory=Counter)

    def settle(self, digest: str) -> None:
        """All of it was read."""
        assert self.reader is not None
        about = self.reader.about
        self.origin = Origin(self.reader.program, digest, about.version, about.session or None)

    @property
    def cwd(self) -> str | None:
        return self.reader.about.cwd if self.reader is not None else None

    @property
    def started(self) -> int:
        """Epoch ms."""
        began = self.reader.about.started if self.reader is not None else None
        return self.modified if began is None else began

    @property
    def session_id(self) -> str:
        """It sorts by the time of the conversation, and is the same whenever the same file is read."""
        digest = self.origin.digest[:8] if self.origin is not None else ""
        return f"{strftime('%Y%m%d-%H%M%S', gmtime(self.started / 1000))}-{digest}"


async def _plans(file: TranscriptFile, format_: Format | None, redact: Redactor | None) -> list[_Plan]:
    """Go through all of it, writing nowhere."""
    chosen = format_ or format_of(file)
    if chosen not in FORMATS:
        raise UsageError(f"no transcripts of format {chosen!r} are known; there are {', '.join(FORMATS)}")
    plans: list[_Plan] = []
    for lines in _conversations(file, chosen):
        plan = _Plan(chosen, file.modified)
        journal = Nowhere()
        plan.reader = await _tell(file, lines, journal, plan, redact)
        plan.events = journal.head + 1
        plans.append(plan)
    if not plans:
        raise BadTranscript(file.path, 0, "there is nothing in it")
    if file.cut:
        plans[-1].skipped["last line, which is cut off"] += 1
    for index, plan in enumerate(plans):
        digest = file.digest
        if len(plans) > 1:
            digest = blake2b(f"{digest} {index}".encode(), digest_size=16).hexdigest()
        plan.settle(digest)
    return plans


async def _write(
    file: TranscriptFile, plans: Sequence[_Plan], store: Store, redact: Redactor | None
) -> list[Imported]:
    """Go through it again, and write what was planned."""
    made: list[Imported] = []
    for plan, lines in zip(plans, _conversations(file, plans[0].format), strict=True):
        journal = await onwards(store, plan.session_id, plan.events)
        try:
            await _tell(file, lines, journal, replace(plan, skipped=Counter(), lossy=Counter()), redact)
        finally:
            await journal.close()
        made.append(
            Imported(
                plan.session_id,
                plan.events,
                dict(sorted(plan.skipped.items())),
                dict(sorted(plan.lossy.items())),
                plan.format,
                plan.origin,
                not journal.written,
            )
        )
    return made


def _conversations(file: TranscriptFile, format_: Format) -> Iterator[Iterator[Line]]:
    """What becomes a session each."""
    if format_ != "openai":
        return iter((file.lines(),))
    whole = file.whole()
    if whole is not None and are_conversations(whole.value):
        return iter([iter((whole._replace(value=one),)) for one in whole.value])
    if whole is not None and is_conversation(whole.value):
        return iter((iter((whole,)),))
    return conversations(file.lines())


async def _tell(
    file: TranscriptFile, lines: Iterator[Line], journal: Journal, plan: _Plan, redact: Redactor | None
) -> Reader:
    """Make a log of one conversation.

    Raises:
        BadTranscript: a line is not of the format.
    """
    session = Session(plan.session_id, journal, clock=lambda: to.now)
    reader_of = _READERS[plan.format]
    to = Assembler(session, reader_of.program, skipped=plan.skipped, lossy=plan.lossy)
    to.now = plan.started
    session.append(
        SessionCreated(FORMAT, plan.session_id, plan.cwd, package=VERSION, imported=plan.origin),
        SessionOpened(1, "new"),
    )
    reader: Reader = reader_of(to, plan.modified)
    try:
        for n, line in enumerate(lines, 1):
            to.line = line.number
            if line.mended:
                plan.lossy["line with half a character, replaced"] += 1
            if redact is not None:
                clean = redact.value(line.value)
                if clean is not line.value:
                    plan.lossy["line with a secret, taken out"] += 1
                    line = line._replace(value=clean)
            reader.take(line)
            if n % _AT_ONCE == 0:
                await session.barrier()
                await asyncio.sleep(0)
        reader.over()
    except (Malformed, IllegalFact) as problem:
        raise BadTranscript(file.path, to.line, str(problem)) from problem
    await session.barrier()
    return reader
