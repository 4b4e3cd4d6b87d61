"""Who holds the lease of a session: a store in a process, and whether it is certainly gone.

Lives here: `Holder`, and `TERM`. A lease is a row beside the session: who holds it may write, until the row expires. It
is taken over before that only where nobody can be left to write: a process that was killed need not be waited for.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from secrets import token_hex
from time import monotonic

import msgspec

TERM = 30.0  # seconds after which a lease expires, unless it is renewed; it is, three times in that time

#: The stores of this process that may write, by their tokens.
_writing: set[str] = set()


class Holder(msgspec.Struct, frozen=True):
    """A store in a process."""

    host: str
    pid: int
    store: str  # a token: there may be several in one process
    boot: str = ""  # what tells the machine, and since when it runs
    namespace: str = ""  # whose process ids are meant: containers of one machine have their own
    started: int = 0  # clock ticks from the start of the machine to that of the process; 0: not known
    clock: str = ""  # whose monotonic clock `until` is read from; empty: one that cannot be told from others
    until: float = 0.0  # when the lease expires by it; 0: that is said elsewhere

    @classmethod
    def here(cls) -> Holder:
        """A new store in this process. It counts as one that may write until `ends`."""
        pid = os.getpid()
        _, started = _process(pid) or ("", 0)
        made = cls(socket.gethostname(), pid, token_hex(8), _machine(), _namespace(), started, _clock())
        _writing.add(made.store)
        return made

    def ends(self) -> None:
        """Nothing is written any more by this store of ours: another one of this process need not wait for it."""
        _writing.discard(self.store)

    def for_now(self, term: float) -> Holder:
        """The same, holding for so many seconds from now."""
        return msgspec.structs.replace(self, until=monotonic() + term) if self.clock else self

    def may_write(self, *, current: bool) -> bool:
        """Whether it has to be waited for.

        current: whether its lease has not expired, by a clock that somebody may have set meanwhile. On one machine,
            it is asked of the clock that nobody sets.
        """
        if self.until and self.clock == _clock():
            current = self.until > monotonic()
        return current and not self.gone

    @property
    def _shares_processes(self) -> bool:
        """Whether our process ids are its own."""
        return self.boot == _machine() and self.namespace == _namespace()

    @property
    def _is_here(self) -> bool:
        if self.pid != os.getpid() or not self._shares_processes:
            return False
        found = _process(self.pid)
        return found is None or found[1] == self.started

    @property
    def gone(self) -> bool:
        """Whether there is certainly nobody left who could write: no such store, or no such process."""
        if self._is_here:
            return self.store not in _writing
        if not self._shares_processes:
            return False
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except OSError:
            pass  # it is somebody else's, and there
        found = _process(self.pid)
        if found is None:
            return False
        state, started = found
        # Dead and not reaped yet; or its id is that of another one by now.
        return state == "Z" or started != self.started

    def __str__(self) -> str:
        return "this process" if self._is_here else f"process {self.pid} on {self.host}"


def _machine() -> str:
    """A text that no other machine has, nor this one after a restart; at least the first, where there is no `/proc`."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        from uuid import getnode

        return f"{getnode():x}"  # a random one, if there is none: then nobody is ever certainly gone


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _clock() -> str:
    """What tells the monotonic clock of this process from others, and from itself before a restart; empty: nothing."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return ""


def _process(pid: int) -> tuple[str, int] | None:
    """The state and the start of a process, None where it cannot be seen: proc_pid_stat(5), fields 3 and 22."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = said.rpartition(")")[2].split()  # what comes before is a name, with anything in it
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


encode_holder = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Holder).decode


def decode_holder(data: bytes) -> Holder:
    """The holder that a lease names. One that cannot be read is somewhere else, and is waited for."""
    try:
        return _decode(data)
    except msgspec.MsgspecError:
        return Holder("another machine", 0, "")
