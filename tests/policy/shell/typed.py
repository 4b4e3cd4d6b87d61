"""Commands as tests write them, and the ways in which the same command may be written.

Lives here: `decide` (what a set of rules says of a command), `seen` (the words of each command that analysis finds), and
Hypothesis strategies for spellings.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from interlock.policy.corpus import Answer, RuleLists
from interlock.policy.rules.action import Action
from interlock.policy.rules.rule import Effect, Rule
from interlock.policy.rules.ruleset import RuleSet
from interlock.policy.shell import analyse

WORKSPACE = Path("/work/project")
HOME = Path("/home/me")
_EFFECTS: tuple[Effect, ...] = ("allow", "ask", "deny")


@cache
def rules(lists: RuleLists) -> RuleSet:
    made = [
        Rule.parse(effect, text, anchor=WORKSPACE, home=HOME)
        for effect in _EFFECTS
        for text in getattr(lists, effect)
    ]
    return RuleSet(made, home=HOME)


def decide(lists: RuleLists, command: str) -> Answer:
    return rules(lists).decide(Action.named("Bash", command, WORKSPACE)).effect


def under(command: str, *, allow: tuple[str, ...] = ("Bash",), deny: tuple[str, ...] = ()) -> Answer:
    """What these rules say of a command; everything is allowed unless said otherwise."""
    return decide(RuleLists(allow=allow, deny=deny), command)


def seen(command: str) -> list[tuple[str, ...]]:
    """The words of each simple command, in the order in which they are found."""
    return [found.words for found in analyse(command).commands]


def why(command: str) -> set[str]:
    """The kinds of all doubts about a command."""
    return {doubt.kind for doubt in analyse(command).doubts}


# Spellings


@st.composite
def spelled(draw: st.DrawFn, word: str) -> str:
    """A word, some of its characters quoted or escaped: the shell gives the program the same."""
    made: list[str] = []
    for character in word:
        plain = character.isalnum() or character in "-_./"
        ways = [
            f"'{character}'",
            f'"{character}"',
            f"\\{character}",
            f"$'\\x{ord(character):02x}'",
            f"$'{character}'",
        ]
        if plain:
            ways += [character] * 4 + [f"{character}''", f'""{character}']
        made.append(draw(st.sampled_from(ways)))
    return "".join(made)


FOLDERS = st.sampled_from(
    ["", "", "/usr/bin/", "/bin/", "/usr/local/bin/", "../../usr/bin/", "/usr/bin/../bin/"]
)
WRAPPERS = st.sampled_from(
    [
        "env", "env -i", "env A=1", "env -u HOME --", "timeout 5", "timeout -k 1 5s", "nice", "nice -n 3", "nohup", "command",
        "command -p", "stdbuf -oL", "time -p", "exec", "sudo", "sudo -u root", "doas", "setsid -w", "ionice -c3", "xargs",
        "xargs -n1", "/usr/bin/env", "A=1", "LANG=C B=2", "A='x y'", "flock /tmp/lock", "strace -f", "unshare",
    ]
)  # fmt: skip
AROUND = st.sampled_from(
    [
        "{}", "( {} )", "({})", "{{ {}; }}", "if true; then {}; fi", "if {}; then :; fi", "while {}; do break; done",
        "for i in 1; do {}; done", "case x in x) {};; esac", "echo $( {} )", 'echo "$({})"', "x=$({})", "cat <({})",
        "f() {{ {}; }}; f", "! {}", "true && {}", "false || {}", "ls; {}", "ls | {}", "{} | cat", "{} &", "ls\n{}\nls",
        "cat <<E\n$({})\nE", "[[ -n $({}) ]]", "echo $((1 + $({})))", "echo ${{x:-$({})}}", "time {}", "{} > /dev/null 2>&1",
        "# a comment\n{}", "until {}; do break; done", "select i in a; do {}; done", "ls &\n{}",
    ]
)  # fmt: skip
