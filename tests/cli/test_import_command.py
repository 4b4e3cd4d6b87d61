"""`interlock import`, and what the other commands make of what it has made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ended

Command = Callable[..., Ended]


def _claude(*lines: dict[str, Any]) -> list[dict[str, Any]]:
    common = {"sessionId": "s", "cwd": "/home/ada/work", "version": "2.1.30", "isSidechain": False}
    return [
        {**common, "uuid": f"u{i}", "timestamp": f"2026-01-01T00:00:{i:02}.000Z", **line}
        for i, line in enumerate(lines)
    ]


def _said(*blocks: dict[str, Any]) -> dict[str, Any]:
    message = {
        "id": f"m{len(str(blocks))}",
        "role": "assistant",
        "model": "claude-opus-4-5",
        "content": list(blocks),
    }
    return {"type": "assistant", "message": message}


def _use(call: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def _result(call: str, content: str, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": content, **more}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    lines = _claude(
        {"type": "user", "message": {"role": "user", "content": "Tidy up"}},
        _said(
            _use("t1", "Bash", command="git push origin main"),
            _use("t2", "Read", file_path="/home/ada/work/.env"),
        ),
        _result("t1", "pushed"),
        _result("t2", "TOKEN=1"),
        _said(_use("t3", "Write", file_path="/home/ada/work/a.txt", content="x")),
        _result("t3", "Permission to use Write has been denied.", is_error=True),
        {"type": "progress", "data": {"type": "hook_progress"}},
        {"type": "novelty", "what": "unheard of"},
        _said(
            {"type": "thinking", "thinking": "Enough.", "signature": "x"}, {"type": "text", "text": "Tidied."}
        ),
    )
    path = tmp_path / "session.jsonl"
    path.write_text("".join([json.dumps(line) + "\n" for line in lines]))
    return path


def test_it_says_what_was_made_and_what_is_not_in_it(interlock: Command, transcript: Path) -> None:
    ended = interlock("import", str(transcript))
    assert ended.code == 0
    first, *more = ended.out.splitlines()
    assert first.startswith("20260101-000000-")
    assert first.endswith(": Claude Code 2.1.30, 30 events")
    assert more == [
        "  left out: 1 novelty (kept), 1 progress",
        "  not exact: 1 signature of a thought, left out",
    ]
    assert interlock("import", str(transcript)).out.splitlines()[0] == f"{first}, imported before"
    made = json.loads(interlock("import", str(transcript), "--json").out)
    assert (made["session_id"], made["existed"]) == (first.partition(":")[0], True)
    assert made["skipped"] == {"novelty (kept)": 1, "progress": 1}


def test_the_other_commands_work_on_it(interlock: Command, transcript: Path) -> None:
    interlock("import", str(transcript))
    assert "Tidy up" in interlock("sessions").out
    checked = interlock("check", "last")
    assert (checked.code, "every law holds" in checked.out) == (0, True)
    explained = interlock("explain", "last").out
    assert "It ran: allowed by Claude Code: it ran; who or what allowed it is not on record." in explained
    assert "It did not run: denied by Claude Code" in explained
    shown = interlock("log", "last").out
    assert "imported from Claude Code" in shown
    assert "begun by an import" in shown
    assert "novelty, of line 8 of the transcript" in shown
    assert "git push origin main" in shown
    events = interlock("log", "last", "--json").events
    assert events[0].type == "session/created"


def test_other_rules_are_tried_on_what_another_program_did(
    interlock: Command, transcript: Path, tmp_path: Path
) -> None:
    interlock("import", str(transcript))
    rules = tmp_path / "settings.json"
    rules.write_text(
        '{"permissions": {"deny": ["Bash(git push:*)"], "ask": ["Read(.env)"], "allow": ["Edit(//home/ada/work/**)"]}}'
    )
    ended = interlock("policy", "test", str(rules), "--on", "last")
    assert ended.code == 1
    changes = [line.split(":", 1)[1].split("  ")[0].strip() for line in ended.out.splitlines() if "→" in line]
    assert changes == ["allow → deny", "allow → ask", "deny → allow"]
    assert "3 calls of 1 session: 3 would be decided otherwise" in ended.out


def test_a_file_that_is_no_transcript(interlock: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"type": "user", "uuid": "u"}\n')
    ended = interlock("import", str(tmp_path / "bad.jsonl"))
    assert ended.code == 2
    assert "bad.jsonl, line 1: a user line has no 'message'. Nothing was imported." in ended.err
    assert interlock("import", str(tmp_path / "none.jsonl")).code == 2
    assert interlock("import", str(tmp_path / "bad.jsonl"), "--format", "word").code == 2
    assert "No sessions yet" in interlock("sessions").out
