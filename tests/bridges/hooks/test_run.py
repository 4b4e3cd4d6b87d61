"""Handlers as real processes: what they are given, how they end, and that a gate that fails means no."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridges.hooks.cases import HAPPENINGS, occurrence
from bridges.hooks.making import PLACE, handler
from interlock import Redactor
from interlock.bridges.hooks.event import Occurrence, PreToolUse
from interlock.bridges.hooks.handler import Command, Handler
from interlock.bridges.hooks.matching import compile_matcher
from interlock.bridges.hooks.run import Ran, Runner
from interlock.bridges.hooks.verdict import Answer, InputChange, Permission, Problem
from interlock.process import group

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/home/x", "OTEL_EXPORTER": "secret"}


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path / "state", environ=ENVIRONMENT)


def pre(tmp_path: Path, **arguments: Any) -> Occurrence:
    what = PreToolUse(tool="bash", tool_use_id="c1", input={"command": "ls"} | arguments)
    return occurrence(what, cwd=tmp_path, project=tmp_path)


async def one(runner: Runner, action: str | Command, at: Occurrence, **more: Any) -> Ran:
    (ran,) = await runner.run([handler(action, at.event, **more)], at)
    return ran


DENIES = "echo 'not here' >&2; exit 2"


# What a process is given


async def test_a_process_reads_one_json_object_and_then_the_end(runner: Runner, tmp_path: Path) -> None:
    ran = await one(runner, "cat > got", pre(tmp_path))
    assert ran.answer == Answer()
    assert (ran.exit, ran.waits, dict(ran.exports)) == (0, True, {})
    assert json.loads((tmp_path / "got").read_bytes()) == {
        "session_id": "s1",
        "transcript_path": "/t/s1.jsonl",
        "cwd": str(tmp_path),
        "hook_event_name": "PreToolUse",
        "permission_mode": "default",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_use_id": "c1",
    }


async def test_its_environment_is_ours_with_the_project_and_without_telemetry(
    runner: Runner, tmp_path: Path
) -> None:
    ran = await one(
        runner,
        """printf '{"systemMessage": "%s %s %s"}' "$CLAUDE_PROJECT_DIR" "$HOME" "$OTEL_EXPORTER$CLAUDE_ENV_FILE" """,
        pre(tmp_path),
    )
    assert ran.answer.messages == (f"{tmp_path} /home/x ",)


async def test_gemini_has_names_of_its_own(runner: Runner, tmp_path: Path) -> None:
    ran = await one(
        runner, 'echo "$GEMINI_PROJECT_DIR $GEMINI_SESSION_ID $GEMINI_CWD"', pre(tmp_path), dialect="gemini"
    )
    assert ran.answer.messages == (f"{tmp_path} s1 {tmp_path}",)


async def test_it_runs_in_the_session_s_folder_or_where_that_began(runner: Runner, tmp_path: Path) -> None:
    gone = replace(pre(tmp_path), cwd=tmp_path / "gone")
    assert (await one(runner, "pwd > /dev/null && touch here", gone)).answer == Answer()
    assert (tmp_path / "here").exists()


async def test_the_args_form_asks_no_shell(runner: Runner, tmp_path: Path) -> None:
    program = tmp_path / "my check.sh"
    program.write_text('#!/bin/sh\nprintf \'{"systemMessage": "%s|%s"}\' "$1" "$2"\n')
    program.chmod(0o755)
    command = Command("${CLAUDE_PROJECT_DIR}/my check.sh", args=("$HOME; ls", "${CLAUDE_PROJECT_DIR}/x"))
    ran = await one(runner, command, pre(tmp_path))
    assert ran.answer.messages == (f"$HOME; ls|{tmp_path}/x",)


async def test_bash_if_it_is_asked_for(runner: Runner, tmp_path: Path) -> None:
    ran = await one(
        runner, Command("""[[ -n $BASH ]] && echo '{"systemMessage": "bash"}'""", shell="bash"), pre(tmp_path)
    )
    assert ran.answer.messages == ("bash",)


async def test_codex_s_are_asked_of_the_person_s_shell(tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\necho "{\\"systemMessage\\": \\"$1 $2\\"}"\n')
    shell.chmod(0o755)
    runner = Runner(tmp_path / "state", environ={**ENVIRONMENT, "SHELL": str(shell)})
    ran = await one(runner, Command("check this", shell="login"), pre(tmp_path), dialect="codex")
    assert ran.answer.messages == ("-lc check this",)


async def test_powershell_if_it_is_asked_for(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pwsh"
    program.write_text('#!/bin/sh\necho "{\\"systemMessage\\": \\"$*\\"}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    ran = await one(runner, Command("exit 0", shell="powershell"), pre(tmp_path))
    assert ran.answer.messages == ("-NoProfile -NonInteractive -Command exit 0",)


# How it may end


async def test_a_denial(runner: Runner, tmp_path: Path) -> None:
    ran = await one(runner, DENIES, pre(tmp_path))
    assert (ran.answer, ran.exit) == (Answer(permission=Permission("deny", "not here")), 2)


def refusal(failure: str) -> Answer:
    reason = f"A PreToolUse hook failed, and what it guards is refused: {failure}"
    return Answer(permission=Permission("deny", reason), failure=failure)


@pytest.mark.parametrize(
    ("action", "failure", "code"),
    [
        ("echo boom >&2; exit 1", "exit code 1: boom", 1),
        ("kill -9 $$", "exit code 137", None),
        ("kill -TERM $$", "exit code 143", None),
        ("/no/such/hook", "exit code 127 (not found): /bin/sh: 1: /no/such/hook: not found", 127),
        ("./plain", "exit code 126 (not executable): /bin/sh: 1: ./plain: Permission denied", 126),
        (Command("/no/such/hook", args=()), "could not be started: [Errno 2] No such file or directory: '/no/such/hook'", None),
        (Command("./plain", args=()), "could not be started: [Errno 13] Permission denied: './plain'", None),
        ("a\0b", "could not be started: an argument or a variable cannot hold a NUL character", None),
    ],
)  # fmt: skip
@pytest.mark.skipif(sys.platform != "linux", reason="the words of this system's shell")
async def test_a_gate_that_fails_denies(
    runner: Runner, tmp_path: Path, action: str | Command, failure: str, code: int | None
) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "plain").chmod(stat.S_IRUSR | stat.S_IWUSR)
    ran = await one(runner, action, pre(tmp_path))
    assert (ran.answer, ran.exit) == (refusal(failure), code)


async def test_a_gate_that_exceeds_its_time_denies(runner: Runner, tmp_path: Path) -> None:
    ran = await one(runner, "sleep 1000", pre(tmp_path), timeout=0.1)
    assert (ran.answer, ran.exit) == (refusal("did not end within 0.1 s"), None)


async def test_a_gate_that_talks_without_end_denies(runner: Runner, tmp_path: Path) -> None:
    ran = await one(runner, "echo '{'; head -c 3000000 /dev/zero | tr '\\0' x", pre(tmp_path))
    assert ran.answer.failure == "its output is not valid JSON"
    assert ran.answer.permission is not None and ran.answer.permission.verdict == "deny"


async def test_a_gate_may_be_told_to_let_things_pass(runner: Runner, tmp_path: Path) -> None:
    ran = await one(runner, "exit 1", pre(tmp_path), on_failure="continue")
    assert ran.answer == Answer(failure="exit code 1")


async def test_what_only_reports_may_fail(runner: Runner, tmp_path: Path) -> None:
    at = occurrence(HAPPENINGS["PostToolUse"], cwd=tmp_path, project=tmp_path)
    assert (await one(runner, "exit 1", at)).answer == Answer(failure="exit code 1")
    blocked = await one(runner, "exit 1", at, on_failure="block")
    assert blocked.answer.block is not None


async def test_five_megabytes_that_it_does_not_read_do_not_hurt(runner: Runner, tmp_path: Path) -> None:
    for action in ("exit 0", "exec 0<&-; exit 0"):
        ran = await one(runner, action, pre(tmp_path, command="x" * 5_000_000))
        assert ran.answer == Answer()


async def test_output_that_is_not_utf8(runner: Runner, tmp_path: Path) -> None:
    ran = await one(runner, r"printf 'no \377' >&2; exit 2", pre(tmp_path))
    assert ran.answer.permission == Permission("deny", "no \ufffd")


async def test_problems_name_the_place_of_the_handler(runner: Runner, tmp_path: Path) -> None:
    ran = await one(runner, """echo '{"metrics": 1}'""", pre(tmp_path))
    assert ran.answer.problems == (
        Problem(
            "A PreToolUse hook set 'metrics', which is no field of an answer", str(PLACE.file), PLACE.line
        ),
    )


async def test_a_long_text_goes_into_a_file(runner: Runner, tmp_path: Path) -> None:
    at = occurrence(HAPPENINGS["UserPromptSubmit"], cwd=tmp_path, project=tmp_path)
    ran = await one(runner, "printf 'begin'; head -c 20000 /dev/zero | tr '\\0' x", at)
    (context,) = ran.answer.contexts
    assert context.startswith("beginxxx")
    assert len(context) < 2_500
    (kept,) = (tmp_path / "state").glob("hook-output-*")
    assert str(kept) in context
    assert kept.read_text() == "begin" + "x" * 20_000


# Several of them


async def test_secrets_are_taken_out_before_anything_is_made_of_what_it_prints(tmp_path: Path) -> None:
    redactor = Redactor({"bird": "canary-of-the-mine"})
    runner = Runner(tmp_path / "state", environ=ENVIRONMENT, redacted=redactor.text)
    long = """printf '{"systemMessage": "'; for i in $(seq 2000); do printf canary-of-the-mine; done; printf '"}'"""
    told = (await one(runner, long, pre(tmp_path))).answer.messages[0]
    denied = await one(runner, "echo no canary-of-the-mine >&2; exit 2", pre(tmp_path))

    (file,) = (tmp_path / "state").glob("hook-output-*")
    assert file.read_text() == "[redacted:bird]" * 2000 and told.startswith("[redacted:bird]")
    assert "no [redacted:bird]" in str(denied.answer) and "canary" not in str(denied.answer)


async def test_they_run_together_and_are_told_in_declared_order(runner: Runner, tmp_path: Path) -> None:
    # Each waits for the other's file: one after the other, they would wait for ever.
    def meets(mine: str, other: str) -> str:
        wait = f"until [ -e {other} ]; do sleep 0.01; done"
        return f"""touch {mine}; {wait}; echo '{{"systemMessage": "{mine}"}}'"""

    handlers = [handler(meets("a", "b")), handler(meets("b", "a")), handler("exit 1"), handler("/no/such")]
    ran = await runner.run(handlers, pre(tmp_path))
    assert [one.handler for one in ran] == handlers
    assert [one.answer.messages for one in ran] == [("a",), ("b",), (), ()]


async def test_one_after_another_where_gemini_says_so(runner: Runner, tmp_path: Path) -> None:
    def adds(name: str) -> Handler:
        script = (
            "import json, sys; said = json.load(sys.stdin)['tool_input']['command'];"
            f"print(json.dumps({{'hookSpecificOutput': {{'tool_input': {{'command': said + '{name}'}}}}}}))"
        )
        return handler(f'{sys.executable} -c "{script}"', dialect="gemini", sequential=name == "b")

    ran = await runner.run([adds("a"), adds("b"), adds("c")], pre(tmp_path))
    assert [one.answer.input for one in ran] == [
        InputChange({"command": f"ls{made}"}, merge=True) for made in ("a", "ab", "abc")
    ]


async def test_a_cancel_ends_all_of_them(runner: Runner, tmp_path: Path) -> None:
    begun = [tmp_path / "1", tmp_path / "2"]
    for pipe in begun:
        os.mkfifo(pipe)
    work = asyncio.create_task(
        runner.run([handler(f"echo $$ > {pipe}; sleep 1000") for pipe in begun], pre(tmp_path))
    )
    pids = [int((await asyncio.to_thread(pipe.read_text)).strip()) for pipe in begun]
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert [group.is_alive(pid) for pid in pids] == [False, False]


async def test_in_the_background_it_decides_nothing_and_is_told_later(runner: Runner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    action = (
        """cat go > /dev/null; echo '{"systemMessage": "late", "decision": "block", "reason": "x"}'; exit 0"""
    )
    (now,) = await runner.run([handler(action, background=True)], pre(tmp_path))
    assert (now.answer, now.waits) == (Answer(), False)
    assert runner.delivered() == ()
    await asyncio.to_thread((tmp_path / "go").write_text, "go")
    while not (later := runner.delivered()):  # noqa: ASYNC110  # nobody is told; it is asked for between turns
        await asyncio.sleep(0)
    assert [(one.answer, one.waits) for one in later] == [(Answer(messages=("late",)), False)]
    assert runner.delivered() == ()


async def test_in_the_background_code_2_may_wake(runner: Runner, tmp_path: Path) -> None:
    await runner.run([handler(DENIES, background=True, rewake=True)], pre(tmp_path))
    while not (later := runner.delivered()):  # noqa: ASYNC110  # nobody is told; it is asked for between turns
        await asyncio.sleep(0)
    assert [one.wakes for one in later] == ["not here"]


async def test_what_is_left_in_the_background_ends_with_its_owner(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "state", environ=ENVIRONMENT)
    os.mkfifo(tmp_path / "pid")
    await runner.run([handler("echo $$ > pid; sleep 1000", background=True)], pre(tmp_path))
    pid = int(await asyncio.to_thread((tmp_path / "pid").read_text))
    await runner.aclose()
    assert not group.is_alive(pid)


# Which of them


def test_who_is_chosen(tmp_path: Path) -> None:
    runner = Runner(tmp_path, condition=lambda rule, at: rule == "Bash(ls *)")
    handlers = [
        handler("a", matcher=compile_matcher("Bash", "claude")),
        handler("b", matcher=compile_matcher("Edit", "claude")),
        handler("c", matcher=compile_matcher("run_shell_command", "gemini"), dialect="gemini"),
        handler("d", condition="Bash(ls *)"),
        handler("e", condition="Bash(rm *)"),
        handler("f", event="PostToolUse"),
    ]
    chosen = runner.select(handlers, pre(tmp_path))
    assert [getattr(one.action, "command", "") for one in chosen] == ["a", "c", "d"]


def test_a_condition_that_cannot_be_decided_is_met(tmp_path: Path) -> None:
    def broken(rule: str, at: Occurrence) -> bool:
        raise ValueError("no such rule")

    conditional = handler("a", condition="Bash(ls *)")
    assert Runner(tmp_path, condition=broken).select([conditional], pre(tmp_path)) == (conditional,)
    assert Runner(tmp_path).select([conditional], pre(tmp_path)) == (conditional,)


def test_a_condition_is_never_met_where_there_is_no_call(tmp_path: Path) -> None:
    conditional = handler("a", event="Stop", condition="Bash(ls *)")
    runner = Runner(tmp_path, condition=lambda rule, at: True)
    assert runner.select([conditional], occurrence(HAPPENINGS["Stop"])) == ()


async def test_once_is_once(runner: Runner, tmp_path: Path) -> None:
    single = handler("exit 0", once=True)
    assert runner.select([single], pre(tmp_path)) == (single,)
    await runner.run([single], pre(tmp_path))
    assert runner.select([single], pre(tmp_path)) == ()


# Variables for later commands


async def test_a_session_start_hook_leaves_variables(runner: Runner, tmp_path: Path) -> None:
    at = occurrence(HAPPENINGS["SessionStart"], cwd=tmp_path, project=tmp_path)
    action = """echo 'export NODE_ENV=test A="x y"' >> "$CLAUDE_ENV_FILE"; echo 'rm -rf /' >> "$CLAUDE_ENV_FILE" """
    ran = await one(runner, action, at)
    assert ran.exports == {"NODE_ENV": "test", "A": "x y"}
    assert [problem.what for problem in ran.answer.problems] == [
        "Not understood in CLAUDE_ENV_FILE: rm -rf /"
    ]
    assert list((tmp_path / "state").iterdir()) == []


async def test_a_session_start_hook_may_take_its_file_away(runner: Runner, tmp_path: Path) -> None:
    at = occurrence(HAPPENINGS["SessionStart"], cwd=tmp_path, project=tmp_path)
    ran = await one(runner, 'rm "$CLAUDE_ENV_FILE"', at)
    assert ran.exports == {}
    assert "cannot be read" in ran.answer.problems[0].what
