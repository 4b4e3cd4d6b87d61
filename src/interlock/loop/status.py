"""What an agent is doing."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """What an agent is doing."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING = "waiting"  # nothing can go on but for a person's answer
    FAILED = "failed"  # the store cannot write: nothing further starts
    CLOSED = "closed"
