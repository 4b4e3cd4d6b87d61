"""The patches of Codex, as the changes that they are.

Lives here: `changes_of`. A patch names files to add, to delete, to change hunk by hunk, and to move.
"""

from __future__ import annotations

from dataclasses import dataclass

_ADD, _DELETE, _UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
_MOVE, _END_OF_FILE = "*** Move to: ", "*** End of File"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one file. A new file has `content`, a changed place `old` and `new`.

    moved: where the file goes, or for the change that makes the other one, where it comes from.
    """

    path: str
    content: str | None = None
    old: str | None = None
    new: str | None = None
    deleted: bool = False
    moved: str | None = None


def changes_of(patch: str) -> list[Change] | None:
    """The changes in order; None if the text is no such patch."""
    lines = patch.strip().split("\n")
    if len(lines) < 2 or lines[0].strip() != "*** Begin Patch" or lines[-1].strip() != "*** End Patch":
        return None
    changes: list[Change] = []
    at, last = 1, len(lines) - 1
    while at < last:
        line = lines[at]
        end = at + 1
        while end < last and not lines[end].startswith((_ADD, _DELETE, _UPDATE)):
            end += 1
        body = lines[at + 1 : end]
        if line.startswith(_ADD):
            if not all(one.startswith("+") for one in body):
                return None
            changes.append(Change(line[len(_ADD) :], content="".join([f"{one[1:]}\n" for one in body])))
        elif line.startswith(_DELETE):
            changes.append(Change(line[len(_DELETE) :], deleted=True))
        elif line.startswith(_UPDATE):
            made = _update(line[len(_UPDATE) :], body)
            if made is None:
                return None
            changes += made
        else:
            return None
        at = end
    return changes


def _update(path: str, body: list[str]) -> list[Change] | None:
    made: list[Change] = []
    if body and body[0].startswith(_MOVE):
        moved = body.pop(0)[len(_MOVE) :]
        made += [Change(path, moved=moved), Change(moved, moved=path)]
        path = moved
    old: list[str] = []
    new: list[str] = []
    for line in [*body, "@@"]:
        if line.startswith("@@"):
            if old or new:
                made.append(Change(path, old="\n".join(old), new="\n".join(new)))
            old, new = [], []
        elif line.startswith("-"):
            old.append(line[1:])
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith(" ") or not line:
            old.append(line[1:])
            new.append(line[1:])
        elif line.rstrip() != _END_OF_FILE:
            return None
    return made or [Change(path, old="", new="")]
