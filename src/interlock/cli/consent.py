"""Whether what a folder brings is trusted, its hooks to run and its rules to allow: a person is asked once.

Lives here: `ask_for_trust`, `trusts` and `hooks_for`. Without a person the folder is taken as trusted, as other
programs do: whoever starts an agent in it without looking has decided.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interlock.bridges.hooks.bridge import OutsideHooks

_SHOWN = 10  # lines of the question


def hooks_for(cwd: str, *, person: bool) -> OutsideHooks:
    """The hooks of this folder. `person`: somebody is there, who has to trust a repository's own before they run."""
    from interlock.bridges.hooks.loading import load, trust_store

    return load(cwd, trust=trust_store() if person else None)


def trusts(cwd: str) -> bool:
    """Whether this person trusts the folder: its hooks may run, and its rules may allow."""
    from interlock.bridges.hooks.loading import trust_store

    return trust_store().trusted(Path(cwd).expanduser().absolute())


def ask_for_trust(cwd: str) -> None:
    """Ask on the terminal about hooks and rules that are held back, if there are any, and keep a yes.

    Raises:
        ConfigError: the yes cannot be kept, or a file of rules cannot be used.
    """
    from interlock.bridges.hooks.files import Layout
    from interlock.bridges.hooks.loading import trust_store
    from interlock.bridges.hooks.watch import Watch
    from interlock.cli.hooks import line_of
    from interlock.policy.settings import Settings

    folder, trust = Path(cwd).expanduser().absolute(), trust_store()
    watch = Watch(folder, Layout.of(folder), trust=trust)
    brought = [f"hook {line_of(handler, held=False)}" for handler in watch.held()]
    if not trust.trusted(folder):
        brought += Settings.load(folder, trusted=False).held_back()
    if brought and _agreed(folder, brought):
        trust.trust(folder, watch.everything().handlers)


def _agreed(folder: Path, brought: Sequence[str]) -> bool:
    """Anything but a yes leaves it out; the question comes again next time."""
    from interlock.policy.printable import one_line

    print(one_line(f"{folder} brings what nobody has trusted:"), file=sys.stderr)
    for line in brought[:_SHOWN]:
        print(one_line(f"  {line}"), file=sys.stderr)
    if len(brought) > _SHOWN:
        more = len(brought) - _SHOWN
        print(f"  and {more} more: `interlock hooks list`, `interlock policy show`", file=sys.stderr)
    print(
        "Hooks are programs that run as you, and rules allow what nobody is asked about. Trust this folder? [y/N] ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    try:
        answer = sys.stdin.readline()
    except (OSError, ValueError):
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        return True
    print("It is left out. `interlock hooks trust` trusts this folder.", file=sys.stderr)
    return False
