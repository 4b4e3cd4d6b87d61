"""Who holds a lease, and when there is certainly nobody left who could write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from interlock.log.stores.holder import Holder, decode_holder, encode_holder

ELSEWHERE = """
import sys
from interlock.log.stores.holder import Holder, encode_holder
print(encode_holder(Holder.here()).decode(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def here() -> Iterator[Holder]:
    holder = Holder.here()
    yield holder
    holder.ends()


@pytest.fixture
def elsewhere() -> Iterator[tuple[Holder, subprocess.Popen[bytes]]]:
    """A holder in another process, which runs."""
    with subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield decode_holder(process.stdout.readline()), process
        process.kill()


def changed(holder: Holder, **fields: object) -> Holder:
    return msgspec.structs.replace(holder, **fields)


def test_it_is_the_same_after_it_was_kept(here: Holder) -> None:
    assert decode_holder(encode_holder(here)) == here


def test_our_own_is_gone_when_its_store_has_ended(here: Holder) -> None:
    another = Holder.here()
    assert another != here
    assert not another.gone
    another.ends()
    another.ends()
    assert (another.gone, here.gone) == (True, False)
    assert str(here) == "this process"


def test_another_process_is_gone_when_it_has_ended(
    elsewhere: tuple[Holder, subprocess.Popen[bytes]],
) -> None:
    holder, process = elsewhere
    assert holder.pid == process.pid
    assert str(holder) == f"process {process.pid} on {os.uname().nodename}"
    assert not holder.gone
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert holder.gone, "it is dead, though nobody has asked how it ended"
    process.wait()
    assert holder.gone


def test_a_process_with_the_same_id_is_not_the_same(
    elsewhere: tuple[Holder, subprocess.Popen[bytes]], here: Holder
) -> None:
    holder, _ = elsewhere
    assert changed(holder, started=holder.started - 1).gone
    ours = changed(here, started=here.started - 1)
    assert ours.gone
    assert str(ours) == f"process {os.getpid()} on {here.host}"


@pytest.mark.parametrize("field", ["boot", "namespace"])
def test_who_runs_where_we_cannot_look_is_waited_for(
    field: str, elsewhere: tuple[Holder, subprocess.Popen[bytes]], here: Holder
) -> None:
    """Another machine, or another container of this one; or this one, before it was started anew."""
    holder, process = elsewhere
    process.kill()
    process.wait()
    for one in (holder, here):
        other = changed(one, **{field: "another"})
        assert not other.gone
        assert str(other) == f"process {one.pid} on {one.host}"


def test_somebody_elses_process_is_waited_for(
    elsewhere: tuple[Holder, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, process = elsewhere

    def kill(pid: int, signal: int) -> None:
        assert (pid, signal) == (process.pid, 0)
        raise PermissionError

    monkeypatch.setattr("os.kill", kill)
    assert not holder.gone


def test_a_process_of_which_the_system_says_no_more_is_waited_for(
    elsewhere: tuple[Holder, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where there is no `/proc`: then a number that is in use counts."""
    holder, process = elsewhere
    monkeypatch.setattr("interlock.log.stores.holder._process", lambda pid: None)
    assert not holder.gone
    process.kill()
    process.wait()
    assert holder.gone


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"host":"h","pid":"1","store":"x"}', b"\xff"])
def test_a_holder_that_cannot_be_read_is_waited_for(data: bytes) -> None:
    holder = decode_holder(data)
    assert not holder.gone
    assert str(holder) == "process 0 on another machine"
