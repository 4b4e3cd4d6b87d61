"""The lines of a transcript file, one at a time.

Lives here: `TranscriptFile`, which reads JSON lines as often as wanted and never holds more than one, and
`BadTranscript`. A last line that was cut off is passed over, since programs are killed while they write; anything
else that is no JSON is refused, with its line.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from interlock.errors import UsageError

LONGEST = 64 << 20  # bytes of a line, and of a file that is one JSON value
_decode = msgspec.json.Decoder().decode
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class BadTranscript(UsageError):
    """The file is not such a transcript: `line` says where (0: as a whole), `problem` what is wrong. Nothing was kept."""

    def __init__(self, path: str | Path, line: int, problem: str) -> None:
        self.path, self.line, self.problem = str(path), line, problem
        where = f", line {line}" if line else ""
        super().__init__(f"{path}{where}: {problem}. Nothing was imported.")


class Line(NamedTuple):
    number: int  # from 1
    value: Any
    mended: bool = False  # half characters in it were replaced


class TranscriptFile:
    """A file of JSON lines. What is appended after it was opened is not read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut = False  # its last line is not whole: known after it was read
        self.digest = ""  # of all of it, after it was read
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115  # closed by `close`
        except OSError as error:
            raise BadTranscript(path, 0, error.strerror or str(error)) from None
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode):
            self._file.close()
            raise BadTranscript(path, 0, "it is not a regular file")
        self.size = status.st_size
        self.modified = max(0, status.st_mtime_ns // 1_000_000)  # epoch ms
        try:
            beginning = self._file.read(2)
            if beginning in _UTF16:
                raise BadTranscript(path, 1, "it is UTF-16; save it as UTF-8")
            if not self.size:
                raise BadTranscript(path, 0, "it is empty")
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def lines(self) -> Iterator[Line]:
        """Every line with something in it, parsed.

        Raises:
            BadTranscript: a line that is too long, not UTF-8 or not JSON.
        """
        digest = blake2b(digest_size=16)
        left = self.size
        self._file.seek(0)
        number = 0
        while left > 0:
            number += 1
            raw = self._file.readline(min(left, LONGEST + 1))
            if len(raw) > LONGEST:
                raise BadTranscript(self.path, number, f"it is longer than {LONGEST >> 20} MiB")
            if not raw:
                raise BadTranscript(self.path, number, "the file became shorter while it was read")
            left -= len(raw)
            digest.update(raw)
            text = raw.removeprefix(_BOM) if number == 1 else raw
            if not text.strip():
                continue
            try:
                value, mended = parse_json(text)
            except ValueError as problem:
                if left == 0 and number > 1 and not raw.endswith(b"\n"):
                    self.cut = True
                    break
                raise BadTranscript(self.path, number, str(problem)) from None
            yield Line(number, value, mended)
        self.digest = digest.hexdigest()

    def whole(self) -> Line | None:
        """The file as one JSON value; None if it is none, has one in each line, or is too long for it."""
        if self.size > LONGEST:
            return None
        self._file.seek(0)
        raw = self._file.readline(self.size)
        if len(raw) < self.size:
            try:
                parse_json(raw.removeprefix(_BOM))
            except ValueError:
                raw += self._file.read(self.size - len(raw))
        try:
            value, mended = parse_json(raw.removeprefix(_BOM)) if len(raw) == self.size else (None, False)
        except ValueError:
            return None
        self.digest = blake2b(raw, digest_size=16).hexdigest()
        return Line(1, value, mended) if value is not None else None


def parse_json(raw: bytes) -> tuple[Any, bool]:
    """The value of one JSON text, and whether half characters in it were replaced: JavaScript writes such.

    Raises:
        ValueError: what is wrong.
    """
    try:
        return _decode(raw), False
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except msgspec.DecodeError as strict:
        problem = strict
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise ValueError(f"it is not UTF-8: byte 0x{byte:02x} at column {error.start + 1}") from None
    try:
        value = json.loads(text)
        whole = _whole(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error if str(error) else problem}") from None
    return whole, whole != value


def _whole(value: Any) -> Any:
    """The value with every text of valid Unicode."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {whole_text(key): _whole(item) for key, item in value.items()}
    return value


def whole_text(text: str) -> str:
    """The text as valid Unicode: halves of a pair are joined, a lone one becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
