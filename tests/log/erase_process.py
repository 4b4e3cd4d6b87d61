"""A process that erases or removes a session, and is killed in the middle; run by tests.

erases ADDRESS SESSION N    erases it, and kills itself before the Nth thing that it does to a file or a database
removes ADDRESS SESSION N   the same, with a removal
drives ADDRESS SESSION      has it open for writing, says so, and waits for a line on stdin

It says `done` when it has come to its end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from crash.places import AnyStore, store_at
from interlock.log.erasing import erase_sessions

#: What changes something outside the process, or asks a server to.
DOES = {"execute", "executemany", "fsync", "replace", "unlink", "write", "ftruncate", "flock", "close"}


class Fuse:
    """Kills the process when so much was done."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            name = getattr(arg, "__name__", "")
        elif event == "call" and "psycopg" in frame.f_code.co_filename:
            name = frame.f_code.co_name
        else:
            return
        if name in DOES:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def lit(self) -> None:
        threading.setprofile(self)
        sys.setprofile(self)


async def main(what: str, address: str, session_id: str, *rest: str) -> None:
    store: AnyStore
    if what == "drives":
        async with store_at(address) as store:
            await store.open(session_id)
            print("drives", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
        return
    Fuse(int(rest[0])).lit()
    async with store_at(address) as store:
        if what == "erases":
            await erase_sessions([session_id], store=store, by="ops")
        else:
            journal = await store.open(session_id, readonly=True)
            await store.remove({session_id: journal.head})
    sys.setprofile(None)
    print("done")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
