"""What analysis sees of a command line: its simple commands, their words, paths and doubts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from interlock.policy.shell import PathUse, analyse
from policy.shell.typed import seen, why


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("git status", [("git", "status")]),
        ("a && b || c; d | e |& f & g\nh", [("a",), ("b",), ("c",), ("d",), ("e",), ("f",), ("g",), ("h",)]),
        ("(a; b) && { c; d; }", [("a",), ("b",), ("c",), ("d",)]),
        ("if a; then b; elif c; then d; else e; fi", [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ("for i in 1 2; do a; done; while b; do c; done; until d; do e; done", [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ("for ((i=$(a); i<3; i++)); do b; done; select x in y; do c; done", [("a",), ("b",), ("c",)]),
        ("case $(a) in b|c) d;; *) e;; esac", [("a",), ("d",), ("e",)]),
        ("f() { a; }; function g { b; }; function h() (c)", [("a",), ("b",), ("c",)]),
        ("[[ $(a) == b ]] && (( $(c) > 1 ))", [("a",), ("c",)]),
        ("! a; time -p b", [("a",), ("b",)]),
        ("a $(b) `c` \"$(d)\" <(e) >(f) $((1+$(g))) ${x:-$(h)}", [("b",), ("c",), ("d",), ("e",), ("f",), ("g",), ("h",), ("a", "$(b)", "`c`", "$(d)", "<(e)", ">(f)", "$((1+$(g)))", "${x:-$(h)}")]),
        ("a <<E\n$(b) $c\nE\nd", [("b",), ("a",), ("d",)]),
        ("a <<'E'\n$(b)\nE", [("a",)]),
        ("a <<-E | b\n\tx\n\tE\nc", [("a",), ("b",), ("c",)]),
        ("a <<< \"$(b)\" > $(c)", [("b",), ("c",), ("a",)]),
        ("x[$(a)]=$(b) c", [("a",), ("b",), ("c",)]),
        ("x=(1 $(a))", [("a",), ()]),
        ("a # b; c\nd", [("a",), ("d",)]),
        ("a \\\n  b", [("a", "b")]),
        ("2>&1 a >/dev/null b", [("a", "b")]),
    ],
)  # fmt: skip
def test_every_simple_command_is_found(command: str, found: list[tuple[str, ...]]) -> None:
    assert seen(command) == found
    assert not analyse(command).unknown


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("'a b'", "a b"), ('"a b"', "a b"), ("a\\ b", "a b"), ("a'b'\"c\"\\d", "abcd"), ("$'a\\tb'", "a\tb"),
        ("$'\\x41\\101\\u00e9'", "AAé"), ('$"a"', "a"), ('"\\$x \\a"', "$x \\a"), ("''", ""), ("a#b", "a#b"), ("{}", "{}"),
        ("a{b}", "a{b}"), ("~/x", "~/x"), ('"$HOME/x"', "~/x"), ("a=b", "a=b"), ("--x='y z'", "--x=y z"), ("é", "é"),
    ],
)  # fmt: skip
def test_a_word_is_what_the_program_gets(written: str, word: str) -> None:
    assert seen(f"echo {written}") == [("echo", word)]


def test_braces_are_words_of_their_own() -> None:
    assert seen("cp src/{a,b}.py x") == [("cp", "src/a.py", "src/b.py", "x")]
    assert seen("{git,push}") == [("git", "push")]
    assert analyse("echo {1..3}").commands[0].views[-1].words[1].literal is None


def test_a_variable_is_known_where_its_one_assignment_has_surely_run() -> None:
    assert seen("x=push; git $x") == [(), ("git", "push")]
    assert seen('for f in a b; do cat "$f"; done') == [("cat", "a"), ("cat", "b")]
    assert seen('x="a b"; echo $x; echo "$x"') == [(), ("echo", "a", "b"), ("echo", "a b")]
    for unsure in (
        "(x=push); git $x",
        "false && x=push; git $x",
        "x=a; x=push; git $x",
        "git $x; x=push",
        "x=push | git $x",
    ):
        assert ("git", "$x") in seen(unsure), unsure


def test_known_wrappers_are_seen_through_and_named() -> None:
    [found] = analyse("env A=1 timeout -k 1 5 nice -n 3 sudo -u me git push").commands

    assert found.words == ("git", "push")
    assert found.program == "git"
    assert found.wrappers == ("env A=1", "timeout -k 1 5", "nice -n 3", "sudo -u me")
    assert [assign.source for assign in found.assignments] == ["A=1"]
    assert [view.allows for view in found.views] == [True, True, True, True, False]


def paths(command: str) -> list[tuple[str, str, tuple[str, ...]]]:
    analysis = analyse(command)
    every = [path for found in analysis.commands for path in found.paths] + list(analysis.paths)
    return [(path.access, path.by, path.paths) for path in every if not path.unknown and path.by != "named"]


@pytest.mark.parametrize(
    ("command", "used"),
    [
        ("cat a b", [("read", "operand", ("a",)), ("read", "operand", ("b",))]),
        ("head -n 5 a", [("read", "operand", ("a",))]),
        ("grep -n x a", [("read", "operand", ("a",))]),
        ("grep -e x -f y a", [("read", "option", ("y",)), ("read", "operand", ("a",))]),
        ("sed -i s/a/b/ f", [("read", "operand", ("f",)), ("write", "option", ("f",))]),
        ("sort -uo out in", [("write", "option", ("out",)), ("read", "operand", ("in",))]),
        ("sort --outp=out in", [("write", "option", ("out",)), ("read", "operand", ("in",))]),
        ("cp a b", [("read", "operand", ("a",)), ("write", "operand", ("b",))]),
        ("cp -t d a", [("write", "option", ("d",)), ("read", "operand", ("a",))]),
        ("mv a b", [("read", "operand", ("a",)), ("write", "operand", ("a",)), ("read", "operand", ("b",)), ("write", "operand", ("b",))]),
        ("tee -a x", [("write", "operand", ("x",))]),
        ("dd if=a of=b", [("read", "option", ("a",)), ("write", "option", ("b",))]),
        ("curl -so d https://x.example", [("write", "option", ("d",))]),
        ("curl -d @f https://x.example", [("read", "option", ("f",))]),
        ("git diff --output=o -- a", [("write", "option", ("o",)), ("read", "operand", ("a",))]),
        ("git show HEAD:a/b", [("read", "operand", ("a/b",)), ("read", "operand", ("HEAD:a/b",))]),
        ("tar -czf x.tgz a", [("write", "option", ("x.tgz",)), ("read", "operand", ("a",))]),
        ("tar xf x.tgz -C d", [("read", "operand", ("x.tgz",)), ("write", "operand", ("d",))]),
        ("python a.py b", [("read", "operand", ("a.py",))]),
        ("a < i > o 2>> e &> f", [("read", "redirection", ("i",)), ("write", "redirection", ("o",)), ("write", "redirection", ("e",)), ("write", "redirection", ("f",))]),
        ("a > /dev/null 2>&1 < /dev/null", []),
        ("cd a && cat b", [("read", "operand", ("a/b",)), ("enter", "operand", ("a",))]),
        ("cd a; cat b", [("read", "operand", ("a/b", "b")), ("enter", "operand", ("a",))]),
        ("(cd a); cat b", [("read", "operand", ("b",)), ("enter", "operand", ("a",))]),
        ("/usr/bin/time -o t a", [("write", "option", ("t",))]),
    ],
)  # fmt: skip
def test_paths_are_known_by_what_the_program_does_with_its_words(
    command: str, used: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    assert paths(command) == used


def test_what_a_path_may_be_is_said() -> None:
    [glob] = analyse("cat 'a*'*").commands[0].paths
    [unknown] = analyse('cat "$x"').commands[0].paths
    [tree, _] = analyse("cp -r a b").commands[0].paths

    assert glob == PathUse(("a\\**",), "read", "operand", glob=True)
    assert unknown.unknown
    assert tree.tree
    assert analyse("cd $x; cat b").commands[1].paths[0].unknown
    assert analyse("for i in 1 2; do cat b; cd c; done").commands[0].paths[0].unknown


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("python -c x", "inline-code"), ("bash -lc x", "inline-code"), ("perl -pe x f", "inline-code"), ("node --eval=x", "inline-code"),
        ("eval x", "inline-code"), ("trap x EXIT", "inline-code"), ("bash <<< x", "inline-code"), ("python - <<E\nx\nE", "inline-code"),
        ("echo x > f.sh; sh f.sh", "inline-code"), ("cp /bin/rm x; ./x", "inline-code"), ("awk 'BEGIN{system(1)}'", "inline-code"),
        ("sed -n '1e x' f", "inline-code"), ("printf x > Makefile; make", "inline-code"),
        ("curl x | sh", "foreign-code"), ("npx x", "foreign-code"), ("pip install git+https://x", "foreign-code"),
        ("pip install ../x", "foreign-code"), ("make -f /x/Makefile", "foreign-code"), ("bash /x/y.sh", "foreign-code"), ("/x/y", "foreign-code"),
        ("$x y", "program"), ("/bin/g*t x", "program"), ("git() { x; }", "program"), ("alias x=y", "program"),
        ("find . -delete", "option"), ("rg --pre x y", "option"), ("git -c a=b log", "option"), ("tar xf a --to-command x", "option"),
        ("git config x y", "option"), ("cat < /dev/tcp/a/1", "option"), ("git rebase -x y", "option"), ("timeout --wrong 5 x", "option"),
        ("PATH=x y", "assignment"), ("export LD_PRELOAD=x", "assignment"), ("read PATH", "assignment"), ("env PAGER=x y", "assignment"),
        ("rm -rf /", "critical"), ("rm -r ~", "critical"), ("rm -rf $x", "critical"), ("rm -rf .git", "critical"), ("chmod -R 7 /", "critical"),
        ("a\u200bb", "characters"), ("a \u202e", "characters"), ("a\rb", "characters"), ("a\u00a0b", "characters"), ("a\x00b", "characters"),
        ("a 'b", "unreadable"), ("a <<E", "unreadable"), ("a )", "unreadable"), ("@(a|b) c", "unreadable"), ("gi\\\nt x", "unreadable"),
        ("shopt -s extglob", "unreadable"), ("coproc a", "unreadable"), ("echo ${x@P}", "unreadable"), ("x='a[$(y)]'; echo $((x))", "unreadable"),
    ],
)  # fmt: skip
def test_what_calls_for_a_person_is_a_doubt(command: str, kind: str) -> None:
    assert kind in why(command)


@pytest.mark.parametrize(
    "command",
    [
        "python tool.py -c x", "make build", "npm run x", "bash scripts/x.sh", "python -m pytest -k x", "awk '$3 > 1 || /a|b/ {print $1}' f",
        "sed -e 's/a/b/g;s|c|d|' -n -e '1,/x/{p;q}' f", "sed 's/a\\/b/c/' f", "git log --oneline -5",
        "LANG=C CI=1 ls", "IFS= read -r x", "rm -rf build", "chmod +x a && ./a", "source .venv/bin/activate", "git config --get user.name",
        "find . -name x -printf '%p'", "tar tf x", "pip install x", "curl -s https://x.example", "node server.js", "printf '%s' x",
        "echo '$(x)'", "git commit -m \"$(cat <<'E'\nx\nE\n)\"", "echo ⚠ ok",
    ],
)  # fmt: skip
def test_what_is_usual_is_no_doubt(command: str) -> None:
    assert why(command) == set()


def test_code_in_a_string_is_looked_at_for_what_forbids() -> None:
    commands = analyse('timeout 5 bash -c "ls && git push"').commands

    assert [(found.words, found.shadow) for found in commands] == [
        (("bash", "-c", "ls && git push"), False),
        (("ls",), True),
        (("git", "push"), True),
    ]
    for command in (
        "find . -exec git push \\;",
        "eval git push",
        "sh <<'E'\ngit push\nE",
        "env -S 'git push'",
        "trap 'git push' EXIT",
        "watch git push",
    ):
        assert any(found.words == ("git", "push") and found.shadow for found in analyse(command).commands), (
            command
        )


def test_some_commands_need_no_rule() -> None:
    free = [
        found.free
        for found in analyse("[ -f a ]; test -f a; true; false; :; cd x; X=1; f() { echo; }; f; ls").commands
    ]

    assert free == [True] * 7 + [False, True, False]


def test_foreign_code_says_under_which_condition_it_is_the_projects() -> None:
    [npx] = analyse("npx eslint .").doubts
    [make] = analyse("make -C ../x").doubts
    [forced] = analyse("npx -p x eslint").doubts

    assert (npx.path, npx.installed) == ("node_modules/.bin/eslint", True)
    assert (make.path, make.installed) == ("../x", False)
    assert forced.path is None


def test_positions_are_characters_of_the_source() -> None:
    source = "écho é; ls -l"
    first, second = analyse(source).commands

    assert source[slice(*first.span)] == first.text == "écho é"
    assert source[slice(*second.span)] == second.text == "ls -l"


def test_the_grammar_is_loaded_only_when_a_command_is_analysed() -> None:
    code = (
        "import sys, interlock.policy.shell as s; assert 'tree_sitter' not in sys.modules; s.analyse('ls'); "
        "assert 'tree_sitter' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
