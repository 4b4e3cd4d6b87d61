"""Sync code off the loop: what comes back, what a cancel does, and that a stuck thread holds no exit."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import threading

import pytest

from interlock.tools.threads import run_in_thread


async def test_it_runs_in_another_thread_with_its_arguments() -> None:
    def where(*args: int) -> tuple[tuple[int, ...], int]:
        return args, threading.get_ident()

    args, thread = await run_in_thread(where, 1, 2)
    assert args == (1, 2)
    assert thread != threading.get_ident()


async def test_context_variables_are_copied_and_changes_stay_there() -> None:
    seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="unset")
    seen.set("here")

    def change() -> str:
        before = seen.get()
        seen.set("there")
        return before

    assert await run_in_thread(change) == "here"
    assert seen.get() == "here"


class Halt(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), Halt("stop")])
async def test_what_it_raises_is_raised_to_the_waiter(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        await run_in_thread(fail)
    assert raised.value is error


@pytest.mark.parametrize("error", [StopIteration(7), KeyboardInterrupt(), GeneratorExit()])
async def test_what_would_break_the_waiting_task_or_its_loop_arrives_as_a_runtime_error(
    error: BaseException,
) -> None:
    """In a thread of ours it is no Ctrl-C, and no end of a generator: it is what the code did."""

    def fail() -> None:
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__):
        await run_in_thread(fail)


async def test_many_run_at_once_and_none_waits_for_another() -> None:
    together = threading.Barrier(20)
    await asyncio.gather(*[run_in_thread(together.wait) for _ in range(20)])


async def test_a_worker_is_used_again() -> None:
    seen: list[threading.Thread] = []
    for _ in range(1000):
        worker = await run_in_thread(threading.current_thread)
        if worker in seen:
            return
        seen.append(worker)
    pytest.fail("every call had a thread of its own")


async def test_only_some_idle_workers_are_kept_and_all_are_daemons() -> None:
    together = threading.Barrier(30)

    def work() -> threading.Thread:
        together.wait()
        return threading.current_thread()

    workers = await asyncio.gather(*[run_in_thread(work) for _ in range(30)])
    assert all(worker.daemon for worker in workers)
    for _ in range(100_000):  # they end a moment after their result has come
        if sum(worker.is_alive() for worker in workers) <= 8:
            return
        await asyncio.sleep(0)
    pytest.fail("idle workers live on")


async def test_cancelling_the_waiter_stops_the_waiting_and_a_late_result_harms_nobody() -> None:
    begun, may_end = threading.Event(), threading.Event()
    ended: list[bool] = []

    def work() -> None:
        begun.set()
        may_end.wait()
        ended.append(True)

    waiting = asyncio.create_task(run_in_thread(work))
    await run_in_thread(begun.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not ended
    may_end.set()
    assert await run_in_thread(lambda: True)


def test_a_result_after_the_loop_was_closed_is_dropped() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait()
        ended.set()

    async def main() -> None:
        waiting = asyncio.create_task(run_in_thread(work))
        await run_in_thread(begun.wait)
        waiting.cancel()

    asyncio.run(main())
    may_end.set()
    assert ended.wait(10)


def in_a_new_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_body_that_never_returns_does_not_hold_the_exit_of_the_process() -> None:
    """D-19."""
    ended = in_a_new_python(
        """
        import asyncio, threading
        from interlock.tools.threads import run_in_thread

        async def main():
            begun = threading.Event()
            waiting = asyncio.create_task(run_in_thread(lambda: (begun.set(), threading.Event().wait())))
            await run_in_thread(begun.wait)
            waiting.cancel()

        asyncio.run(main())
        print("left")
        """
    )
    assert (ended.returncode, ended.stdout) == (0, "left\n"), ended.stderr
