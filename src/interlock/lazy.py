"""Names that are loaded on first use (PEP 562), so that importing a package costs nothing.

Lives here: `names`, which makes a module's `__getattr__` and `__dir__` from a table of where its names live.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping


def names(module: str, home: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for `module`, whose public names live in the modules that `home` says."""

    def load(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from importlib import import_module

        value: object = getattr(import_module(home[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    def known() -> list[str]:
        return sorted({*vars(sys.modules[module]), *home})

    return load, known
