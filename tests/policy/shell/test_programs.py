"""The table of programs, and the two languages that are looked into."""

from __future__ import annotations

import pytest

from interlock.errors import ConfigError
from interlock.policy.shell.programs import Table, table
from interlock.policy.shell.scripts import awk_problem, sed_problem

END = "[assignments]\nsafe = []\nloads = []\n[recipes]\n"


def test_a_program_is_found_by_folder_case_and_version() -> None:
    for name in ("git", "/usr/bin/git", "GIT", "git.exe", "../x/Git"):
        found = table().program(name)
        assert found is not None and found.names[0] == "git", name
    python = table().program("python3.12")
    assert python is not None and "python" in python.names
    assert table().program("gitk") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[program]]\nnames = ['x']\nrun = {}\nwrapper = []\n", "unknown field `run`"),
        ("[[program]]\nnames = ['x']\n[[program]]\nnames = ['y', 'X']\n[[wrapper]]\nnames = ['z']\n", "two tables for the program 'X'"),
        ("[[program]]\nnames = ['x']\n[[wrapper]]\nnames = ['x']\n", "two tables for the program 'x'"),
        ("[[program]]\nnames = ['x']\noperands = 'reads'\n[[wrapper]]\nnames = ['z']\n", "operands"),
        ("[[program]\n", "programs.toml"),
    ],
)  # fmt: skip
def test_a_wrong_table_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Table.of(text + END)
    assert problem in str(raised.value)


def test_variables_are_safe_or_load_something_never_both() -> None:
    for name in ("CI", "LC_ALL", "NODE_ENV", "GIT_TERMINAL_PROMPT"):
        assert table().safe(name) and not table().loads(name), name
    for name in ("PATH", "LD_PRELOAD", "GIT_SSH_COMMAND", "PAGER", "http_proxy", "BASH_FUNC_x%%"):
        assert table().loads(name) and not table().safe(name), name
    assert not table().safe("FOO") and not table().loads("FOO")


@pytest.mark.parametrize(
    "script",
    [
        "p", "1,5p", "$d", "/a/,/b/p", "s/a/b/", "s/a/b/gI", "s|/x|/y|2", "y/abc/xyz/", "/a/!d", "1~2d", "/a/I,+2p", "\\,a,d",
        "/x/{s/a/b/;p;q}", "a\\\ntext w e", "i text", ":a;N;$!ba;s/\\n/ /g", "1!G;h;$!d", "# comment w\np", "s/a\\/w/b/", "s/[a-z]/x/", "10q", "=", "",
    ],
)  # fmt: skip
def test_sed_scripts_that_only_print(script: str) -> None:
    assert sed_problem(script) is None


@pytest.mark.parametrize(
    "script",
    [
        "w f", "1w f", "s/a/b/w f", "s/a/b/gw f", "s/a/b/e", "s/a/b/ge", "e", "1e ls", "r f", "R f", "W f", "/a/w f", "p;w f", "{w f", "p\nw f",
        "s/a/b/;e ls", "s/[/]/w f/", "s,a,b,e", "}w f", "1,2{p;w f", "\\,a,w f", "s/a", "F;K", "v;e x", "a\\", "/a", "$!{h;d};e",
    ],
)  # fmt: skip
def test_sed_scripts_that_may_do_more(script: str) -> None:
    if script == "a\\":
        assert sed_problem("a\\\nx\ne ls") is not None
    else:
        assert sed_problem(script) is not None


@pytest.mark.parametrize(
    "program",
    [
        "{print $1}", "$3 > 100", "NR>1 && $2 >= 5 {s+=$2} END {print s/NR}", "/a|b/ {print}", "$1 ~ /x>y|z/", "{print \"a | b > c\"}",
        "BEGIN {FS=\",\"} {n[$1]++} END {for (k in n) print k, n[k]}", "{gsub(/\\//, \"-\"); print}", "a || b", "$1 < 3", "{printf \"%s\\n\", $2}",
        "{print ($1 / 2)}", "length($0) > 80",
    ],
)  # fmt: skip
def test_awk_programs_that_only_print(program: str) -> None:
    assert awk_problem(program) is None


@pytest.mark.parametrize(
    "program",
    [
        "BEGIN{system(\"x\")}", "{print | \"sh\"}", "{print > \"f\"}", "{print $1 >> \"f\"}", "{printf \"a\" > \"f\"}", "BEGIN{\"x\" | getline}",
        "BEGIN{while ((getline l < \"f\") > 0) print l}", "BEGIN{f=\"system\"; @f(\"x\")}", "@load \"x\"", "{print \"a\" |& \"x\"}", "{ x = a / b | \"c\" / d }",
        "{close(\"x\")}", "{print \"unclosed}", "{print $1 > $2}",
    ],
)  # fmt: skip
def test_awk_programs_that_may_do_more(program: str) -> None:
    assert awk_problem(program) is not None
