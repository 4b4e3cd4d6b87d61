"""Outside hooks that answer in a person's place.

Lives here: `PermissionChannel`, the channel of approvals that is asked before people. Without an answer it abstains,
and people are asked; meanwhile `Notification` hooks are told that a question is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interlock.bridges.hooks import event as happening
from interlock.bridges.hooks.session import SessionHooks
from interlock.bridges.hooks.verdict import Problem
from interlock.log.reasons import Cause
from interlock.policy.approval import ApprovalRequest, Approved, Principal, Rejected, offered
from interlock.tools.approval import Remember

PRINCIPAL = Principal("hooks", "service")
_NOT_WRITTEN = "a permission update was left out: only the rule that the question offers can be written"


class PermissionChannel:
    """Asks the PermissionRequest hooks of one session."""

    how = "hook"
    channel = "hooks"
    principal = PRINCIPAL

    def __init__(self, hooks: SessionHooks) -> None:
        self._hooks = hooks

    @property
    def may_approve(self) -> bool:
        """It is only asked where there is somebody to answer."""
        return self._hooks.configures("PermissionRequest")

    async def __call__(self, request: ApprovalRequest) -> Approved | Rejected | None:
        hooks, call = self._hooks, request.call
        rules = offered(request.options)
        heard = await hooks.hear(
            happening.PermissionRequest(
                tool=call.name,
                tool_use_id=call.id,
                input=request.arguments,
                suggestions=tuple(dict.fromkeys(rules.values())),
            ),
            call=call.key,
        )
        answer, decision = heard.answer, heard.answer.decision
        if answer.stop is not None:
            return self._ended(answer.stop or "a hook stopped the turn")
        if decision is None:
            self._hooks.ask_notice(call.name, request.question)
            return None
        if decision.behavior == "deny":
            message = decision.message or "a hook denied this call"
            return self._ended(message) if decision.interrupt else Rejected(message, digest=request.digest)
        if decision.input is not None:
            arguments = decision.input.over(request.arguments)
            if arguments != request.arguments:
                return Approved(arguments=arguments, digest=request.digest)
        remember = _remembered(decision.updates, rules)
        if decision.updates and remember is None:
            hooks.report(
                *[
                    Problem(_NOT_WRITTEN, str(ran.handler.place.file), ran.handler.place.line)
                    for ran in heard.winners
                    if ran.answer.decision is not None and ran.answer.decision.updates
                ]
            )
        return Approved(remember=remember, digest=request.digest)

    def _ended(self, reason: str) -> Rejected:
        """No, and the turn ends as well: its queue is kept."""
        self._hooks.agent.cancel(Cause("hook", "hooks:PermissionRequest", reason), keep_inbox=True)
        return Rejected(reason)


def _remembered(updates: Sequence[Mapping[str, Any]], rules: Mapping[Remember, str]) -> Remember | None:
    """For how long the offered rule is to be remembered, if the hook wrote exactly that rule. No other is written."""
    for update in updates:
        if update.get("type") != "addRules" or update.get("behavior") != "allow":
            continue
        remember: Remember = "session" if update.get("destination") == "session" else "always"
        written = [
            f"{rule['toolName']}({rule['ruleContent']})" if rule.get("ruleContent") else rule.get("toolName")
            for rule in update.get("rules", ())
            if isinstance(rule, Mapping) and "toolName" in rule
        ]
        if written == [rules.get(remember)]:
            return remember
    return None
