"""Every payload that a Codex hook gets in a real run is valid by the schemas of `codex-hookkit`."""

from __future__ import annotations

import json

import pytest

from interlock import ApprovalRequest, Approved, Ask
from interlock.testing import call, calls, says

from .real_hooks import Project, on

hookkit = pytest.importorskip("codex_hookkit.schemas", reason="codex-hookkit is not installed")
pytestmark = pytest.mark.slow

SCHEMAS = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "user-prompt-submit",
    "PreToolUse": "pre-tool-use",
    "PermissionRequest": "permission-request",
    "PostToolUse": "post-tool-use",
    "Stop": "stop",
}
KEEP = 'cat > "$(mktemp seen.XXXXXXXX)"'  # hooks of several calls run at the same time


async def yes(request: ApprovalRequest) -> Approved:
    return Approved()


async def test_every_payload_of_a_run_is_valid(project: Project) -> None:
    project.codex({event: [on("", KEEP)] for event in SCHEMAS})
    agent = project.agent(
        calls(
            call("bash", command="echo hi"),
            call("write", path="a.txt", content="one\ntwo\n"),
            call("edit", path="a.txt", old="two", new="three"),
            call("read", path="a.txt"),
            call("glob", pattern="*.txt"),
            call("grep", pattern="one"),
            call("bash", command="exit 3"),
        ),
        says("done"),
        approver=yes,
        preset="ask",
    )
    agent.on.pre_execute(lambda call: Ask("sure?") if call.name == "bash" else None)
    async with agent:
        assert (await agent.run("go")).ok
    seen = [json.loads(file.read_text()) for file in project.root.glob("seen.*")]
    assert {one["hook_event_name"] for one in seen} == set(SCHEMAS)
    for payload in seen:
        errors = list(hookkit.iter_validation_errors(payload, SCHEMAS[payload["hook_event_name"]]))
        assert errors == [], (payload, errors)
