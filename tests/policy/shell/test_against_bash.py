"""What analysis sees against what bash does: every program that a script runs is one of the commands that were seen.

Scripts are generated and run by a real bash in an empty folder. The only programs it can find are stand-ins that write
down the words they were given.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.policy.shell import View, analyse
from interlock.policy.shell.analysis import Word
from policy.shell.typed import AROUND, spelled

PROGRAMS = ("git", "rm", "aa", "bb", "ls", "cat", "env", "timeout", "nice", "xargs")
STAND_IN = """#!/bin/sh
name=${0##*/}
printf '%s\\0' "$name" "$@" > "$WRITTEN_DOWN/$$"
"""
# They change what the shell itself does in ways that are asked about, so what runs need not be seen.
UNFOLLOWED = {"program", "inline-code", "assignment"}


class Machine:
    """A folder with stand-ins, and a bash that knows nothing else."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.written = folder / "written"
        self.work = folder / "work"
        for each in (self.bin, self.work, self.written):
            each.mkdir()
        for name in PROGRAMS:
            program = self.bin / name
            program.write_text(STAND_IN)
            program.chmod(0o755)

    def run(self, script: str) -> list[tuple[str, ...]]:
        """The words of every program that ran; in no order, since some of them run at once."""
        held, holds = os.pipe()
        try:
            subprocess.run(
                ["/bin/bash", "--norc", "-c", "--", script],
                cwd=self.work,
                # The home folder is a tilde, so that `~` stays what it was.
                env={
                    "PATH": str(self.bin),
                    "WRITTEN_DOWN": str(self.written),
                    "HOME": "~",
                    "LC_ALL": "C.UTF-8",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(holds,),
                timeout=30,
                check=False,
            )
        finally:
            os.close(holds)
            with open(held, "rb") as waiting:
                waiting.read()  # until what runs in the background has ended
        ran: list[tuple[str, ...]] = []
        for left in (*self.written.iterdir(), *self.work.iterdir()):
            if left.parent == self.written:
                ran.append(tuple(left.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]))
            left.unlink()
        return ran


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


def _word(word: Word) -> str:
    if any(piece.splits for piece in word.pieces):
        return "(?:\0[^\1]*)?"
    return "\0" + "".join(
        re.escape(piece.text) if piece.known and not piece.glob else ".*" for piece in word.pieces
    )


def _covers(view: View, ran: tuple[str, ...]) -> bool:
    return re.fullmatch("".join(map(_word, view.words)), "\0" + "\0".join(ran), re.DOTALL) is not None


def unseen(machine: Machine, script: str) -> list[tuple[str, ...]] | None:
    """What ran and was not seen; None where analysis has doubts, so that a person is asked anyway."""
    analysis = analyse(script)
    if analysis.unknown or any(doubt.kind in UNFOLLOWED for doubt in analysis.doubts):
        return None
    views = [view for found in analysis.commands for view in found.views if view.certain]
    return [ran for ran in machine.run(script) if not any(_covers(view, ran) for view in views)]


names = st.sampled_from(
    ["aa", "bb", "git", "rm", "timeout 5 aa", "env bb", "nice -n 2 git", "x=1 aa", "\\git", "time bb"]
)
plain = st.sampled_from(
    [
        "push",
        "-rf",
        "a b",
        "x",
        "it's",
        "a*b",
        "$x",
        "--",
        "#no",
        "~",
        "{}",
        "é",
        "",
        "\n",
        "a;b",
        "(",
        "=",
        "!",
    ]
)
rough = st.sampled_from(
    [
        "$x", '"$x"', "$(aa 1)", '"$(bb 2)"', "`aa`", "${x:-y}", "{a,b}", "a{1,2}b", "*.none", "$((1+2))", "~", "~/x", "<(bb)",
        '"a $(git $(rm)) b"', "x=$y", "a\\ b", "[", "]", "a#b", "${#x}", "\\\n", "'a'\"b\"c", "$'a\\tb'", "{1..3}", "\"`aa 'q'`\"",
    ]
)  # fmt: skip


@st.composite
def words(draw: st.DrawFn) -> str:
    more = draw(st.lists(plain.flatmap(_written) | rough, max_size=3))
    return " ".join([draw(names), *more])


def _written(text: str) -> st.SearchStrategy[str]:
    if not text or "\n" in text:
        return st.just(f"'{text}'")
    return spelled(text)


def _wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    framed = st.builds(lambda frame, body: frame.format(body), AROUND, inner)
    joined = st.builds(
        lambda a, op, b: f"{a}{op}{b}",
        inner,
        st.sampled_from(["; ", " && ", " || ", " | ", "\n", " |& ", " &\n"]),
        inner,
    )
    fed = st.builds(
        lambda a, more: f"{a} {more}",
        inner,
        st.sampled_from(
            [
                ">f",
                "2>&1",
                "</dev/null",
                "<<'E'\n$(rm -rf)\nE\n",
                "<<E\n$(bb)\nE\n",
                "<<<$(aa)",
                "&>f",
                ">>f 2>/dev/null",
            ]
        ),
    )
    return framed | joined | fed


scripts = st.recursive(words(), _wrapped, max_leaves=4)

TRICKY = [
    "git", "rm", "aa", "bb", " ", " ", "\n", "\\\n", "\\", " ; ", "&&", "||", "|", "&", "(", ")", "{ ", "; }", "$(", "`", '"', "'",
    "$'", '$"', "#", " # x\n", "<<E\n", "\nE\n", "<<'E'\n", "<<<", ">f", "2>&1", "<(", "x=1 ", "$x", "${x:-", "}", "$((", "))", "1+1",
    "[[ ", " ]]", "if ", "then ", " fi", "else ", "do ", "done", "for x in ", "case x in ", "esac", ";;", "a)", "f() ", "! ", "time ",
    "{a,b}", "*", "[ab]", "~", "\\x41", "=", "--", "push", "'a b'", '"a $x"', "$1", '"$@"', "é", "a=(", "env ", "true ", "${#x}", "\t",
]  # fmt: skip
soup = st.lists(st.sampled_from(TRICKY), min_size=2, max_size=9).map("".join)
generous = settings(
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ],
)


@settings(generous, max_examples=examples(80))
@given(script=scripts)
def test_every_program_of_a_well_formed_script_is_seen(machine: Machine, script: str) -> None:
    assert unseen(machine, script) in (None, []), script


@settings(generous, max_examples=examples(200))
@given(script=soup)
def test_every_program_of_anything_that_can_be_read_is_seen(machine: Machine, script: str) -> None:
    assert unseen(machine, script) in (None, []), script


@pytest.mark.slow
@settings(generous, max_examples=1_000)
@given(script=scripts | soup)
def test_the_same_with_many_more(machine: Machine, script: str) -> None:
    assert unseen(machine, script) in (None, []), script


def test_the_comparison_sees_a_difference(machine: Machine) -> None:
    """What ran is compared with what was seen of the same script: of another one it is unseen."""
    ran = machine.run("aa 1; bb $(git push)")
    views = list(_views("aa 1; bb 2"))

    assert sorted(ran) == [("aa", "1"), ("bb",), ("git", "push")]
    assert sorted(each for each in ran if not any(_covers(view, each) for view in views)) == [
        ("bb",),
        ("git", "push"),
    ]


def _views(script: str) -> Iterator[View]:
    for found in analyse(script).commands:
        yield from found.views


@settings(generous, max_examples=examples(60))
@given(script=scripts)
def test_what_is_plain_and_right_is_read(script: str) -> None:
    """A reader that doubts everything would be safe and useless."""
    if re.search(r"[]['\"`$\\{}~#(=!]|time time", script):
        return
    checked = subprocess.run(
        ["bash", "-n"], input=script.encode(), capture_output=True, timeout=20, check=False
    )
    assert bool(analyse(script).unknown) == (checked.returncode != 0), script
