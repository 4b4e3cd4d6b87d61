"""Rollouts of Codex, in the shape of real ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from interlock import Reasoning, Source
from interlock.log.facts import (
    AssistantMessage,
    HistoryReplaced,
    RequestFailed,
    RequestHeader,
    SessionCreated,
    TurnEnd,
    Usage,
    UserMessage,
)
from interlock.log.reasons import Aborted, Cause, Completed, Failed, Interrupted

from .imports import Import
from .telling import Codex, at, write


async def test_a_rollout_is_a_session(imported: Import) -> None:
    codex = Codex()
    codex.said("developer", "<permissions instructions>none</permissions instructions>")
    codex.said("user", "# AGENTS.md instructions for /home/ada/work")
    codex.said("user", "<environment_context>\n  <cwd>/home/ada/work</cwd>\n</environment_context>")
    codex.turn("List the files")
    codex.event("agent_reasoning", text="**Listing**")
    codex.item(
        "reasoning", summary=[{"type": "summary_text", "text": "**Listing**"}], encrypted_content="gAAAA"
    )
    codex.call("c1", "shell", command=["bash", "-lc", "ls -la"], workdir="/home/ada/work", timeout_ms=10_000)
    codex.tokens(100, 10)
    codex.output("c1", "Exit code: 0\nWall time: 0.1 seconds\nOutput:\na.txt")
    codex.event("agent_message", message="There is a.txt.")
    codex.said("assistant", "There is a.txt.")
    codex.tokens(130, 5)
    codex.event("task_complete", last_agent_message="There is a.txt.")
    log = await imported(codex)
    created = log.first(SessionCreated)
    assert created.imported is not None
    assert (created.cwd, created.imported.program, created.imported.version) == (
        "/home/ada/work",
        "Codex",
        "0.80.0",
    )
    header = log.first(RequestHeader)
    assert (header.provider, header.model) == ("openai", "gpt-5.2-codex")
    assert [section.text for section in header.system] == ["You are Codex."]
    assert log.told[3:] == [
        "user: List the files",
        "assistant: bash#c1",
        "tool: Exit code: 0\nWall time: 0.1 seconds\nOutput:\na.txt",
        "assistant: There is a.txt.",
    ]
    own = Source("plugin", "codex")
    sources = [(fact.source, fact.role) for fact in log.facts(UserMessage)]
    assert sources == [(own, "system"), (own, "user"), (own, "user"), (Source("person"), "user")]
    answers = log.facts(AssistantMessage)
    assert answers[0].blocks[0] == Reasoning("**Listing**")
    assert [answer.usage for answer in answers] == [Usage(100, 10, 40, 4), Usage(130, 5, 40, 4)]
    (call,) = log.calls
    assert call.asked == {"command": "ls -la", "timeout": 10.0, "workdir": "/home/ada/work"}
    assert log.imported.lossy == {"encrypted thought, left out": 1}


SHELLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("shell", {"command": ["git", "commit", "-m", "two words"]}, {"command": "git commit -m 'two words'"}),
    ("shell", {"command": ["/bin/zsh", "-c", "a && b"]}, {"command": "a && b"}),
    ("shell_command", {"command": "ls", "timeout_ms": 1500}, {"command": "ls", "timeout": 1.5}),
    ("exec_command", {"cmd": "pwd", "yield_time_ms": 1000}, {"command": "pwd", "yield_time_ms": 1000}),
]


@pytest.mark.parametrize(("name", "theirs", "ours"), SHELLS)
async def test_every_shell_is_our_shell(
    imported: Import, name: str, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    codex = Codex()
    codex.turn("Do it")
    codex.call("c1", name, **theirs)
    codex.output("c1", "done")
    (call,) = (await imported(codex)).calls
    assert (call.name, call.asked) == ("bash", ours)


async def test_the_built_in_shell_of_a_model_is_our_shell(imported: Import) -> None:
    codex = Codex()
    codex.turn("Do it")
    action = {"type": "exec", "command": ["ls"], "timeout_ms": 1000, "working_directory": "/tmp"}
    codex.item("local_shell_call", call_id="c1", status="completed", action=action)
    codex.output("c1", "done")
    (call,) = (await imported(codex)).calls
    assert (call.name, call.asked) == ("bash", {"command": "ls", "timeout": 1.0, "working_directory": "/tmp"})


async def test_a_patch_of_one_change_is_a_write_or_an_edit(imported: Import) -> None:
    codex = Codex()
    codex.turn("Write")
    codex.patch("c1", "*** Begin Patch\n*** Add File: a.py\n+import os\n+\n*** End Patch\n")
    codex.output(
        "c1", json.dumps({"output": "Success", "metadata": {"exit_code": 0}}), "custom_tool_call_output"
    )
    codex.patch(
        "c2",
        "*** Begin Patch\n*** Update File: b.py\n@@ def f():\n a\n-b\n+c\n*** End of File\n*** End Patch",
    )
    codex.output("c2", "Success", "custom_tool_call_output")
    log = await imported(codex)
    assert [(call.name, call.asked, call.nested) for call in log.calls] == [
        ("write", {"path": "a.py", "content": "import os\n\n"}, []),
        ("edit", {"path": "b.py", "old": "a\nb", "new": "a\nc"}, []),
    ]


async def test_a_patch_of_several_changes_is_a_call_with_a_call_for_each(imported: Import) -> None:
    codex = Codex()
    codex.turn("Rework")
    patch = (
        "*** Begin Patch\n*** Delete File: old.py\n*** Update File: a.py\n*** Move to: b.py\n@@\n-x\n+y\n@@\n-p\n+q\n"
        "*** Add File: new.py\n+1\n*** End Patch"
    )
    codex.call("c1", "apply_patch", input=patch)
    codex.output("c1", "Success")
    (call,) = (await imported(codex)).calls
    assert (call.name, call.asked) == ("apply_patch", {"input": patch})
    assert [(nested.name, nested.asked) for nested in call.nested] == [
        ("edit", {"path": "old.py", "deleted": True}),
        ("edit", {"path": "a.py", "moved": "b.py"}),
        ("edit", {"path": "b.py", "moved": "a.py"}),
        ("edit", {"path": "b.py", "old": "x", "new": "y"}),
        ("edit", {"path": "b.py", "old": "p", "new": "q"}),
        ("write", {"path": "new.py", "content": "1\n"}),
    ]


@pytest.mark.parametrize("patch", ["nonsense", "*** Begin Patch\n*** Add File: a\nno plus\n*** End Patch"])
async def test_a_patch_that_is_none_stays_as_it_is(imported: Import, patch: str) -> None:
    codex = Codex()
    codex.turn("Write")
    codex.patch("c1", patch)
    codex.output("c1", "apply_patch verification failed: no", "custom_tool_call_output")
    (call,) = (await imported(codex)).calls
    assert (call.name, call.asked, call.code) == ("apply_patch", {"input": patch}, "TOOL_FAILED")


OUTPUTS = [
    ("exec command rejected by user", "APPROVAL_REJECTED", "refused"),
    ("patch rejected by user", "APPROVAL_REJECTED", "refused"),
    ("aborted by user after 3.2s", "ABORTED", "failed"),
    ("Wall time: 3.2 seconds\naborted by user", "ABORTED", "failed"),
    ("unsupported call: frobnicate", "UNKNOWN_TOOL", "refused"),
    ("failed to parse function arguments: missing field `command`", "INVALID_ARGS", "refused"),
    ("execution error: Io(...)", "TOOL_FAILED", "failed"),
    ("Exit code: 1\nOutput:\nrejected by user", None, "ran"),
    ("aborted the merge", None, "ran"),
]


@pytest.mark.parametrize(("output", "code", "fate"), OUTPUTS)
async def test_an_output_has_the_code_that_its_words_prove(
    imported: Import, output: str, code: str | None, fate: str
) -> None:
    codex = Codex()
    codex.turn("Do it")
    codex.call("c1", "shell_command", command="rm x")
    codex.output("c1", output)
    (call,) = (await imported(codex)).calls
    assert (call.code, call.fate, call.text) == (code, fate, output)


async def test_the_calls_of_one_answer_overlap(imported: Import) -> None:
    codex = Codex()
    codex.turn("Both")
    codex.said("assistant", "Both at once.")
    codex.call("c1", "exec_command", cmd="a")
    codex.call("c2", "exec_command", cmd="b")
    codex.tokens()
    codex.output("c2", "B")
    codex.output("c1", [{"type": "input_text", "text": "A"}])
    codex.said("assistant", "Done.")
    log = await imported(codex)
    assert log.told[1:] == [
        "assistant: Both at once. bash#c1 bash#c2",
        "tool: A",
        "tool: B",
        "assistant: Done.",
    ]


async def test_a_turn_that_a_person_has_stopped(imported: Import) -> None:
    codex = Codex()
    codex.turn("Wait")
    codex.call("c1", "exec_command", cmd="sleep 100")
    codex.event("turn_aborted", reason="interrupted")
    codex.turn("Go on")
    codex.said("assistant", "Going")
    codex.event("task_complete")
    log = await imported(codex)
    assert [fact.reason for fact in log.facts(TurnEnd)] == [Aborted(Cause("user")), Completed()]
    assert [call.code for call in log.calls] == ["TOOL_OUTCOME_UNKNOWN"]


async def test_turns_that_were_taken_back_are_out_of_the_history(imported: Import) -> None:
    codex = Codex()
    for prompt in ("One", "Two", "Three"):
        codex.turn(prompt)
        codex.said("assistant", f"{prompt}!")
        codex.event("task_complete")
    codex.event("thread_rolled_back", num_turns=2)
    codex.turn("Two again")
    codex.said("assistant", "Better.")
    log = await imported(codex)
    assert log.told == ["user: One", "assistant: One!", "user: Two again", "assistant: Better."]
    assert len(log.facts(TurnEnd)) == 4


async def test_a_compaction_replaces_the_history_by_what_it_lists(imported: Import) -> None:
    codex = Codex()
    codex.turn("Start")
    codex.said("assistant", "Started.")
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Start"}]},
        {"type": "compaction", "encrypted_content": "gAAAA"},
    ]
    codex.line("compacted", message="We started.", replacement_history=history)
    codex.turn("Go on")
    codex.said("assistant", "Going.")
    log = await imported(codex)
    assert log.told == ["user: Start", "user (plugin): We started.", "user: Go on", "assistant: Going."]
    assert log.first(HistoryReplaced).why == "compaction"
    assert log.kept == [("item of a compaction", history[1])]


@pytest.mark.parametrize(
    ("turns", "left"), [(1, ["user (plugin): Summary"]), (2, ["user (plugin): Summary"])]
)
async def test_what_a_compaction_has_replaced_does_not_come_back(
    imported: Import, turns: int, left: list[str]
) -> None:
    codex = Codex()
    for prompt in ("One", "Two"):
        codex.turn(prompt)
        codex.said("assistant", f"{prompt}!")
        codex.event("task_complete")
        if prompt == "One":
            codex.line("compacted", message="Summary")
    codex.event("thread_rolled_back", num_turns=turns)
    log = await imported(codex)
    assert log.told == left
    assert log.imported.lossy == ({"rewind behind a compaction": 1} if turns == 2 else {})


async def test_what_a_cell_of_code_did_are_calls_within_its_call(imported: Import) -> None:
    codex = Codex()
    codex.turn("Script it")
    codex.item("custom_tool_call", call_id="c1", name="exec", input='await tools.exec_command({cmd: "ls"})')
    codex.event("item_completed", item={"type": "CommandExecution", "id": "exec_a", "command": ["/bin/zsh", "-lc", "ls"], "status": "completed", "aggregated_output": "a.txt"})  # fmt: skip
    codex.event("item_completed", item={"type": "FileChange", "id": "exec_b", "status": "failed", "changes": {"b.md": {"type": "add", "content": "# B"}}})  # fmt: skip
    codex.event("item_completed", item={"type": "AgentMessage", "id": "m", "content": []})
    codex.output("c1", "Script completed", "custom_tool_call_output")
    (call,) = (await imported(codex)).calls
    assert [(nested.name, nested.asked, nested.text, nested.code) for nested in call.nested] == [
        ("bash", {"command": "ls", "workdir": None}, "a.txt", None),
        ("write", {"path": "b.md", "content": "# B"}, "", "TOOL_FAILED"),
    ]


async def test_what_the_provider_does_itself_has_no_result_of_its_own(imported: Import) -> None:
    codex = Codex()
    codex.turn("Search")
    codex.item("web_search_call", status="completed", action={"type": "search", "query": "interlocks"})
    codex.said("assistant", "Found.")
    log = await imported(codex)
    (call,) = log.calls
    assert (call.name, call.asked) == ("web_search", {"action": {"type": "search", "query": "interlocks"}})
    assert "the transcript has no result" in call.text
    assert log.told[-1] == "assistant: Found."


async def test_errors_of_the_server(imported: Import) -> None:
    codex = Codex()
    codex.turn("Hello")
    codex.event("stream_error", message="stream disconnected; retrying 1/5")
    codex.event("error", message="usage limit reached")
    log = await imported(codex)
    assert [fact.failure.code for fact in log.facts(RequestFailed)] == ["STREAM_CLOSED", "UNKNOWN"]
    assert isinstance(log.first(TurnEnd).reason, Failed)


async def test_a_rollout_that_was_forked_has_the_name_of_its_own(imported: Import) -> None:
    codex = Codex("own")
    codex.line("session_meta", id="earlier", cwd="/elsewhere", cli_version="0.1")
    codex.turn("Hello")
    codex.said("assistant", "Hi.")
    log = await imported(codex)
    origin = log.first(SessionCreated).imported
    assert origin is not None
    assert origin.session == "own"
    assert log.imported.skipped["session_meta of an earlier session"] == 1


async def test_the_first_rollouts_had_no_envelopes(imported: Import, tmp_path: Any) -> None:
    lines: list[dict[str, Any]] = [
        {"id": "old", "timestamp": at(0), "instructions": None, "git": {}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": {"content": "no", "success": False}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
    ]
    log = await imported(write(tmp_path / "rollout.jsonl", lines))
    assert log.told == ["user: Hello", "assistant: bash#c1", "tool: no", "assistant: Hi."]
    assert [call.code for call in log.calls] == ["TOOL_FAILED"]
    assert log.imported.format == "codex"


async def test_a_prompt_without_an_answer_is_in_the_history(imported: Import) -> None:
    codex = Codex()
    codex.turn("Hello?")
    log = await imported(codex)
    assert log.told == ["user: Hello?"]
    assert log.first(TurnEnd).reason == Interrupted()
