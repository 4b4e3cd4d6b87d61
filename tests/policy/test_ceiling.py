"""The ceiling: what holds over everything that is said below it, and that nothing below loosens it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Agent, Allow, ConfigError, Harness, Preset, ToolCall, tool
from interlock.log.facts import PolicyChanged, ToolResulted
from interlock.policy.ceiling import VARIABLE, Ceiling, ceiling_of, read_ceiling
from interlock.policy.judging import judge
from interlock.policy.policy import Policy, rules_given
from interlock.policy.preset import MODES, PRESETS
from interlock.policy.rules.action import Action
from interlock.policy.rules.rule import EFFECTS
from interlock.policy.rules.ruleset import RuleSet
from interlock.testing import ScriptedModel, assert_laws, calls, outline, says
from interlock.tools.definition import Effect
from interlock.tools.subject import Subject

ROOT = Path("/usr")  # a folder that is there


@tool(effect="read", subject=Subject("read", "path"))
async def look(path: str) -> str:
    return f"seen {path}"


@tool(subject=Subject("edit", "path"))
async def change(path: str) -> str:
    return f"changed {path}"


def ceiling(deny: Sequence[str] = (), ask: Sequence[str] = (), **limits: object) -> Ceiling:
    return Ceiling(rules=rules_given({"deny": deny, "ask": ask}, ROOT), **limits)  # type: ignore[arg-type]


async def called(harness: Harness, name: str, path: str, **settings: object) -> list[str]:
    """What became of one call under this harness."""
    model = ScriptedModel(calls(name, path=path), says("done"))
    async with harness, harness.agent(model, tools=[look, change], **settings) as agent:
        await agent.run("go")
        assert_laws(agent.session)
        return outline(agent.session, "tool/result")


# What is said of calls

PATHS = ["a.txt", "src/b.py", ".env", "secrets/key", ".git/config"]
RULES = [
    "Edit",
    "Read",
    "Edit(src/**)",
    "Read(.env)",
    "Edit(secrets/**)",
    "change",
    "look",
    "*",
    "Edit(.git/**)",
]
rules = st.lists(st.tuples(st.sampled_from(EFFECTS), st.sampled_from(RULES)), max_size=5)
forced = st.lists(st.tuples(st.sampled_from(EFFECTS[1:]), st.sampled_from(RULES)), max_size=3)
actions = st.builds(
    lambda edits, path: Action(
        "change" if edits else "look",
        {"path": path},
        "edit" if edits else "read",
        path,
        ROOT,
        not edits,
        "path",
    ),
    st.booleans(),
    st.sampled_from(PATHS),
)


def rule_set(given: Sequence[tuple[str, str]]) -> RuleSet:
    by_effect: dict[str, list[str]] = {}
    for effect, text in given:
        if not (effect == "allow" and text == "*"):  # an allow rule that leaves the tool open is no rule
            by_effect.setdefault(effect, []).append(text)
    return rules_given(by_effect, ROOT)  # type: ignore[arg-type]


@given(
    forced,
    rules,
    st.sampled_from(sorted(PRESETS)),
    actions,
    st.sampled_from([None, ("plan",), ("plan", "full")]),
)
def test_what_is_allowed_below_a_ceiling_is_allowed_by_the_ceiling_alone(
    above: list[tuple[str, str]],
    below: list[tuple[str, str]],
    preset: str,
    action: Action,
    presets: tuple[str, ...] | None,
) -> None:
    top = Ceiling(presets, rules=rule_set(above))
    try:
        policy = Policy(rule_set(below), top, preset=preset)
    except ConfigError:
        assert presets is not None and preset not in presets
        return
    if judge(action, policy).verdict == "allow":
        assert top.verdict(action, Effect.READ if action.harmless else Effect.WRITE) is None


@given(forced, forced, actions)
def test_of_two_ceilings_both_hold(
    one: list[tuple[str, str]], other: list[tuple[str, str]], action: Action
) -> None:
    first, second = Ceiling(rules=rule_set(one)), Ceiling(rules=rule_set(other))
    both = first.and_(second).verdict(action, Effect.WRITE)
    alone = [
        said for said in (first.verdict(action, Effect.WRITE), second.verdict(action, Effect.WRITE)) if said
    ]
    assert (both is None) == (not alone)
    assert {type(both)} <= {type(said) for said in alone} | {type(None)}


@pytest.mark.virtual
async def test_its_denial_is_heard_whatever_a_rule_a_listener_and_a_preset_allow() -> None:
    harness = Harness(ceiling=ceiling(deny=["Edit(secrets/**)"]), rules={"allow": ["Edit"]})
    harness.on.pre_execute(lambda call: Allow())
    assert await called(harness, "change", "secrets/key", cwd=ROOT, preset="full") == [
        "tool/result #c1 error DENIED the edit `secrets/key` is denied by Edit(secrets/**) (ceiling)"
    ]


@pytest.mark.virtual
async def test_a_question_that_it_forces_leaves_a_stricter_preset_in_force() -> None:
    """It holds back what is looser, and never turns a no into a question."""
    harness = Harness(ceiling=ceiling(ask=["Edit"]))
    assert await called(harness, "change", "a.txt", cwd=ROOT, preset="plan") == [
        "tool/result #c1 error DENIED preset plan: only tools that read may run; describe what you would do instead"
    ]
    for preset, verdict in (("plan", "deny"), ("ask", "ask"), ("full", "ask")):
        judged = judge(
            Action.named("edit", "a.txt", ROOT), Policy(ceiling=ceiling(ask=["Edit"]), preset=preset)
        )
        assert judged.verdict == verdict


@pytest.mark.virtual
async def test_its_denial_guards_what_the_rules_were_not_shown() -> None:
    """What nobody below may loosen is asked once more, right before the body."""
    harness = Harness(ceiling=ceiling(deny=["change"]))

    class Blind:
        def rule(self, call: ToolCall) -> None:
            return None

    agent = harness.agent(ScriptedModel(calls("change", path="a"), says("done")), tools=[look, change])
    agent.rule = Blind().rule  # type: ignore[method-assign,assignment]  # as if the rules had been taken away
    async with harness, agent:
        await agent.run("go")
        (result,) = agent.session.facts(ToolResulted)
    assert result.error is not None and result.error.code == "GUARD_DENIED"


@pytest.mark.virtual
async def test_where_only_plan_may_be_chosen_no_rule_lets_anything_be_changed() -> None:
    harness = Harness(ceiling=Ceiling(presets=("plan",)), rules={"allow": ["Edit", "change"]})
    (line,) = await called(harness, "change", "a.txt", preset="plan")
    assert line.startswith("tool/result #c1 error DENIED")
    harness = Harness(ceiling=Ceiling(presets=("plan",)))
    assert await called(harness, "look", "a.txt", preset="plan") == ["tool/result #c1 seen a.txt"]


# What may be chosen


def test_a_preset_that_is_not_permitted_stops_the_start() -> None:
    harness = Harness(ceiling=Ceiling(presets=("plan", "ask"), files=("/etc/interlock/policy.toml",)))
    with pytest.raises(
        ConfigError, match=r"the ceiling /etc/interlock/policy.toml does not permit the preset 'full'"
    ):
        harness.agent(ScriptedModel(), preset="full")
    with pytest.raises(ConfigError, match="does not permit no preset at all: choose one of plan, ask"):
        harness.agent(ScriptedModel())


def test_a_preset_of_ones_own_has_to_be_as_strict_as_a_permitted_one() -> None:
    harness = Harness(ceiling=Ceiling(presets=("plan", "ask")))
    assert harness.agent(ScriptedModel(), preset=Preset("careful", "ask")).preset is not None

    class Loose(Preset):
        """What it answers cannot be known from its knobs."""

    for loose in (Preset("mine", "allow"), Preset("ask", "allow"), Loose("careful", "ask")):
        with pytest.raises(ConfigError, match="does not permit"):
            harness.agent(ScriptedModel(), preset=loose)


def test_the_sandbox_is_made_as_strict_as_it_has_to_be_unless_somebody_chose_it() -> None:
    harness = Harness(ceiling=Ceiling(sandbox=("read-only", "workspace-write")))
    assert harness.agent(ScriptedModel(), preset="full").policy.sandbox == "workspace-write"
    assert harness.agent(ScriptedModel(), preset="plan").policy.sandbox == "read-only"
    with pytest.raises(ConfigError, match="does not permit the sandbox mode 'full'"):
        harness.agent(ScriptedModel(), preset="full", sandbox="full")
    with pytest.raises(ConfigError, match="does not permit the sandbox mode 'read-only': choose one of full"):
        Harness(ceiling=Ceiling(sandbox=("full",))).agent(ScriptedModel(), preset="plan")


@pytest.mark.virtual
async def test_a_preset_is_changed_in_a_session_within_the_ceiling_and_on_record() -> None:
    harness = Harness(ceiling=Ceiling(presets=("plan", "ask")))
    async with harness, harness.agent(ScriptedModel(), preset="ask") as agent:
        agent.set_preset("plan", by="ada")
        with pytest.raises(ConfigError, match="does not permit the preset 'full'"):
            agent.set_preset("full")
        assert agent.preset == PRESETS["plan"]
        said = [(fact.preset, fact.sandbox, fact.by) for fact in agent.session.facts(PolicyChanged)]
    assert said == [("ask", "full", "agent"), ("plan", "read-only", "ada")]


@pytest.mark.virtual
async def test_its_budget_is_the_greatest() -> None:
    model = ScriptedModel(*[calls("look", path="a")] * 5)
    harness = Harness(ceiling=Ceiling(limits={"steps": 2}))
    async with harness, harness.agent(model, tools=[look]) as agent:
        result = await agent.run("go")
    assert (result.steps, str(type(result.reason).__name__)) == (2, "OverBudget")


# Its files


def written(folder: Path, text: str, name: str = "policy.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_ceiling_is_read_from_its_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'presets = ["plan", "ask"]\nsandbox = ["workspace-write", "read-only"]\nhooks = ["user"]\n'
        '[permissions]\ndeny = ["Bash(git push:*)"]\nask = ["WebFetch"]\n[budget]\nsteps = 20\nwall = 1.5\n',
    )
    made = read_ceiling(path)
    assert (made.presets, made.sandbox, made.hooks) == (
        ("plan", "ask"), ("read-only", "workspace-write"), ("user",),
    )  # fmt: skip
    assert made.limits == {"steps": 20, "wall": 1.5}
    assert [(rule.effect, rule.text, rule.line, rule.origin) for rule in made.rules.rules] == [
        ("deny", "Bash(git push:*)", 5, "ceiling"),
        ("ask", "WebFetch", 6, "ceiling"),
    ]
    assert made.files == (str(path),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("presets = [", "not valid TOML"),
        ('preset = ["ask"]', "a ceiling has no 'preset'"),
        ('presets = ["yolo"]', "presets is a list of some of plan, ask"),
        ('presets = "ask"', "presets is a list"),
        ('sandbox = ["none"]', "sandbox is a list of some of read-only"),
        ('hooks = ["everywhere"]', "hooks is a list of some of user"),
        ('[permissions]\nallow = ["Bash"]', ":2: a ceiling allows nothing"),
        ('[permissions]\ndeny = ["Bash("]', ":2: 'Bash(' is not a rule"),
        ("budget = 3", "[budget] holds numbers"),
        ("[budget]\nmoney = 3", "[budget] has no 'money'"),
        ("[budget]\nsteps = -1", "steps is a whole number from 0"),
        ("[budget]\nsteps = 1.5", "steps is a whole number from 0"),
        ("[budget]\nsteps = true", "steps is a whole number from 0"),
        ("[budget]\nwall = 0", "wall is a number of seconds above 0"),
    ],
)
def test_a_ceiling_that_is_wrong_stops_the_start_and_says_where(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        Harness(ceiling=path)
    assert str(caught.value).startswith(str(path)) and problem in str(caught.value)


def test_a_ceiling_that_is_named_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="nothing starts without it"):
        Harness(ceiling=tmp_path / "gone.toml")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone.toml"))
    with pytest.raises(ConfigError, match="nothing starts without it"):
        Agent(ScriptedModel())
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(ConfigError):
        Agent(ScriptedModel())


def test_a_ceiling_that_may_be_there_and_cannot_be_looked_for_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "etc").symlink_to("etc")
    with pytest.raises(ConfigError, match="cannot be read"):
        ceiling_of(system=tmp_path / "etc" / "policy.toml")
    assert ceiling_of(system=tmp_path / "nothing" / "policy.toml").files == ()


def test_all_of_them_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's, the one of the environment and the given one: none replaces another."""
    system = written(tmp_path, 'presets = ["plan", "ask"]\n[budget]\nsteps = 5\ntokens = 9', "system.toml")
    named = written(tmp_path, 'presets = ["ask", "full"]\n[budget]\nsteps = 7', "named.toml")
    monkeypatch.setenv(VARIABLE, str(named))
    made = ceiling_of(Ceiling(sandbox=("full",), limits={"tokens": 3}), system=system)
    assert (made.presets, made.sandbox, made.limits) == (("ask",), ("full",), {"steps": 5, "tokens": 3})
    assert made.files == (str(system), str(named))
    assert ceiling_of(system=tmp_path / "none.toml").presets == ("ask", "full")


def test_modes_and_presets_are_ordered_from_the_strictest() -> None:
    assert MODES == ("read-only", "workspace-write", "full")
