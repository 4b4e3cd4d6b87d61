"""Laws of rules, whatever they are and whatever is called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.policy.rules.action import Action
from interlock.policy.rules.ruling import Ruling
from policy.rules.written import rules

RANK = {"allow": 0, None: 1, "ask": 2, "deny": 3}

TEXTS = [
    "Bash", "Bash(*)", "Bash(git:*)", "Bash(git log:*)", "Bash(git push:*)", "Bash(ls:*)", "Bash(cat *)", "Bash(echo hi)",
    "Bash(rm:*)", "Bash(python:*)", "Bash(npm run *)", "Bash(timeout:5)", "bash(ls)", "bash",
    "Read", "Read(**)", "Read(.env)", "Read(src/**)", "Read(secret/)", "Read(//etc/**)", "Read(~/.ssh/**)", "Read(/docs/*)", "read(a)",
    "Edit", "Edit(src/**)", "Edit(out/*)", "Edit(.git/**)", "Edit(//tmp/**)", "Edit(*.lock)", "Write(x)", "Write", "write(x)", "Glob(x)",
    "WebFetch", "WebFetch(domain:*.a.org)", "WebFetch(domain:a.org)", "mcp__a", "mcp__a__*", "mcp__*", "mcp__a__b", "*", "B*",
    "pay", "deploy(env:prod)", "deploy", "Agent(Explore)", "Agent",
]  # fmt: skip
lines = st.builds("{} {}".format, st.sampled_from(["allow", "allow", "ask", "deny"]), st.sampled_from(TEXTS))
lists = st.lists(lines, max_size=7)

SIMPLE = [
    "ls", "ls -la", "cat .env", "cat src/a.py", "git log", "git push", "git -C x push", "echo hi", "rm -rf src", "true", "[ -f a ]",
    "echo x > out/y", "echo x > .git/config", "cat < .env", "python -c 'print(1)'", "npm run build", "curl https://a.org/x",
    "cat $F", "X=1 ls", "PATH=. ls", "cd src", "cd /tmp", "sed -i s/a/b/ src/a", "timeout 5 ls", "sh -c 'git push'", "cat sr*",
    "tar cf - .", "$CMD", "eval x", "tee out/z", "cp .env src/b", "find . -delete", "sudo rm x", "unknown --flag",
]  # fmt: skip
commands = st.sampled_from(SIMPLE)
joined = st.sampled_from([" && ", " || ", "; ", " | ", "\n", " & "])

calls = st.one_of(
    st.tuples(st.just("bash"), commands | st.builds("{}{}{}".format, commands, joined, commands)),
    st.tuples(st.sampled_from(["read", "edit", "write", "grep", "glob"]),
              st.sampled_from(["a", "src/a.py", ".env", "src/.env", "secret/k", "/etc/passwd", "~/.ssh/id", ".git/config",
                               "docs/x", "out/../src/a.py", "/tmp/x", "x.lock", "a\u200bb"])),
    st.tuples(st.just("WebFetch"), st.sampled_from(["https://a.org/", "https://b.a.org/x", "http://evil.org", "nonsense"])),
    st.tuples(st.sampled_from(["pay", "mcp__a__b", "mcp__b__c"]), st.just({})),
    st.tuples(st.just("deploy"), st.fixed_dictionaries({"env": st.sampled_from(["prod", "test"])})),
    st.tuples(st.just("Agent"), st.fixed_dictionaries({"subagent_type": st.sampled_from(["Explore", "Plan"])})),
)  # fmt: skip


@pytest.fixture(scope="module")
def cwd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    for name in ("src", "docs", "out", "secret", "x"):
        (folder / name).mkdir()
    (folder / "src" / "link").symlink_to("../secret")
    return folder


def decide(cwd: Path, written: Sequence[str], tool: str, subject: object) -> Ruling:
    assert isinstance(subject, (str, dict))
    return rules(cwd, *written).decide(Action.named(tool, subject, cwd))


law = settings(
    deadline=None, max_examples=examples(250), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@law
@given(lists, calls, st.sampled_from(["ask", "deny"]), st.sampled_from(TEXTS), st.data())
def test_one_more_rule_that_forbids_or_asks_never_loosens(
    cwd: Path, written: list[str], call: tuple[str, object], effect: str, text: str, data: st.DataObject
) -> None:
    before = decide(cwd, written, *call)
    more = list(written)
    more.insert(data.draw(st.integers(0, len(written)), label="place"), f"{effect} {text}")
    after = decide(cwd, more, *call)
    assert RANK[after.effect] >= RANK[before.effect], (before.reason, after.reason)


@law
@given(lists, calls, st.sampled_from(TEXTS), st.data())
def test_one_more_rule_that_allows_never_loosens_what_a_rule_denies_or_asks_about(
    cwd: Path, written: list[str], call: tuple[str, object], text: str, data: st.DataObject
) -> None:
    before = decide(cwd, written, *call)
    more = list(written)
    more.insert(data.draw(st.integers(0, len(written)), label="place"), f"allow {text}")
    after = decide(cwd, more, *call)
    if before.effect in ("ask", "deny") and not before.cautious:
        assert (after.effect, after.rule and after.rule.text) == (
            before.effect,
            before.rule and before.rule.text,
        )
    elif before.cautious:
        # A rule about commands may take away a doubt that was there for want of it, and no other rule may.
        assert after.cautious or (after.effect == "allow" and text.startswith(("Bash", "bash")))


@law
@given(lists, calls, st.randoms())
def test_the_order_of_rules_decides_nothing(
    cwd: Path, written: list[str], call: tuple[str, object], random: object
) -> None:
    shuffled = list(written)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # Hypothesis gives a random.Random
    before, after = decide(cwd, written, *call), decide(cwd, shuffled, *call)
    assert (before.effect, before.cautious) == (after.effect, after.cautious)
    assert sorted(rule.text for rule in before.matched) == sorted(rule.text for rule in after.matched)


@law
@given(lists, calls)
def test_a_ruling_holds_together(cwd: Path, written: list[str], call: tuple[str, object]) -> None:
    """A rule that decides has the effect, comes first among those that matched, and decides some part; everything that
    matched is one of the rules; each verdict has a reason."""
    made = decide(cwd, written, *call)
    every = rules(cwd, *written).rules
    assert made.reason
    assert set(made.matched) <= set(every)
    strictest = min((rule.effect for rule in made.matched), key=["deny", "ask", "allow"].index, default=None)
    if made.rule is not None:
        assert made.rule.effect == made.effect == strictest
        assert made.matched[0] == made.rule
        assert any(part.rule == made.rule for part in made.parts)
        first = next(rule for rule in every if rule in made.matched and rule.effect == made.effect)
        assert made.rule == first
    if strictest == "deny":
        assert made.effect == "deny"
    for part in made.parts:
        assert part.why or part.effect is None
        if part.effect == "deny":
            assert made.effect == "deny"


@law
@given(lists, st.lists(commands, min_size=2, max_size=4), st.data())
def test_a_compound_command_is_never_treated_more_loosely_than_any_of_its_parts(
    cwd: Path, written: list[str], several: list[str], data: st.DataObject
) -> None:
    whole = several[0]
    for one in several[1:]:
        whole += data.draw(joined, label="between") + one
    strictest = max(RANK[decide(cwd, written, "bash", one).effect] for one in several)
    said = decide(cwd, written, "bash", whole)
    assert RANK[said.effect] >= strictest, (whole, said.reason)


@law
@given(
    lists,
    commands,
    st.sampled_from(["({})", "{{ {}; }}", "if true; then {}; fi", "echo $({})", "! {}", "cat <({})"]),
)
def test_what_a_command_is_wrapped_in_loosens_nothing(
    cwd: Path, written: list[str], command: str, around: str
) -> None:
    inner, outer = (decide(cwd, written, "bash", text) for text in (command, around.format(command)))
    assert RANK[outer.effect] >= RANK[inner.effect], outer.reason


@law
@given(lists, calls)
def test_with_no_rule_but_allow_nothing_is_denied(
    cwd: Path, written: list[str], call: tuple[str, object]
) -> None:
    allowing = [line for line in written if line.startswith("allow")]
    assert decide(cwd, allowing, *call).effect != "deny"


@law
@given(lists, calls)
def test_what_is_hidden_is_denied_however_it_is_called(
    cwd: Path, written: list[str], call: tuple[str, object]
) -> None:
    tool, subject = call
    if rules(cwd, *written).hidden(tool) is not None:
        assert decide(cwd, written, tool, subject).effect == "deny"
