"""The example hooks do what they say, and each file runs as a program without a network."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from interlock import Agent, Deny, Harness, Tool, ToolError, tool
from interlock.log.facts import ToolResulted, ToolStarted
from interlock.testing import ScriptedModel, assert_laws, call, calls, outline, says

pytestmark = pytest.mark.slow  # it starts many processes

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = {
    "lifecycle_log": [
        "[Hook] UserPromptSubmit: Read README.md and say how to run this",
        "[Hook] PreToolUse: read_file",
        "[Hook] PostToolUse: read_file -> ok",
        "[Hook] Stop",
        "One runs it with `make demo`.",
    ],
    "ask_before_writes": [
        "write_file(path='b.txt', content='copy')? yes",
        "delete_file(path='a.txt')? no",
        "text of a.txt",
        "wrote b.txt",
        "Error [approval_rejected]: keep the file",
    ],
    "result_notices": [
        "* write_file is done: wrote b.txt",
        "* write_file failed: no_space",
        "Two of three.",
    ],
    "backup_before_edit": ["notes.txt: tea at five", "backup of notes.txt: tea at four"],
    "managed_files": [
        "text of generated.txt",
        "wrote source.txt",
        "Error [hook_blocked]: docs/../generated.txt is managed elsewhere; change what it is generated from",
    ],
    "redact_and_truncate": [
        r"redact, then truncate: '[redacted]\n[truncated]'",
        r"truncate, then redact: 'sk-0123456\n[truncated]'",
    ],
}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(agent: Agent) -> list[str]:
    return outline(agent.session, "tool/result")


@tool(effect="read")
async def read_file(path: str) -> str:
    return f"text of {path}"


@tool
async def write_file(path: str, content: str = "") -> str:
    return f"wrote {path}"


def test_every_example_is_listed_and_tested() -> None:
    files = {path.stem for path in EXAMPLES.glob("*.py")}
    assert files == PROGRAMS.keys()
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"[{name}.py]({name}.py)" in index for name in files)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_runs_as_a_program_and_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "", "INTERLOCK_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == PROGRAMS[name]
    assert list(tmp_path.iterdir()) == []  # and leaves nothing behind


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_uses_the_public_names_only(name: str) -> None:
    imported = [
        line
        for line in (EXAMPLES / f"{name}.py").read_text().splitlines()
        if "import" in line and "interlock" in line
    ]
    assert imported
    assert all(
        line.startswith(("from interlock import", "from interlock.testing import")) for line in imported
    )


async def test_the_log_tells_failures_by_their_code_and_skips_what_never_ran() -> None:
    lines: list[str] = []
    model = ScriptedModel(
        calls(call("write_file", path="a"), call("nothing"), call("write_file", path="b")), says("x")
    )
    async with Agent(model, tools=[write_file]) as agent:
        load("lifecycle_log").log_lifecycle(agent, lines.append)
        agent.on.pre_execute(lambda asked: Deny("no") if asked.arguments["path"] == "b" else None)
        await agent.run("go")

    assert lines == [
        "[Hook] UserPromptSubmit: go",
        "[Hook] PreToolUse: write_file",
        "[Hook] PostToolUse: write_file -> ok",
        "[Hook] PreToolUse: write_file",
        "[Hook] Stop",
    ]


async def test_asking_asks_nobody_about_reads_and_overrules_no_denial() -> None:
    example = load("ask_before_writes")
    asked: list[str] = []

    async def person(request: Any) -> Any:
        asked.append(request.call.name)
        return await example.person(request)

    model = ScriptedModel(
        calls(call("read_file", path="a"), call("write_file", path="b"), call("write_file", path="c")),
        says("ok"),
    )
    async with Harness(tools=[read_file, write_file], approver=person) as harness:
        example.ask_before_writes(harness)  # a harness's hooks hold for all its agents
        async with harness.agent(model) as agent:
            agent.on.pre_execute(lambda made: Deny("not c") if made.arguments["path"] == "c" else None)
            await agent.run("go")

            assert asked == ["write_file"]
            assert results(agent) == [
                "tool/result #c1 text of a",
                "tool/result #c2 wrote b",
                "tool/result #c3 error DENIED not c",
            ]
            assert_laws(agent.session)


async def test_where_nobody_can_be_asked_nothing_is_written() -> None:
    async with Agent(ScriptedModel(calls("write_file", path="a"), says("ok")), tools=[write_file]) as agent:
        load("ask_before_writes").ask_before_writes(agent)
        await agent.run("go")

        (result,) = agent.session.facts(ToolResulted)
        assert result.error.code == "APPROVAL_UNAVAILABLE"
        assert not agent.session.facts(ToolStarted)


async def test_a_notice_is_given_for_changes_and_failures_and_for_nothing_that_did_not_happen() -> None:
    lines: list[str] = []
    model = ScriptedModel(
        calls(call("read_file", path="a"), call("write_file", path="b"), call("write_file", path="no")),
        says("ok"),
    )
    async with Agent(model, tools=[read_file, write_file]) as agent:
        load("result_notices").notify(agent, lines.append)
        agent.guard(lambda made: Deny("no") if made.arguments["path"] == "no" else None)
        await agent.run("go")

    assert lines == ["write_file is done: wrote b"]


def _editor(text: str) -> Tool:
    @tool
    def edit_file(path: str) -> str:
        Path(path).write_text(text)
        return "edited"

    return edit_file


async def test_a_backup_is_the_file_before_each_edit_and_no_copy_replaces_another(tmp_path: Path) -> None:
    file, backups = tmp_path / "a.txt", tmp_path / "backups"
    file.write_text("first")
    edit = call("edit_file", path=str(file))
    async with Agent(
        ScriptedModel(calls(edit, edit), says("ok")), tools=[_editor("second")], cwd=tmp_path
    ) as agent:
        load("backup_before_edit").backup_before_edit(agent, backups, ["edit_file"])
        await agent.run("go")
        assert_laws(agent.session)

    kept = sorted(backups.iterdir(), key=lambda path: int(path.suffix[1:]))
    assert [path.read_text() for path in kept] == ["first", "second"]


async def test_a_new_file_needs_no_backup_and_other_tools_get_none(tmp_path: Path) -> None:
    model = ScriptedModel(
        calls(call("edit_file", path=str(tmp_path / "new.txt")), call("write_file", path="a")), says("ok")
    )
    async with Agent(model, tools=[_editor("x"), write_file], cwd=tmp_path) as agent:
        load("backup_before_edit").backup_before_edit(agent, tmp_path / "backups", ["edit_file"])
        await agent.run("go")

        assert results(agent) == ["tool/result #c1 edited", "tool/result #c2 wrote a"]
    assert not (tmp_path / "backups").exists()


async def test_without_a_backup_there_is_no_edit(tmp_path: Path) -> None:
    """The wrapper fails closed: what cannot be kept is not changed."""
    file = tmp_path / "a.txt"
    file.write_text("first")
    (tmp_path / "backups").write_text("a file where the folder should be")
    model = ScriptedModel(calls("edit_file", path=str(file)), says("ok"))
    async with Agent(model, tools=[_editor("second")], cwd=tmp_path) as agent:
        load("backup_before_edit").backup_before_edit(agent, tmp_path / "backups", ["edit_file"])
        await agent.run("go")

        (result,) = agent.session.facts(ToolResulted)
        assert (result.error.code, result.error.handler_executed) == ("HOOK_EXECUTION_ERROR", False)
        assert_laws(agent.session)
    assert file.read_text() == "first"


@pytest.mark.parametrize(
    "path", ["generated.txt", "./generated.txt", "sub/../generated.txt", "link.txt", "{cwd}/generated.txt"]
)
async def test_no_way_of_writing_the_path_leads_around_a_managed_file(path: str, tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to("generated.txt")
    path = path.format(cwd=tmp_path)
    model = ScriptedModel(calls("write_file", path=path, content="x"), says("ok"))
    async with Agent(model, tools=[write_file], cwd=tmp_path) as agent:
        load("managed_files").manage(agent, ["generated.txt"])
        await agent.run("go")

        (result,) = agent.session.facts(ToolResulted)
        assert (result.error.code, result.error.handler_executed) == ("HOOK_BLOCKED", False)
        assert not agent.session.facts(ToolStarted)
        assert_laws(agent.session)


@pytest.mark.parametrize(
    ("name", "path"), [("read_file", "generated.txt"), ("write_file", "sub/generated.txt")]
)
async def test_reading_a_managed_file_and_writing_another_one_are_fine(
    name: str, path: str, tmp_path: Path
) -> None:
    model = ScriptedModel(calls(name, path=path), says("ok"))
    async with Agent(model, tools=[read_file, write_file], cwd=tmp_path) as agent:
        load("managed_files").manage(agent, ["generated.txt"])
        await agent.run("go")

        (result,) = agent.session.facts(ToolResulted)
        assert result.error is None


SECRET = "sk-0123456789abcdef"


async def reviewed(text: str, *hooks: str, fails: bool = False) -> tuple[str, Any]:
    """What the model reads of a tool's text after these hooks, in this order, and the code of the failure."""
    example = load("redact_and_truncate")

    @tool(effect="read")
    async def show() -> str:
        if fails:
            raise ToolError(text, code="BROKEN")
        return text

    model = ScriptedModel(calls("show"), says("ok"))
    async with Agent(model, tools=[show]) as agent:
        for name in hooks:
            agent.hooks.register("PostToolUse", getattr(example, name))
        await agent.run("go")
        assert_laws(agent.session)
        (result,) = agent.session.facts(ToolResulted)
        return model.requests[1].messages[-1].text, result.error.code if result.error else None


@pytest.mark.parametrize(
    ("length", "cut"), [(0, False), (99_999, False), (100_000, False), (100_001, True), (250_000, True)]
)
async def test_output_is_cut_at_100_000_characters_and_says_so(length: int, cut: bool) -> None:
    text, error = await reviewed("x" * length, "truncate")
    assert text == ("x" * 100_000 + "\n[truncated]" if cut else "x" * length)
    assert error is None


async def test_redacting_first_finds_a_secret_that_lies_across_the_cut() -> None:
    text = "." * 99_990 + SECRET + "." * 50
    first, _ = await reviewed(text, "redact", "truncate")
    assert first == "." * 99_990 + "[redacted]" + "\n[truncated]"
    assert "sk-" not in first
    second, _ = await reviewed(text, "truncate", "redact")
    assert second == "." * 99_990 + "sk-0123456" + "\n[truncated]"


async def test_where_both_orders_see_the_whole_secret_they_agree() -> None:
    text = f"{SECRET} and {SECRET}" + "." * 100_000
    results = [
        (await reviewed(text, *order))[0] for order in (("redact", "truncate"), ("truncate", "redact"))
    ]
    assert all(result.startswith("[redacted] and [redacted]..") for result in results)
    # The first cuts what is left after redacting; the second redacts what is left after cutting.
    assert [len(result) for result in results] == [100_012, 100_012 - 2 * (len(SECRET) - len("[redacted]"))]


async def test_a_failure_is_redacted_too_stays_a_failure_and_is_not_cut() -> None:
    text, error = await reviewed(f"no access with {SECRET}", "redact", "truncate", fails=True)
    assert (text, error) == ("Error [broken]: no access with [redacted]", "BROKEN")
    text, error = await reviewed("y" * 150_000, "truncate", fails=True)
    assert (len(text), error) == (150_000 + len("Error [broken]: "), "BROKEN")
