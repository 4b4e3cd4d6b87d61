"""Why a call did or did not run, as data: who said what about it, in order.

Lives here: `Explained`, one call with its chain of `Link`s, as `explaining` reads it from a log. `interlock explain
--json` and every screen show these; docs/explain.md says what is in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

#: Where in a call's life a link belongs.
Stage: TypeAlias = Literal[
    "call",  # the model's, or an outer tool's
    "lookup",  # whether there is such a tool, and whether the arguments fit it
    "hook",  # an outside program, or a callback of the four-event surface
    "prepare",
    "policy",  # rules, advice and listeners before the call
    "default",  # what the preset in force says of a call that nobody spoke about
    "guard",
    "approval",
    "recheck",  # the rules of the moment at which the answer came
    "around",  # wrappers of the body
    "body",
    "post",
    "commit",
    "context",  # said to the model on the occasion of the call
    "note",
]
#: What a call came to, or how far it has come.
Fate: TypeAlias = Literal[
    "unreached",  # asked for, and nothing has looked at it yet
    "deciding",
    "waiting",  # for a person
    "running",
    "settled",  # its outcome is known, that of an earlier call is not
    "ran",
    "failed",  # its body was invoked, and the model reads a failure
    "refused",  # its body was not invoked: somebody said no, or it was no valid call
    "skipped",  # its body was not invoked: the turn was over before it started
    "unknown",  # its body was started, and nobody knows how it ended
]


class Difference(msgspec.Struct, frozen=True):
    """One argument that was changed. Without `before` it was added, without `after` taken away."""

    name: str
    before: Any = msgspec.UNSET
    after: Any = msgspec.UNSET


class Link(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What one participant did about a call, or one thing that happened to it."""

    stage: Stage
    seq: int  # the line of the log that says so
    time: int  # of that line, epoch ms
    who: str = ""
    answer: str = ""
    reason: str | None = None
    rule: str | None = None  # as it is written, with its file and line
    file: str | None = None
    line: int | None = None
    us: int | None = None  # microseconds that it took, where that is known
    won: bool = False  # it is why the call ran or did not, or why its result is what it is
    changes: tuple[Difference, ...] = ()  # of the arguments
    detail: dict[str, Any] = {}  # more, of its stage


class Explained(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One call of the model or of a tool, and all that was said about it."""

    call: int | None = None  # the seq of its `tool/call` or `subcall/start`; None: nothing has looked at it
    id: str  # the model's
    name: str
    turn: int
    step: int
    index: int  # in the answer, from 0; of a nested call among those of its outer call
    fate: Fate = "unreached"
    code: str | None = None  # of a failure
    word: str = ""  # the last word, in one sentence
    text: str = ""  # what the model reads
    asked: Any = None  # the arguments as they were asked for: the model's own text if that is no JSON object
    effective: Any = None  # the arguments that ran or would have run, where they differ
    sealed: Any = None  # the arguments that were decided about, where a person ran others
    preset: str | None = None  # in force when it was decided about, with its approval knob
    approval: str | None = None
    started: int | None = None  # epoch ms, as the next two
    settled: int | None = None
    committed: int | None = None
    runs: int = 0
    chain: list[Link] = []
    nested: list[Explained] = []

    @property
    def place(self) -> str:
        """`1.2.1`: turn, step, and which call of the answer, from 1."""
        return f"{self.turn}.{self.step}.{self.index + 1}"

    def won(self, *stages: Stage) -> Link | None:
        """The last link of these stages that won."""
        return next((link for link in reversed(self.chain) if link.won and link.stage in stages), None)

    def everyone(self) -> Iterable[Explained]:
        """This call and those beneath it, in order."""
        yield self
        for nested in self.nested:
            yield from nested.everyone()
