"""Conversations in the form of OpenAI's chat completions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from interlock import MemoryStore, Reasoning, Source
from interlock.bridges.transcripts import BadTranscript, import_transcript, import_transcripts
from interlock.log.facts import RequestHeader, SessionCreated, TurnEnd, UserMessage

from .imports import Import
from .telling import BEGAN, write


def call(call_id: str | None, name: str, arguments: str) -> dict[str, Any]:
    made = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return made if call_id is None else {"id": call_id, **made}


TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": [{"type": "text", "text": "And kind."}]},
    {"role": "user", "content": "Weather in Ulm and Bonn?"},
    {"role": "assistant", "content": None, "tool_calls": [call("c1", "weather", '{"city": "Ulm"}'), call("c2", "weather", "{}")]},
    {"role": "tool", "tool_call_id": "c2", "content": "rain"},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sun"}]},
    {"role": "assistant", "content": "Sun in Ulm, rain in Bonn."},
    {"role": "system", "content": "The person is in a hurry."},
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": "Bye.", "reasoning_content": "Brief."},
]  # fmt: skip

TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "The weather.", "parameters": {"type": "object"}},
    }
]


def as_array(path: Path) -> Path:
    path.write_text(json.dumps(TALK))
    return path


def as_object(path: Path) -> Path:
    path.write_text(json.dumps({"messages": TALK, "tools": TOOLS, "model": "gpt-5-mini"}, indent=2))
    return path


def as_one_line(path: Path) -> Path:
    return write(path, [{"messages": TALK, "parallel_tool_calls": True}])


def as_lines(path: Path) -> Path:
    return write(path, TALK)


@pytest.mark.parametrize("form", [as_array, as_object, as_one_line, as_lines])
async def test_the_conversation_is_the_same_in_every_form(
    imported: Import, tmp_path: Path, form: Any
) -> None:
    log = await imported(form(tmp_path / "chat.json"))
    assert log.imported.format == "openai"
    assert log.told == [
        "user: Weather in Ulm and Bonn?",
        "assistant: weather#c1 weather#c2",
        "tool: sun",
        "tool: rain",
        "assistant: Sun in Ulm, rain in Bonn.",
        "system (plugin): The person is in a hurry.",
        "user: Thanks",
        "assistant: Bye.",
    ]
    assert [section.text for section in log.first(RequestHeader).system] == ["Be brief.", "And kind."]
    assert log.history[-1].content[0] == Reasoning("Brief.")
    assert len(log.facts(TurnEnd)) == 2


async def test_what_is_known_of_the_request_is_in_its_header_and_what_is_not_is_called_so(
    imported: Import, tmp_path: Path
) -> None:
    header = (await imported(as_object(tmp_path / "a.json"))).first(RequestHeader)
    assert (header.provider, header.model) == ("unknown", "gpt-5-mini")
    assert [(tool.name, tool.description, tool.schema) for tool in header.tools] == [
        ("weather", "The weather.", {"type": "object"})
    ]
    header = (await imported(as_array(tmp_path / "b.json"))).first(RequestHeader)
    assert (header.provider, header.model, header.tools) == ("unknown", "unknown", ())


async def test_without_times_the_file_s_own_is_taken(imported: Import, tmp_path: Path) -> None:
    path = as_array(tmp_path / "chat.json")
    os.utime(path, (BEGAN / 1000, BEGAN / 1000))
    log = await imported(path)
    assert {event.time for event in log.events} == {BEGAN}
    assert log.imported.session_id.startswith("20260101-000000-")


async def test_the_form_of_before_names_functions_and_has_no_ids(imported: Import, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}},
        {"role": "function", "name": "weather", "content": "sun"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call(None, "a", "{}"), call(None, "b", "not json")],
        },
        {"role": "tool", "content": "A"},
        {"role": "tool", "content": "B"},
        {"role": "assistant", "content": "Sun."},
    ]
    log = await imported(write(tmp_path / "chat.jsonl", lines))
    assert [(made.name, made.text, made.asked) for made in log.calls] == [
        ("weather", "sun", {}),
        ("a", "A", {}),
        ("b", "B", "not json"),
    ]


async def test_parts_that_are_no_text_are_named_and_kept(imported: Import, tmp_path: Path) -> None:
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "wav"}},
    ]
    log = await imported(write(tmp_path / "a.jsonl", [{"role": "user", "content": parts}]))
    assert log.told == ["user: Look:\n[image, 26 characters]\n[audio, 4 characters]"]
    assert [kind for kind, _ in log.kept] == ["image", "audio"]


async def test_each_line_of_a_file_for_fine_tuning_is_a_session(tmp_path: Path) -> None:
    talks = [
        {"messages": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}."}]}
        for n in (1, 2, 2)
    ]
    path = write(tmp_path / "tuning.jsonl", talks)
    store = MemoryStore()
    made = await import_transcripts(path, store=store)
    assert len({one.session_id for one in made}) == 3
    assert sorted(info.title or "" for info in await store.list()) == ["1?", "2?", "2?"]
    assert [one.existed for one in await import_transcripts(path, store=store)] == [True] * 3
    with pytest.raises(BadTranscript, match="holds 3 conversations"):
        await import_transcript(path, store=MemoryStore())


async def test_one_bad_conversation_among_many_keeps_all_of_them_out(tmp_path: Path) -> None:
    good = {"messages": [{"role": "user", "content": "Hello"}]}
    path = write(tmp_path / "tuning.jsonl", [good, {"messages": [{"role": "wizard", "content": "Hello"}]}])
    store = MemoryStore()
    with pytest.raises(BadTranscript, match="line 2: message 1 has the role 'wizard'"):
        await import_transcripts(path, store=store)
    assert await store.list() == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("text", "no JSON object"),
        ({"role": "user", "content": 5}, "neither text nor an array"),
        ({"role": "assistant", "tool_calls": {}, "content": "x"}, ""),
        ({"role": "assistant", "tool_calls": ["x"]}, "a call of message 2 is no JSON object"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "has no 'function'"),
        (
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"arguments": "{}"}}]},
            "has no 'name'",
        ),
        ({"role": "assistant", "tool_calls": 5}, "is no array"),
    ],
)
async def test_a_message_that_is_none_says_what_is_wrong(tmp_path: Path, message: Any, problem: str) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hello"}, message]))
    if problem:
        with pytest.raises(BadTranscript, match=problem):
            await import_transcript(path, store=MemoryStore())
    else:
        await import_transcript(path, store=MemoryStore())


async def test_people_are_people_and_there_is_no_folder(imported: Import, tmp_path: Path) -> None:
    log = await imported(as_array(tmp_path / "chat.json"))
    assert log.first(SessionCreated).cwd is None
    assert [fact.source for fact in log.facts(UserMessage) if fact.place == "prompt"] == [
        Source("person")
    ] * 2
