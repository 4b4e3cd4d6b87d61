"""The parts of a sandbox that can be looked at without running one."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.process.sandbox.people import environment, git_files, toolchains
from interlock.process.sandbox.seccomp import program
from interlock.process.sandbox.supervisor import Report
from interlock.process.sandbox.view import View

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
X86 = 0xC000003E


def answer(filters: bytes, machine: int, number: int, first: int = 0, second: int = 0) -> int:
    """What the kernel's machine for such filters answers."""
    data = struct.pack("=IIQQQQ", number, machine, 0, first, second, second)
    lines = list(struct.iter_unpack("=HBBI", filters))
    at = loaded = 0
    while True:
        code, yes, no, value = lines[at]
        if code == 0x06:
            return value
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
            at += 1
        else:
            met = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            at += 1 + (yes if met else no)


@settings(deadline=None)
@given(st.integers(0, 2**30 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_filter_answers_every_call_and_refuses_only_what_it_names(
    number: int, first: int, second: int
) -> None:
    filters = program("x86_64")
    assert filters is not None
    told = answer(filters, X86, number, first, second)
    if number not in (16, 41, 90, 91, 248, 249, 250, 268, 298, 321, 323, 425, 426, 427, 452):
        assert told == ALLOW
    assert told == ALLOW or told & ~0xFFFF == ERRNO


@pytest.mark.parametrize(
    ("number", "first", "second", "told"),
    [
        (0, 0, 0, ALLOW),  # read
        (41, 1, 1, ALLOW),  # socket: unix
        (41, 2, 1, ALLOW),
        (41, 10, 1, ALLOW),
        (41, 16, 3, ALLOW),
        (41, 40, 1, ERRNO | 97),  # the host of a virtual machine
        (41, 17, 3, ERRNO | 97),
        (16, 0, 0x5401, ALLOW),  # ioctl: what a terminal is like
        (16, 0, 0x5412, ERRNO | 1),
        (90, 0, 0o755, ALLOW),  # chmod
        (90, 0, 0o4755, ERRNO | 1),
        (268, 0, 0o2755, ERRNO | 1),
        (452, 0, 0o1777, ALLOW),
        (250, 0, 0, ERRNO | 1),
        (425, 8, 0, ERRNO | 38),
        (0x40000000, 0, 0, ERRNO | 38),  # another interface of the same processor
    ],
)
def test_calls_of_a_filter(number: int, first: int, second: int, told: int) -> None:
    filters = program("x86_64")
    assert filters is not None
    assert answer(filters, X86, number, first, second) == told


def test_another_instruction_set_is_killed_and_an_unknown_machine_has_no_filter() -> None:
    filters = program("x86_64")
    assert filters is not None
    assert answer(filters, 0x40000003, 0) == KILL
    arm = program("aarch64")
    assert arm is not None
    assert answer(arm, 0xC00000B7, 198, 40) == ERRNO | 97
    assert program("m68k") is None


names = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)


@settings(deadline=None)
@given(st.dictionaries(names, st.sampled_from(["hidden", "shown", "writable", "scratch"])), names)
def test_the_innermost_place_decides_what_is_seen(places: dict[str, str], path: str) -> None:
    view = View(["/"])
    for place, kind in places.items():
        view.put(kind, place)  # type: ignore[arg-type]
    around = [str(one) for one in (Path(path), *Path(path).parents) if str(one) in places]
    assert view.shows(path) == (not around or places[around[0]] in ("shown", "writable"))


@settings(deadline=None)
@given(st.dictionaries(names, st.sampled_from(["shown", "writable", "scratch"])))
def test_outer_places_are_mounted_first(places: dict[str, str]) -> None:
    view = View(["/"])
    for place, kind in places.items():
        view.put(kind, place)  # type: ignore[arg-type]
    mounted = [word for word in view.arguments(1) if word in places]
    order = list(dict.fromkeys(mounted))
    assert sorted(order) == sorted(places)
    for i, place in enumerate(order):
        assert not any(Path(place).is_relative_to(later) for later in order[i + 1 :])


def test_where_only_some_places_are_readable_the_rest_is_not_seen() -> None:
    view = View(["/usr"])
    assert view.shows("/usr/bin/env")
    assert not view.shows("/srv/x")
    assert view.arguments(1)[-4:] == ["--remount-ro", "/", "--remount-ro", "/proc"]


VARIABLES = st.dictionaries(st.from_regex(r"[A-Z_]{1,12}", fullmatch=True), st.text(max_size=5))


@settings(deadline=None)
@given(VARIABLES, st.lists(st.from_regex(r"[A-Z_]{1,3}\*?", fullmatch=True), max_size=3))
def test_no_variable_gets_in_that_nobody_has_named(given_: dict[str, str], passed: list[str]) -> None:
    secret = {
        "X_TOKEN": "1",
        "AWS_SECRET_ACCESS_KEY": "2",
        "SSH_AUTH_SOCK": "3",
        "LD_PRELOAD": "4",
        "BASH_ENV": "5",
    }
    made = environment(given_ | secret, home="/home/x", passed=passed, added={})
    for name in secret:
        named = name in passed or any(one.endswith("*") and name.startswith(one[:-1]) for one in passed)
        assert (name in made) == named
    assert (made["HOME"], made["TMPDIR"]) == ("/home/x", "/tmp")


def test_tools_in_a_home_folder_are_shown_and_nothing_else_of_it(tmp_path: Path) -> None:
    for name in (
        ".pyenv/shims",
        ".cargo/bin",
        ".ssh",
        "venv/bin",
        "project/bin",
        "project/.git",
        "project/lib",
        "plain/bin",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / ".cargo" / "credentials.toml").touch()
    entries = (".pyenv/shims", ".cargo/bin", "venv/bin", "project/bin", "plain/bin", "missing/bin", ".")
    path = os.pathsep.join([*[str(tmp_path / one) for one in entries], "/usr/bin", "relative", ""])
    shown = {str(Path(one).relative_to(tmp_path)) for one in toolchains(str(tmp_path), [str(tmp_path)], path)}
    assert shown == {".pyenv", ".cargo/bin", "venv", "project/bin", "plain/bin"}


def test_names_of_ignored_files_are_where_git_looks_for_them() -> None:
    assert git_files(b"[user]\n", "/home/x", []) == {".gitconfig": b"[user]\n"}
    files = git_files(b"", '/home/"x', ["interlock.toml"])
    assert files[".gitconfig"] == b'[core]\n\texcludesFile = "/home/\\"x/.config/git/ignore"\n'
    assert files[".config/git/ignore"] == b"interlock.toml\n"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"begun\nended 0\n", (0, None)),
        (b"begun\nended 139\n", (139, None)),
        (b"begun\nSegmentation fault\nended 139\n", (None, 11)),
        (b"begun\nsandbox: line 5:     3 Killed   ( exec ...)\nended 137\nleft TERM\n", (None, 9)),
        (b"begun\nended 130\n", (None, 2)),
        (b"begun\nsandbox: 5: exec: no: not found\nended 127\n", (127, None)),
        (b"begun\n", None),
        (b"bwrap: no\n", None),
    ],
)  # fmt: skip
async def test_a_report_in_any_pieces(said: bytes, status: tuple[int | None, int | None] | None) -> None:
    for size in (1, 3, len(said)):
        report = Report()
        for at in range(0, len(said), size):
            report.add(said[at : at + size])
        assert report.status == status
        assert report.begun == said.startswith(b"begun")
        assert report.ended.done() == (status is not None)
