"""Scripts written with `cchooks`, unmodified, as hooks of a real run: its contexts read our payloads, and each of its
answers has the effect that its documentation says."""

from __future__ import annotations

import json
import os

import pytest

from interlock.log.facts import HookProblem
from interlock.log.reasons import Blocked
from interlock.testing import assert_laws, call, calls, outline, says

from .real_hooks import Project, hook_results, on, said_to_model

pytest.importorskip("cchooks", reason="cchooks is not installed")
pytestmark = pytest.mark.slow

GATE = """
from cchooks import create_context
c = create_context()
command = c.tool_input["command"]
if "rm" in command:
    c.output.deny("no rm here", system_message="a removal was refused")
elif "curl" in command:
    c.output.ask("the network is used")
elif "push" in command:
    c.output.exit_block("nothing is pushed from here")
elif "halt" in command:
    c.output.halt("that is enough")
elif "stale" in command:
    c.output.allow("fixed", updated_input={"command": "echo fresh"})
else:
    c.output.allow("harmless")
"""


async def test_a_gate_on_bash_denies_asks_blocks_rewrites_and_allows(project: Project) -> None:
    project.claude({"PreToolUse": [on("Bash", project.script("gate.py", GATE))]})
    commands = ["rm -r x", "curl example.org", "git push", "echo stale", "echo fine"]
    agent = project.agent(calls(*[call("bash", command=one) for one in commands]), says("done"))
    async with agent:
        assert (await agent.run("go")).ok
        assert outline(agent.session, "tool/result") == [
            "tool/result #c1 error DENIED no rm here",
            "tool/result #c2 error APPROVAL_UNAVAILABLE the network is used (nobody is there to approve it)",
            "tool/result #c3 error DENIED nothing is pushed from here",
            "tool/result #c4 fresh",
            "tool/result #c5 fine",
        ]
        results = hook_results(agent, "PreToolUse")
        assert [one.exit for one in results] == [0, 0, 2, 0, 0]
        assert dict(results[0].said)["messages"] == ("a removal was refused",)
        assert agent.session.facts(HookProblem) == []
        assert_laws(agent.session)


async def test_halt_ends_the_turn(project: Project) -> None:
    project.claude({"PreToolUse": [on("Bash", project.script("gate.py", GATE))]})
    agent = project.agent(calls("bash", command="halt"), says("never"))
    async with agent:
        result = await agent.run("go")
        assert result.reason.by == "hook"  # type: ignore[union-attr]
        assert [dict(one.said)["stop"] for one in hook_results(agent, "PreToolUse")] == ["that is enough"]


PROMPT = """
from cchooks import create_context
c = create_context()
if "password" in c.prompt:
    c.output.block("no secrets in prompts")
elif "weather" in c.prompt:
    c.output.halt("only work questions")
else:
    c.output.add_context("the build is green")
"""


async def test_prompts_are_blocked_halted_and_given_context(project: Project) -> None:
    project.claude({"UserPromptSubmit": project.script("prompt.py", PROMPT)})
    agent = project.agent(says("ok"))
    async with agent:
        assert isinstance((await agent.run("the password is x")).reason, Blocked)
        assert isinstance((await agent.run("weather?")).reason, Blocked)
        assert (await agent.run("does it build?")).ok
        assert outline(agent.session, "turn/end") == [
            "turn/end blocked by hooks:UserPromptSubmit: no secrets in prompts",
            "turn/end blocked by hooks:UserPromptSubmit: only work questions",
            "turn/end completed",
        ]
        assert said_to_model(agent) == ["does it build?", "the build is green"]
        assert_laws(agent.session)


START = """
from cchooks import create_context
c = create_context()
c.output.add_context(f"started by {c.source}")
"""
STOP = """
import os, sys
from pathlib import Path
from cchooks import create_context
c = create_context()
flag = Path("flag")
Path("active.txt").open("a").write(f"{c.stop_hook_active} ")
if c.stop_hook_active:
    c.output.allow()
else:
    c.output.prevent("run the tests first")
"""


async def test_session_start_and_stop(project: Project) -> None:
    project.claude(
        {"SessionStart": project.script("start.py", START), "Stop": project.script("stop.py", STOP)}
    )
    agent = project.agent(says("done"), says("tests pass"))
    async with agent:
        assert (await agent.run("go")).text == "tests pass"
        assert said_to_model(agent) == ["started by startup", "go", "run the tests first"]
    assert (project.root / "active.txt").read_text() == "False True "


POST = """
from cchooks import create_context
c = create_context()
assert c.tool_name == "Write", c.tool_name
assert c.tool_input["file_path"].startswith("/"), c.tool_input
c.output.challenge("format the file")
"""


async def test_feedback_after_a_write(project: Project) -> None:
    project.claude({"PostToolUse": [on("Write|Edit", project.script("post.py", POST))]})
    agent = project.agent(calls("write", path="a.py", content="x=1\n"), says("done"))
    async with agent:
        await agent.run("go")
        assert [one.error for one in hook_results(agent, "PostToolUse")] == [None]
        assert said_to_model(agent) == ["go", "format the file"]


SEEN = """
import json, sys
from pathlib import Path
from cchooks import create_context
data = json.load(open("/dev/stdin"))
import io
c = create_context(io.StringIO(json.dumps(data)))
with open("seen.jsonl", "a") as file:
    file.write(json.dumps({"context": type(c).__name__, **data}) + "\\n")
"""


async def test_every_event_it_knows_is_read_by_its_own_validation(project: Project) -> None:
    script = project.script("seen.py", SEEN)
    events = [
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Stop",
        "Notification",
        "SessionEnd",
    ]
    project.claude(dict.fromkeys(events, script))
    agent = project.agent(calls("bash", command="echo hi"), says("done"))
    async with agent:
        await agent.run("go")
    seen = [json.loads(line) for line in (project.root / "seen.jsonl").read_text().splitlines()]
    assert {one["hook_event_name"] for one in seen} == set(events)
    for one in seen:
        assert one["context"] == f"{one['hook_event_name']}Context"
        assert one["session_id"] == agent.session.id
        assert os.path.isfile(one["transcript_path"])  # noqa: ASYNC240  # nothing else runs


async def test_the_transcript_holds_what_was_said_before_the_hook(project: Project) -> None:
    project.claude(
        {
            "Stop": project.script(
                "copy.py",
                "import json, shutil, sys\n"
                "shutil.copy(json.load(sys.stdin)['transcript_path'], 'copy.jsonl')\n",
            )
        }
    )
    agent = project.agent(calls("bash", command="echo hi"), says("done"))
    async with agent:
        await agent.run("go")
    lines = [json.loads(line) for line in (project.root / "copy.jsonl").read_text().splitlines()]
    said = [(line["type"], line["message"]["content"]) for line in lines if not line.get("isMeta")]
    assert said[0] == ("user", "go")
    assert [block["name"] for kind, blocks in said if kind == "assistant" for block in blocks[:1]
            if block["type"] == "tool_use"] == ["Bash"]  # fmt: skip
    assert said[-2][1][0]["content"].startswith("hi")
    assert said[-1] == ("assistant", [{"type": "text", "text": "done"}])
