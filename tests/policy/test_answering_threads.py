"""Answers from other threads."""

from __future__ import annotations

import asyncio

import pytest

from interlock import (
    Agent,
    AlreadyDecided,
    AnswerLater,
    ApprovalRequest,
    Approved,
    Rejected,
    WrongThread,
    tool,
)
from interlock.log.facts import ApprovalDecided
from interlock.testing import ScriptedModel, assert_laws, calls, says


@tool
async def pay(to: str) -> str:
    return f"paid {to}"


async def test_another_thread_answers_through_threadsafe() -> None:
    model = ScriptedModel(calls("pay", to="bob"), says("done"))
    told: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
    async with Agent(model, tools=[pay], approver=AnswerLater(told.put_nowait), preset="ask") as agent:
        receipt = agent.followup("go")
        request = await told.get()

        def elsewhere() -> None:
            with pytest.raises(WrongThread, match=r"agent\.threadsafe"):
                agent.approvals.answer(request.id, Approved())
            agent.threadsafe.answer(request.id, Approved(), principal="ann").result(60)
            with pytest.raises(AlreadyDecided, match="by ann"):
                agent.threadsafe.answer(request.id, Rejected()).result(60)

        await asyncio.to_thread(elsewhere)
        assert (await receipt.turn()).ok
        (decided,) = agent.session.facts(ApprovalDecided)
        assert decided.by == "ann"
        assert_laws(agent.session)
