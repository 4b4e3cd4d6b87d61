"""The scheduler alone, with jobs that do what a plan says, in simulated time.

First every rule with its smallest batch; then any batch at all, against the laws. A job's trace has one line for each
thing that the scheduler does with it: `0 admit a` says when (in seconds), what, and which job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.errors import ConfigError
from interlock.testing import run_virtual
from interlock.tools.claims import Claims, ClaimTable, Concurrency, Mode, stricter
from interlock.tools.scheduler import Admission, Scheduler

T = TypeVar("T")

EXCLUSIVE, PARALLEL = Concurrency.EXCLUSIVE, Concurrency.PARALLEL
READY, PARKED, SETTLED, REFUSED = Admission.READY, Admission.PARKED, Admission.SETTLED, Admission.REFUSED


class Broken(Exception):
    """What a job raises that is to raise."""


@dataclass(frozen=True)
class Plan:
    """What a job will do. Times are seconds; None does not suspend at all, 0 suspends for one round of the loop."""

    mode: Mode = PARALLEL  # before it is admitted
    sealed: Mode | None = None  # at the first look after that, if it differs
    last: Mode | None = None  # at every later look, if it differs
    admit: float | None = None
    admission: Admission = READY
    answer: float | None = None  # how long a person takes, if it is parked
    answered: Admission = READY
    denied: bool = False  # by the last look before the body
    body: float | None = None
    at_once: bool = False  # its body cannot suspend
    commit: float | None = None
    stops: str | None = None  # the method that stops the batch
    raises: str | None = None  # the method that fails

    def modes(self) -> tuple[Mode, Mode, Mode]:
        sealed = self.mode if self.sealed is None else self.sealed
        return self.mode, sealed, sealed if self.last is None else self.last


class World:
    """What happened, in order."""

    def __init__(self, pool: int) -> None:
        self.trace: list[tuple[float, str, int]] = []
        self.jobs: list[FakeJob] = []
        self.scheduler = Watched(self, pool)

    def add(self, *plans: Plan) -> list[FakeJob]:
        self.jobs = [FakeJob(self, i, plan) for i, plan in enumerate(plans)]
        return self.jobs

    def saw(self, what: str, index: int) -> None:
        self.trace.append((now(), what, index))

    def lines(self, *kinds: str) -> list[str]:
        """Lines of the trace, of these kinds if any are named; those of the batch as a whole only then."""
        return [
            f"{time:g} {what} {'abcdefghij'[index]}" if index >= 0 else f"{time:g} {what}"
            for time, what, index in self.trace
            if (what in kinds if kinds else index >= 0)
        ]

    def when(self, what: str, index: int) -> float | None:
        return next((time for time, said, i in self.trace if (said, i) == (what, index)), None)


class Watched(Scheduler):
    """A scheduler that leaves in the trace when it is stopped, and when it waits for a person."""

    def __init__(self, world: World, pool: int) -> None:
        super().__init__(pool, lambda waits: world.saw("waits" if waits else "goes on", -1))
        self._world = world

    def stop(self) -> None:
        if not self.stopped:
            self._world.saw("stop", -1)
        super().stop()


def now() -> float:
    return asyncio.get_running_loop().time()


async def pause(seconds: float | None) -> None:
    if seconds is not None:
        await asyncio.sleep(seconds)


class FakeJob:
    """A job that follows its plan, and keeps what it was asked."""

    def __init__(self, world: World, index: int, plan: Plan) -> None:
        self.world, self.index, self.plan = world, index, plan
        self.looks: list[
            tuple[int, Mode]
        ] = []  # what it said since it was admitted, and how long the trace was
        self.started_as: Mode = plan.mode
        self._admitted = False

    def mode(self) -> Mode:
        before, sealed, last = self.plan.modes()
        self._does("mode")
        if not self._admitted:
            return before
        self.looks.append((len(self.world.trace), last if self.looks else sealed))
        return self.looks[-1][1]

    def _does(self, method: str) -> None:
        if self.plan.stops == method:
            self.world.scheduler.stop()
        if self.plan.raises == method:
            self.world.saw("raises", self.index)
            raise Broken(f"{method} of {self.index}")

    async def admit(self) -> Admission:
        self.world.saw("admit", self.index)
        await pause(self.plan.admit)
        self._admitted = True
        self._does("admit")
        self.world.saw(self.plan.admission.value, self.index)
        return self.plan.admission

    async def resume(self) -> Admission:
        try:
            await pause(self.plan.answer)
        except asyncio.CancelledError:
            self.world.saw("unasked", self.index)
            raise
        self._does("resume")
        self.world.saw(f"answer {self.plan.answered.value}", self.index)
        return self.plan.answered

    def start(self) -> bool:
        # One that is exclusive is not looked at again: nothing is stricter.
        self.started_as = self.looks[-1][1] if self.looks else self.plan.mode
        self.world.saw("deny" if self.plan.denied else "start", self.index)
        self._does("start")
        return not self.plan.denied

    def run_at_once(self) -> bool:
        if not self.plan.at_once:
            return False
        self._does("run")
        self.world.saw("end", self.index)
        return True

    async def run(self) -> None:
        try:
            await pause(self.plan.body)
        except asyncio.CancelledError:
            self.world.saw("cut", self.index)
            raise
        self._does("run")
        self.world.saw("end", self.index)

    def settle(self) -> None:
        self.world.saw("settle", self.index)
        self._does("settle")

    def commit_at_once(self) -> bool:
        if self.plan.commit is not None:
            return False
        self.world.saw("commit", self.index)
        self._does("commit")
        self.world.saw("done", self.index)
        return True

    async def commit(self) -> None:
        self.world.saw("commit", self.index)
        await pause(self.plan.commit)
        self._does("commit")
        self.world.saw("done", self.index)

    def skip(self) -> None:
        self.world.saw("skip", self.index)
        self._does("skip")


async def play(plans: Sequence[Plan], pool: int = 10, *, stop_at: float | None = None) -> World:
    """Run a batch to its end; what its jobs raised is in the trace."""
    world = World(pool)
    if stop_at is not None:
        asyncio.get_running_loop().call_later(stop_at, world.scheduler.stop)
    try:
        await world.scheduler.run(world.add(*plans))
    except Broken as broken:
        world.saw(f"raised: {broken}", -1)
    return world


def simulated(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return run_virtual(main(), limit=100_000)


def played(*plans: Plan, pool: int = 10, stop_at: float | None = None) -> World:
    return simulated(lambda: play(plans, pool, stop_at=stop_at))


# The order of the lanes


def test_an_exclusive_call_runs_alone_after_all_earlier_and_before_all_later_ones() -> None:
    """SC-03, A-P3."""
    world = played(Plan(body=2), Plan(EXCLUSIVE, body=1), Plan(body=1))
    assert world.lines() == [
        "0 admit a", "0 ready a", "0 start a",
        "2 end a", "2 commit a", "2 done a",
        "2 admit b", "2 ready b", "2 start b",
        "3 end b", "3 commit b", "3 done b",
        "3 admit c", "3 ready c", "3 start c",
        "4 end c", "4 commit c", "4 done c",
    ]  # fmt: skip


def test_a_freed_place_is_filled_at_once() -> None:
    """SC-04, A-P3: pool 2, the first is slow."""
    world = played(Plan(body=5), Plan(body=1), Plan(body=1), Plan(body=1), pool=2)
    assert world.lines("start", "end") == [
        "0 start a", "0 start b", "1 end b", "1 start c", "2 end c", "2 start d", "3 end d", "5 end a",
    ]  # fmt: skip


def test_a_pool_of_one_is_serial() -> None:
    """SC-04."""
    world = played(Plan(body=1), Plan(body=1), pool=1)
    assert world.lines("start", "end") == ["0 start a", "1 end a", "1 start b", "2 end b"]


@pytest.mark.parametrize("pool", [0, -1, 1.0, "4", True, None])
def test_a_pool_is_a_whole_number_from_one(pool: Any) -> None:
    """SC-04."""
    with pytest.raises(ConfigError, match="pool is a whole number from 1, not"):
        Scheduler(pool)


def test_results_are_committed_in_order_and_an_early_outcome_is_settled() -> None:
    """SC-06, D-8b: who ends early is said to be settled, and waits for its turn without holding a place."""
    world = played(Plan(body=3), Plan(body=1), Plan(body=1), Plan(body=3), pool=2)
    assert world.lines("start", "end", "settle", "commit") == [
        "0 start a", "0 start b",
        "1 end b", "1 settle b", "1 start c",
        "2 end c", "2 settle c", "2 start d",
        "3 end a", "3 commit a", "3 commit b", "3 commit c",
        "5 end d", "5 commit d",
    ]  # fmt: skip


def test_a_call_that_is_settled_in_policy_takes_its_turn_in_the_commits() -> None:
    """SC-06: denied at once, committed after its slow sibling."""
    world = played(Plan(body=2), Plan(admission=SETTLED), Plan(denied=True))
    assert world.lines("settle", "commit", "end", "deny") == [
        "0 settle b", "0 deny c", "0 settle c", "2 end a", "2 commit a", "2 commit b", "2 commit c",
    ]  # fmt: skip


def test_admission_is_one_at_a_time_in_order() -> None:
    """SC-05, D-8."""
    world = played(Plan(admit=2), Plan(admit=1), Plan(admit=1))
    assert world.lines("admit", "ready") == [
        "0 admit a", "2 ready a", "2 admit b", "3 ready b", "3 admit c", "4 ready c",
    ]  # fmt: skip


def test_reviews_are_one_at_a_time_in_order() -> None:
    """SC-05."""
    world = played(Plan(body=1, commit=2), Plan(body=1, commit=1))
    assert world.lines("commit", "done") == ["1 commit a", "3 done a", "3 commit b", "4 done b"]


def test_a_started_call_comes_before_the_next_admission() -> None:
    """D-8: with a place and no conflict, `tool/started` stands before the next `tool/call`."""
    world = played(Plan(body=1), Plan(body=1))
    assert world.lines("admit", "start") == ["0 admit a", "0 start a", "0 admit b", "0 start b"]


def test_admission_does_not_wait_for_a_place() -> None:
    """D-8."""
    world = played(Plan(body=3), Plan(body=1), Plan(body=1), pool=1)
    assert world.lines("admit") == ["0 admit a", "0 admit b", "0 admit c"]


# Lanes that do not wait for each other


def test_a_slow_rule_delays_no_earlier_commit() -> None:
    """SC-14, UW-08, A-P21."""
    world = played(Plan(), Plan(admit=60))
    assert world.when("done", 0) == 0
    assert world.when("start", 1) == 60


def test_a_slow_review_delays_no_later_start() -> None:
    """SC-14, UW-08, A-P46."""
    world = played(Plan(body=1, commit=80), Plan(body=2), Plan(body=1), pool=2)
    assert world.when("start", 2) == 1
    assert world.when("done", 0) == 81


def test_a_parked_call_holds_no_place_and_no_earlier_commit_but_later_ones() -> None:
    """D-8."""
    world = played(Plan(body=1), Plan(admission=PARKED, answer=9, body=1), Plan(body=1), Plan(body=1), pool=1)
    assert world.lines("start", "end", "commit") == [
        "0 start a", "1 end a", "1 commit a",
        "1 start c", "2 end c", "2 start d", "3 end d",
        "9 start b", "10 end b", "10 commit b", "10 commit c", "10 commit d",
    ]  # fmt: skip


def test_answers_come_in_any_order() -> None:
    """D-8."""
    world = played(*[Plan(admission=PARKED, answer=4 - i, body=1) for i in range(3)])
    assert world.lines("start", "done") == [
        "2 start c", "3 start b", "4 start a", "5 done a", "5 done b", "5 done c",
    ]  # fmt: skip


def test_an_answer_may_be_no() -> None:
    world = played(Plan(admission=PARKED, answer=1, answered=SETTLED), Plan(body=3))
    assert world.lines("start", "commit") == ["0 start b", "1 commit a", "3 commit b"]


def test_somebody_is_told_when_only_a_person_can_move_the_batch() -> None:
    parked = Plan(admission=PARKED, answer=5, body=1)
    world = played(Plan(body=2, commit=1), parked, Plan(body=1))
    assert world.lines("waits", "goes on") == ["3 waits", "5 goes on"]


def test_it_waits_again_when_one_of_several_questions_was_answered() -> None:
    no = Plan(admission=PARKED, answer=1, answered=SETTLED)
    world = played(Plan(admission=PARKED, answer=5, body=1), no)
    assert world.lines("waits", "goes on") == ["0 waits", "1 goes on", "1 waits", "5 goes on"]


def test_a_running_body_may_wait_for_a_person_too() -> None:
    """It made a call that is asked about."""

    async def main() -> World:
        world = World(10)
        loop, jobs = asyncio.get_running_loop(), world.add(Plan(body=9), Plan(body=3))
        loop.call_later(1, world.scheduler.waits, True)
        loop.call_later(5, world.scheduler.waits, False)
        await world.scheduler.run(jobs)
        return world

    assert simulated(main).lines("waits", "goes on") == ["3 waits", "5 goes on"]


def test_nobody_waits_for_a_person_while_something_runs() -> None:
    world = played(Plan(body=9), Plan(admission=PARKED, answer=5, body=1))
    assert world.lines("waits", "goes on") == []


# Claims


def test_conflicting_claims_do_not_overlap_and_others_do() -> None:
    """D-17, UW-21: writes to different files run side by side."""
    one, other = Claims(writes=["src/a"]), Claims(writes=["src/b"])
    world = played(Plan(one, body=2), Plan(other, body=1), Plan(Claims(reads=["src"]), body=1))
    assert world.lines("admit", "start", "end") == [
        "0 admit a", "0 start a", "0 admit b", "0 start b", "1 end b", "2 end a",
        "2 admit c", "2 start c", "3 end c",
    ]  # fmt: skip


def test_nothing_overtakes_a_call_that_waits_for_a_claim() -> None:
    """D-8, D-17: what comes after a call that is not admitted is not admitted either."""
    key = Claims(writes=["k"])
    world = played(Plan(key, body=2), Plan(key, body=1), Plan(PARALLEL, body=1))
    assert world.lines("admit") == ["0 admit a", "2 admit b", "2 admit c"]


def test_claims_are_released_when_the_body_has_returned_not_at_its_commit() -> None:
    """D-17."""
    key = Claims(writes=["k"])
    world = played(Plan(PARALLEL, body=9), Plan(key, body=1), Plan(key, body=1))
    assert world.lines("start", "end")[2:4] == ["1 end b", "1 start c"]


def test_a_parked_call_holds_its_claims() -> None:
    """D-8: calls that conflict with it wait for the person too."""
    key = Claims(writes=["k"])
    world = played(Plan(key, admission=PARKED, answer=3, body=1), Plan(key, body=1))
    assert world.lines("admit", "start") == ["0 admit a", "3 start a", "4 admit b", "4 start b"]


@pytest.mark.parametrize(
    "denied", [Plan(Claims(writes=["k"]), admission=SETTLED), Plan(Claims(writes=["k"]), denied=True)]
)
def test_claims_are_released_by_a_denial(denied: Plan) -> None:
    world = played(Plan(body=5), denied, Plan(Claims(writes=["k"]), body=1))
    assert world.when("start", 2) == 0


def test_a_no_releases_the_claims_at_once() -> None:
    """Although an earlier job holds up the commits."""
    key = Claims(writes=["k"])
    no = Plan(key, admission=PARKED, answer=2, answered=SETTLED)
    world = played(Plan(body=9), no, Plan(key, body=1))
    assert world.when("start", 2) == 2


def test_parallel_calls_claim_nothing_and_conflict_with_no_claim() -> None:
    """D-17."""
    world = played(Plan(Claims(writes=[""]), body=1), Plan(PARALLEL, body=1))
    assert world.lines("start") == ["0 start a", "0 start b"]


# Calls that turn out stricter


def test_a_call_that_turned_exclusive_waits_for_all_others_and_runs_alone() -> None:
    """SC-07, D-17: it was admitted as a parallel one."""
    world = played(
        Plan(body=2),
        Plan(PARALLEL, last=EXCLUSIVE, body=1),
        Plan(body=1),
        pool=1,
    )
    assert world.lines("admit", "start", "end") == [
        "0 admit a", "0 start a", "0 admit b", "0 admit c",
        "2 end a", "2 start b", "3 end b", "3 start c", "4 end c",
    ]  # fmt: skip


def test_a_call_that_became_stricter_waits_for_started_later_ones_to_return() -> None:
    """D-17: while it was parked, a later one was started; no other one starts meanwhile."""
    world = played(
        Plan(PARALLEL, sealed=PARALLEL, last=EXCLUSIVE, admission=PARKED, answer=1, body=1),
        Plan(body=3),
        Plan(admit=2, body=1),
    )
    assert world.lines("start", "end") == [
        "0 start b",
        "3 end b",
        "3 start a",
        "4 end a",
        "4 start c",
        "5 end c",
    ]


def test_more_claims_after_a_rewrite_make_a_barrier_too() -> None:
    """D-17: classified on the effective arguments at sealing."""
    world = played(
        Plan(Claims(writes=["a"]), body=2),
        Plan(Claims(writes=["b"]), sealed=Claims(writes=["a", "b"]), body=1),
        Plan(body=1),
    )
    assert world.lines("start") == ["0 start a", "2 start b", "3 start c"]


def test_fewer_claims_change_nothing() -> None:
    world = played(Plan(body=2), Plan(Claims(writes=["b"]), sealed=PARALLEL, body=1), Plan(body=1))
    assert world.lines("start") == ["0 start a", "0 start b", "0 start c"]


# Stopping


def test_a_stop_starts_nothing_more_awaits_what_runs_and_skips_the_rest() -> None:
    """SC-09, A-P9."""
    world = played(Plan(body=3), Plan(body=2), Plan(body=1), Plan(EXCLUSIVE, body=1), pool=2, stop_at=1)
    assert world.lines("start", "end", "commit", "skip") == [
        "0 start a", "0 start b",
        "2 end b", "3 end a", "3 commit a", "3 commit b", "3 skip c", "3 skip d",
    ]  # fmt: skip


def test_a_stop_before_the_start_skips_everything() -> None:
    """SC-09: the signal is set already."""

    async def main() -> World:
        world = World(10)
        world.scheduler.stop()
        world.scheduler.stop()
        await world.scheduler.run(world.add(Plan(), Plan()))
        return world

    assert simulated(main).lines() == ["0 skip a", "0 skip b"]


def test_a_stop_ends_the_questions() -> None:
    """SC-09: a parked call is unasked, and skipped in its turn."""
    world = played(Plan(body=2), Plan(admission=PARKED, answer=9), stop_at=1)
    assert world.lines("unasked", "commit", "skip") == ["1 unasked b", "2 commit a", "2 skip b"]


@pytest.mark.parametrize("moment", ["admit", "commit", "start", "settle", "run"])
def test_a_stop_from_within_any_method_is_a_stop(moment: str) -> None:
    stopping = Plan(admission=PARKED if moment == "admit" else READY, answer=5, stops=moment, body=1)
    world = played(Plan(body=2), stopping, Plan(EXCLUSIVE))
    ended = {i: [what for _, what, index in world.trace if index == i][-1] for i in range(3)}
    assert ended == {0: "done", 1: "skip" if moment == "admit" else "done", 2: "skip"}


def test_a_question_that_is_stopped_before_it_was_asked_is_skipped() -> None:
    """The task that would ask is cancelled before its first step."""
    world = played(Plan(admission=PARKED, stops="admit"))
    assert world.lines("unasked", "answer ready", "skip") == ["0 skip a"]


def test_a_refused_admission_stops_the_batch() -> None:
    """A stop, or a spent budget, found at the door: it and all later ones stay unstarted."""
    world = played(Plan(body=1), Plan(Claims(writes=["k"]), admission=REFUSED), Plan())
    assert world.lines("commit", "skip", "admit") == [
        "0 admit a", "0 admit b", "1 commit a", "1 skip b", "1 skip c",
    ]  # fmt: skip


def test_a_review_that_stops_at_once_is_heard_before_the_place_is_filled_again() -> None:
    """D-16."""
    world = played(Plan(body=1, stops="commit"), Plan(body=2), Plan(body=1), pool=2)
    assert world.lines("commit", "skip") == ["1 commit a", "2 commit b", "2 skip c"]


def test_a_review_that_suspends_before_it_stops_may_see_one_more_start() -> None:
    """D-16: that call then runs and is committed."""
    world = played(Plan(body=1, commit=0.5, stops="commit"), Plan(body=2), Plan(body=1), Plan(body=1), pool=2)
    assert world.lines("start", "commit", "skip") == [
        "0 start a", "0 start b", "1 commit a", "1 start c", "2 commit b", "2 commit c", "2 skip d",
    ]  # fmt: skip


# Failure inside


@pytest.mark.parametrize("method", ["admit", "start", "run", "commit", "settle", "mode"])
def test_a_failing_method_stops_the_starts_waits_for_bodies_and_is_raised(method: str) -> None:
    """SC-12, UW-02, A-P13b."""
    failing = Plan(body=1, raises=method)
    plans = [Plan(body=2), failing, Plan(EXCLUSIVE)]
    world = played(*plans)
    assert world.lines("end")[-1] == "2 end a"
    assert world.trace[-1] == (2, f"raised: {method} of 1", -1)
    assert world.when("admit", 2) is None


def test_a_failing_question_is_raised_when_what_runs_has_ended() -> None:
    world = played(Plan(body=3), Plan(admission=PARKED, answer=1, raises="resume"))
    assert world.lines("end", "commit") == ["3 end a"]
    assert world.trace[-1] == (3, "raised: resume of 1", -1)


def test_a_failing_skip_is_raised() -> None:
    world = played(Plan(body=1), Plan(EXCLUSIVE, raises="skip"), stop_at=0)
    assert world.trace[-1] == (1, "raised: skip of 1", -1)


def test_the_first_failure_is_the_one_that_is_raised() -> None:
    world = played(Plan(body=2, raises="run"), Plan(body=1, raises="run"))
    assert world.trace[-1] == (2, "raised: run of 1", -1)


def test_a_cancelled_driver_cancels_what_runs_awaits_it_and_passes_the_cancel_on() -> None:
    async def main() -> World:
        world = World(10)
        jobs = world.add(Plan(body=9), Plan(admission=PARKED, answer=9), Plan(EXCLUSIVE))
        driver = asyncio.create_task(world.scheduler.run(jobs))
        asyncio.get_running_loop().call_later(1, driver.cancel)
        with pytest.raises(asyncio.CancelledError):
            await driver
        return world

    assert sorted(simulated(main).lines("cut", "unasked")) == ["1 cut a", "1 unasked b"]


# Giving up on a body


def test_an_abandoned_body_gives_up_its_place_and_is_committed() -> None:
    """CA-12."""

    async def main() -> World:
        world = World(1)
        jobs = world.add(Plan(Claims(writes=["k"]), body=9), Plan(body=1))
        given_up: list[asyncio.Task[None]] = []
        asyncio.get_running_loop().call_later(2, lambda: given_up.append(world.scheduler.abandon(jobs[0])))
        await world.scheduler.run(jobs)
        assert not given_up[0].done(), "whoever abandons a body owns its task from then on"
        await given_up[0]
        return world

    assert simulated(main).lines("commit", "start", "end") == [
        "0 start a", "2 commit a", "2 start b", "3 end b", "3 commit b", "9 end a",
    ]  # fmt: skip


# Jobs that come one by one


async def submitted(world: World, *plans: Plan) -> list[asyncio.Task[None]]:
    jobs = world.add(*plans)
    return [asyncio.create_task(world.scheduler.submit(job)) for job in jobs]


def test_submitted_jobs_follow_the_same_rules_and_each_waits_for_its_own_commit() -> None:
    """TP-25."""

    async def main() -> World:
        world = World(2)
        tasks = await submitted(world, Plan(body=2), Plan(body=1), Plan(EXCLUSIVE, body=1))
        for task in tasks:
            task.add_done_callback(lambda back: world.saw("back", tasks.index(back)))
        await asyncio.gather(*tasks)
        await world.scheduler.aclose()
        return world

    world = simulated(main)
    assert world.lines("start") == ["0 start a", "0 start b", "2 start c"]
    assert world.lines("back") == ["2 back a", "2 back b", "3 back c"]


def test_closing_waits_for_what_was_started_and_skips_the_rest() -> None:
    """TP-25: what an outer call leaves behind does not outlive it."""

    async def main() -> World:
        world = World(1)
        tasks = await submitted(world, Plan(body=2), Plan(body=1), Plan(admission=PARKED, answer=9))
        await asyncio.sleep(1)
        await world.scheduler.aclose()
        await asyncio.gather(*tasks)
        return world

    assert simulated(main).lines("end", "commit", "skip", "unasked") == [
        "1 unasked c", "2 end a", "2 commit a", "2 skip b", "2 skip c",
    ]  # fmt: skip


def test_a_job_that_comes_after_the_stop_is_skipped() -> None:
    async def main() -> World:
        world = World(1)
        world.scheduler.stop()
        await world.scheduler.submit(*world.add(Plan()))
        await world.scheduler.aclose()
        return world

    assert simulated(main).lines() == ["0 skip a"]


def test_a_failure_is_told_to_everybody_who_waits_for_a_job() -> None:
    async def main() -> list[str]:
        world = World(1)
        tasks = await submitted(world, Plan(body=1, raises="run"), Plan(body=1))
        said = [str(error) for error in await asyncio.gather(*tasks, return_exceptions=True)]
        with pytest.raises(Broken, match="run of 0"):
            await world.scheduler.aclose()
        return said

    assert simulated(main) == ["run of 0", "run of 0"]


def test_cancelling_who_waits_for_a_job_does_not_cancel_the_job() -> None:
    async def main() -> World:
        world = World(1)
        (task,) = await submitted(world, Plan(body=2))
        asyncio.get_running_loop().call_later(1, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        await world.scheduler.aclose()
        return world

    assert simulated(main).lines("end", "commit") == ["2 end a", "2 commit a"]


# Any batch at all

times = st.sampled_from([None, 0, 1, 2, 3])
some_mode: st.SearchStrategy[Mode] = st.sampled_from(
    [PARALLEL, EXCLUSIVE, Claims(reads=["a"]), Claims(writes=["a"]), Claims(reads=["a"], writes=["b"])]
)
methods = st.sampled_from(["admit", "resume", "start", "run", "settle", "commit", "skip", "mode"])


def batches(*, raises: st.SearchStrategy[str | None]) -> st.SearchStrategy[list[Plan]]:
    plan = st.builds(
        Plan,
        mode=some_mode,
        sealed=st.none() | some_mode,
        last=st.none() | some_mode,
        admit=times,
        admission=st.sampled_from([READY, READY, READY, PARKED, PARKED, SETTLED, REFUSED]),
        answer=times,
        answered=st.sampled_from([READY, READY, SETTLED, REFUSED]),
        denied=st.sampled_from([False, False, False, True]),
        body=times,
        at_once=st.sampled_from([False, False, True]),
        commit=times,
        stops=st.sampled_from([None, None, None]) | methods,
        raises=raises,
    )
    return st.lists(plan, min_size=1, max_size=7)


class Moment:
    """What can be seen of a batch when the first lines of its trace have been written."""

    def __init__(self, world: World, written: int) -> None:
        self.world, self.written = world, written
        self.seen = {(what, index) for _, what, index in world.trace[:written]}
        self.stopped = ("stop", -1) in self.seen
        self.waits = [what for _, what, _ in world.trace[:written] if what in ("waits", "goes on")]

    def did(self, index: int, *what: str) -> bool:
        return any((one, index) in self.seen for one in what)

    @property
    def indices(self) -> range:
        return range(len(self.world.jobs))

    def plan(self, index: int) -> Plan:
        return self.world.jobs[index].plan

    def admitting(self, i: int) -> bool:
        return self.did(i, "admit") and not self.did(i, "ready", "parked", "settled", "refused")

    def parked(self, i: int) -> bool:
        answers = "answer ready", "answer settled", "answer refused"
        return self.did(i, "parked") and not self.stopped and not self.did(i, *answers)

    def ready(self, i: int) -> bool:
        return self.did(i, "ready", "answer ready") and not self.did(i, "start", "deny")

    def running(self, i: int) -> bool:
        return self.did(i, "start") and not self.did(i, "end")

    def outcome(self, i: int) -> bool:
        return self.did(i, "end", "deny", "settled", "answer settled")

    def committed(self, i: int) -> bool:
        return self.did(i, "done", "skip")

    def holds(self, i: int) -> bool:
        return self.did(i, "admit") and not self.outcome(i)

    def barrier(self, i: int) -> bool:
        """Nothing later may be admitted or started: it is exclusive, or became stricter."""
        before = self.plan(i).mode
        looks = [mode for written, mode in self.world.jobs[i].looks if written <= self.written]
        became = any(stricter(mode, before) for mode in looks)
        return self.did(i, "admit") and not self.committed(i) and (before is EXCLUSIVE or became)

    def may_be_admitted(self, i: int) -> bool:
        mode, earlier = self.plan(i).mode, range(i)
        if any(self.barrier(j) for j in earlier) or any(self.admitting(j) for j in earlier):
            return False
        if mode is EXCLUSIVE:
            return all(self.committed(j) for j in earlier)
        return not any(self.holds(j) and conflict(mode, self.plan(j).mode) for j in earlier)

    def may_be_started(self, i: int) -> bool:
        places = self.world.scheduler.pool - sum(self.running(j) for j in self.indices)
        if places == 0 or any(self.barrier(j) for j in range(i)):
            return False
        alone = places == self.world.scheduler.pool and all(self.committed(j) for j in range(i))
        return alone or not self.barrier(i)


def conflict(one: Mode, other: Mode) -> bool:
    if EXCLUSIVE in (one, other):
        return True
    if not isinstance(one, Claims) or not isinstance(other, Claims):
        return False
    table = ClaimTable()
    table.add(one)
    return table.conflicts(other)


def moments(world: World) -> list[Moment]:
    """After every instant: whatever is possible has happened by then."""
    ends = [i + 1 for i, (a, b) in enumerate(pairwise(world.trace)) if a[0] < b[0]]
    return [Moment(world, written) for written in ends]


def assert_once_and_in_order(world: World) -> None:
    """Admissions and ends are in the order of the batch, one at a time; nothing happens twice to one job."""
    steps = [(what, index) for _, what, index in world.trace if index >= 0]
    assert len(steps) == len(set(steps))
    for begins, ends in (
        (("admit",), ("ready", "parked", "settled", "refused")),
        (("commit", "skip"), ("done", "skip")),
    ):
        lane = [(what, index) for what, index in steps if what in begins + ends]
        assert [index for what, index in lane if what in begins] == list(
            range(sum(w in begins for w, _ in lane))
        )
        for (what, index), (_, following) in pairwise(lane):
            assert what in ends or following == index


def assert_nothing_unsafe(world: World) -> None:
    """No admission, start or commit happens before it may."""
    for written, (_, what, index) in enumerate(world.trace):
        before = Moment(world, written)
        if what == "admit":
            assert before.may_be_admitted(index) and not before.stopped
        elif what == "start":
            assert before.may_be_started(index) and not before.stopped
            others = [j for j in before.indices if before.running(j)]
            as_started = [world.jobs[j].started_as for j in others]
            assert not any(conflict(world.jobs[index].started_as, mode) for mode in as_started)
        elif what == "commit":
            assert before.outcome(index)
        elif what == "settle":
            assert before.outcome(index) and not all(before.committed(j) for j in range(index))
        elif what == "waits":
            assert not before.stopped
        elif what == "skip":
            assert before.stopped and not before.did(index, "start", "deny", "settled")
            if before.did(index, "answer settled"):  # it stopped the batch itself, and was cut as it answered
                assert before.plan(index).stops == "resume"


def assert_nothing_waits_in_vain(moment: Moment) -> None:
    """What could go on has gone on: a parked job holds no place and no earlier commit, a slow review no start."""
    uncommitted = [i for i in moment.indices if not moment.committed(i)]
    if uncommitted and moment.outcome(uncommitted[0]):
        assert moment.did(uncommitted[0], "commit")
    busy = any(moment.admitting(i) or moment.running(i) for i in moment.indices)
    committing = any(moment.did(i, "commit") and not moment.committed(i) for i in moment.indices)
    if moment.stopped:
        assert busy or committing or not uncommitted
        return
    unadmitted = [i for i in moment.indices if not moment.did(i, "admit")]
    if unadmitted:
        assert not moment.may_be_admitted(unadmitted[0])
    for i in moment.indices:
        assert not (moment.ready(i) and moment.may_be_started(i))
    asked = any(moment.parked(i) for i in moment.indices)
    assert (moment.waits[-1:] == ["waits"]) == (asked and not busy and not committing)


@given(
    batches(raises=st.none()),
    st.integers(min_value=1, max_value=4),
    st.none() | st.sampled_from([0, 1, 2, 3, 5]),
)
@settings(deadline=None, max_examples=examples(600))
def test_any_batch_keeps_every_law(batch: list[Plan], pool: int, stop_at: float | None) -> None:
    """SC-02 to SC-07, SC-09, SC-14, D-8, D-16, D-17: any interleaving of finish, stop, answer and re-classification."""
    world = played(*batch, pool=pool, stop_at=stop_at)
    assert_once_and_in_order(world)
    assert_nothing_unsafe(world)
    for moment in moments(world):
        assert_nothing_waits_in_vain(moment)
    end = Moment(world, len(world.trace))
    assert all(end.committed(i) and not end.running(i) for i in end.indices)
    assert all(end.did(i, "commit") for i in end.indices if end.did(i, "start"))
    assert end.stopped or not any(end.did(i, "skip") for i in end.indices)


@given(
    batches(raises=st.none() | methods),
    st.integers(min_value=1, max_value=4),
    st.none() | st.sampled_from([0, 1, 2, 3, 5]),
)
@settings(deadline=None, max_examples=examples(300))
def test_a_failure_in_any_batch_stops_it_and_leaves_nothing_running(
    batch: list[Plan], pool: int, stop_at: float | None
) -> None:
    """SC-12."""
    world = played(*batch, pool=pool, stop_at=stop_at)
    failures = [(time, index) for time, what, index in world.trace if what == "raises"]
    if not failures:
        return
    first = failures[0][0]
    assert_once_and_in_order(world)
    assert all(time <= first for time, what, _ in world.trace if what in ("admit", "start"))
    end = Moment(world, len(world.trace))
    assert not any(end.running(i) and not end.did(i, "raises") for i in end.indices)
    _, raised, _ = world.trace[-1]
    assert raised in {f"raised: {batch[i].raises} of {i}" for time, i in failures if time == first}


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 1, 2]), batches(raises=st.none()).map(lambda batch: batch[0])),
        max_size=6,
    ),
    st.integers(min_value=1, max_value=3),
    st.sampled_from([0, 1, 3, 6, 20]),
)
@settings(deadline=None, max_examples=examples(200))
def test_jobs_that_come_at_any_time_keep_the_laws_and_all_end_when_it_is_closed(
    coming: list[tuple[float, Plan]], pool: int, close_at: float
) -> None:
    """TP-25: the nested calls of one outer call."""

    async def main() -> World:
        world = World(pool)

        async def comes(delay: float, job: FakeJob) -> None:
            await asyncio.sleep(delay)
            await world.scheduler.submit(job)

        delay, waiting = 0.0, []
        for (gap, _), job in zip(coming, world.add(*[plan for _, plan in coming]), strict=True):
            delay += gap
            waiting.append(asyncio.create_task(comes(delay, job)))
        await asyncio.sleep(close_at)
        await world.scheduler.aclose()
        await asyncio.gather(*waiting)
        await world.scheduler.aclose()
        return world

    world = simulated(main)
    assert_once_and_in_order(world)
    assert_nothing_unsafe(world)
    end = Moment(world, len(world.trace))
    assert all(end.committed(i) and not end.running(i) for i in end.indices)
