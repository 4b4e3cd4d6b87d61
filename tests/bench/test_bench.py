"""The benches run, do the work they claim to measure, and report it in one shape. No test looks at a time."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench.__main__ import BENCHES, main, table
from bench.measuring import (
    Figure,
    Goal,
    Spent,
    WrongWork,
    cost,
    growth_exponent,
    interleaved,
    rate,
    require,
    unmeasured,
)
from bench.prepared import PreparedModel, calls_at_once, one_call_a_step
from bench.scale import FULL, QUICK, Scale
from bench.startup import installed_sizes

from bench import batches, floor, listeners, steps
from interlock import Agent

TINY = Scale(
    rounds=1,
    starts=1,
    steps=5,
    growth=(4, 8),
    calls=6,
    waits=4,
    wait=0.001,
    agents=3,
    agent_steps=2,
    agent_wait=0.001,
    chunks=50,
    durable_steps=4,
    old_events=2_500,
    sessions=101,
    bodies=(4, 9),
    requests=2,
)


@pytest.fixture(autouse=True)
def quick_collections() -> Iterator[None]:
    """Each measurement collects garbage first; what the tests' own process has loaded need not be looked at."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.slow
def test_every_bench_reports_in_one_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--json", str(tmp_path / "figures.json")], scale=TINY)

    report = json.loads((tmp_path / "figures.json").read_text())
    assert sorted(report) == ["figures", "format", "machine", "scale"]
    assert report["format"] == 1
    assert report["scale"] == json.loads(msgspec.json.encode(TINY))
    assert {"python", "system", "processor", "cores", "load", "commit", "packages"} == set(report["machine"])
    assert report["machine"]["packages"]["interlock"]

    figures: list[dict[str, Any]] = report["figures"]
    fields = set(Figure.__struct_fields__)
    assert all(set(figure) == fields for figure in figures)
    assert list(dict.fromkeys(figure["bench"] for figure in figures)) == list(BENCHES)
    assert {figure["bench"] for figure in figures if figure["goal"]} == set(BENCHES)
    for figure in figures:
        assert isinstance(figure["figure"], float) or figure["note"], figure
        assert (figure["met"] is None) == (figure["goal"] is None or figure["figure"] is None), figure
        if figure["clock"] is not None:
            assert {type(figure[name]) for name in ("cpu", "wall")} == {float}, figure
            assert figure["rounds"] >= 1, figure
            assert figure["figure"] == figure[figure["clock"]], figure
        if figure["floor_cpu"] is not None:
            assert figure["floor"] == figure[f"floor_{figure['clock']}"], figure

    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[1 : len(figures) + 1]] == [f["bench"] for f in figures]


def test_a_name_chooses_a_bench(tmp_path: Path) -> None:
    main(["b4", "--json", str(tmp_path / "one.json")], scale=TINY)
    report = json.loads((tmp_path / "one.json").read_text())
    assert {figure["bench"] for figure in report["figures"]} == {"B4"}


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["B99"])
    assert "no bench B99; there are B1, B2, B3, B4" in capsys.readouterr().err


def test_the_full_run_has_the_sizes_that_the_goals_speak_of() -> None:
    assert (FULL.steps, FULL.growth[0], FULL.growth[-1]) == (200, 100, 1_600)
    assert (FULL.calls, FULL.waits, FULL.wait, FULL.chunks) == (1_000, 100, 0.01, 20_000)
    assert (FULL.agents, FULL.agent_steps, FULL.agent_wait) == (1_000, 5, 0.005)
    assert (FULL.durable_steps, FULL.old_events) == (500, 100_000)
    assert FULL.bodies == QUICK.bodies == (200, 1_600)
    assert QUICK.rounds < FULL.rounds


# Both sides of a comparison do the same work


async def test_floor_and_harness_take_the_same_steps() -> None:
    async with Agent(PreparedModel(one_call_a_step(3, "count")), tools=[steps.count]) as agent:
        result = await agent.run("Count.")
    messages = await floor.turn(
        PreparedModel(one_call_a_step(3, "count")), {"count": steps.count.fn}, "Count."
    )

    assert [message["role"] for message in messages] == [message.role for message in result.messages]
    assert [m["content"] for m in messages if m["role"] == "tool"] == ["1", "2", "3"]
    assert [m.text for m in result.messages if m.role == "tool"] == ["1", "2", "3"]
    assert messages[-1]["content"] == result.text == "Done."


async def test_the_listeners_of_the_floor_hear_every_call() -> None:
    heard: list[str] = []

    async def later(call: floor.Record) -> None:
        heard.append(f"later {call['id']}")

    await floor.turn(
        PreparedModel(calls_at_once(2, "nothing")),
        {"nothing": batches.nothing.fn},
        "Go.",
        heard=[lambda call: heard.append(call["id"])],
        awaited=[later],
    )
    assert sorted(heard) == ["c0", "c1", "later c0", "later c1"]


@pytest.mark.parametrize("point", list(listeners.POINTS))
async def test_the_listeners_that_are_measured_are_heard(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attribute, listener = listeners.POINTS[point]
    heard: list[object] = []

    def counted(*given: Any) -> Any:
        heard.append(given)
        return listener(*given)

    monkeypatch.setitem(listeners.POINTS, point, (attribute, counted))
    await listeners.harness_calls(3, point)
    twice = 2 if attribute == "guard" else 1  # guards speak before the asking and again before the body
    assert len(heard) == 3 * listeners.LISTENERS * twice


def test_work_that_was_not_done_has_no_time() -> None:
    require(True, "counting")
    with pytest.raises(WrongWork, match="counting"):
        require(False, "counting")


# Arithmetic


@pytest.mark.parametrize("exponent", [-0.25, 0.0, 0.5, 1.0])
def test_growth_is_the_exponent_of_a_power_law(exponent: float) -> None:
    sizes = (100, 200, 400, 800, 1_600)
    costs = [3.0 * size**exponent for size in sizes]
    assert growth_exponent(sizes, costs) == pytest.approx(exponent)


def test_contestants_take_turns_after_one_round_that_does_not_count() -> None:
    order: list[str] = []

    def contestant(name: str) -> Any:
        async def measure() -> Spent:
            order.append(name)
            return Spent(float(len(order)), 0.0)

        return measure

    samples = interleaved(2, {"a": contestant("a"), "b": contestant("b")})
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert [spent.cpu for spent in samples["a"]] == [3.0, 5.0]
    assert [spent.cpu for spent in samples["b"]] == [4.0, 6.0]


def test_a_cost_is_the_median_and_its_goal_may_be_a_ratio() -> None:
    mine = [Spent(0.003, 0.006), Spent(0.001, 0.005), Spent(0.009, 0.007)]
    least = [Spent(0.002, 0.004)] * 3
    by_cpu = cost("B0", "work", "ms", mine, least, scale=1e3, goal=Goal("<=", 2))
    assert (by_cpu.figure, by_cpu.floor, by_cpu.ratio) == pytest.approx((3.0, 2.0, 1.5))
    assert (by_cpu.goal, by_cpu.met) == ("<= 2", False)

    by_wall = cost("B0", "work", "ms", mine, least, scale=1e3, clock="wall", goal=Goal("<=", 2, "ratio"))
    assert (by_wall.figure, by_wall.floor, by_wall.ratio) == pytest.approx((6.0, 4.0, 1.5))
    assert (by_wall.goal, by_wall.met) == ("<= 2 x floor", True)


def test_the_ratio_of_a_rate_is_the_ratio_of_costs() -> None:
    figure = rate(
        "B0", "work", "a second", [Spent(1.0, 2.0)], [Spent(0.5, 1.0)], count=100, goal=Goal(">=", 50)
    )
    assert (figure.figure, figure.floor, figure.ratio) == (50.0, 100.0, 2.0)
    assert figure.met is True


def test_the_table_says_why_a_figure_is_missing() -> None:
    lines = table([unmeasured("B0", "work", "ms", why="there is nothing to measure", goal=Goal("<=", 2))])
    assert lines[1].split() == ["B0", "work", "ms", "<=", "2"]
    assert lines[2] == "B0 work: there is nothing to measure"


def test_the_installed_core_is_what_it_requires_and_nothing_else() -> None:
    sizes = installed_sizes("interlock")
    assert {"interlock", "msgspec", "pydantic", "pydantic-core"} <= set(sizes)
    assert not {"openai", "pytest", "ruff"} & set(sizes)  # an extra, and what only development needs
    assert all(size > 0 for size in sizes.values())
