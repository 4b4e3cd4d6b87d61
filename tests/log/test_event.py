"""The exact form of a line: what is written is read again, and nothing else is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from effort import examples
from interlock.errors import UnknownFact, UnreadableLog
from interlock.log.event import Event, decode_event, encode_event
from interlock.log.facts import (
    AssistantChunk,
    Fact,
    StepStart,
    TurnEnd,
    TurnStart,
    Unknown,
    known_facts,
    register_fact,
)
from interlock.log.reasons import Completed

from .fact_strategies import events, structs


@settings(deadline=None, max_examples=examples(400))
@given(events)
def test_an_event_survives_being_written(event: Event) -> None:
    line = encode_event(event)
    assert decode_event(line) == event
    assert b"\n" not in line
    json.loads(line)  # any other reader understands it too


@pytest.mark.parametrize("cls", known_facts().values(), ids=known_facts().keys())
def test_every_fact_of_the_vocabulary_survives(cls: type[Fact]) -> None:
    @settings(deadline=None, max_examples=10)
    @given(structs(cls))
    def survives(fact: Fact) -> None:
        assert decode_event(encode_event(Event(1, 2, 3, fact))).fact == fact

    survives()


def test_the_line_is_what_the_documentation_says() -> None:
    event = Event(7, 1_700_000_000_000, 2, TurnEnd(1, Completed(), 3), causes=(2, (4, 6)))
    assert json.loads(encode_event(event)) == {
        "seq": 7,
        "type": "turn/end",
        "time": 1_700_000_000_000,
        "life": 2,
        "data": {"turn": 1, "reason": {"kind": "completed"}, "steps": 3},
        "causes": [2, [4, 6]],
    }


def test_defaults_are_not_written() -> None:
    assert encode_event(Event(0, 1, 1, AssistantChunk(5, "text"))) == (
        b'{"seq":0,"type":"assistant/chunk","time":1,"life":1,"data":{"sent":5,"kind":"text"}}'
    )


def _line(**changes: object) -> str:
    line: dict[str, object] = {"seq": 4, "type": "turn/start", "time": 1, "life": 1, "data": {"turn": 1}}
    return json.dumps({**line, **changes})


def test_an_unknown_type_is_refused_by_name() -> None:
    """Law 10, D-24."""
    with pytest.raises(UnknownFact) as caught:
        decode_event(_line(type="plugin/unheard-of"))
    assert (caught.value.type, caught.value.seq, caught.value.plugin) == ("plugin/unheard-of", 4, "plugin")
    assert str(caught.value) == (
        "Event 4 is of type 'plugin/unheard-of', which the plugin 'plugin' writes and which may not be skipped. "
        "Install 'plugin', and import it before reading."
    )


@pytest.mark.parametrize(
    "own", [cls.type for cls in known_facts().values() if cls.__module__ == "interlock.log.facts"]
)
def test_an_unknown_type_of_ours_is_that_of_a_newer_version(own: str) -> None:
    """Nobody else can have a name of ours, also for a fact that is yet to come."""
    later = f"{own.partition('/')[0]}/of-tomorrow"
    with pytest.raises(UnknownFact, match="a newer version of interlock writes") as caught:
        decode_event(_line(type=later))
    assert caught.value.plugin is None
    with pytest.raises(ValueError, match="names facts of interlock"):

        @register_fact
        class Impostor(Fact, frozen=True):
            type = later


def test_an_unknown_type_that_may_be_skipped_is_kept_as_it_is() -> None:
    line = _line(type="plugin/unheard-of", ignorable=True, data={"any": [1, None]})
    event = decode_event(line)
    assert event.fact == Unknown("plugin/unheard-of", {"any": [1, None]})
    assert event.type == "plugin/unheard-of"
    assert json.loads(encode_event(event)) == json.loads(line)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"data": {"turn": 1, "colour": "red"}}, "colour"),
        ({"data": {"turn": "one"}}, "int"),
        ({"data": {}}, "turn"),
        ({"data": None}, "object"),
        ({"owner": "me"}, "owner"),
        ({"seq": 1.5}, "int"),
        ({"causes": [[1, 2, 3]]}, "length"),
    ],
)
def test_a_line_that_does_not_fit_its_type_is_refused(changes: dict[str, object], problem: str) -> None:
    """D-24: unknown fields and wrong kinds are refused like unknown types, also inside an ignorable line."""
    for ignorable in (False, True):
        with pytest.raises(UnreadableLog, match=problem):
            decode_event(_line(**changes, ignorable=ignorable))


@pytest.mark.parametrize("line", ["", "{", "[]", "null", _line()[:-1], _line() + "x"])
def test_what_is_not_a_line_is_refused(line: str) -> None:
    with pytest.raises(UnreadableLog):
        decode_event(line)


def test_two_facts_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="StepStart"):

        @register_fact
        class Impostor(Fact, frozen=True):
            type = "step/start"

    for name in ("", "noted", "/noted", "myplugin/"):
        with pytest.raises(
            ValueError, match="Nameless needs a class attribute `type` of the form PLUGIN/NAME"
        ):

            @register_fact
            class Nameless(Fact, frozen=True):
                type = name

    assert known_facts()["step/start"] is StepStart


def test_events_are_values() -> None:
    assert Event(0, 1, 1, TurnStart(1)) == Event(0, 1, 1, TurnStart(1))
    with pytest.raises(AttributeError):
        Event(0, 1, 1, TurnStart(1)).seq = 5  # type: ignore[misc]  # that is the point
