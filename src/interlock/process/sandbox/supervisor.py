"""The shell that keeps a sandboxed command company inside.

Lives here: `supervised`, which puts it in front of a command, and `Report`, which reads what it says. It sets the
limits, runs the command, tells how it ended, and ends what the command left running; it talks on standard error, the
command's own goes to its standard output. bubblewrap's own complaints come the same way.

bubblewrap tells an exit code of 139 and a death by signal 11 as the same number. A shell prints a line for the second,
and that is how they are told apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from signal import Signals

from interlock.process.command import tell

LINGER = 0.5  # seconds for what ends by itself right after its shell, such as `> >(tee log)`
_LONGEST = 16_384  # bytes of a report
_SILENT = (2, 13)  # a shell prints nothing for SIGINT and SIGPIPE

# `kill -1` reaches every process of the sandbox but its first one and the shell itself.
_SCRIPT = """
trap : HUP INT QUIT TERM
LIMITS
echo begun >&2
(exec "$@" 2>&1)
echo "ended $?" >&2
still_there() { kill -0 -1 2>/dev/null; }
within() {
  n=0
  while still_there; do
    if [ $n -ge $1 ]; then return 1; fi
    n=$((n + 1))
    if [ $n -le 10 ]; then sleep 0.01; else sleep 0.05; fi
  done
}
within LINGER && exit
echo "left TERM" >&2
kill -TERM -1 2>/dev/null
within GRACE && exit
echo "left KILL" >&2
kill -KILL -1 2>/dev/null
within 100
exit
"""


def supervised(argv: Sequence[str], ulimits: Sequence[str], grace: float) -> list[str]:
    """The command line of the shell; `ulimits` are commands for it, `grace` seconds."""
    limits = "\n".join(f"{{ {one}; }} || exit 1" for one in ulimits)
    script = (
        _SCRIPT.replace("LIMITS", limits)
        .replace("LINGER", str(_pauses(LINGER)))
        .replace("GRACE", str(_pauses(grace)))
    )
    return ["/bin/sh", "-c", script, "sandbox", *argv]


def _pauses(seconds: float) -> int:
    """Ten of 10 ms, and the rest of 50 ms."""
    return round(seconds / 0.01) if seconds <= 0.1 else 10 + round((seconds - 0.1) / 0.05)


class Report:
    """What the shell has said so far."""

    def __init__(self) -> None:
        self._text = b""
        self.begun = False  # whether the sandbox came to be
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add(self, data: bytes) -> None:
        if len(self._text) < _LONGEST:
            self._text += data
        self.begun = self.begun or b"begun\n" in self._text
        if b"\nended " in self._text:
            tell(self.ended)

    @property
    def _lines(self) -> list[str]:
        return self._text.decode(errors="replace").splitlines()

    @property
    def complaint(self) -> str:
        """What was said where it did not come to be."""
        return "; ".join(line for line in self._lines if line.strip()) or "bubblewrap said nothing"

    @property
    def status(self) -> tuple[int | None, int | None] | None:
        """The exit code, or the number of the signal that killed the command; None: the shell did not get to say."""
        lines = self._lines
        said = next((line for line in lines if line.startswith("ended ")), None)
        if said is None or not said[6:].isdigit():
            return None
        code, number = int(said[6:]), int(said[6:]) - 128
        before = lines[lines.index("begun") + 1 : lines.index(said)] if self.begun else []
        killed = number > 0 and (number in _SILENT or any(line.strip() for line in before))
        return (None, number) if killed else (code, None)

    @property
    def left(self) -> Signals | None:
        """The last signal that was needed for what the command left running."""
        lines = self._lines
        return Signals.SIGKILL if "left KILL" in lines else Signals.SIGTERM if "left TERM" in lines else None
