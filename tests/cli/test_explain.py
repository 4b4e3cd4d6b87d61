"""`interlock explain`: why a call did or did not run."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from interlock.cli.chain import show
from interlock.log.explanation import Difference, Explained, Link
from interlock.log.facts import ToolCalled
from interlock.models.scripted import call, calls, says


@pytest.fixture
def ran(interlock: Any, script: Any, work: Path) -> str:
    """The id of a session with a read that ran, a write that nobody could be asked about, and a call of nothing."""
    script(
        calls(call("read", path="a.txt"), call("write", path="b", content="x")),
        calls(call("nope", id="c3")),
        says("So it is."),
    )
    interlock("run", "Do it.", "--cwd", str(work))
    session_id: str = json.loads(interlock("sessions", "--json").out)["id"]
    return session_id


def test_every_call_has_its_chain_and_a_last_word(interlock: Any, ran: str) -> None:
    ended = interlock("explain", ran)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == [
        f"read#c1  step 1.1, call 1, line {line_of(interlock, 'c1')}",
        f"write#c2  step 1.1, call 2, line {line_of(interlock, 'c2')}",
        f"nope#c3  step 1.2, call 1, line {line_of(interlock, 'c3')}",
    ]
    assert [line.strip() for line in lines if line.startswith("  It ")] == [
        "It ran: nobody spoke about it, and preset ask allows it.",
        "It did not run: preset ask had a person asked, and nobody answered.",
        lines[-1].strip(),
    ]
    assert lines[-1].startswith("  It did not run: there is no tool named 'nope'. Tools: ")
    chain = [line.split()[1:] for line in lines[1:]]
    assert chain[:3] == [
        ["call", "asked", "by", "the", "model:", "path=a.txt"],
        ["lookup", "known,", "its", "effect", "is", "read"],
        ["default", "nobody", "spoke;", "preset", "ask:", "allow", *chain[2][6:]],
    ]


def line_of(interlock: Any, call_id: str) -> int:
    """The line of the log in which a call begins."""
    (event,) = [
        event
        for event in interlock("log", "last", "--json").events
        if isinstance(event.fact, ToolCalled) and event.fact.call_id == call_id
    ]
    seq: int = event.seq
    return seq


@pytest.mark.parametrize("wanted", ["c2", "the line", "1.2", "1.1.2"])
def test_a_call_is_named_by_id_line_or_place(interlock: Any, ran: str, wanted: str) -> None:
    line = line_of(interlock, "c2")
    ended = interlock("explain", "last", str(line) if wanted == "the line" else wanted)
    assert ended.code == 0
    assert ended.out.splitlines()[0] == f"write#c2  step 1.1, call 2, line {line}"


def test_a_call_that_is_not_there_is_named_with_those_that_are(interlock: Any, ran: str) -> None:
    ended = interlock("explain", "last", "c9")
    assert ended.code == 2 and ended.out == ""
    assert (
        ended.err
        == f"interlock: Session {ran} has no call 'c9'. It has c1 (1.1.1), c2 (1.1.2), c3 (1.2.1).\n"
    )
    assert interlock("explain", "nothing").code == 2


def test_a_session_without_calls_says_so(interlock: Any, script: Any, work: Path) -> None:
    script(says("Hello."))
    interlock("run", "Say hello", "--cwd", str(work))
    assert interlock("explain", "last").out.startswith("The model has called no tool in session ")
    assert interlock("explain", "last", "--json").out == ""


def test_as_json_it_is_one_object_a_call(interlock: Any, ran: str) -> None:
    lines = interlock("explain", "last", "--json").out.splitlines()
    read, write, nope = [msgspec.json.decode(line, type=Explained) for line in lines]
    assert [read.fate, write.fate, nope.fate] == ["ran", "refused", "refused"]
    assert [read.code, write.code, nope.code] == [None, "APPROVAL_UNAVAILABLE", "UNKNOWN_TOOL"]
    (plain,) = [json.loads(line) for line in interlock("explain", "last", "c2", "--json").out.splitlines()]
    assert {name: plain[name] for name in ("call", "id", "name", "turn", "step", "index", "asked")} == {
        "call": line_of(interlock, "c2"), "id": "c2", "name": "write", "turn": 1, "step": 1, "index": 1, "asked": {"path": "b", "content": "x"},
    }  # fmt: skip
    assert [link["stage"] for link in plain["chain"]] == [
        "call", "lookup", "default", "approval", "approval", "commit",
    ]  # fmt: skip


def shown(one: Explained, width: int | None = None) -> str:
    """As it is printed: to a file, or to a terminal of this width."""
    out = io.StringIO()
    terminal = {"force_terminal": True, "width": width, "color_system": None} if width else {}
    show(Console(file=out, highlight=False, markup=False, emoji=False, **terminal), one)  # type: ignore[arg-type]  # rich's own names
    return out.getvalue()


def link(**more: Any) -> Link:
    return Link(**{"stage": "prepare", "seq": 10, "time": 0, "who": "who", "answer": "rewrite", **more})


def one(*links: Link, **more: Any) -> Explained:
    return Explained(
        call=9,
        id="c1",
        name="send",
        turn=1,
        step=1,
        index=0,
        fate="ran",
        word="It ran.",
        chain=list(links),
        **more,
    )


def test_changes_are_a_diff_below_who_made_them() -> None:
    changes = (Difference("to", "ada", "bob"), Difference("text", after="hi"), Difference("n", before=1))
    assert shown(one(link(changes=changes))).splitlines()[1:5] == [
        "     10 prepare    who: rewrite",
        '                   - to="ada"',
        '                   + to="bob"',
        '                   + text="hi"',
    ]


def test_a_rule_is_shown_with_its_file_and_line() -> None:
    ruled = link(
        stage="policy", answer="deny", rule="Bash(git push:*)", file="a.toml", line=7, us=1500, won=True
    )
    assert (
        shown(one(ruled)).splitlines()[1]
        == "     10 policy     rule Bash(git push:*) in a.toml:7: deny (1 ms) ◂"
    )


nasty = st.text(st.sampled_from("\x1b[]31m\x07\r\n\t\u202e\x9b ab"), min_size=1, max_size=12)
STAGES = (
    "call",
    "lookup",
    "hook",
    "prepare",
    "policy",
    "default",
    "approval",
    "around",
    "body",
    "post",
    "commit",
)


@given(st.sampled_from(STAGES), nasty, nasty, nasty, nasty, st.sampled_from([None, 20, 40, 200]))
def test_nothing_that_was_said_reaches_the_terminal_as_a_command(
    stage: Any, who: str, answer: str, reason: str, said: str, width: int | None
) -> None:
    details: dict[str, Any] = {
        "event": said,
        "said": {said: said},
        "exit": 2,
        "options": [said],
        "digest": said,
    }
    many = [
        link(
            stage=stage, who=who, answer=answer, reason=reason, rule=said, file=said, line=1, detail=details
        ),
        link(stage=stage, who=who, answer=answer, detail={"digest": said, "rule_written": said, "how": said}),
        link(stage=stage, changes=(Difference(said, said, {said: said}),), detail={"sandbox": said}),
    ]
    call = one(*many, asked={said: said}, nested=[one(*many, asked=said)])
    call.word, call.id, call.name = reason, who, answer
    text = shown(call, width)
    assert not set(text) & set("\x1b\x07\r\t\u202e\x9b")


@pytest.mark.parametrize("width", [20, 30, 80])
def test_a_narrow_terminal_shows_everything(width: int) -> None:
    text = shown(one(link(reason="word " * 30)), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "".join(text.split()).count("word") == 30
