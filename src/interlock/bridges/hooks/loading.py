"""Hooks as they are found for a folder, ready for an agent.

Lives here: `load` and `trust_store`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interlock.bridges.hooks.bridge import OutsideHooks
from interlock.bridges.hooks.condition import met
from interlock.bridges.hooks.files import Layout
from interlock.bridges.hooks.handler import DialectName
from interlock.bridges.hooks.kept import folder_of
from interlock.bridges.hooks.run import Runner
from interlock.bridges.hooks.session import SessionHooks
from interlock.bridges.hooks.trust import FILE, Trust
from interlock.bridges.hooks.watch import Watch
from interlock.log.stores.sqlite.database import default_path

DIALECTS: tuple[DialectName, ...] = ("claude", "codex", "gemini")


def load(
    project: str | Path,
    *,
    home: Path | None = None,
    dialects: Sequence[DialectName] = DIALECTS,
    trust: Trust | None = None,
    environ: Mapping[str, str] = os.environ,
) -> OutsideHooks:
    """The hooks of a project and of the person, from where each program keeps them; to be attached to a layer.

    Args:
        trust: who may run a repository's hooks, `trust_store()` where a person is; None: all that are found may.
        environ: what programs inherit.

    The files are looked at again each time hooks are wanted, and what is wrong in them is reported in the log of the
    session.

    Raises:
        ConfigError: a file cannot be understood at all: nobody knows which gates are missing.
    """
    folder = Path(project).expanduser().absolute()
    layout = Layout.of(folder, home=home, dialects=dialects, environ=environ)
    watch = Watch(folder, layout, trust=trust)
    watch.check()

    def make(agent: Any) -> SessionHooks:
        mine = folder_of(agent.session.id)
        runner = Runner(mine, condition=met, environ=environ, redacted=agent.session.redacted)
        return SessionHooks(agent, watch, runner, mine)

    return OutsideHooks(make)


def trust_store() -> Trust:
    """Whom this person trusts."""
    return Trust(default_path().parent / FILE)
