"""Who writes to a session that is a file: whoever has locked it, until the system takes the lock back.

Lives here: `holder_of` and `locked_by`. The lock is the lease: it neither expires nor is it renewed, and it ends with its process.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path


def holder_of(path: Path) -> str | None:
    """Who has locked the file, as far as the system says: proc_locks(5). None: nobody, or it does not say."""
    try:
        found = os.stat(path)
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return None
    name = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in locks.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == name:
            pid = int(fields[4])
            if pid == os.getpid():
                return "this process"
            if pid > 0:  # else it is none that can be seen from here
                return f"process {pid} on {socket.gethostname()}"
    return None


def locked_by(path: Path) -> str | None:
    """Who has locked the file, for a person; None: nobody.

    Raises:
        OSError: it cannot be looked at.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for a moment: whoever opens it then tries again
    except BlockingIOError:
        return holder_of(path) or "another process"
    finally:
        os.close(file)
    return None
