"""Exports are read, never run."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bridges.hooks.environment import exports

KNOWN = {"PATH": "/usr/bin:/a b", "QUOTE": 'it\'s "$HOME"; ls'}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export A=1", {"A": "1"}),
        ("export A='x y' B=\"z\"", {"A": "x y", "B": "z"}),
        ("  export A=1 # why", {"A": "1"}),
        ('export PATH="$PATH:./bin"', {"PATH": "/usr/bin:/a b:./bin"}),
        ("export PATH=${PATH}:x", {"PATH": "/usr/bin:/a b:x"}),
        ("export A='$PATH'", {"A": "$PATH"}),
        (r"export A=\$PATH", {"A": "$PATH"}),
        ('export A="$QUOTE"', {"A": KNOWN["QUOTE"]}),
        ("export A=1\nexport B=$A-2", {"A": "1", "B": "1-2"}),
        ("export A=$NOWHERE.", {"A": "."}),
        ('declare -x A="1 2"', {"A": "1 2"}),
        ("export A=", {"A": ""}),
        ("export A", {}),
        ("# a comment\n\n", {}),
    ],
)
def test_what_is_exported(text: str, expected: dict[str, str]) -> None:
    assert exports(text, KNOWN) == (expected, [])


@pytest.mark.parametrize(
    "line",
    [
        "A=1",
        "export A=$(date)",
        "export A=`date`",
        "export A=${PATH:-x}",
        "export 'A",
        "export 1A=2",
        "source ~/.profile",
        "declare -r A=1",
        "unset A",
    ],
)
def test_what_only_a_shell_could_do_is_said(line: str) -> None:
    assert exports(f"export B=2\n{line}\n", KNOWN) == ({"B": "2"}, [line])


@given(
    st.text(
        st.characters(blacklist_characters="\0\r\n", blacklist_categories=["Cs", "Cc", "Zl", "Zp"]),
        max_size=12,
    )
)
def test_quoted_as_a_shell_quotes_it_a_value_comes_back(value: str) -> None:
    import shlex

    assert exports(f"export A={shlex.quote(value)}", {}) == ({"A": value}, [])


def test_it_agrees_with_a_shell() -> None:
    text = 'export A="x $QUOTE"\nexport B=$A\nexport C=\'$A\' D="${PATH}"\n'
    script = text + "env -0"
    said = subprocess.run(
        ["/bin/sh", "-c", script.replace("C='$A' D", "C='$A'\nexport D")],
        env=KNOWN, capture_output=True, check=True,
    ).stdout.decode().split("\0")  # fmt: skip
    theirs = dict(line.partition("=")[::2] for line in said if line[:2] in ("A=", "B=", "C=", "D="))
    # A shell splits an unquoted $A into words for some commands; for `export` dash does, so B is quoted by us only.
    found, unread = exports(text, KNOWN)
    assert unread == []
    assert {name: found[name] for name in "ACD"} == {name: theirs[name] for name in "ACD"}
