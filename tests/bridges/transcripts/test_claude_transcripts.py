"""Sessions of Claude Code, in the shape of real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock import Reasoning, Source
from interlock.log.facts import (
    ApprovalDecided,
    AssistantMessage,
    CancelRequested,
    HistoryReplaced,
    RequestFailed,
    RequestHeader,
    SessionCreated,
    StepEnd,
    ToolCalled,
    ToolDecided,
    ToolResulted,
    ToolStarted,
    TurnEnd,
    Usage,
    UserMessage,
)
from interlock.log.reasons import Aborted, Cause, Completed, Failed, Interrupted, MaxTokens

from .imports import Import
from .telling import BEGAN, REJECTED, Claude, at, text, thinking, use


async def test_a_session_says_where_it_comes_from(imported: Import) -> None:
    claude = Claude()
    claude.user("Hello")
    claude.answer(text("Hi."), stop="end_turn")
    log = await imported(claude)
    created = log.first(SessionCreated)
    assert created.cwd == "/home/ada/work"
    assert created.imported is not None
    assert created.imported.program == "Claude Code"
    assert created.imported.version == "2.1.30"
    assert created.imported.session == claude.common["sessionId"]
    assert created.session_id == log.imported.session_id == f"20260101-000000-{created.imported.digest[:8]}"
    header = log.first(RequestHeader)
    assert (header.provider, header.model, header.system, header.tools) == (
        "anthropic",
        "claude-opus-4-5",
        (),
        (),
    )


async def test_the_lines_of_one_answer_are_one_message_and_its_calls_overlap(imported: Import) -> None:
    claude = Claude()
    claude.user("List the files and read one")
    claude.answer(
        thinking("Both at once."),
        text("Looking."),
        use("t1", "Bash", command="ls", timeout=5000, description="List"),
        use("t2", "Read", file_path="/home/ada/work/a.txt", offset=3),
    )
    claude.result("t2", "3\thello")
    claude.result("t1", "a.txt")
    claude.answer(text("It says hello."), stop="end_turn")
    log = await imported(claude)
    assert log.told == [
        "user: List the files and read one",
        "assistant: Looking. bash#t1 read#t2",
        "tool: a.txt",
        "tool: 3\thello",
        "assistant: It says hello.",
    ]
    answer = log.first(AssistantMessage)
    assert answer.blocks[0] == Reasoning("Both at once.")
    assert answer.usage == Usage(input=113, output=7, cached=100)
    assert [call.asked for call in log.calls] == [
        {"command": "ls", "timeout": 5.0, "description": "List"},
        {"path": "/home/ada/work/a.txt", "offset": 3},
    ]
    assert [call.fate for call in log.calls] == ["ran", "ran"]
    assert [fact.effect for fact in log.facts(ToolCalled)] == ["write", "read"]
    assert [fact.reason for fact in log.facts(StepEnd)] == ["tools", "completed"]
    assert [fact.reason for fact in log.facts(TurnEnd)] == [Completed()]


async def test_times_are_those_of_the_transcript(imported: Import) -> None:
    claude = Claude()
    claude.user("Look")
    claude.answer(use("t1", "Bash", command="sleep 5"))
    claude.result("t1", "", timestamp=at(60))
    claude.answer(text("Done."), timestamp=at(61))
    log = await imported(claude)
    times = {event.type: event.time - BEGAN for event in log.events}
    assert (times["tool/started"], times["tool/result"], times["turn/end"]) == (1_000, 60_000, 61_000)
    (call,) = log.calls
    assert (call.started, call.settled) == (BEGAN + 1_000, BEGAN + 60_000)


async def test_results_that_come_between_the_lines_of_one_answer_still_belong_to_it(imported: Import) -> None:
    claude = Claude()
    claude.user("Two things")
    message = {"id": "msg_x", "role": "assistant", "model": "claude-opus-4-5", "stop_reason": None}
    claude.line("assistant", message={**message, "content": [use("t1", "Bash", command="one")]})
    claude.result("t1", "1")
    claude.line("assistant", message={**message, "content": [use("t2", "Bash", command="two")]})
    claude.result("t2", "2")
    log = await imported(claude)
    assert log.told == ["user: Two things", "assistant: bash#t1 bash#t2", "tool: 1", "tool: 2"]


async def test_a_person_who_says_no_is_an_approval_that_was_rejected(imported: Import) -> None:
    claude = Claude()
    claude.user("Delete it")
    claude.answer(use("t1", "Bash", command="rm a.txt"))
    claude.result("t1", REJECTED, error=True, told="User rejected tool use")
    claude.user([text("[Request interrupted by user for tool use]")])
    claude.user("Then move it")
    claude.answer(text("Moved."))
    log = await imported(claude)
    (call,) = log.calls
    assert (call.fate, call.code, call.word) == (
        "refused",
        "APPROVAL_REJECTED",
        "It did not run: a person said no.",
    )
    assert log.facts(ToolStarted) == []
    assert log.first(ApprovalDecided).outcome == "rejected"
    assert log.first(CancelRequested).cause == Cause("user")
    assert [fact.reason for fact in log.facts(TurnEnd)] == [Aborted(Cause("user")), Completed()]


async def test_what_a_person_says_with_their_no_is_on_record(imported: Import) -> None:
    claude = Claude()
    claude.user("Delete it")
    claude.answer(use("t1", "Bash", command="rm a.txt"))
    said = "The user doesn't want to proceed with this tool use. The tool use was rejected. "
    claude.result("t1", said + "To tell you how to proceed, the user said:\nuse git rm", error=True)
    claude.answer(use("t2", "Bash", command="git rm a.txt"))
    claude.result("t2", "rm 'a.txt'")
    log = await imported(claude)
    assert log.first(ApprovalDecided).message == "use git rm"
    assert [call.fate for call in log.calls] == ["refused", "ran"]


SAID_NO = [
    ("Permission to use Bash with command rm x has been denied.", {}, "DENIED", "refused"),
    ("Claude requested permissions to use Bash, but you haven't granted it yet.", {}, "DENIED", "refused"),
    ("Blocked by the classifier.", {"toolDenialKind": "automode-blocked"}, "DENIED", "refused"),
    ("PreToolUse:Bash hook error: [guard.py]: not here", {}, "HOOK_BLOCKED", "refused"),
    ("<tool_use_error>InputValidationError: command is missing</tool_use_error>", {}, "INVALID_ARGS", "refused"),
    ("<tool_use_error>Error: No such tool available: Bash</tool_use_error>", {}, "UNKNOWN_TOOL", "refused"),
    ("<tool_use_error>Sibling tool call errored</tool_use_error>", {}, "ABORTED_BEFORE_DISPATCH", "skipped"),
    ("The user doesn't want to take this action right now. STOP.", {}, "ABORTED_BEFORE_DISPATCH", "skipped"),
    ("whatever", {"toolDenialKind": "user-rejected"}, "APPROVAL_REJECTED", "refused"),
    ("whatever", {"toolDenialKind": "interrupted"}, "ABORTED", "failed"),
    ("[Request interrupted by user for tool use]", {}, "ABORTED", "failed"),
    ("Exit code 1\nno such file", {}, "TOOL_FAILED", "failed"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "line", "code", "fate"), SAID_NO)
async def test_a_failure_has_the_code_that_its_words_prove(
    imported: Import, said: str, line: dict[str, Any], code: str, fate: str
) -> None:
    claude = Claude()
    claude.user("Do it")
    claude.answer(use("t1", "Bash", command="rm x"))
    claude.result("t1", said, error=True, **line)
    claude.answer(text("I see."))
    log = await imported(claude)
    (call,) = log.calls
    assert (call.code, call.fate, call.text) == (code, fate, said)
    assert bool(log.facts(ToolStarted)) == (fate == "failed")


async def test_who_denied_a_call_is_named(imported: Import) -> None:
    claude = Claude()
    claude.user("Do it")
    claude.answer(use("t1", "Bash", command="rm x"), use("t2", "Bash", command="rm y"))
    claude.result("t1", "Permission to use Bash with command rm x has been denied.", error=True)
    claude.result("t2", "PreToolUse:Bash hook error: not here", error=True)
    log = await imported(claude)
    assert [(fact.verdict, fact.by) for fact in log.facts(ToolDecided)] == [
        ("deny", "Claude Code"),
        ("deny", "a hook of Claude Code"),
    ]


async def test_a_command_that_was_stopped_has_run(imported: Import) -> None:
    claude = Claude()
    claude.user("Wait")
    claude.answer(use("t1", "Bash", command="sleep 100"))
    claude.result("t1", "partly", told={"stdout": "partly", "stderr": "", "interrupted": True})
    claude.user([text("[Request interrupted by user]")])
    log = await imported(claude)
    (call,) = log.calls
    assert (call.fate, call.code) == ("failed", "ABORTED")
    assert log.first(TurnEnd).reason == Aborted(Cause("user"))


async def test_an_answer_that_was_cut_off_is_kept_as_far_as_it_was_seen(imported: Import) -> None:
    claude = Claude()
    claude.user("Tell me a story")
    claude.answer(text("Once upon"))
    claude.user([text("[Request interrupted by user]")])
    claude.user("Shorter")
    claude.user([text("[Request interrupted by user]")])
    log = await imported(claude)
    assert log.told == ["user: Tell me a story", "assistant: Once upon", "user: Shorter"]
    assert log.first(AssistantMessage).interrupted
    assert [fact.reason for fact in log.facts(TurnEnd)] == [Aborted(Cause("user"))] * 2


async def test_what_nobody_knows_the_end_of_may_have_run(imported: Import) -> None:
    claude = Claude()
    claude.user("Push")
    claude.answer(use("t1", "Bash", command="git push"), use("t2", "Bash", command="git log"))
    claude.result("t2", "log")
    log = await imported(claude)
    assert [(call.fate, call.code) for call in log.calls] == [
        ("unknown", "TOOL_OUTCOME_UNKNOWN"),
        ("ran", None),
    ]
    assert log.first(TurnEnd).reason == Interrupted()


async def test_a_result_that_never_came_does_not_hold_up_what_follows(imported: Import) -> None:
    claude = Claude()
    claude.user("Push")
    claude.answer(use("t1", "Bash", command="git push"))
    claude.answer(text("I do not know whether that worked."))
    log = await imported(claude)
    assert [fact.error.code for fact in log.facts(ToolResulted) if fact.error] == ["TOOL_OUTCOME_UNKNOWN"]
    assert log.first(TurnEnd).reason == Completed()


async def test_a_subagents_calls_are_calls_of_the_call_that_it_works_for(imported: Import) -> None:
    claude = Claude()
    claude.user("Ask two agents")
    claude.answer(use("t1", "Task", prompt="Find it"), use("t2", "Task", prompt="Fix it"))
    roots = {}
    for prompt in ("Fix it", "Find it"):
        roots[prompt] = claude.user(prompt, parent=None, side=True)
    claude.answer(
        text("Searching."), use("s1", "Grep", pattern="x", **{"-i": True}), parent=roots["Find it"], side=True
    )
    claude.answer(
        use("s2", "Edit", file_path="a.py", old_string="x", new_string="y"), parent=roots["Fix it"], side=True
    )
    claude.result("s1", "a.py", parent=claude.lines[-2]["uuid"], side=True)
    claude.result("s2", REJECTED, error=True, parent=claude.lines[-2]["uuid"], side=True)
    claude.result("t1", "It is in a.py")
    claude.result("t2", "I may not")
    claude.answer(text("Found."))
    log = await imported(claude)
    outer = log.calls
    assert [(call.name, [nested.name for nested in call.nested]) for call in outer] == [
        ("Task", ["grep"]),
        ("Task", ["edit"]),
    ]
    grep, edit = outer[0].nested[0], outer[1].nested[0]
    assert (grep.asked, grep.text, grep.fate) == ({"pattern": "x", "ignore_case": True}, "a.py", "ran")
    assert (edit.asked, edit.code) == ({"path": "a.py", "old": "x", "new": "y"}, "APPROVAL_REJECTED")
    assert "Searching." in str(log.kept)
    assert log.imported.lossy["message of a subagent, kept beside its calls"] == 3
    assert "Searching." not in "".join(log.told)


async def test_the_lines_of_progress_of_a_subagent_are_its_calls_too(imported: Import) -> None:
    claude = Claude()
    claude.user("Ask an agent")
    claude.answer(use("t1", "Agent", prompt="Look"))
    for message in (
        {"role": "assistant", "content": [use("s1", "Bash", command="ls")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "s1", "content": "a.txt"}]},
    ):
        data = {
            "type": "agent_progress",
            "agentId": "a1",
            "message": {"type": message["role"], "message": message},
        }
        claude.line("progress", data=data, toolUseID="agent_msg", parentToolUseID="t1")
    claude.line("progress", data={"type": "hook_progress"}, toolUseID="h", parentToolUseID="h")
    claude.result("t1", "There is a.txt")
    log = await imported(claude)
    (call,) = log.calls
    assert [(nested.name, nested.text) for nested in call.nested] == [("bash", "a.txt")]
    assert log.imported.skipped == {"progress": 1}


async def test_a_subagents_own_file_is_a_conversation_like_any_other(imported: Import) -> None:
    claude = Claude()
    claude.common["agentId"] = "a1b2"
    claude.last = None
    for line in range(1):
        claude.lines.append({**claude.common, "type": "user", "isSidechain": True, "uuid": f"x{line}", "parentUuid": None,
                             "timestamp": at(0), "message": {"role": "user", "content": "Find it"}})  # fmt: skip
    claude.answer(text("Found."), parent="x0", side=True)
    assert (await imported(claude)).told == ["user: Find it", "assistant: Found."]


async def test_a_compaction_replaces_the_history(imported: Import) -> None:
    claude = Claude()
    claude.user("Start")
    claude.answer(text("Started."))
    claude.line("system", parent=None, subtype="compact_boundary", content="Conversation compacted",
                compactMetadata={"trigger": "auto", "preTokens": 155000})  # fmt: skip
    claude.user("This session is being continued: we started.", isCompactSummary=True)
    claude.user("Go on")
    claude.answer(text("Going on."))
    log = await imported(claude)
    assert log.told == [
        "user (plugin): This session is being continued: we started.",
        "user: Go on",
        "assistant: Going on.",
    ]
    assert log.first(HistoryReplaced).why == "compaction"


async def test_a_compaction_leaves_what_it_says_that_it_keeps(imported: Import) -> None:
    claude = Claude()
    claude.user("Start")
    claude.answer(text("Started."))
    kept = [claude.user("Second"), claude.answer(text("Seconded."))]
    claude.line("system", parent=None, subtype="compact_boundary", content="Conversation compacted",
                compactMetadata={"trigger": "auto", "preservedMessages": {"anchorUuid": "x", "uuids": kept}})  # fmt: skip
    claude.user("Summary", isCompactSummary=True)
    claude.user("Go on")
    claude.answer(text("Going on."))
    assert (await imported(claude)).told == [
        "user (plugin): Summary",
        "user: Second",
        "assistant: Seconded.",
        "user: Go on",
        "assistant: Going on.",
    ]


async def test_a_file_may_begin_with_the_summary_of_another_one(imported: Import) -> None:
    claude = Claude()
    claude.lines.append({"type": "summary", "summary": "Earlier work", "leafUuid": "elsewhere"})
    claude.user("Summary of before", isCompactSummary=True)
    claude.user("Go on")
    claude.answer(text("Going on."))
    log = await imported(claude)
    assert log.told == ["user (plugin): Summary of before", "user: Go on", "assistant: Going on."]
    assert log.imported.skipped == {"summary": 1}


async def test_going_back_to_an_earlier_prompt_is_on_record_and_out_of_the_history(imported: Import) -> None:
    claude = Claude()
    claude.user("Start")
    root = claude.answer(text("Ready."))
    claude.user("First attempt")
    claude.answer(use("t1", "Bash", command="rm -r build"))
    claude.result("t1", "")
    claude.answer(text("Removed."))
    claude.user("Second attempt", parent=root)
    claude.answer(text("Second answer."))
    log = await imported(claude)
    assert log.told == [
        "user: Start",
        "assistant: Ready.",
        "user: Second attempt",
        "assistant: Second answer.",
    ]
    assert [call.asked for call in log.calls] == [{"command": "rm -r build"}]  # it has run all the same
    assert log.first(HistoryReplaced).why == "pruning"


async def test_a_prompt_that_was_typed_anew_before_any_answer_was_never_sent(imported: Import) -> None:
    claude = Claude()
    claude.user("Start")
    root = claude.answer(text("Ready."))
    claude.user("Tpyo")
    claude.user("Typo", parent=root)
    claude.answer(text("Yes?"))
    log = await imported(claude)
    assert log.told == ["user: Start", "assistant: Ready.", "user: Typo", "assistant: Yes?"]
    assert ("prompt", ("Tpyo",)) in log.kept
    assert log.imported.skipped == {"prompt that was taken back": 1}


async def test_what_was_typed_while_it_worked_joins_the_next_step_of_the_same_turn(imported: Import) -> None:
    claude = Claude()
    claude.user("Work")
    claude.answer(use("t1", "Bash", command="make"))
    claude.line("queue-operation", operation="enqueue", content="and test")
    claude.result("t1", "ok")
    claude.line(
        "attachment", attachment={"type": "queued_command", "prompt": "and test", "commandMode": "prompt"}
    )
    claude.line("attachment", attachment={"type": "queued_command", "prompt": "<task-notification>done", "commandMode": "task-notification"})  # fmt: skip
    claude.line("attachment", attachment={"type": "todo_reminder", "content": []})
    claude.answer(text("Tested."))
    log = await imported(claude)
    assert log.told == [
        "user: Work",
        "assistant: bash#t1",
        "tool: ok",
        "user: and test",
        "user (plugin): <task-notification>done",
        "assistant: Tested.",
    ]
    assert len(log.facts(TurnEnd)) == 1
    assert log.imported.skipped == {"queue-operation": 1, "attachment: todo_reminder (kept)": 1}


async def test_what_the_program_and_its_hooks_say_is_context(imported: Import) -> None:
    claude = Claude()
    claude.user(
        "Caveat: the messages below were generated by the user while running local commands.", isMeta=True
    )
    claude.user("<command-name>/init</command-name>")
    claude.line("attachment", attachment={"type": "hook_additional_context", "hookName": "UserPromptSubmit", "content": ["Be brief."]})  # fmt: skip
    claude.user("<local-command-stdout>done</local-command-stdout>")
    claude.answer(text("Ready."))
    log = await imported(claude)
    assert [(fact.source, fact.place) for fact in log.facts(UserMessage)] == [
        (Source("plugin", "claude-code"), "context"),
        (Source("person"), "prompt"),
        (Source("hook", "UserPromptSubmit"), "context"),
        (Source("plugin", "claude-code"), "context"),
    ]


async def test_pictures_are_named_in_their_place_and_kept_beside_it(imported: Import) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    claude = Claude()
    claude.user([text("What is this?"), image])
    claude.answer(use("t1", "Read", file_path="b.png"))
    claude.result("t1", [image])
    claude.answer(text("A dot."))
    log = await imported(claude)
    assert log.told[0] == "user: What is this?\n[image: image/png, 12 characters]"
    assert log.told[2] == "tool: [image: image/png, 12 characters]"
    assert log.kept == [("image", image)] * 2
    assert log.imported.lossy == {"image beside its message": 2}


async def test_errors_of_the_server_are_failed_requests(imported: Import) -> None:
    claude = Claude()
    claude.user("Hello")
    claude.line(
        "system", subtype="api_error", level="error", error={"status": 529}, retryInMs=500, retryAttempt=1
    )
    claude.answer(text("Hi."))
    claude.user("More")
    claude.answer(
        text("API Error: 529 overloaded"), model="<synthetic>", isApiErrorMessage=True, error="overloaded"
    )
    claude.user("Again")
    claude.answer(text("Here."))
    log = await imported(claude)
    assert log.told == ["user: Hello", "assistant: Hi.", "user: More", "user: Again", "assistant: Here."]
    assert [fact.failure.code for fact in log.facts(RequestFailed)] == ["UNKNOWN", "OVERLOADED"]
    assert [type(fact.reason) for fact in log.facts(TurnEnd)] == [Completed, Failed, Completed]


async def test_a_prompt_after_a_request_that_nobody_answered_is_a_turn_of_its_own(imported: Import) -> None:
    claude = Claude()
    claude.user("Hello")
    claude.line("system", subtype="api_error", error="overloaded")
    claude.user("<system-reminder>slow</system-reminder>")
    claude.line("system", subtype="api_error", content="overloaded")
    claude.user("Hello?")
    claude.answer(text("Here."))
    log = await imported(claude)
    assert log.told == [
        "user: Hello",
        "user (plugin): <system-reminder>slow</system-reminder>",
        "user: Hello?",
        "assistant: Here.",
    ]
    assert [fact.reason for fact in log.facts(TurnEnd)] == [Interrupted(), Completed()]


async def test_another_model_is_another_header(imported: Import) -> None:
    claude = Claude()
    claude.user("Hello")
    claude.answer(text("Hi."))
    claude.user("Again")
    claude.answer(text("Hi again."), model="claude-haiku-4-5")
    headers = (await imported(claude)).facts(RequestHeader)
    assert [(header.why, header.model) for header in headers] == [
        ("initial", "claude-opus-4-5"),
        ("change", "claude-haiku-4-5"),
    ]


async def test_an_answer_that_reached_the_ceiling(imported: Import) -> None:
    claude = Claude()
    claude.user("Tell me all")
    claude.answer(text("All is"), stop="max_tokens")
    assert (await imported(claude)).first(TurnEnd).reason == MaxTokens()


async def test_lines_that_come_twice_count_once(imported: Import) -> None:
    claude = Claude()
    claude.user("Hello")
    claude.answer(text("Hi."))
    claude.lines += claude.lines[:2]
    claude.user("More")
    claude.answer(text("Yes."))
    log = await imported(claude)
    assert log.told == ["user: Hello", "assistant: Hi.", "user: More", "assistant: Yes."]
    assert log.imported.skipped == {"repeated line": 2}


async def test_a_kind_of_line_that_nobody_knows_is_kept_as_it_is(imported: Import) -> None:
    claude = Claude()
    claude.user("Hello")
    claude.line("novelty", content={"number": 1 << 60, "text": "half \ud83d of it"})
    claude.answer(text("Hi \ude00."))
    log = await imported(claude)
    ((kind, data),) = log.kept
    assert kind == "novelty"
    assert data["content"] == {"number": str(1 << 60), "text": "half � of it"}
    assert log.told[1] == "assistant: Hi �."
    assert log.imported.lossy == {"line with half a character, replaced": 2}


async def test_a_result_whose_call_is_in_another_file_is_kept(imported: Import) -> None:
    claude = Claude()
    claude.result("elsewhere", "42")
    claude.user("Hello")
    claude.answer(text("Hi."))
    log = await imported(claude)
    assert log.told == ["user: Hello", "assistant: Hi."]
    assert log.kept[0][0] == "result without a call"


async def test_what_the_provider_does_itself_is_a_step_of_its_own(imported: Import) -> None:
    claude = Claude()
    claude.user("Search")
    claude.answer(
        text("Searching."),
        {"type": "server_tool_use", "id": "w1", "name": "web_search", "input": {"query": "interlocks"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "w1",
            "content": [{"type": "web_search_result", "url": "u"}],
        },
        text("Found."),
        text("All of it."),
    )
    log = await imported(claude)
    assert log.told == [
        "user: Search",
        "assistant: Searching. web_search#w1",
        'tool: [{"type": "web_search_result", "url": "u"}]',
        "assistant: Found.\nAll of it.",
    ]
    assert log.first(TurnEnd).reason == Completed()
    assert len(log.facts(AssistantMessage)) == 2


async def test_an_answer_may_end_with_what_the_provider_did_itself(imported: Import) -> None:
    claude = Claude()
    claude.user("Search")
    claude.answer(
        {"type": "server_tool_use", "id": "w1", "name": "web_search", "input": {"query": "interlocks"}},
        {"type": "web_search_tool_result", "tool_use_id": "w1", "content": []},
    )
    log = await imported(claude)
    assert log.told == ["user: Search", "assistant: web_search#w1", "tool: []"]
    assert len(log.facts(AssistantMessage)) == 1


async def test_arguments_that_we_have_no_word_for_stay(imported: Import) -> None:
    claude = Claude()
    claude.user("Look")
    claude.answer(
        use("t1", "Grep", pattern="x", output_mode="content", context="no number"),
        use("t2", "WebFetch", url="https://example.org", prompt="Sum up"),
        use("t3", "MultiEdit", file_path="a.py", edits=[{"old_string": "a", "new_string": "b"}]),
        {"type": "tool_use", "id": "t4", "name": "Bash", "input": "no object"},
    )
    log = await imported(claude)
    assert [(call.name, call.asked) for call in log.calls] == [
        ("grep", {"pattern": "x", "output_mode": "content", "context_": "no number"}),
        ("WebFetch", {"url": "https://example.org", "prompt": "Sum up"}),
        ("MultiEdit", {"file_path": "a.py", "edits": [{"old_string": "a", "new_string": "b"}]}),
        ("Bash", "no object"),
    ]


async def test_our_own_transcripts_for_hooks_can_be_imported(imported: Import, tmp_path: Path) -> None:
    from interlock import Agent, tool
    from interlock.bridges.hooks.transcript import Transcript
    from interlock.testing import ScriptedModel, calls, says

    @tool
    async def bash(command: str) -> str:
        return f"ran {command}"

    async with Agent(ScriptedModel(calls("bash", command="ls"), says("Done.")), tools=[bash]) as agent:
        await agent.run("List")
        transcript = Transcript(agent.session, tmp_path, tmp_path)
        await transcript.update()
        before = [(one.role, one.content) for one in agent.session.history.view()]
    log = await imported(transcript.path)
    after = [(one.role, one.content) for one in log.history]
    assert [one for one in after if one[0] != "assistant"] == [one for one in before if one[0] != "assistant"]
    assert [call.asked for call in log.calls] == [{"command": "ls"}]
