"""Variables that were given to the commands of a session after the program was started.

Lives here: `EXPORTED`, set around a tool's body by whoever was told them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

EXPORTED: ContextVar[Mapping[str, str]] = ContextVar("interlock_exported", default=MappingProxyType({}))
