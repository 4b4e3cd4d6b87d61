"""Hypothesis strategies for anything that a log may hold, made from the types of the fields themselves.

A fact that is added to the vocabulary is tested without a word here.
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from interlock.log.event import Event
from interlock.log.facts import AssistantChunk, Fact, Unknown, known_facts

MAX_INTEGER = 2**53 - 1


def json_of(texts: st.SearchStrategy[str], keys: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    """JSON values with these strings in them."""
    return st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-MAX_INTEGER, MAX_INTEGER)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )


json_values = json_of(st.text(max_size=20), st.text(max_size=8))
seqs = st.integers(0, 10_000)
times = st.integers(0, 2**42)
spans = seqs | st.tuples(seqs, seqs)


def _values(type_: inspect.Type, texts: st.SearchStrategy[str] | None) -> st.SearchStrategy[object]:
    match type_:
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(-MAX_INTEGER, MAX_INTEGER)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.StrType():
            return st.text(max_size=30) if texts is None else texts
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.UnionType(types=types):
            return st.one_of([_values(one, texts) for one in types])
        case inspect.VarTupleType(item_type=item):
            return st.lists(_values(item, texts), max_size=3).map(tuple)
        case inspect.TupleType(item_types=items):
            return st.tuples(*[_values(item, texts) for item in items])
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_values(key, texts), _values(value, texts), max_size=3)
        case inspect.AnyType():
            return json_values if texts is None else json_of(texts, texts)
        case inspect.StructType(cls=cls):
            return structs(cls, texts)
        case _:
            raise NotImplementedError(f"no strategy for {type_}")


def structs(
    cls: type[msgspec.Struct], texts: st.SearchStrategy[str] | None = None
) -> st.SearchStrategy[msgspec.Struct]:
    """Values of a struct; fields with a default are often left at it, as they are in a real log.

    texts: what stands wherever any text may.
    """
    described = inspect.type_info(cls)
    assert isinstance(described, inspect.StructType)
    required = {f.name: _values(f.type, texts) for f in described.fields if f.required}
    optional = {f.name: _values(f.type, texts) for f in described.fields if not f.required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda fields: cls(**fields))


known = st.sampled_from([*known_facts().values()]).flatmap(structs)
unknown = st.builds(Unknown, st.just("plugin/noted"), json_values)
chunks = structs(AssistantChunk)
facts = known | unknown | chunks


def event(seq: int, time: int, life: int, fact: Fact, causes: tuple[int | tuple[int, int], ...]) -> Event:
    return Event(seq, time, life, fact, causes, fact.ignorable or type(fact) is Unknown)


events = st.builds(event, seqs, times, st.integers(1, 9), facts, st.lists(spans, max_size=3).map(tuple))


@st.composite
def logs(draw: st.DrawFn, *, max_size: int = 30) -> list[Event]:
    """The lines of one session from seq 0 on, with runs of chunks among them."""
    lines: list[Event] = []
    while len(lines) < max_size and draw(st.booleans()):
        first = draw(events)
        lines.append(msgspec.structs.replace(first, seq=len(lines)))
        if type(first.fact) is AssistantChunk:
            for text in draw(st.lists(st.text(max_size=5), max_size=6)):
                fact = msgspec.structs.replace(first.fact, text=text)
                time = first.time + draw(st.integers(-5, 5_000))
                lines.append(Event(len(lines), time, first.life, fact))
    return lines
