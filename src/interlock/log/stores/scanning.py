"""Filtering and searching for a store that has no index: the logs are read.

Lives here: `list_by_scan` and `search_by_scan`. They need only `list` without a filter, and `open`.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from interlock.errors import UnknownSession
from interlock.log.event import Event
from interlock.log.facts import SubcallStart, ToolCalled, TurnEnd
from interlock.log.reasons import kind_of
from interlock.log.stores.passages import passages
from interlock.log.stores.query import Match, Query, Where

if TYPE_CHECKING:
    from interlock.log.stores.store import SessionInfo, Store

_PAGE = 200  # sessions that are listed at once


async def list_by_scan(
    store: Store, *, limit: int, before: int | None, where: Where
) -> builtins.list[SessionInfo]:
    """As `Store.list` with a filter."""
    found: builtins.list[SessionInfo] = []
    async for info in _sessions(store, where, before):
        if len(found) >= limit and info.updated != found[-1].updated:
            break
        if (where.tool is None and where.reason is None) or _does(await _log(store, info), where):
            found.append(info)
    return found


async def search_by_scan(store: Store, text: str, *, where: Where, limit: int) -> builtins.list[Match]:
    """As `Store.search`: the more of the words in a line are what was searched for, the better it is."""
    query = Query(text)
    found: builtins.list[Match] = []
    if not query.terms:
        return found
    async for info in _sessions(store, where, None):
        log = await _log(store, info)
        ended = {
            event.fact.turn: kind_of(event.fact.reason) for event in log if isinstance(event.fact, TurnEnd)
        }
        for said in passages(log):
            if (
                (where.since is not None and said.time < where.since)
                or (where.until is not None and said.time >= where.until)
                or (where.tool is not None and said.tool != where.tool)
                or (where.reason is not None and ended.get(said.turn) != where.reason)
                or not query.has(said.text)
            ):
                continue
            rank = len(query.spans(said.text)) / (20 + len(said.text.split()))
            excerpt, marks = query.excerpt(said.text)
            found.append(
                Match(
                    session=info.id,
                    seq=said.seq,
                    turn=said.turn,
                    place=said.place,
                    time=said.time,
                    excerpt=excerpt,
                    marks=marks,
                    rank=rank,
                    tool=said.tool,
                    cwd=info.cwd,
                )
            )
    return sorted(found, key=lambda match: (-match.rank, -match.time))[:limit]


async def _sessions(store: Store, where: Where, before: int | None) -> AsyncIterator[SessionInfo]:
    """All that can be meant, last updated first."""
    while page := await store.list(limit=_PAGE, before=before):
        before = page[-1].updated
        for info in page:
            if where.touches(info.created, info.updated, info.cwd):
                yield info


async def _log(store: Store, info: SessionInfo) -> builtins.list[Event]:
    """The lines of a session, none when it has gone meanwhile; others on the event loop have a turn in between."""
    await asyncio.sleep(0)
    try:
        journal = await store.open(info.id, readonly=True)
    except UnknownSession:
        return []
    try:
        return list(journal.read())
    finally:
        await journal.close()


def _does(log: builtins.list[Event], where: Where) -> bool:
    """Whether a call is one of the tool, and a turn has ended for the reason."""
    tools = {event.fact.name for event in log if isinstance(event.fact, (ToolCalled, SubcallStart))}
    reasons = {kind_of(event.fact.reason) for event in log if isinstance(event.fact, TurnEnd)}
    return (where.tool is None or where.tool in tools) and (where.reason is None or where.reason in reasons)
