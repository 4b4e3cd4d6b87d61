"""A way to reach a person, as the service sees it.

Lives here: `Channel`: an approver, with what it says of itself made sure of.
"""

from __future__ import annotations

from typing import Any, get_args

from interlock.log.strictjson import check_text
from interlock.policy.approval import ApproverFunction, Principal
from interlock.tools.approval import How


class Channel:
    """One registration of an approver. `first`: it is asked before people, and may abstain."""

    def __init__(self, approver: ApproverFunction, *, first: bool) -> None:
        self.approver = approver
        self.first = first

    @property
    def name(self) -> str:
        """As `channel` says, else as its function or class is called."""
        otherwise: str = getattr(self.approver, "__qualname__", type(self.approver).__name__)
        try:
            given: object = getattr(self.approver, "channel", None)
            return check_text(given) if isinstance(given, str) and given else otherwise
        except Exception:  # noqa: BLE001  # its own attribute, or text that is none: `known_by` says so
            return otherwise

    @property
    def may_approve(self) -> bool:
        """Whether it is asked, and its answers count: anything but True, where it is said, is a no."""
        try:
            if getattr(self.approver, "may_approve", True) is not True:
                return False
            principal: object = getattr(self.approver, "principal", None)
        except Exception:  # noqa: BLE001  # its own attribute: who that is cannot be known
            return False
        return not isinstance(principal, Principal) or principal.may_approve

    def known_by(self) -> tuple[str | None, How, str]:
        """Who answers there, how they are known, and over which channel.

        Raises:
            ValueError: it is nothing that can be put on record.
        """
        how: Any = getattr(self.approver, "how", "api")
        if how not in get_args(How):
            raise ValueError(f"`how` is one of {', '.join(get_args(How))}, not {how!r}")
        channel: object = getattr(self.approver, "channel", None)
        if channel is not None and not isinstance(channel, str):
            raise ValueError(f"`channel` is text, not {channel!r}")
        principal: object = getattr(self.approver, "principal", None)
        if isinstance(principal, Principal):
            principal = principal.id
        if channel is not None:
            check_text(channel)
        if principal is not None and not isinstance(principal, str):
            raise ValueError(f"`principal` is text or a Principal, not {principal!r}")
        return check_text(principal) if principal is not None else None, how, self.name
