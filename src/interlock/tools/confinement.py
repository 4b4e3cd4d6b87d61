"""How the processes of a tool are confined, as the pipeline sees it.

Lives here: `Confinement`, the protocol that the sandbox meets. A call of a tool that says `sandbox=True` is refused
where the confinement that is asked for cannot be had.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "full"]


class Confinement(Protocol):
    @property
    def mode(self) -> SandboxMode:
        """`full` confines nothing."""

    def problem(self) -> str | None:
        """Why it cannot be enforced here, and what to install; None if it can. Cheap: it is asked before each body."""
