"""Importing as such: what is refused and how, that nothing is half imported, and that the log can be used."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock import Agent, Event, MemoryStore, SQLiteStore, StoreFailed, open_session
from interlock.bridges.transcripts import BadTranscript, Imported, import_transcript, import_transcripts
from interlock.bridges.transcripts import importing as module
from interlock.bridges.transcripts import lines as lines_module
from interlock.errors import DuplicateSession, UsageError
from interlock.log.event import encode_event
from interlock.log.redaction.redactor import Redactor
from interlock.log.stores.memory.store import MemoryJournal
from interlock.testing import ScriptedModel, assert_laws, says

from .telling import REJECTED, Claude, Codex, at, text, thinking, use, write


def rich_claude() -> Claude:
    """One of nearly everything."""
    claude = Claude()
    claude.lines.append({"type": "summary", "summary": "Earlier", "leafUuid": "x"})
    claude.line("file-history-snapshot", snapshot={})
    claude.user("Caveat", isMeta=True)
    start = claude.user("Find and fix it")
    claude.answer(
        thinking("Hm."), text("I ask two."), use("t1", "Task", prompt="Find"), use("t2", "Bash", command="ls")
    )
    root = claude.user("Find", parent=None, side=True)
    claude.answer(use("s1", "Grep", pattern="x"), parent=root, side=True)
    claude.result("s1", "a.py", parent=root, side=True)
    claude.result("t2", "a.py", told={"stdout": "a.py", "interrupted": False})
    claude.result("t1", "In a.py")
    claude.line(
        "attachment", attachment={"type": "queued_command", "prompt": "quickly", "commandMode": "prompt"}
    )
    claude.line("system", subtype="api_error", error={"status": 529})
    claude.answer(use("t3", "Edit", file_path="a.py", old_string="x", new_string="y"))
    claude.result("t3", REJECTED, error=True, told="User rejected tool use")
    claude.user([text("[Request interrupted by user for tool use]")])
    claude.user(
        [
            text("Try this"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
        ]
    )
    claude.answer(text("Done."), stop="end_turn")
    claude.line("system", subtype="turn_duration", durationMs=5)
    claude.line(
        "system",
        parent=None,
        subtype="compact_boundary",
        compactMetadata={"preservedMessages": {"uuids": [start]}},
    )
    claude.user("Summary", isCompactSummary=True)
    before = claude.user("And now?")
    claude.answer(text("Now nothing."))
    claude.user("And then?", parent=before)
    claude.answer(text("API Error"), isApiErrorMessage=True, error="rate_limit")
    claude.user("Go on")
    claude.answer(use("t4", "Bash", command="make"))
    return claude


def rich_codex() -> Codex:
    codex = Codex()
    codex.said("user", "<environment_context>here</environment_context>")
    codex.turn("Work")
    codex.item("reasoning", summary=[{"type": "summary_text", "text": "Hm."}])
    codex.call("c1", "shell", command=["bash", "-lc", "ls"])
    codex.patch("c2", "*** Begin Patch\n*** Add File: a\n+x\n*** Delete File: b\n*** End Patch")
    codex.tokens()
    codex.output("c1", "aborted by user after 1s")
    codex.output("c2", [{"type": "output_text", "text": "ok"}], "custom_tool_call_output")
    codex.item("custom_tool_call", call_id="c3", name="exec", input="code")
    codex.event(
        "item_completed",
        item={"type": "CommandExecution", "id": "e", "command": ["ls"], "status": "completed"},
    )
    codex.output("c3", "done", "custom_tool_call_output")
    codex.item("web_search_call", action={"query": "x"})
    codex.said("assistant", "Done.")
    codex.event("task_complete")
    codex.line(
        "compacted",
        message="Summary",
        replacement_history=[{"type": "message", "role": "user", "content": "x"}],
    )
    codex.turn("More")
    codex.event("stream_error", message="again")
    codex.said("assistant", "More.")
    codex.event("thread_rolled_back", num_turns=1)
    codex.turn("Else")
    codex.call("c4", "spawn_agent", message="x")
    codex.event("turn_aborted", reason="interrupted")
    codex.turn("Last")
    codex.event("error", message="limit")
    return codex


CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": "x"}}],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "1"},
    {"role": "assistant", "content": "One.", "function_call": {"name": "g", "arguments": "{"}},
    {"role": "function", "name": "g", "content": "2"},
]
RICH: dict[str, Sequence[dict[str, Any]]] = {
    "claude": rich_claude().lines,
    "codex": rich_codex().lines,
    "openai": CHAT,
}


async def dump(store: Any, session_id: str) -> list[bytes]:
    session = await open_session(session_id, store=store, readonly=True)
    return [encode_event(event) for event in session.events]


async def imported_lawfully(path: Path, format_: Any = None) -> Imported:
    store = MemoryStore()
    made = await import_transcript(path, store=store, format=format_)
    session = await open_session(made.session_id, store=store, readonly=True)
    assert_laws(session)
    assert not session.open
    return made


# What it is


@pytest.mark.parametrize("name", RICH)
async def test_the_format_is_found_by_the_lines(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "some.jsonl", RICH[name])
    assert (await import_transcript(path, store=MemoryStore())).format == name


@pytest.mark.parametrize("name", RICH)
async def test_the_same_file_gives_the_same_session_to_the_last_byte(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "some.jsonl", RICH[name])
    first, second = MemoryStore(), MemoryStore()
    one = await import_transcript(path, store=first)
    two = await import_transcript(path, store=second)
    assert one == two
    assert await dump(first, one.session_id) == await dump(second, two.session_id)


@pytest.mark.parametrize("name", RICH)
async def test_a_store_on_disk_has_the_same_lines(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "some.jsonl", RICH[name])
    memory = MemoryStore()
    made = await import_transcript(path, store=memory)
    async with SQLiteStore(tmp_path / "agents.db") as store:
        await import_transcript(path, store=store)
        assert await dump(store, made.session_id) == await dump(memory, made.session_id)


async def test_importing_again_changes_nothing_also_when_the_session_was_gone_on_with(tmp_path: Path) -> None:
    path = rich_claude().save(tmp_path)
    store = MemoryStore()
    made = await import_transcript(path, store=store)
    assert not made.existed
    async with Agent(ScriptedModel(says("Yes.")), session=made.session_id, store=store) as agent:
        await agent.run("Still there?")
    before = await dump(store, made.session_id)
    again = await import_transcript(path, store=store)
    assert again.existed
    assert again.session_id == made.session_id
    assert await dump(store, made.session_id) == before


async def test_a_transcript_that_has_grown_is_another_session(tmp_path: Path) -> None:
    claude = rich_claude()
    store = MemoryStore()
    first = await import_transcript(claude.save(tmp_path), store=store)
    claude.result("t4", "made")
    second = await import_transcript(claude.save(tmp_path), store=store)
    assert first.session_id != second.session_id
    assert len(await store.list()) == 2


async def test_another_session_of_that_name_is_not_touched(tmp_path: Path) -> None:
    path = rich_claude().save(tmp_path)
    elsewhere = await import_transcript(path, store=MemoryStore())
    store = MemoryStore()
    async with Agent(ScriptedModel(says("Mine.")), store=store) as agent:
        await agent.run("Mine?")
        other = list(agent.session.events)
    journal = await store.create(elsewhere.session_id)
    journal.write(other)
    await journal.close()
    with pytest.raises(DuplicateSession):
        await import_transcript(path, store=store)
    assert [encode_event(event) for event in other] == await dump_raw(store, elsewhere.session_id)


async def dump_raw(store: MemoryStore, session_id: str) -> list[bytes]:
    return [encode_event(event) for event in (await store.open(session_id, readonly=True)).read()]


# What one can do with it


@pytest.mark.parametrize("name", RICH)
async def test_the_next_turn_runs_on_what_was_said(tmp_path: Path, name: str) -> None:
    store = MemoryStore()
    made = await import_transcript(write(tmp_path / "some.jsonl", RICH[name]), store=store)
    model = ScriptedModel(says("Yes."))
    async with Agent(model, session=made.session_id, store=store) as agent:
        before = list(agent.session.history.view())
        result = await agent.run("Still there?")
        assert_laws(agent.session)
    assert result.text == "Yes."
    assert list(model.requests[0].messages)[:-1] == before


@pytest.mark.parametrize("name", RICH)
async def test_every_beginning_of_a_transcript_is_a_transcript(tmp_path: Path, name: str) -> None:
    for n in range(1, len(RICH[name]) + 1):
        await imported_lawfully(write(tmp_path / f"{n}.jsonl", RICH[name][:n]), name)


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(list(RICH)), st.randoms(use_true_random=False))
def test_lines_that_are_lost_doubled_or_out_of_order_break_no_law(name: str, rng: random.Random) -> None:
    lines = [line for line in RICH[name] for _ in range(rng.choice((0, 1, 1, 1, 2)))]
    for _ in range(rng.randrange(4)):
        if lines:
            lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))
    if lines:
        with TemporaryDirectory() as folder:
            asyncio.run(imported_lawfully(write(Path(folder) / "some.jsonl", lines), name))


JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    2**70,
    "",
    "x",
    "\ud800",
    [],
    [None],
    ["x"],
    {},
    {"type": "text"},
    [{"type": "image"}],
]


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(list(RICH)), st.randoms(use_true_random=False))
def test_nonsense_within_the_lines_is_refused_with_its_line_or_imported_lawfully(
    name: str, rng: random.Random
) -> None:
    lines = json.loads(json.dumps(RICH[name]))
    for _ in range(rng.randint(1, 3)):
        _spoil(rng.choice(lines), rng)
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "some.jsonl", lines)
        try:
            asyncio.run(imported_lawfully(path, name))
        except BadTranscript as refused:
            where = refused.line
            assert where > 0  # either is right, as long as the line is named


def _spoil(value: Any, rng: random.Random) -> None:
    """Put nonsense somewhere into it."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = rng.choice(keys)
    if isinstance(value[key], (dict, list)) and value[key] and rng.random() < 0.8:
        _spoil(value[key], rng)
    elif rng.random() < 0.2 and isinstance(value, dict):
        del value[key]
    else:
        value[key] = deepcopy(rng.choice(JUNK))


@pytest.mark.parametrize("name", RICH)
async def test_secrets_are_taken_out_before_anything_is_made_of_them(tmp_path: Path, name: str) -> None:
    lines = json.loads(
        json.dumps(RICH[name]).replace("Done.", "hunter2-and-more").replace("One.", "hunter2-and-more")
    )
    store = MemoryStore()
    path = write(tmp_path / "some.jsonl", lines)
    made = await import_transcript(path, store=store, redact=Redactor({"password": "hunter2-and-more"}))
    told = b"".join(await dump(store, made.session_id))
    assert b"hunter2" not in told
    assert b"[redacted:password]" in told
    assert made.lossy["line with a secret, taken out"] == 1


# What is refused


def bad(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


GOOD = b"\n".join([json.dumps(line).encode() for line in RICH["claude"][2:5]]) + b"\n"
BAD = [
    (b"", 0, "it is empty"),
    (b"\n\n", 0, "looks like no transcript"),
    (b"root:x:0:0\n", 1, "it is not JSON"),
    (b"[1, 2]\n", 0, "looks like no transcript"),
    (b'{"a": 1}\n', 0, "looks like no transcript"),
    ("{}".encode("utf-16"), 1, "it is UTF-16"),
    (GOOD + b'{"type": "user", "message": "caf\xe9"}\n' + GOOD, 4, "it is not UTF-8: byte 0xe9 at column 33"),
    (GOOD + b'{"type": "user"\n' + GOOD, 4, "it is not JSON"),
    (GOOD + b"[" * 100_000 + b"\n", 4, "it is nested too deeply"),
    (GOOD + b"[]\n", 4, "it is no JSON object"),
    (GOOD + b"{}\n", 4, "it has no 'type'"),
    (GOOD + b'{"type": "user"}\n', 4, "a user line has no 'message'"),
    (
        GOOD + b'{"type": "assistant", "message": {}}\n',
        4,
        "the message of an assistant line has no 'content'",
    ),
    (
        GOOD + b'{"type": "assistant", "message": {"content": [{"type": "tool_use"}]}}\n',
        4,
        "a call has no 'name'",
    ),
]


@pytest.mark.parametrize(("data", "line", "problem"), BAD)
async def test_what_is_no_transcript_is_refused_with_its_line_and_nothing_is_kept(
    tmp_path: Path, data: bytes, line: int, problem: str
) -> None:
    store = MemoryStore()
    with pytest.raises(BadTranscript) as refused:
        await import_transcript(bad(tmp_path / "bad.jsonl", data), store=store)
    assert (refused.value.line, problem in refused.value.problem) == (line, True)
    assert await store.list() == []


async def test_a_file_that_is_not_there_a_folder_and_an_unknown_format(tmp_path: Path) -> None:
    store = MemoryStore()
    with pytest.raises(BadTranscript, match="No such file"):
        await import_transcript(tmp_path / "none", store=store)
    with pytest.raises(BadTranscript):
        await import_transcript(tmp_path, store=store)
    with pytest.raises(UsageError, match="there are claude, codex, openai"):
        await import_transcript(rich_claude().save(tmp_path), store=store, format="gemini")  # type: ignore[arg-type]


@pytest.mark.parametrize("cut", [1, 2, 40])
async def test_a_last_line_that_was_cut_off_is_passed_over(tmp_path: Path, cut: int) -> None:
    last = json.dumps({**RICH["claude"][4], "uuid": "last", "note": "é"}, ensure_ascii=False).encode()
    path = bad(tmp_path / "cut.jsonl", GOOD + last[:-cut])
    made = await imported_lawfully(path)
    assert made.skipped["last line, which is cut off"] == 1
    whole = await imported_lawfully(bad(tmp_path / "whole.jsonl", GOOD))
    assert made.events == whole.events


async def test_a_line_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "LONGEST", 1 << 20)
    long = {**RICH["claude"][2], "uuid": "long", "note": "x" * (1 << 20)}
    path = bad(tmp_path / "long.jsonl", GOOD + json.dumps(long).encode() + b"\n")
    with pytest.raises(BadTranscript, match="line 4: it is longer than 1 MiB"):
        await import_transcript(path, store=MemoryStore())


async def test_a_mark_at_the_beginning_and_ends_of_lines_of_windows_do_no_harm(tmp_path: Path) -> None:
    path = bad(tmp_path / "win.jsonl", b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n"))
    assert (await imported_lawfully(path)).format == "claude"


@pytest.mark.parametrize("lines", [0, 1, 2, 10, 30])
async def test_an_import_that_a_full_disk_has_stopped_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    path = rich_claude().save(tmp_path)
    store, written = MemoryStore(), 0
    write_on = MemoryJournal.write

    def failing(journal: MemoryJournal, events: Sequence[Event]) -> None:
        nonlocal written
        written += len(events)
        if written > lines:
            raise StoreFailed("the disk is full")
        write_on(journal, events)

    with monkeypatch.context() as patched, pytest.raises(StoreFailed):
        patched.setattr(MemoryJournal, "write", failing)
        await import_transcript(path, store=store)
    made = await import_transcript(path, store=store)
    assert not made.existed
    elsewhere = MemoryStore()
    await import_transcript(path, store=elsewhere)
    assert await dump(store, made.session_id) == await dump(elsewhere, made.session_id)


async def test_a_file_is_read_line_by_line_and_other_tasks_run_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude = Claude()
    for n in range(300):
        claude.user(f"{n}?")
        claude.answer(text(f"{n}."))
    monkeypatch.setattr(module, "_AT_ONCE", 50)
    breaths = 0

    async def others() -> None:
        nonlocal breaths
        while True:
            breaths += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    made = await import_transcripts(claude.save(tmp_path), store=MemoryStore())
    beside.cancel()
    assert made[0].events > 1500
    assert breaths > 20


async def test_a_file_that_grows_while_it_is_read_is_read_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rich_claude().save(tmp_path)
    tell, told = module._tell, 0

    async def growing(*arguments: Any) -> Any:
        nonlocal told
        told += 1
        with path.open("a") as file:
            file.write('{"type": "user", "uuid": "more", "message": {"role": "user", "content": "More"}}\n')
        return await tell(*arguments)

    before = await import_transcript(path, store=MemoryStore())
    monkeypatch.setattr(module, "_tell", growing)
    after = await import_transcript(path, store=MemoryStore())
    assert told == 2
    assert before.events == after.events


def test_times_are_read_as_they_are_written() -> None:
    from interlock.bridges.transcripts.reading import moment

    assert moment(at(1.5)) == 1_767_225_601_500
    assert moment("2026-01-01T00:00:00.123456789Z") == 1_767_225_600_123
    assert moment("2026-01-01T01:00:00+01:00") == 1_767_225_600_000
    assert moment("2026-01-01T00:00:00") == 1_767_225_600_000
    assert [moment(other) for other in (None, 5, "", "yesterday", "0001-01-01T00:00:00")] == [
        None,
        None,
        None,
        None,
        0,
    ]
