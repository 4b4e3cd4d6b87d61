"""Adding a participant never loosens a decision, whatever it is, whatever it says and wherever it is put.

The law is tried over the real pipeline. How strict a decision was is what happened: the body ran without a question,
it ran after a person had said yes, or it did not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock import (
    Advise,
    Agent,
    Allow,
    Approved,
    Ask,
    Deny,
    Harness,
    HookResult,
    Refuse,
    ToolError,
    tool,
    tool_error,
)
from interlock.log.facts import ApprovalAsked
from interlock.loop.harness import Layer
from interlock.policy.ceiling import Ceiling
from interlock.policy.policy import rules_given
from interlock.testing import ScriptedModel, assert_laws, calls, run_virtual, says

RAN, ASKED, NOT_RUN = 0, 1, 2
STRICT = {"allow": RAN, "ask": ASKED, "deny": NOT_RUN}
VERDICTS = {"allow": Allow(), "ask": Ask("sure?"), "deny": Deny("no")}
BREAKS = ("raises", "nonsense")  # whoever does not answer as it should says no

#: Each kind of participant, and what it can say.
SAYS: dict[str, tuple[str, ...]] = {
    "rule": ("allow", "ask", "deny"),
    "ceiling": ("ask", "deny"),
    "listener": ("nothing", "allow", "ask", "deny", *BREAKS),
    "guard": ("nothing", "deny", *BREAKS),
    "adviser": ("nothing", "allow", "ask", "deny", "refuse", *BREAKS),
    "hook": ("nothing", "allow", "ask", "deny", "block", *BREAKS),
    "wrapper": ("nothing", *BREAKS),
    "reviewer": ("nothing",),
}
PRESETS: dict[str | None, int] = {
    None: RAN,
    "full": RAN,
    "accept-edits": ASKED,
    "ask": ASKED,
    "plan": NOT_RUN,
}


class Participant(NamedTuple):
    kind: str
    says: str
    layer: Literal["harness", "preset", "agent"]

    @property
    def speaks(self) -> int | None:
        """How strict its own word is, if it is one that takes the default's place: a rule's or a listener's."""
        return STRICT.get(self.says) if self.kind in ("rule", "listener") else None

    @property
    def holds(self) -> int:
        """What it holds back: advice and the ceiling never take the place of a stricter default."""
        return STRICT.get(self.says, RAN) if self.kind in ("adviser", "hook", "ceiling") else RAN

    @property
    def forbids(self) -> bool:
        """Whether its no is final, whatever anybody says."""
        return self.says in (*BREAKS, "refuse", "block") or (self.kind == "guard" and self.says == "deny")


participants = st.sampled_from([(kind, says) for kind, many in SAYS.items() for says in many]).flatmap(
    lambda one: st.sampled_from(["harness", "preset", "agent"]).map(lambda layer: Participant(*one, layer))  # type: ignore[arg-type]
)
groups = st.lists(participants, max_size=5)
presets = st.sampled_from(list(PRESETS))


def expected(group: Sequence[Participant], preset: str | None) -> int:
    """What the rules of folding say: deny > ask > allow > the preset's default; advice only holds back."""
    if any(one.forbids for one in group):
        return NOT_RUN
    spoken = [one.speaks for one in group if one.speaks is not None] or [PRESETS[preset]]
    return max([*spoken, *[one.holds for one in group]])


def put(layer: Layer, one: Participant) -> None:
    """Register it."""
    if one.says == "raises":
        answer: Any = _raises
    elif one.says == "nonsense":
        answer = lambda *_: "yes"  # noqa: E731
    else:
        answer = None
    match one.kind:
        case "listener":
            layer.on.pre_execute(answer or (lambda call: VERDICTS.get(one.says)))
        case "guard":
            layer.guard(answer or (lambda call: VERDICTS.get(one.says)))
        case "adviser":
            layer.on.prepare(answer or (lambda call: _advice(one.says)))
        case "hook":
            layer.hooks.register("PreToolUse", answer or (lambda context: _hook(one.says)))
        case "wrapper":
            layer.on.execute(answer or (lambda call, following: following()))
        case "reviewer":
            layer.on.post_execute(lambda call, result: None)


def _raises(*_: object) -> None:
    raise RuntimeError("broken")


def _advice(says: str) -> Advise | Refuse | None:
    if says == "refuse":
        return Refuse(ToolError("no"))
    return Advise(VERDICTS[says]) if says in VERDICTS else None


def _hook(says: Any) -> HookResult | None:
    if says == "block":
        return HookResult(blocking_error=tool_error("hook_blocked", "no"))
    return HookResult(permission_behavior=says) if says in VERDICTS else None


def strictness(group: Sequence[Participant], preset: str | None) -> int:
    """What happened to a call before all of these."""
    return run_virtual(_happened(group, preset))


async def _happened(group: Sequence[Participant], preset: str | None) -> int:
    bodies = 0

    @tool
    async def send() -> str:
        nonlocal bodies
        bodies += 1
        return "sent"

    async def says_yes(request: Any) -> Approved:
        return Approved()

    rules: dict[Any, list[str]] = {one.says: ["send"] for one in group if one.kind == "rule"}
    above: dict[Any, list[str]] = {one.says: ["send"] for one in group if one.kind == "ceiling"}
    ceiling = Ceiling(rules=rules_given(above, Path("/"))) if above else None
    harness = Harness(model=ScriptedModel(calls("send"), says("done")), tools=[send], ceiling=ceiling)
    async with harness:
        layer = harness.preset("layer")
        agent = layer.agent(preset=preset, approver=says_yes, rules=rules)
        layers: dict[str, Layer] = {"harness": harness, "preset": layer, "agent": agent}
        for one in group:
            if one.kind not in ("rule", "ceiling"):
                put(layers[one.layer], one)
        async with agent:
            await agent.run("go")
            assert_laws(agent.session)
            return _strictness(agent, bodies)


def _strictness(agent: Agent, bodies: int) -> int:
    assert bodies in (0, 1)
    if not bodies:
        return NOT_RUN
    return ASKED if agent.session.facts(ApprovalAsked) else RAN


@settings(deadline=None, max_examples=examples(300))
@given(groups, presets)
def test_a_decision_is_the_strictest_word_and_the_default_is_the_weakest(
    group: list[Participant], preset: str | None
) -> None:
    assert strictness(group, preset) == expected(group, preset)


@settings(deadline=None, max_examples=examples(300))
@given(groups, participants, st.integers(0, 5), presets)
def test_adding_a_participant_anywhere_never_loosens(
    group: list[Participant], extra: Participant, position: int, preset: str | None
) -> None:
    """The word of a rule or a listener takes the place of the default, which is what happens to a call that nobody
    speaks about. So the first one may be looser than the default; it loosens nothing that anybody had said.
    """
    before = strictness(group, preset)
    after = strictness([*group[:position], extra, *group[position:]], preset)
    if extra.speaks is not None and all(one.speaks is None for one in group):
        before = expected(group, None)
    assert after >= before


@settings(deadline=None, max_examples=examples(300))
@given(groups, st.randoms(use_true_random=False), presets)
def test_the_order_of_registration_decides_nothing(
    group: list[Participant], rng: Any, preset: str | None
) -> None:
    shuffled = [*group]
    rng.shuffle(shuffled)
    assert strictness(shuffled, preset) == strictness(group, preset)


@settings(deadline=None, max_examples=examples(300))
@given(groups, presets)
def test_a_preset_never_loosens_what_runs_without_one(group: list[Participant], preset: str | None) -> None:
    assert strictness(group, preset) >= strictness(group, None)
