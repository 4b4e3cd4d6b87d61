"""`interlock run --redact`: what the environment says is secret goes nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock.models.scripted import calls, says

SECRET = "value-of-the-variable-1"
KEY = "ghp_" + "a1B2c3" * 6


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_secrets_of_the_environment_reach_neither_model_nor_log(
    interlock: Any, script: Any, work: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", SECRET)
    (work / "a.txt").write_text(f"token {SECRET}\nkey {KEY}\n")
    model = script(calls("read", path="a.txt"), calls("bash", command="env"), says(f"It is {SECRET}."))

    options = ("--cwd", str(work), "--preset", "full", "--output-format", "stream-json")
    ended = interlock("run", f"Use {SECRET}", *options)
    exported = interlock("log", "last", "--format", "jsonl")

    told = "\n".join(str([m.content for m in request.messages]) for request in model.requests)
    assert "[redacted:MY_SERVICE_TOKEN]" in told and "[redacted:github-token]" in told
    for text in (told, ended.out, ended.err, exported.out):
        assert SECRET not in text and KEY not in text
    assert "It is [redacted:MY_SERVICE_TOKEN]." in ended.out
    assert SECRET.encode() not in files(home) and KEY.encode() not in files(home)
    assert b"[redacted:MY_SERVICE_TOKEN]" in files(home)


def test_nothing_is_taken_out_when_that_is_asked_for(
    interlock: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", SECRET)
    script(says(f"It is {SECRET}."))
    assert interlock("run", "Say it", "--no-redact").out == f"It is {SECRET}.\n"
