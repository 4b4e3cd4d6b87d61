"""What tests of agents, tools and policies are made of. Every name is loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import names

if TYPE_CHECKING:
    from interlock.models.scripted import Gate as Gate
    from interlock.models.scripted import ScriptedModel as ScriptedModel
    from interlock.models.scripted import call as call
    from interlock.models.scripted import calls as calls
    from interlock.models.scripted import chunks as chunks
    from interlock.models.scripted import cuts_off as cuts_off
    from interlock.models.scripted import fails as fails
    from interlock.models.scripted import gated as gated
    from interlock.models.scripted import hangs as hangs
    from interlock.models.scripted import max_tokens as max_tokens
    from interlock.models.scripted import nothing as nothing
    from interlock.models.scripted import reasons as reasons
    from interlock.models.scripted import says as says
    from interlock.testing.clock import Deadlock as Deadlock
    from interlock.testing.clock import Endless as Endless
    from interlock.testing.clock import LeftoverTasks as LeftoverTasks
    from interlock.testing.clock import NotSimulated as NotSimulated
    from interlock.testing.clock import VirtualClock as VirtualClock
    from interlock.testing.clock import run_virtual as run_virtual
    from interlock.testing.laws import assert_laws as assert_laws
    from interlock.testing.outline import outline as outline
    from interlock.testing.shorthand import shorthand as shorthand

_HOME = {
    "Deadlock": "interlock.testing.clock",
    "Endless": "interlock.testing.clock",
    "Gate": "interlock.models.scripted",
    "LeftoverTasks": "interlock.testing.clock",
    "NotSimulated": "interlock.testing.clock",
    "ScriptedModel": "interlock.models.scripted",
    "VirtualClock": "interlock.testing.clock",
    "assert_laws": "interlock.testing.laws",
    "call": "interlock.models.scripted",
    "calls": "interlock.models.scripted",
    "chunks": "interlock.models.scripted",
    "cuts_off": "interlock.models.scripted",
    "fails": "interlock.models.scripted",
    "gated": "interlock.models.scripted",
    "hangs": "interlock.models.scripted",
    "max_tokens": "interlock.models.scripted",
    "nothing": "interlock.models.scripted",
    "outline": "interlock.testing.outline",
    "reasons": "interlock.models.scripted",
    "run_virtual": "interlock.testing.clock",
    "shorthand": "interlock.testing.shorthand",
    "says": "interlock.models.scripted",
}
__all__ = list(_HOME)

__getattr__, __dir__ = names(__name__, _HOME)
