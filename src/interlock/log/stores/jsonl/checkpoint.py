"""Checkpoints in a folder of sessions: a file a session, beside its index.

Lives here: `keep_checkpoint`, `stored_checkpoint` and `checkpoint_path`. Like the index, it can be deleted at any time.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from interlock.log.artifacts import DataPath
from interlock.log.checkpoint import Kept
from interlock.log.stores.jsonl.file import artifact_path, put_beside


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seq: int
    form: str
    digest: bytes
    artifacts: tuple[DataPath, ...]
    data: msgspec.Raw


_decode = msgspec.json.Decoder(_File).decode
_encode = msgspec.json.Encoder().encode
_decode_paths = msgspec.json.Decoder(tuple[DataPath, ...]).decode


def checkpoint_path(path: Path) -> Path:
    """Where that of a session is. `path`: of its lines."""
    return path.parent / "index" / f"{path.stem}.checkpoint"


def keep_checkpoint(path: Path, kept: Kept) -> None:
    """Keep it in the place of an earlier one; its lines are synced. That it cannot be kept does no harm."""
    paths = _decode_paths(kept.artifacts) if kept.artifacts is not None else ()
    put_beside(
        checkpoint_path(path), _encode(_File(kept.seq, kept.form, kept.digest, paths, msgspec.Raw(kept.data)))
    )


def stored_checkpoint(path: Path) -> Kept | None:
    """What is kept of a session, with its big texts."""

    def fetch(digest: str) -> bytes | None:
        try:
            return artifact_path(path.parent, digest).read_bytes()
        except OSError:
            return None

    try:
        file = _decode(checkpoint_path(path).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None
    paths = _encode(file.artifacts) if file.artifacts else None
    return Kept(file.seq, file.form, file.digest, bytes(file.data), paths).whole(fetch)
