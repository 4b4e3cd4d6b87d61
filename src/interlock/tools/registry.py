"""Which tools there are, layer by layer.

Lives here: `Registry`. An inner layer may offer a tool under a name that an outer one has: the inner one is seen.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.errors import ConfigError, DuplicateTool
from interlock.log.facts import ToolSpec
from interlock.tools.definition import Tool

Dispose = Callable[[], None]


class Registry:
    """The tools of one scope, on top of those of the outer one."""

    def __init__(self, parent: Registry | None = None) -> None:
        self._parent = parent
        self._tools: dict[str, Tool] = {}
        self._version = 0
        self._specs: tuple[int, tuple[ToolSpec, ...]] | None = None

    def register(self, tool: Tool) -> Dispose:
        """Offer `tool` until the returned function is called; calling it twice is harmless.

        Raises:
            DuplicateTool: this layer has one of that name.
            ConfigError: not a tool, or its parameters have no schema.
        """
        given: object = tool
        if not isinstance(given, Tool):
            raise ConfigError(f"{given!r} is not a tool: decorate the function with @tool")
        if tool.name in self._tools:
            raise DuplicateTool(tool.name)
        tool.spec  # noqa: B018  # an unusable signature is said now, not in the middle of a turn
        self._tools[tool.name] = tool
        self._version += 1

        def dispose() -> None:
            if self._tools.get(tool.name) is tool:  # a newer tool may own the name by now
                del self._tools[tool.name]
                self._version += 1

        return dispose

    @property
    def version(self) -> int:
        """Changes whenever a tool is added or removed, here or further out."""
        return self._version + (self._parent.version if self._parent is not None else 0)

    def get(self, name: str) -> Tool | None:
        found = self._tools.get(name)
        if found is None and self._parent is not None:
            return self._parent.get(name)
        return found

    def names(self) -> tuple[str, ...]:
        """The visible names, sorted."""
        return tuple(sorted(self._visible()))

    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is shown, sorted by name so that the same tools always give the same header."""
        version = self.version
        if self._specs is None or self._specs[0] != version:
            visible = self._visible()
            self._specs = version, tuple([visible[name].spec for name in sorted(visible)])
        return self._specs[1]

    def _visible(self) -> dict[str, Tool]:
        outer = self._parent._visible() if self._parent is not None else {}
        return {**outer, **self._tools}
