"""What hooks were given of sessions: a folder for each, beside the default store.

Lives here: `folder_of`, and `HookFiles`, by which these folders go when their sessions are deleted or erased.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from interlock.log.stores.sqlite.database import default_path

_LONGEST = 200  # bytes of a folder's name; systems allow 255


def folder_of(session_id: str) -> Path:
    """Where the files of one session's hooks are kept: its transcript, and texts that were too long to be told."""
    return _place() / _name(session_id)


class HookFiles:
    """The folders of all sessions' hooks: transcripts, and texts that were too long to be told."""

    def of(self, session_ids: Iterable[str]) -> Sequence[str]:
        """Those of them that have a folder."""
        try:
            there = frozenset(os.listdir(_place()))
        except OSError:
            return ()
        return [session_id for session_id in session_ids if _name(session_id) in there]

    def forget(self, session_id: str) -> str:
        """Delete the folder of a session; its path.

        Raises:
            OSError: some of it is left.
        """
        folder = folder_of(session_id)
        with suppress(FileNotFoundError):  # somebody else has deleted it
            if folder.is_symlink() or not folder.is_dir():
                folder.unlink()
            else:
                shutil.rmtree(folder)
        return str(folder)


def _place() -> Path:
    return default_path().parent / "hooks"


def _name(session_id: str) -> str:
    """One that stays within the folder, whatever an id has been given to a session."""
    name = quote(session_id, safe="", errors="surrogatepass")
    if name.startswith("."):
        name = "%2E" + name[1:]
    return name if 0 < len(name) <= _LONGEST else hashlib.sha256(name.encode()).hexdigest()
