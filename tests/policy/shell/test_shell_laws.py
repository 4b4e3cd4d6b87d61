"""Laws: however a denied command is written, it is not allowed; and what bash itself refuses is never understood."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.policy.corpus import RuleLists, evasions
from interlock.policy.shell import analyse, command_matcher
from policy.shell.typed import AROUND, FOLDERS, WRAPPERS, decide, spelled, under

DENIED = [
    ("git", "push"), ("git", "push", "origin", "main"), ("git", "reset", "--hard"), ("rm", "-rf", "build"), ("curl", "-s", "x.example"),
    ("npm", "publish"), ("docker", "rm", "web"), ("kubectl", "delete", "pod", "x"), ("terraform", "destroy"),
]  # fmt: skip
RULES = RuleLists(
    allow=("Bash",),
    deny=(
        "Bash(git push:*)", "Bash(git reset --hard:*)", "Bash(rm -rf:*)", "Bash(curl:*)", "Bash(npm publish:*)",
        "Bash(docker rm:*)", "Bash(kubectl delete:*)", "Bash(terraform destroy:*)",
    ),
)  # fmt: skip

denied = st.sampled_from(DENIED)
EVASIONS = [command for _, command in evasions()]
quiet = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quiet
@given(denied, st.data())
def test_quoting_and_escaping_any_character_never_loosens(
    words: tuple[str, ...], data: st.DataObject
) -> None:
    command = " ".join(data.draw(spelled(word)) for word in words)

    assert decide(RULES, command) == "deny", command


@quiet
@given(denied, FOLDERS, st.lists(WRAPPERS, max_size=3))
def test_folders_wrappers_and_assignments_never_loosen(
    words: tuple[str, ...], folder: str, wrappers: list[str]
) -> None:
    command = " ".join([*wrappers, folder + words[0], *words[1:]])

    assert decide(RULES, command) in ("deny", "ask"), command


@quiet
@given(denied, st.lists(AROUND, min_size=1, max_size=3))
def test_putting_it_inside_something_never_loosens(words: tuple[str, ...], around: list[str]) -> None:
    command = " ".join(words)
    for frame in around:
        command = frame.format(command)

    assert decide(RULES, command) in ("deny", "ask"), command


@quiet
@given(denied, st.data())
def test_a_continued_line_never_loosens(words: tuple[str, ...], data: st.DataObject) -> None:
    command = " ".join(words)
    at = data.draw(st.integers(0, len(command)))
    command = f"{command[:at]}\\\n{command[at:]}"

    assert decide(RULES, command) in ("deny", "ask"), command


@quiet
@given(denied, st.data())
def test_blanks_and_case_never_loosen(words: tuple[str, ...], data: st.DataObject) -> None:
    spelled_ = [
        word if word.startswith("-") else data.draw(st.sampled_from([word, word.upper(), word.title()]))
        for word in words
    ]
    command = data.draw(st.sampled_from([" ", "  ", "\t", " \\\n "])).join(spelled_)

    assert decide(RULES, command) == "deny", command


@quiet
@given(
    denied,
    st.lists(st.sampled_from(["-v", "-q", "--verbose", "-x", "--dry-run", "--color=always"]), max_size=3),
    st.data(),
)
def test_more_options_anywhere_never_loosen(
    words: tuple[str, ...], more: list[str], data: st.DataObject
) -> None:
    made = list(words)
    for option in more:
        made.insert(data.draw(st.integers(1, len(made))), option)

    assert decide(RULES, " ".join(made)) in ("deny", "ask"), made


PARTS = [
    "ls",
    "git status",
    "echo hi > /tmp/x",
    "cd src",
    "unused=1",
    "(cd a; ls)",
    "for i in 1 2; do echo $i; done",
    "cat <<E\nfoo\nE",
    ": # nothing",
]
STRICTNESS = {"allow": 0, None: 1, "ask": 2, "deny": 3}


@quiet
@given(
    st.sampled_from(PARTS + [" ".join(words) for words in DENIED]),
    st.sampled_from(PARTS),
    st.booleans(),
    st.sampled_from(["\n", "; ", " && "]),
)
def test_adding_a_part_never_loosens(command: str, more: str, before: bool, joint: str) -> None:
    if joint != "\n" and ("\n" in command or "\n" in more or "#" in command or "#" in more):
        joint = "\n"
    together = f"{more}{joint}{command}" if before else f"{command}{joint}{more}"

    for lists in (RULES, RuleLists(allow=("Bash(ls:*)", "Bash(git status)"), deny=("Bash(git push:*)",))):
        assert STRICTNESS[decide(lists, together)] >= STRICTNESS[decide(lists, command)], together


@quiet
@given(st.sampled_from(EVASIONS), st.sampled_from(PARTS))
def test_an_evasion_stays_one_beside_something_harmless(command: str, part: str) -> None:
    assert decide(evasions().rules, f"{part}\n{command}") in ("deny", "ask")


TRICKY = [
    "git", "rm", " ", "\n", "\\\n", "\\", ";", "&&", "||", "|", "&", "|&", "(", ")", "{ ", "; }", "$(", "`", '"', "'", "$'", '$"',
    "#", " # x\n", "<<A\n", "\nA\n", "<<'A'\n", "<<-A\n", "<<<", ">f", "2>&1", "<(", ">(", "x=1", "$x", "${x}", "${x:-", "}", "$((",
    "))", "((", "[[ ", " ]]", "if ", "then ", "fi", "else ", "while ", "do ", "done", "for x in ", "case x in ", "esac", ";;", "a)",
    "f() ", "function f ", "! ", "time ", "{a,b}", "*", "[ab]", "~", "\\x41", "=", "--", "-C", "push", "'a b'", "$", "$1", '"$@"',
    "é", "a=(", "x[0]=1", "env ", "in ", "0>", "&>f", "coproc ", "+(", "${#x}", "$[", "\t", "true",
]  # fmt: skip
soup = st.lists(st.sampled_from(TRICKY), min_size=1, max_size=10).map("".join)


@settings(deadline=None, max_examples=examples(300))
@given(soup)
def test_what_bash_refuses_is_not_understood(command: str) -> None:
    if analyse(command).unknown:
        return
    checked = subprocess.run(
        ["bash", "-n"], input=command.encode(), capture_output=True, timeout=20, check=False
    )
    assert checked.returncode == 0 and not checked.stderr, (command, checked.stderr)


@quiet
@given(st.text(max_size=40) | soup | st.text(alphabet="$(){}[]'\"`\\<>|&;# \n", max_size=30))
def test_anything_at_all_gets_an_answer(command: str) -> None:
    analysis = analyse(command)

    assert analysis.unknown or all(found.views for found in analysis.commands)
    for pattern in ("git push:*", "*", "rm -rf *", "git * main"):
        for found in analysis.commands:
            matcher = command_matcher(pattern)
            assert not matcher.catches(found) or matcher.may_catch(found)


@quiet
@given(denied, st.lists(st.sampled_from(["x", "-v", "origin", "a b"]), max_size=2))
def test_an_allowed_command_is_one_that_a_rule_of_the_same_words_would_catch(
    words: tuple[str, ...], more: list[str]
) -> None:
    """What forbids is at least as wide as what allows."""
    pattern = command_matcher(" ".join(words) + ":*")
    [found] = analyse(" ".join([*words, *(f"'{word}'" for word in more)])).commands

    assert pattern.allows(found) and pattern.catches(found)


def test_longer_than_ten_thousand_characters_is_a_doubt_whatever_it_is() -> None:
    assert under("echo " + "a" * 9_000) == "allow"
    assert under("echo " + "a" * 10_000) == "ask"
    assert analyse("git push " + "a" * 10_000).commands == ()


def test_deep_nesting_is_a_doubt_not_a_crash() -> None:
    for opening, closing in (
        ("$(", ")"),
        ("( ", " )"),
        ('"$(', ')"'),
        ("${x:-", "}"),
        ("$((1+", "))"),
        ("{ ", "; }"),
    ):
        command = opening * 300 + "ls" + closing * 300
        assert analyse(command).unknown, command


@pytest.mark.slow
def test_no_character_ends_the_process() -> None:
    """The scanner of the grammar reads beyond its tables where a character is none of the first 256."""
    code = (
        "from interlock.policy.shell import analyse\n"
        "for point in range(0x10FFFF, 0x10000, -1001):\n"
        "    for form in ('{}', 'a{{{}', '${}', 'x[{}', 'a&b{}'):\n"
        "        analyse(form.format(chr(point)))\n"
    )
    for _ in range(3):  # where the tables lie is another place each time
        assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@given(st.text(alphabet="é😀日\u3000İa", min_size=1, max_size=6))
def test_a_letter_of_any_script_is_a_letter_of_a_word(word: str) -> None:
    analysis = analyse(f"echo {word} | grep 日本; ls é/*")
    assert [found.program for found in analysis.commands] == ["echo", "grep", "ls"]
    assert not [doubt for doubt in analysis.unknown if doubt.kind == "unreadable"]
