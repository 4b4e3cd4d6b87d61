"""Who runs a command.

Lives here: `name`, as it is put on record.
"""

from __future__ import annotations

import getpass
import os


def name() -> str:
    """The name of the user, else their number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
