"""The folders of people, and what of one's own a developer's programs need.

Lives here: `home_folders`, `toolchains` and the `environment` of a sandboxed command.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_FIRST_PERSON = 1000  # users below are services

#: Where version managers and installers put programs, below a home folder. Nothing here holds credentials.
_TOOLS = (
    ".asdf", ".bun/bin", ".cargo/bin", ".cargo/env", ".cargo/registry", ".deno/bin", ".dotnet", ".elan", ".fnm",
    ".ghcup/bin", ".ghcup/ghc", ".goenv", ".jenv", ".juliaup", ".local/bin", ".local/lib", ".local/pipx",
    ".local/share/fnm", ".local/share/mise", ".local/share/pipx", ".local/share/pnpm", ".local/share/uv/python",
    ".local/share/uv/tools", ".nix-profile", ".nodenv", ".nvm", ".opam", ".phpenv", ".plenv", ".pyenv", ".rbenv",
    ".rustup", ".rvm", ".sdkman", ".swiftly", ".volta", "go/bin", "go/pkg/mod",
)  # fmt: skip

_PASSED = frozenset(
    {
        "PATH", "LANG", "LANGUAGE", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR",
        "CLICOLOR_FORCE", "COLUMNS", "LINES", "TZ", "TZDIR", "CI", "USER", "LOGNAME", "SHELL",
        "SOURCE_DATE_EPOCH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_ROOT",
        "PYENV_VERSION", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONUTF8",
        "PYTHONIOENCODING", "NVM_DIR", "NODE_ENV", "VOLTA_HOME", "FNM_DIR", "BUN_INSTALL", "DENO_INSTALL",
        "PNPM_HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "GOPATH", "GOROOT", "GOTOOLCHAIN",
        "JAVA_HOME", "MAVEN_HOME", "GRADLE_HOME", "SDKMAN_DIR", "RBENV_ROOT", "RBENV_VERSION", "GEM_HOME",
        "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "DOTNET_ROOT", "SSL_CERT_FILE", "SSL_CERT_DIR",
        "NIX_SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
    }
)  # fmt: skip

_IDENTITY = r"^(user\.(name|email)|init\.defaultbranch|core\.(autocrlf|eol)|safe\.directory)$"


def home_folders() -> list[str]:
    """Of everybody who may have one, root's and one's own first. Links are followed."""
    found = [
        os.path.realpath(path) for path in (*_own(), "/root", "/home", *_others()) if path.startswith("/")
    ]
    return [path for path in dict.fromkeys(found) if _can_be_hidden(path)]


def _own() -> list[str]:
    found = [os.environ.get("HOME", "")]
    with suppress(KeyError):  # a container may run as a number that nobody has named
        found.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return found


def _others() -> list[str]:
    """By the file of this machine: a directory service may take long to name all people, and they live in /home."""
    try:
        lines = Path("/etc/passwd").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    people = [line.split(":") for line in lines]
    return [one[5] for one in people if len(one) == 7 and one[2].isdigit() and int(one[2]) >= _FIRST_PERSON]


def _can_be_hidden(path: str) -> bool:
    """Whether it is a folder of its own, and not one of the system's that somebody calls a home."""
    system = (
        "/usr",
        "/etc",
        "/bin",
        "/sbin",
        "/lib",
        "/lib64",
        "/var",
        "/opt",
        "/dev",
        "/proc",
        "/sys",
        "/tmp",
        "/run",
    )
    return (
        os.path.isdir(path)
        and path != "/"
        and path not in system
        and not path.startswith(("/proc/", "/dev/", "/sys/"))
    )


def own_home() -> str:
    """The home folder of this user; the temporary folder where there is none."""
    found = [os.path.realpath(path) for path in _own() if path.startswith("/")]
    return next((path for path in found if _can_be_hidden(path)), "/tmp")


def toolchains(home: str, hidden: Iterable[str], path: str) -> list[str]:
    """What lies in hidden folders and is needed to run the programs of `path` (as in PATH)."""
    folders = [Path(folder) for folder in hidden]
    places = [
        Path(entry) for entry in path.split(os.pathsep) if os.path.isabs(entry) and os.path.isdir(entry)
    ]
    inside = {place: whose for place in places if (whose := _home_of(place, folders)) is not None}
    homes = dict.fromkeys([home, *map(str, inside.values())])
    found = [f"{one}/{name}" for one in homes for name in _TOOLS if os.path.exists(f"{one}/{name}")]
    for place in inside:
        if not any(place.is_relative_to(one) for one in found):
            found.append(str(_installation(place, folders)))
    return found


def _home_of(place: Path, folders: Sequence[Path]) -> Path | None:
    """The innermost of the folders that it lies in."""
    around = [folder for folder in folders if place != folder and place.is_relative_to(folder)]
    return max(around, key=lambda folder: len(folder.parts)) if around and place not in folders else None


def _installation(programs: Path, folders: Sequence[Path]) -> Path:
    """An environment of Python or conda, or a prefix with libraries of its own: its programs need all of it."""
    prefix = programs.parent
    if prefix in folders or (prefix / ".git").exists():
        return programs
    return (
        prefix if any((prefix / sign).exists() for sign in ("pyvenv.cfg", "conda-meta", "lib")) else programs
    )


def environment(
    given: Mapping[str, str], *, home: str, passed: Iterable[str], added: Mapping[str, str]
) -> dict[str, str]:
    """The variables of a sandboxed command: what is known to be harmless, what was asked for, and a home of its own.

    passed: more names; one that ends with `*` stands for all that begin so.
    """
    prefixes = ("LC_", *[name[:-1] for name in passed if name.endswith("*")])
    names = {*_PASSED, *passed}
    made = {name: value for name, value in given.items() if name in names or name.startswith(prefixes)}
    # A repository above the workspace is on another file system where the workspace is mounted into an empty folder.
    made |= {"HOME": home, "TMPDIR": "/tmp", "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1"}
    return made | dict(added)


def git_settings(git: str | None) -> bytes:
    """A `.gitconfig` with who commits, and nothing of it that may hold a credential."""
    if git is None:
        return b""
    asked = subprocess.run(
        [git, "config", "--global", "--includes", "-z", "--get-regexp", _IDENTITY],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    lines: list[bytes] = []
    for entry in asked.stdout.split(b"\0"):
        key, _, value = entry.partition(b"\n")
        section, _, name = key.partition(b".")
        if name:
            quoted = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
            lines.append(b'[%s]\n\t%s = "%s"\n' % (section, name, quoted))
    return b"".join(lines)


def git_files(settings: bytes, home: str, ignored: Sequence[str]) -> dict[str, bytes]:
    """Files of git in the home folder, by name. ignored: files that are not to be added to a repository."""
    if not ignored:
        return {".gitconfig": settings}
    name = ".config/git/ignore"
    lines = b"".join(os.fsencode(one) + b"\n" for one in ignored)
    path = os.fsencode(f"{home}/{name}").replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return {".gitconfig": settings + b'[core]\n\texcludesFile = "%s"\n' % path, name: lines}
