"""The table `[sandbox]` of a settings file.

Lives here: `SandboxSettings`, and `sandbox_settings`, which reads them from a parsed document.

    [sandbox]
    mode = "workspace-write"
    network = true
    writable = ["~/.cache/pip"]
    hidden = [".env"]
    pass_env = ["AWS_PROFILE", "MY_*"]
    memory_mb = 8192
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec

from interlock.errors import ConfigError
from interlock.process.sandbox.limits import Limits
from interlock.tools.confinement import SandboxMode

_Positive = Annotated[int, msgspec.Meta(gt=0)]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$")]
_Path = Annotated[str, msgspec.Meta(min_length=1)]


class SandboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Paths are absolute, begin with `~`, or are relative to the workspace. A limit of 0 is none."""

    mode: SandboxMode | None = None  # None: the preset's
    network: bool = False
    writable: tuple[_Path, ...] = ()
    readable: tuple[_Path, ...] | None = None
    hidden: tuple[_Path, ...] = ()
    pass_env: tuple[_Name, ...] = ()
    environment: dict[str, str] = {}
    memory_mb: Annotated[int, msgspec.Meta(ge=0)] = 4096
    processes: Annotated[int, msgspec.Meta(ge=0)] = 512
    open_files: Annotated[int, msgspec.Meta(ge=0)] = 4096
    file_mb: Annotated[int, msgspec.Meta(ge=0)] = 2048
    cpu_seconds: Annotated[int, msgspec.Meta(ge=0)] = 0
    temporary_mb: _Positive = 1024

    def limits(self) -> Limits:
        return Limits(
            memory=self.memory_mb << 20 or None,
            processes=self.processes or None,
            open_files=self.open_files or None,
            file_size=self.file_mb << 20 or None,
            cpu=self.cpu_seconds or None,
            temporary=self.temporary_mb << 20,
        )


def sandbox_settings(document: Mapping[str, Any], source: str) -> SandboxSettings:
    """
    Args:
        document: A whole settings file, parsed; without `[sandbox]` everything has its default.
        source: What it is called in errors, such as its path.

    Raises:
        ConfigError: a key that does not exist, or a value that it cannot have.
    """
    table = document.get("sandbox", {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"{source}: sandbox is a table, [sandbox], not {table!r}")
    known = SandboxSettings.__struct_fields__
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ConfigError(f"{source}: [sandbox] has no key {key!r}: {hint}")
    try:
        return msgspec.convert(dict(table), SandboxSettings)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$.")
        key = where.rstrip("`")
        named = f"[sandbox] {key}" if key else "[sandbox]"
        raise ConfigError(f"{source}: {named}: {problem[:1].lower()}{problem[1:]}") from None
