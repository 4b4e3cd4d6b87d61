"""Which paths a pattern covers: the syntax of gitignore, with git itself as the judge where both mean the same."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.policy.paths.located import folded_text
from interlock.policy.paths.pattern import BadPattern, path_pattern

ROOT = "/work"


def covers(pattern: str, path: str, *, wide: bool = False) -> bool:
    made = path_pattern(pattern, anchor=Path("/work/settings"), home=Path("/home/ada"), wide=wide)
    if wide:
        return made.covers(folded_text(path), (ROOT,))
    return made.covers(path, (ROOT,))


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (".env", "/work/.env"),
        (".env", "/work/a/b/.env"),
        ("src", "/work/src/a.py"),
        ("src/", "/work/src/a.py"),
        ("src/**", "/work/src/a/b.py"),
        ("./src/**", "/work/src/a.py"),
        ("**", "/work/x"),
        ("**", "/work"),
        ("*.py", "/work/a/b.py"),
        ("src/*.py", "/work/src/a.py"),
        ("src/**/test_*.py", "/work/src/test_a.py"),
        ("src/**/test_*.py", "/work/src/x/y/test_a.py"),
        ("a?c", "/work/abc"),
        ("[a-c]x", "/work/bx"),
        ("[!a-c]x", "/work/dx"),
        ("[[:digit:]]", "/work/7"),
        (r"\*", "/work/*"),
        ("//etc/hosts", "/etc/hosts"),
        ("//etc/**", "/etc/ssh/config"),
        ("~/.ssh/**", "/home/ada/.ssh/id"),
        ("~/**", "/home/ada/x"),
        ("/docs/**", "/work/settings/docs/a"),
        ("a b", "/work/a b"),
    ],
)
def test_a_pattern_covers(pattern: str, path: str) -> None:
    assert covers(pattern, path)
    assert covers(pattern, path, wide=True)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (".env", "/work/.envrc"),
        ("src/**", "/work/lib/src2/a.py"),
        ("src/*.py", "/work/src/a/b.py"),
        ("a?c", "/work/a/c"),
        ("a*c", "/work/a/c"),
        ("[a-c]x", "/work/dx"),
        ("x[!a]y", "/work/x/y"),
        (r"\*", "/work/a"),
        ("//etc", "/work/etc"),
        ("/docs/**", "/work/docs/a"),
        ("~/x", "/home/bob/x"),
        ("src/secret/**", "/work/lib/src/secret/a"),
        ("src/**", "/works/src/a"),
    ],
)
def test_a_pattern_does_not_cover(pattern: str, path: str) -> None:
    assert not covers(pattern, path)
    assert not covers(pattern, path, wide=True)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("secrets/**", "/work/packages/a/secrets/key"),  # `dir/**` forbids at any depth
        ("secrets/**", "/work/secrets"),  # the folder as well
        ("build/", "/work/build"),
        (".env", "/work/.ENV"),
        (".env", "/work/.env."),
        (".env", "/work/.env . ."),
        (".Env", "/work/a/.eNV "),
        ("caf\u00e9", "/work/cafe\u0301"),
        ("Stra\u00dfe", "/work/STRASSE"),
        (".env", "/elsewhere/.env"),  # a bare name is forbidden wherever it is
        ("./.env", "/work/a/.env"),
        ("**", "/elsewhere/x"),
        ("//ETC/hosts", "/etc/hosts"),
    ],
)
def test_what_forbids_is_read_widely_and_what_allows_is_not(pattern: str, path: str) -> None:
    assert covers(pattern, path, wide=True)
    assert not covers(pattern, path)


@pytest.mark.parametrize("pattern", ["!x", "a/../b", "..", "[a", "a\\", "[[:nothing:]]", "[[:alpha:]"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        path_pattern(pattern, anchor=Path("/"), home=Path("/"), wide=True)


def test_a_hostile_pattern_takes_no_time() -> None:
    """Each run between stars is looked for once: no pattern makes the matcher try all ways to divide a path."""
    pattern = "/".join(["**", "*a*a*a*a*a*a*b"] * 8)
    assert not covers(pattern, "/work/" + "/".join(["a" * 60] * 60))


names = st.text("ab.*?", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
plain_names = st.text("ab.", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
patterns = st.lists(
    st.one_of(names, st.just("**"), st.sampled_from(["[ab]", "[!a]", "a[.b]*"])), min_size=1, max_size=4
)
plain_paths = st.lists(plain_names, min_size=1, max_size=5)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    yield folder
    shutil.rmtree(folder)


def ignored(repository: Path, pattern: str, path: str) -> bool:
    (repository / ".git" / "info" / "exclude").write_text(pattern + "\n")
    asked = [
        "git",
        "-C",
        str(repository),
        "-c",
        "core.excludesFile=",
        "check-ignore",
        "-q",
        "--no-index",
        path,
    ]
    return subprocess.run(asked, check=False).returncode == 0


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(patterns, plain_paths, st.booleans(), st.booleans())
def test_a_pattern_that_allows_covers_what_git_would_ignore(
    repository: Path, pattern: list[str], path: list[str], anchored: bool, trailing: bool
) -> None:
    """Where both mean the same: a leading slash is the repository's folder there, and `./` is the workspace here."""
    inside = "/".join(pattern)
    if inside.endswith("**") and trailing:
        return  # git takes `**/` for folders alone, which only matters for paths that are folders
    text = inside + ("/" if trailing else "")
    relative = "/".join(path)
    if ".git" in relative:
        return  # git does not look there
    by_git = ignored(repository, ("/" if anchored else "") + text, relative)
    by_us = covers(("./" if anchored else "") + text, f"{ROOT}/{relative}")
    assert by_us == by_git, (text, relative)


@settings(max_examples=examples(400), deadline=None)
@given(patterns, plain_paths, st.sampled_from(["", "./", "//work/", "/", "~/"]))
def test_a_wide_pattern_covers_whatever_the_exact_one_does(
    pattern: list[str], path: list[str], start: str
) -> None:
    text = start + "/".join(pattern)
    for base in (ROOT, "/work/settings", "/home/ada", "/other"):
        where = f"{base}/{'/'.join(path)}"
        if covers(text, where):
            assert covers(text, where, wide=True)


@settings(max_examples=examples(400), deadline=None)
@given(patterns, plain_paths, st.data())
def test_what_may_be_covered_includes_what_is(
    pattern: list[str], path: list[str], data: st.DataObject
) -> None:
    """A shell pattern for the path, and every folder above it with what is in it, are within reach of the rule."""
    wide = path_pattern("/".join(pattern), anchor=Path("/a"), home=Path("/h"), wide=True)
    where = folded_text(f"{ROOT}/{'/'.join(path)}")
    if not wide.covers(where, (ROOT,)):
        return
    assert wide.may_cover(where, (ROOT,), glob=False, below=False)
    names = where.split("/")[1:]
    above = "/" + "/".join(names[: data.draw(st.integers(0, len(names)), label="above")])
    assert wide.may_cover(above, (ROOT,), glob=False, below=True)
    place = data.draw(st.integers(1, len(names) - 1), label="name that is a pattern")
    keep = 1 if names[place].startswith(".") else 0  # a star does not stand for a leading dot
    globbed = [*names[:place], names[place][:keep] + "*", *names[place + 1 :]]
    assert wide.may_cover("/" + "/".join(globbed), (ROOT,), glob=True, below=False)


def test_what_may_be_covered_is_not_everything() -> None:
    env = path_pattern(".env", anchor=Path("/"), home=Path("/"), wide=True)
    assert not env.may_cover("/work/*.py", (ROOT,), glob=True, below=False)
    assert not env.may_cover(
        "/work/*", (ROOT,), glob=True, below=False
    )  # the shell leaves out names with a dot
    assert env.may_cover("/work/.e*", (ROOT,), glob=True, below=False)
    assert env.may_cover("/work/sub", (ROOT,), glob=False, below=True)
    secrets = path_pattern("./src/secret/**", anchor=Path("/"), home=Path("/"), wide=True)
    assert secrets.may_cover("/work/src", (ROOT,), glob=False, below=True)
    assert not secrets.may_cover("/work/docs", (ROOT,), glob=False, below=True)
