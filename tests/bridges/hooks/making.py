"""Handlers for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interlock.bridges.hooks.event import EventName
from interlock.bridges.hooks.handler import Command, Handler, Http, Place
from interlock.bridges.hooks.matching import ALWAYS

PLACE = Place(Path("/etc/hooks.json"), 3, "user")


def handler(action: str | Command | Http, event: EventName = "PreToolUse", **more: Any) -> Handler:
    given: dict[str, Any] = {
        "dialect": "claude",
        "event": event,
        "matcher": ALWAYS,
        "action": Command(action) if isinstance(action, str) else action,
        "place": PLACE,
        "timeout": 60.0,
    }
    return Handler(**(given | more))
