"""The tools in the box: files, search and shell.

Lives here: `workspace`, which makes all of them for one folder. `read`, `write`, `edit`, `glob`, `grep` and `bash` are
the same tools one by one, for the `cwd` of the agent.
"""

from __future__ import annotations

from pathlib import Path

from interlock.toolkit.files import edit, make_edit, make_read, make_write, read, write
from interlock.toolkit.place import Place
from interlock.toolkit.search import glob, grep, make_glob, make_grep
from interlock.toolkit.shell import bash, make_bash
from interlock.tools.definition import Tool

__all__ = ["bash", "edit", "glob", "grep", "read", "workspace", "write"]


def workspace(root: str | Path | None = None) -> list[Tool]:
    """`read`, `write`, `edit`, `glob`, `grep` and `bash` for one folder: `root`, or the `cwd` of the agent.

    All but `bash` refuse paths that lead out of it, through links too. Only a sandbox confines `bash`.
    """
    place = Place(root)
    return [make(place) for make in (make_read, make_write, make_edit, make_glob, make_grep, make_bash)]
