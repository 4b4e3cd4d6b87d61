"""Where the command line keeps sessions: `--store`, else `$INTERLOCK_STORE`, else the default file.

Lives here: `StoreAddress`, the option before the command; `meant_by_option`, which holds for one command line;
`place`, what is meant now; and `redactor`, which knows the password of it. Imports no store, so that `--help` stays
fast.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.stores.address import Address

VARIABLE = "INTERLOCK_STORE"

StoreAddress = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="ADDRESS",
        help="Where sessions are kept: a SQLite file, jsonl:FOLDER or postgresql://USER@HOST/DATABASE. A password "
        "does not belong here, where others see it: set INTERLOCK_STORE, which means the same.",
        show_default=False,
    ),
]

_given: ContextVar[str | None] = ContextVar("interlock_store_option", default=None)


def meant_by_option(context: typer.Context, address: str | None) -> None:
    """All of this command line is about the sessions that are kept there."""
    token = _given.set(address)
    context.call_on_close(lambda: _given.reset(token))


def place() -> Address:
    """Where sessions are kept.

    Raises:
        ConfigError: what was given is no address.
    """
    from interlock.log.stores.address import Address

    given = _given.get()
    return Address.of(given if given is not None else os.environ.get(VARIABLE) or None)


def redactor() -> Redactor:
    """Takes out what looks like a key, the secrets of the environment, and the password of the store.

    Raises:
        ConfigError: as of `place`.
    """
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.redaction.spelling import SHORTEST

    made = Redactor.of_environment(os.environ)
    password = place().password
    if password is not None and len(password.strip()) >= SHORTEST:
        made.add(VARIABLE, password)
    return made
