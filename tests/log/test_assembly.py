"""Chunks to a message: the same fold for a live answer and for one that a crash cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.log.assembly import Assembly, name_calls
from interlock.log.facts import AssistantChunk, Usage
from interlock.log.messages import Block, Reasoning, Text, ToolUse


def text(said: str, block: int = 0) -> AssistantChunk:
    return AssistantChunk(1, "text", block, said)


def reasoning(said: str, block: int = 0, signature: str | None = None) -> AssistantChunk:
    return AssistantChunk(1, "reasoning", block, said, {"signature": signature} if signature else None)


def part(block: int, arguments: str = "", **value: str) -> AssistantChunk:
    return AssistantChunk(1, "call", block, arguments, value or None)


def finish(reason: str = "stop") -> AssistantChunk:
    return AssistantChunk(1, "finish", value={"reason": reason})


def usage(**numbers: int) -> AssistantChunk:
    return AssistantChunk(1, "usage", value=numbers)


def assembled(*chunks: AssistantChunk) -> Assembly:
    assembly = Assembly()
    for chunk in chunks:
        assembly.add(chunk)
    return assembly


def test_nothing_gives_nothing() -> None:
    empty = Assembly()
    assert (empty.blocks(), empty.visible(), empty.finish, empty.usage) == ((), (), None, None)


def test_deltas_of_a_block_are_joined() -> None:
    """ST-01."""
    assert assembled(text("Hel"), text("lo"), finish()).blocks() == (Text("Hello"),)


def test_blocks_come_in_the_order_of_their_first_appearance() -> None:
    """ST-01: deltas of one block may be spread over the stream."""
    chunks = (
        part(2, '{"a"', id="c1", name="look"),
        text("b", 1),
        reasoning("why", 0),
        part(2, ":1}"),
        text("c", 1),
    )
    assert assembled(*chunks).blocks() == (ToolUse("c1", "look", '{"a":1}'), Text("bc"), Reasoning("why"))


def test_kinds_do_not_share_a_block_number() -> None:
    assert assembled(reasoning("r"), text("t"), part(0, "{}", id="c", name="n")).blocks() == (
        Reasoning("r"),
        Text("t"),
        ToolUse("c", "n", "{}"),
    )


def test_id_and_name_come_with_whatever_piece_brings_them_and_the_first_one_counts() -> None:
    """Some servers send the id late, some repeat it, some send another one."""
    pieces = (
        part(0, "{"),
        part(0, "}", name="look"),
        part(0, id="c1"),
        part(0, id="c2", name="other"),
    )
    assert assembled(*pieces).blocks() == (ToolUse("c1", "look", "{}"),)


def test_a_call_without_id_and_name_stays_without() -> None:
    """The loop gives it an id; a name that nobody gave is an unknown tool."""
    assert assembled(part(0, "{}")).blocks() == (ToolUse("", "", "{}"),)


def test_empty_text_and_empty_reasoning_are_no_blocks_and_an_empty_call_is_one() -> None:
    made = assembled(text(""), reasoning(""), part(0, id="c", name="n"))
    assert made.blocks() == (ToolUse("c", "n", ""),)


def test_a_signature_alone_keeps_its_block() -> None:
    """A provider may want its replay data back although it showed no text."""
    made = assembled(reasoning("", signature="sig"))
    assert made.blocks() == (Reasoning("", "sig"),)
    assert made.visible() == ()


def test_after_the_finish_only_usage_is_heard() -> None:
    """ST-01: stragglers are ignored, and some servers send usage last."""
    made = assembled(
        text("a"), finish(), text("b"), part(1, id="c", name="n"), finish("max-tokens"), usage(input=3)
    )
    assert made.blocks() == (Text("a"),)
    assert (made.finish, made.usage) == ("stop", Usage(input=3))


def test_the_last_usage_counts() -> None:
    """Some servers report it with every chunk, growing."""
    made = assembled(usage(input=1), text("a"), usage(input=9, output=4, cached=2, reasoning=1))
    assert made.usage == Usage(9, 4, 2, 1)


def test_what_was_visible_is_text_and_reasoning_that_says_something() -> None:
    """ST-03: without calls, white space and replay data."""
    made = assembled(
        text(" \n"),
        reasoning("thinking", 1, "sig"),
        reasoning("\t", 2),
        part(3, '{"a"', id="c", name="n"),
        text("shown", 4),
    )
    assert made.visible() == (Reasoning("thinking"), Text("shown"))


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(
        st.tuples(st.sampled_from(["text", "reasoning", "call"]), st.integers(0, 2), st.text(max_size=4))
    )
)
def test_how_a_stream_is_cut_into_chunks_changes_nothing(deltas: list[tuple[Any, int, str]]) -> None:
    """ST-01: letter by letter, or as it came: the same blocks, and every character is in its own block once."""
    whole = assembled(*[AssistantChunk(1, kind, block, said) for kind, block, said in deltas])
    letters = assembled(
        *[AssistantChunk(1, kind, block, letter) for kind, block, said in deltas for letter in (said or [""])]
    )
    assert letters.blocks() == whole.blocks()
    joined: dict[tuple[str, int], str] = {}
    for kind, block, said in deltas:
        joined[kind, block] = joined.get((kind, block), "") + said
    kept = {key: said for key, said in joined.items() if said or key[0] == "call"}
    assert [
        block.arguments if isinstance(block, ToolUse) else getattr(block, "text", "")
        for block in whole.blocks()
    ] == list(kept.values())


# Ids of calls


def ids(*given_: str) -> tuple[list[str], dict[str, str]]:
    blocks: tuple[Block, ...] = (Text("so"), *[ToolUse(one, "look", "{}") for one in given_])
    made, renamed = name_calls(blocks, 3, 2)
    return [block.id for block in made if isinstance(block, ToolUse)], renamed


@pytest.mark.parametrize(
    ("given_", "made", "renamed"),
    [
        ((), [], {}),
        (("a", "b"), ["a", "b"], {}),
        (("a", "a", "a"), ["a", "a-2", "a-3"], {"a-2": "a", "a-3": "a"}),
        (("a", "a", "a-2"), ["a", "a-3", "a-2"], {"a-3": "a"}),
        (("", ""), ["call-3-2-0", "call-3-2-1"], {"call-3-2-0": "", "call-3-2-1": ""}),
        (("call-3-2-1", ""), ["call-3-2-1", "call-3-2-1-2"], {"call-3-2-1-2": ""}),
    ],
)
def test_repeated_and_missing_ids_are_named_the_same_way_each_time(
    given_: tuple[str, ...], made: list[str], renamed: dict[str, str]
) -> None:
    """D-9: `<id>-2`, the next free one; `call-<turn>-<step>-<index>`; and the rename is told."""
    assert ids(*given_) == (made, renamed)


def test_only_calls_are_renamed_and_everything_stays_in_its_place() -> None:
    blocks: tuple[Block, ...] = (Reasoning("hm"), ToolUse("a", "x", "1"), Text("t"), ToolUse("a", "y", "2"))
    made, _ = name_calls(blocks, 1, 1)
    assert made == (Reasoning("hm"), ToolUse("a", "x", "1"), Text("t"), ToolUse("a-2", "y", "2"))


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(st.sampled_from(["", "a", "a-2", "a-3", "b", "call-3-2-0", "call-3-2-1"]), max_size=8))
def test_ids_are_always_their_own_and_the_given_ones_stay_where_they_can(given_: list[str]) -> None:
    """D-9."""
    made, renamed = ids(*given_)
    assert len(set(made)) == len(made)
    assert "" not in made
    for one in set(given_) - {""}:
        assert made[given_.index(one)] == one  # the first of its kind keeps its id
    assert {new: old for new, old in zip(made, given_, strict=True) if new != old} == renamed
