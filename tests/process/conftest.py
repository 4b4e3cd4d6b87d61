from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def heard(tmp_path: Path) -> Callable[[], asyncio.Future[list[str]]]:
    """What a command writes into the named pipe `said`, which it finds in its folder: waits for it."""
    pipe = tmp_path / "said"
    os.mkfifo(pipe)

    async def listen() -> list[str]:
        return (await asyncio.to_thread(pipe.read_text)).split()

    return lambda: asyncio.ensure_future(listen())


@pytest.fixture
def is_running() -> Callable[[str | int], bool]:
    def ask(pid: str | int) -> bool:
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout
        return state != "" and not state.startswith("Z")

    return ask
