"""What the exit code of `interlock` says.

Lives here: the codes, their text for `--help`, and the mapping from end reasons and errors. Imports errors only, so
that `--help` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interlock.errors import ConfigError, InterlockError, SessionError, UnknownSession, UsageError

if TYPE_CHECKING:
    from interlock.log.reasons import EndReason

COMPLETED: Final = 0
FAILED: Final = 1
USAGE: Final = 2
MAX_TOKENS: Final = 3
BLOCKED: Final = 4
BUDGET: Final = 5
SESSION: Final = 6
WAITING: Final = 7
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it
TERMINATED: Final = 143  # 128 + SIGTERM

HELP: Final = """\b
Exit codes:
    0  the turn completed
    1  it ended with an error; `check`: a law is broken; `search`: nothing was found;
       `prune`, `erase`: something was left
    2  the command line, a setting or a session's name is wrong; nothing ran
    3  the model reached its output limit
    4  the task was refused before the model saw it
    5  the budget was spent
    6  the log or its store cannot be used
    7  it waits for a person: answer with `interlock approvals`, then go on with `--resume`
  130  stopped by Ctrl-C
  143  stopped by SIGTERM
"""

_OF_KIND: Final = {
    "completed": COMPLETED,
    "error": FAILED,
    "max-tokens": MAX_TOKENS,
    "blocked": BLOCKED,
    "budget": BUDGET,
    "aborted": INTERRUPTED,
    "interrupted": INTERRUPTED,
}


def of_reason(reason: EndReason) -> int:
    """For a turn that ended with this reason."""
    from interlock.log.reasons import kind_of

    return _OF_KIND[kind_of(reason)]


def of_error(error: InterlockError) -> int:
    """For an error that ended the command."""
    if isinstance(error, (ConfigError, UsageError, UnknownSession)):
        return USAGE
    return SESSION if isinstance(error, SessionError) else FAILED
