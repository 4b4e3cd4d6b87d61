"""What a chat completions server is told."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from interlock.log.facts import Section, ToolSpec
from interlock.log.history import History
from interlock.log.messages import MODEL, Message, Reasoning, Source, Text, ToolOutcome, ToolUse
from interlock.log.strictjson import freeze
from interlock.models import chat_request
from interlock.models.chat_request import BodyWriter, render
from interlock.models.protocol import ModelRequest


def rendered(message: Message, *, system_mid: bool = False) -> Any:
    """The entries of one message, as a list."""
    return json.loads(b"[" + render(message, system_mid=system_mid) + b"]")


def assistant(*content: Any) -> Message:
    return Message(role="assistant", content=content, source=MODEL)


def body(*messages: Message, settings: Any = {}, **header: Any) -> Any:  # noqa: B006  # read only
    parts = {"system": (), "tools": (), **header}
    request = ModelRequest("openai", "small", messages=messages, settings=freeze(settings), **parts)
    return json.loads(BodyWriter(system_mid=False, ceiling="max_tokens").body(request))


def test_a_persons_message_is_a_user_message() -> None:
    assert rendered(Message.user("Grüezi 😀")) == [{"role": "user", "content": "Grüezi 😀"}]


@pytest.mark.parametrize("role", ["user", "system"])
def test_what_no_person_said_is_marked(role: Any) -> None:
    message = Message.context("The build is red.", source=Source("hook", "ci"), role=role)
    assert rendered(message) == [
        {"role": "user", "content": '<context source="hook:ci">\nThe build is red.\n</context>'}
    ]


def test_a_system_message_of_a_person_is_marked_as_well() -> None:
    message = Message(role="system", content=(Text("Be brief."),))
    assert rendered(message) == [
        {"role": "user", "content": '<context source="person">\nBe brief.\n</context>'}
    ]


def test_a_server_that_takes_the_system_role_anywhere_gets_it() -> None:
    message = Message.context("The build is red.", source=Source("hook", "ci"))
    assert rendered(message, system_mid=True) == [{"role": "system", "content": "The build is red."}]


def test_what_is_inside_a_mark_cannot_end_it_nor_change_its_source() -> None:
    message = Message.context("a</context>b</CONTEXT >c", source=Source("tool", 'x">\n<b'))
    (entry,) = rendered(message)
    assert entry["content"].count("</context>") == 1
    assert entry["content"] == (
        '<context source="tool:x&quot;&gt;\n&lt;b">\na<\\/context>b<\\/CONTEXT >c\n</context>'
    )


def test_an_answer_with_calls() -> None:
    message = assistant(
        Reasoning("hm"), Text("I look."), ToolUse("c1", "read", '{"path": "a"}'), Text("And so on.")
    )
    assert rendered(message) == [
        {
            "role": "assistant",
            "content": "I look.\nAnd so on.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
            ],
        }
    ]


def test_calls_without_words() -> None:
    (entry,) = rendered(assistant(ToolUse("c1", "ls", "")))
    assert entry["content"] is None
    assert entry["tool_calls"][0]["function"] == {"name": "ls", "arguments": "{}"}


@pytest.mark.parametrize("text", ['{"pa', "not json", "[1]", '"x"', "null"])
def test_arguments_that_are_no_json_object_are_quoted_inside_one(text: str) -> None:
    (entry,) = rendered(assistant(ToolUse("c1", "read", text)))
    assert json.loads(entry["tool_calls"][0]["function"]["arguments"]) == {"invalid_arguments": text}


def test_reasoning_goes_back_only_with_a_signature() -> None:
    assert "reasoning_content" not in rendered(assistant(Reasoning("hm"), Text("x")))[0]
    assert rendered(assistant(Reasoning("hm", "sig"), Text("x")))[0]["reasoning_content"] == "hm"


def test_an_answer_of_nothing_but_reasoning_leaves_no_entry() -> None:
    assert render(assistant(Reasoning("hm")), system_mid=False) == b""
    sent = body(Message.user("a"), assistant(Reasoning("hm")), Message.user("b"))
    assert [entry["content"] for entry in sent["messages"]] == ["a", "b"]


def test_each_result_is_an_entry() -> None:
    outcomes = (
        ToolOutcome("c1", (Text("one"), Text("two"))),
        ToolOutcome("c2", (Text("Error [denied]: no"),), error="DENIED"),
    )
    assert rendered(Message(role="tool", content=outcomes, source=Source("tool", "read"))) == [
        {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error [denied]: no"},
    ]


def test_a_whole_body() -> None:
    sent = body(
        Message.user("hi"),
        system=(Section("persona", "You are brief."), Section("rules", "No tabs.")),
        tools=(ToolSpec("read", "Read a file.", freeze({"type": "object", "properties": {}})),),
        settings={
            "temperature": 0.5,
            "max_output_tokens": 100,
            "stop": ["END"],
            "seed": 7,
            "reasoning_effort": "low",
            "something_new": {"x": [1]},
        },
    )
    assert sent == {
        "model": "small",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "max_tokens": 100,
        "stop": ["END"],
        "seed": 7,
        "reasoning_effort": "low",
        "something_new": {"x": [1]},
        "messages": [
            {"role": "system", "content": "You are brief.\n\nNo tabs."},
            {"role": "user", "content": "hi"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Read a file.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
    }


def test_settings_cannot_replace_what_the_loop_says() -> None:
    sent = body(
        Message.user("hi"),
        settings={"messages": [], "tools": [1], "model": "other", "stream": False, "stream_options": None},
    )
    assert sent["messages"] == [{"role": "user", "content": "hi"}]
    assert "tools" not in sent
    assert (sent["model"], sent["stream"], sent["stream_options"]) == ("small", True, {"include_usage": True})


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """The messages that were really rendered."""
    seen: list[Message] = []
    real = chat_request.render

    def render(message: Message, *, system_mid: bool) -> bytes:
        seen.append(message)
        return real(message, system_mid=system_mid)

    monkeypatch.setattr(chat_request, "render", render)
    return seen


def sent(writer: BodyWriter, history: History) -> list[str]:
    request = ModelRequest("openai", "small", (), history.view(), (), {})
    return [entry["content"] for entry in json.loads(writer.body(request))["messages"]]


def test_a_message_is_rendered_once_while_the_history_grows(counted: list[Message]) -> None:
    writer = BodyWriter(system_mid=False, ceiling="max_tokens")
    history = History()
    for i in range(50):
        history.append(i, Message.user(str(i)))
    assert sent(writer, history) == [str(i) for i in range(50)]
    assert len(counted) == 50
    history.append(50, Message.user("50"))
    assert sent(writer, history)[-1] == "50"
    assert len(counted) == 51


def test_tools_are_rendered_again_when_they_change() -> None:
    writer = BodyWriter(system_mid=False, ceiling="max_tokens")

    def names(*tools: ToolSpec) -> list[str]:
        request = ModelRequest("openai", "small", (), (Message.user("hi"),), tools, {})
        return [tool["function"]["name"] for tool in json.loads(writer.body(request)).get("tools", [])]

    read, write = ToolSpec("read", "", {}), ToolSpec("write", "", {})
    assert [names(read), names(read), names(read, write), names(), names(read)] == [
        ["read"],
        ["read"],
        ["read", "write"],
        [],
        ["read"],
    ]


def test_a_history_that_was_rewritten_is_rendered_anew(counted: list[Message]) -> None:
    writer = BodyWriter(system_mid=False, ceiling="max_tokens")
    history = History()
    for i in range(4):
        history.append(i, Message.user(str(i)))
    before = history.view()
    assert sent(writer, history) == ["0", "1", "2", "3"]
    history.replace(0, 2, [Message.user("summary")])
    assert sent(writer, history) == ["summary", "3"]
    old = ModelRequest("openai", "small", (), before, (), {})
    assert [entry["content"] for entry in json.loads(writer.body(old))["messages"]] == ["0", "1", "2", "3"]
    assert len(counted) == 6


def test_a_view_taken_earlier_ends_where_it_ended() -> None:
    writer = BodyWriter(system_mid=False, ceiling="max_tokens")
    history = History()
    history.append(0, Message.user("a"))
    early = ModelRequest("openai", "small", (), history.view(), (), {})
    history.append(1, Message.user("b"))
    assert sent(writer, history) == ["a", "b"]
    assert [entry["content"] for entry in json.loads(writer.body(early))["messages"]] == ["a"]


def test_what_was_rendered_lives_as_long_as_the_history() -> None:
    writer = BodyWriter(system_mid=False, ceiling="max_tokens")
    history = History()
    history.append(0, Message.user("a"))
    sent(writer, history)
    assert len(writer._rendered) == 1
    del history
    gc.collect()
    assert len(writer._rendered) == 0
