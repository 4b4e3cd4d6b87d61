"""What the permission rules say of a call, as the pipeline sees it.

Lives here: `Rules`, the protocol that the policy meets, and `Ruled`. Where rules come from and how they match is not
known here; that they speak before every listener, and that a failure of theirs means no, is.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from interlock.intercept.decisions import Verdict
from interlock.log.facts import Said
from interlock.tools.call import ToolCall

Word: TypeAlias = tuple[Verdict, str]  # a verdict, and whose it is


class Ruled(msgspec.Struct, frozen=True, eq=False):
    """What the rules said, and what each one that matched said.

    held: words that only hold back what is looser: an ask because a command cannot be understood or a path is
    protected, or one that the ceiling forces. The preset's default takes part beside them, so that a stricter one
    stands.
    """

    spoken: tuple[Word, ...] = ()
    held: tuple[Word, ...] = ()
    said: tuple[Said, ...] = ()


class Rules(Protocol):
    def rule(self, call: ToolCall) -> Ruled | None:
        """What the rules in force say; None if none of them matches. It does not suspend."""
