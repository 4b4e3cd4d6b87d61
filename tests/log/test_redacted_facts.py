"""Nothing is appended with a secret in it: every string of every fact, and of what it is made of."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Message, Redactor, UsageError
from interlock.log.event import Event, decode_event, encode_event
from interlock.log.facts import Fact, InboxSpliced, SessionCreated, ToolCalled, known_facts
from interlock.log.messages import Text
from interlock.log.redaction.strings import with_strings
from interlock.log.session import create_session, open_session
from interlock.log.stores.memory.store import MemoryStore

from .fact_strategies import structs

CANARY = "canary-of-the-mine"
MARK = "[redacted:bird]"
redactor = Redactor({"bird": CANARY})
with_canary = st.sampled_from([CANARY, f"a {CANARY}", f"{CANARY}{CANARY} z", f'{{"a": "{CANARY}"}}'])


@given(st.sampled_from([*known_facts().values()]).flatmap(lambda cls: structs(cls, with_canary)))
def test_no_string_of_any_fact_keeps_a_secret(fact: Fact) -> None:
    made = redactor.value(fact)

    line = encode_event(Event(1, 1, 1, made)).decode()
    assert CANARY not in line
    assert decode_event(line.encode()).fact == made  # it is a line as any other
    had = CANARY in encode_event(Event(1, 1, 1, fact)).decode()
    assert (MARK in line) == had
    assert (made is fact) == (not had)


@given(st.sampled_from([*known_facts().values()]).flatmap(structs))
def test_a_fact_without_a_secret_is_the_same_object(fact: Fact) -> None:
    assert redactor.value(fact) is fact


def test_a_word_of_a_closed_vocabulary_is_never_taken_for_a_secret() -> None:
    message = Message.user("the person and the system of next-turn")
    spliced = InboxSpliced("next-turn", 0, inserted=(message,))
    made = Redactor({"W": "person", "V": "next-turn", "U": "system"}).value(spliced)

    assert made.list == "next-turn" and made.inserted[0].source.kind == "person"
    assert made.inserted[0].text == "the [redacted:W] and the [redacted:U] of [redacted:V]"


@dataclasses.dataclass(frozen=True)
class Pair:
    left: str
    right: object


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ({CANARY: 1, f"x{CANARY}": [CANARY]}, {MARK: 1, f"x{MARK}": [MARK]}),
        ((1, None, 2.5, True, (CANARY,)), (1, None, 2.5, True, (MARK,))),
        ({CANARY}, frozenset({MARK})),
        (CANARY.encode() + b"\xff", MARK.encode() + b"\xff"),
        (Pair("a", Pair(CANARY, 1)), Pair("a", Pair(MARK, 1))),
        (Name(CANARY), MARK),
    ],
)  # fmt: skip
def test_whatever_a_plugins_fact_may_hold_is_looked_through(value: object, made: object) -> None:
    assert redactor.value(value) == made


def test_keys_that_differ_in_their_secrets_are_both_kept() -> None:
    two = Redactor({"S": ["first-secret", "other-secret"]})
    assert two.value({"first-secret": 1, "other-secret": 2}) == {"[redacted:S]": 1, "[redacted:S]-2": 2}


def test_a_mark_is_found_where_it_stands() -> None:
    assert redactor.marked({"a": ["x", f"is {MARK}"]}) == MARK
    assert redactor.marked({"a": "is [redacted:other]", "b": CANARY}) is None


def test_every_string_is_given_to_be_replaced() -> None:
    seen: list[str] = []
    with_strings(ToolCalled(1, 1, 0, "c1", "bash", "{}"), lambda text: seen.append(text) or text)
    assert seen == ["c1", "bash", "{}"]


async def test_a_session_appends_without_secrets_from_its_first_line_on() -> None:
    store = MemoryStore()
    session = await create_session(store, "s", cwd=f"/home/{CANARY}", agent=CANARY, redactor=redactor)
    spliced = InboxSpliced(
        "next-turn", 0, inserted=(Message.user(f"the bird is {CANARY}", id="m1"),), by=CANARY
    )

    event = session.append(spliced)[0]

    assert isinstance(event.fact, InboxSpliced)
    assert event.fact.by == MARK and event.fact.inserted[0].content == (Text(f"the bird is {MARK}"),)
    assert session.state.queues.next_turn[0].message.text == f"the bird is {MARK}"
    created = session.facts(SessionCreated)[0]
    assert (created.cwd, created.agent) == (f"/home/{MARK}", MARK)
    await session.close()
    again = await open_session("s", store=store, redactor=redactor)
    again.append(InboxSpliced("next-turn", 1, inserted=(Message.user(CANARY, id="m2"),)))
    assert CANARY not in "".join(encode_event(event).decode() for event in again.events)
    await again.close()


async def test_the_id_of_a_session_cannot_hold_a_secret() -> None:
    with pytest.raises(UsageError, match="cannot hold a secret"):
        await create_session(MemoryStore(), f"s-{CANARY}", redactor=redactor)


async def test_a_fact_of_a_plugin_is_no_exception() -> None:
    class Noted(Fact, frozen=True):
        type = "tests/noted"
        ignorable = True
        what: Any

    session = await create_session(MemoryStore(), redactor=redactor)
    event = session.append(Noted({"deep": [{CANARY: msgspec.json.encode(CANARY).decode()}]}))[0]
    assert event.fact == Noted({"deep": [{MARK: f'"{MARK}"'}]})
    await session.close()
