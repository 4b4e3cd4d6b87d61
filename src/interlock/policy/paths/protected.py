"""Places whose change is never waved through: what runs code later, or decides what may run.

Lives here: their names, all of them, and `protected`. An edit of one asks a person whatever rules or a preset allow; a
rule that denies still denies. Names count at any depth below the workspace, and anywhere outside it.
"""

from __future__ import annotations

from interlock.policy.paths.located import Located, Root, folded

_GIT = "git runs hooks and programs that are named there"
_AGENT = "it decides what an agent may do, or runs hooks"
_EDITOR = "an editor runs tasks and programs that are named there"
_HOOK = "it runs by itself"
_SHELL = "shells and sessions run it when they start"
_TOOL = "programs that are named there run later, or where packages come from is"
_SECRET = "it holds credentials, or decides who may log in"
_SYSTEM = "it belongs to the system"

#: A file or folder of this name, and what is in it.
NAMES: dict[str, str] = {
    **dict.fromkeys((".git", ".gitconfig", ".gitmodules", ".githooks", ".hg", ".svn", ".jj"), _GIT),
    **dict.fromkeys(
        (
            "grants.toml", "hook-trust.json", "interlock.db", "interlock.db-wal",
            ".claude", ".claude.json", ".codex", ".gemini", ".cursor", ".windsurf", ".continue", ".interlock",
            "interlock.toml", "interlock.local.toml", ".mcp.json", ".aider.conf.yml", ".opencode", "opencode.json",
        ),
        _AGENT,
    ),
    **dict.fromkeys((".vscode", ".idea", ".zed", ".fleet", ".devcontainer", ".vim", ".vimrc", ".nvim", ".exrc"), _EDITOR),
    **dict.fromkeys(
        (
            ".husky", ".pre-commit-config.yaml", "lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lefthook.yaml",
            ".huskyrc", ".envrc", ".direnvrc", ".crontab", ".gdbinit", ".lldbinit", ".pdbrc",
        ),
        _HOOK,
    ),
    **dict.fromkeys(
        (
            ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
            ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".logout",
            ".inputrc", ".xinitrc", ".xprofile", ".xsession", ".xsessionrc", ".tmux.conf", ".screenrc",
        ),
        _SHELL,
    ),
    **dict.fromkeys(
        (
            ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".bunfig.toml", ".pypirc", ".pydistutils.cfg",
            "pip.conf", ".condarc", ".gemrc", ".curlrc", ".wgetrc", ".ripgreprc", ".m2", ".terraformrc",
        ),
        _TOOL,
    ),
    **dict.fromkeys(
        (
            ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", ".pgpass", ".my.cnf", ".git-credentials",
            ".password-store", "authorized_keys", "id_rsa", "id_ecdsa", "id_ed25519", ".boto", ".vault-token",
        ),
        _SECRET,
    ),
}  # fmt: skip

#: The same for names that only mean this one after the other.
SEQUENCES: dict[tuple[str, ...], str] = {
    (".config", "git"): _GIT,
    (".github", "hooks"): _AGENT,
    (".github", "copilot"): _AGENT,
    (".config", "interlock"): _AGENT,
    (".local", "state", "interlock"): _AGENT,
    (".config", "systemd"): _HOOK,
    (".config", "autostart"): _HOOK,
    (".config", "environment.d"): _SHELL,
    (".local", "bin"): _SHELL,
    ("library", "launchagents"): _HOOK,
    (".config", "fish"): _SHELL,
    (".config", "nvim"): _EDITOR,
    (".config", "pip"): _TOOL,
    (".config", "uv"): _TOOL,
    (".cargo", "config"): _TOOL,
    (".cargo", "config.toml"): _TOOL,
    (".gradle", "init.d"): _TOOL,
    (".cargo", "credentials"): _SECRET,
    (".cargo", "credentials.toml"): _SECRET,
    (".gem", "credentials"): _SECRET,
    (".docker", "config.json"): _SECRET,
    (".config", "gh"): _SECRET,
    (".config", "gcloud"): _SECRET,
}

#: Folders of the system; a workspace that lies in one of them is not counted.
SYSTEM = (
    "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/boot", "/dev", "/proc", "/sys", "/root/.ssh",
    "/var/spool/cron", "/private/etc", "/system", "/library",
)  # fmt: skip

#: Writing there changes nothing.
DEVICES = frozenset(
    {"/dev/null", "/dev/zero", "/dev/full", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty"}
    | {f"/dev/fd/{n}" for n in range(3)}
)


def protected_place(located: Located, root: Root) -> str | None:
    """Why an edit of a path may not go through without a person; None if it may. Links count as what they lead to."""
    if located.paths[0] in DEVICES:
        return None
    roots = tuple([folded(name) for name in root.names])
    for path in located.paths:
        why = _protected(folded(path), roots)
        if why is not None:
            shown = located.paths[0]
            leads = f" (it leads to {path})" if path != shown else ""
            return f"{shown}{leads} is protected: {why}"
    return None


def protected_below(path: str, root: Root, home: str) -> str | None:
    """Why a folder may not be changed with everything in it: it is the workspace, the home folder, or holds one."""
    place = folded(path)
    for name in (*root.names, home):
        whole = folded(name)
        if place == whole or whole.startswith(place.rstrip("/") + "/"):
            what = "the home folder" if name == home else "the workspace"
            return f"everything in {path} may change, and {what} with it, settings and history included"
    return None


def _protected(path: str, roots: tuple[str, ...]) -> str | None:
    below = path
    for root in roots:
        if path == root:
            return None
        if root != "/" and path.startswith(root + "/"):
            below = path[len(root) :]
            break
    else:
        for folder in SYSTEM:
            if path == folder or path.startswith(folder + "/"):
                return _SYSTEM
    names = below.split("/")[1:]
    for name in names:
        if (why := NAMES.get(name)) is not None:
            return why
    for sequence, why in SEQUENCES.items():
        if sequence[0] in names and _follow(sequence, names):
            return why
    return None


def _follow(sequence: tuple[str, ...], names: list[str]) -> bool:
    size = len(sequence)
    return any(tuple(names[at : at + size]) == sequence for at in range(len(names) - size + 1))
