"""Transcripts in the shape in which other programs write them, made line by line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BEGAN = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def at(second: float) -> str:
    """A time so many seconds after the beginning, as those programs write it."""
    when = datetime.fromtimestamp(BEGAN / 1000 + second, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write(path: Path, lines: Sequence[Mapping[str, Any] | str]) -> Path:
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join([f"{line}\n" for line in text]))
    return path


class Claude:
    """A session of Claude Code. Each line follows on the last one, a second later, unless `parent` says where."""

    def __init__(
        self, session: str = "5e551001-0000-4000-8000-000000000001", cwd: str = "/home/ada/work"
    ) -> None:
        self.lines: list[dict[str, Any]] = []
        self.common = {
            "userType": "external",
            "cwd": cwd,
            "sessionId": session,
            "version": "2.1.30",
            "gitBranch": "main",
        }
        self.last: str | None = None
        self._answers = 0

    def line(self, kind: str, *, parent: str | None = "", side: bool = False, **more: Any) -> str:
        uuid = f"u{len(self.lines):04}"
        self.lines.append(
            {
                "parentUuid": self.last if parent == "" else parent,
                "isSidechain": side,
                **self.common,
                "type": kind,
                "uuid": uuid,
                "timestamp": at(len(self.lines)),
                **more,
            }
        )
        if not side:
            self.last = uuid
        return uuid

    def user(self, content: str | list[dict[str, Any]], **more: Any) -> str:
        return self.line("user", message={"role": "user", "content": content}, **more)

    def answer(
        self, *blocks: dict[str, Any], model: str = "claude-opus-4-5", stop: str | None = None, **more: Any
    ) -> str:
        """One answer, a line for each block, as it is written."""
        self._answers += 1
        message = {"id": f"msg_{self._answers:03}", "type": "message", "role": "assistant", "model": model}
        usage = {
            "input_tokens": 3,
            "cache_creation_input_tokens": 10,
            "cache_read_input_tokens": 100,
            "output_tokens": 7,
        }
        uuid = ""
        for block in blocks:
            uuid = self.line(
                "assistant",
                message={**message, "content": [block], "stop_reason": stop, "usage": usage},
                **more,
            )
        return uuid

    def result(
        self,
        call: str,
        content: str | list[dict[str, Any]],
        *,
        error: bool = False,
        told: Any = None,
        **more: Any,
    ) -> str:
        block = {
            "tool_use_id": call,
            "type": "tool_result",
            "content": content,
            **({"is_error": True} if error else {}),
        }
        return self.user(
            [block], toolUseResult=told if told is not None else {"stdout": str(content)}, **more
        )

    def save(self, folder: Path) -> Path:
        return write(folder / f"{self.common['sessionId']}.jsonl", self.lines)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def thinking(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": "c2lnbmVk"}


REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). STOP what you are doing and wait for the user to tell you how to proceed."
)


class Codex:
    """A rollout of Codex, a second between two lines."""

    def __init__(
        self, session: str = "019b7000-0000-7000-8000-000000000001", cwd: str = "/home/ada/work"
    ) -> None:
        self.lines: list[dict[str, Any]] = []
        self._session = session
        self.line("session_meta", id=session, timestamp=at(0), cwd=cwd, originator="codex_cli_rs", cli_version="0.80.0",
                  source="cli", model_provider="openai", base_instructions={"text": "You are Codex."})  # fmt: skip

    def line(self, kind: str, **payload: Any) -> None:
        self.lines.append({"timestamp": at(len(self.lines)), "type": kind, "payload": payload})

    def item(self, kind: str, **payload: Any) -> None:
        self.line("response_item", type=kind, **payload)

    def event(self, kind: str, **payload: Any) -> None:
        self.line("event_msg", type=kind, **payload)

    def turn(self, prompt: str, model: str = "gpt-5.2-codex") -> None:
        self.event("task_started", turn_id=f"t{len(self.lines)}", model_context_window=258400)
        self.line(
            "turn_context", cwd="/home/ada/work", approval_policy="on-request", model=model, effort="high"
        )
        self.said("user", prompt)
        self.event("user_message", message=prompt, images=[])

    def said(self, role: str, words: str) -> None:
        part = "output_text" if role == "assistant" else "input_text"
        self.item("message", role=role, content=[{"type": part, "text": words}])

    def call(self, call: str, name: str, **arguments: Any) -> None:
        self.item("function_call", name=name, arguments=json.dumps(arguments), call_id=call)

    def patch(self, call: str, patch: str) -> None:
        self.item("custom_tool_call", status="completed", call_id=call, name="apply_patch", input=patch)

    def output(self, call: str, output: Any, kind: str = "function_call_output") -> None:
        self.item(kind, call_id=call, output=output)

    def tokens(self, read: int = 100, written: int = 10) -> None:
        usage = {"input_tokens": read, "cached_input_tokens": 40, "output_tokens": written, "reasoning_output_tokens": 4,
                 "total_tokens": read + written}  # fmt: skip
        self.event(
            "token_count", info={"total_token_usage": usage, "last_token_usage": usage}, rate_limits=None
        )

    def save(self, folder: Path) -> Path:
        return write(folder / f"rollout-2026-01-01T00-00-00-{self._session}.jsonl", self.lines)
