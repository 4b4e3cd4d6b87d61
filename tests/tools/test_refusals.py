"""`Refuse`: the call does not run, nobody is asked; with `stop=True` nothing else of the batch starts either."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import HookContractError, Refuse, ToolCall, ToolError
from interlock.log.facts import ToolResulted
from interlock.testing import assert_laws, call

from .calling import Trace, calling, codes, ran, texts

pytestmark = pytest.mark.virtual


def refusing(name: str, **more: Any) -> Any:
    def listener(call: ToolCall) -> Refuse | None:
        if call.arguments.get("name") != name:
            return None
        return Refuse(ToolError("stopped here", code="hook_stopped_continuation"), **more)

    return listener


async def test_a_refusal_that_stops_ends_the_turn_after_what_has_started() -> None:
    """HK-14, HK-15: started calls end and are committed, the others have their pair."""
    trace = Trace()
    agent = calling(*[call("wait", name=name, seconds=1) for name in "abcd"])
    agent.on.prepare(refusing("b", stop=True), name="gate")
    agent.on.prepare(trace.at("later"))
    async with agent:
        result = await agent.run("go")
        assert codes(agent) == ["ok", "HOOK_STOPPED_CONTINUATION", *["HOOK_STOPPED_CONTINUATION"] * 2]
        assert (ran, trace.seen) == (["a"], ["later:c1"])
        assert result.reason.by == "hook" and result.text == texts(agent)[1]  # type: ignore[union-attr]
        assert [fact.stop for fact in agent.session.facts(ToolResulted)] == [None, "gate", None, None]
        assert len(agent.model.requests) == 1  # type: ignore[union-attr]
        assert_laws(agent.session)


async def test_a_plain_refusal_leaves_the_others_alone() -> None:
    agent = calling(*[call("wait", name=name) for name in "ab"])
    agent.on.prepare(refusing("a"))
    async with agent:
        assert (await agent.run("go")).ok
        assert codes(agent) == ["HOOK_STOPPED_CONTINUATION", "ok"]


def test_stop_is_true_or_false() -> None:
    with pytest.raises(HookContractError, match="stop is True or False"):
        Refuse(ToolError("no"), stop=1)  # type: ignore[arg-type]
