"""Why there can be no sandbox on this machine, and what to do about it.

Lives here: `found_problem`, which runs the smallest sandbox there is.
"""

from __future__ import annotations

import subprocess

_SMALLEST = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--cap-drop", "ALL",
    "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--", "/bin/sh", "-c", ":",
)  # fmt: skip
_PATIENCE = 10.0  # seconds

_INSTALL = (
    "bubblewrap is not installed, and without it nothing runs in a sandbox: install it (Debian, Ubuntu: apt install "
    "bubblewrap; Fedora: dnf install bubblewrap; Arch: pacman -S bubblewrap; Alpine: apk add bubblewrap), or choose "
    "the sandbox mode full"
)

#: What bubblewrap says, and what that means.
_HINTS = (
    (("unknown option",), "it is too old: 0.8 or newer is needed"),
    (
        ("uid map", "userns", "user namespace", "creating new namespace", "no permissions", "no space left"),
        "this user may not create user namespaces. In a container, allow them (with Docker: --security-opt "
        "seccomp=unconfined, and --security-opt apparmor=unconfined); on Ubuntu 24.04, give bwrap an AppArmor profile "
        "that allows userns; elsewhere see the settings user.max_user_namespaces and kernel.unprivileged_userns_clone. "
        "Inside of another sandbox there is no second one",
    ),
    (
        ("mount proc", "proc on"),
        "this container hides parts of /proc. With Docker: --security-opt systempaths=unconfined",
    ),
)

_works: set[str] = set()


def found_problem(bwrap: str | None) -> str | None:
    """None if a sandbox can be had. That is found out once; what fails is tried again."""
    if bwrap is None:
        return _INSTALL
    if bwrap in _works:
        return None
    try:
        tried = subprocess.run(
            [bwrap, *_SMALLEST],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            cwd="/",
            env={},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap ({bwrap}) does not run here: {error}; choose the sandbox mode full, or mend it"
    if tried.returncode == 0:
        _works.add(bwrap)
        return None
    said = tried.stderr.strip().splitlines()[-1:] or [f"it exited with {tried.returncode}"]
    known = next((hint for signs, hint in _HINTS if any(sign in said[0].lower() for sign in signs)), None)
    return f"bubblewrap ({bwrap}) does not run here: {said[0]}" + (f". {known}" if known else "")
