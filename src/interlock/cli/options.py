"""Options that more than one command has.

Lives here: `BaseUrl`.
"""

from __future__ import annotations

from typing import Annotated

import typer

BaseUrl = Annotated[
    str | None,
    typer.Option(
        envvar="INTERLOCK_BASE_URL",
        metavar="URL",
        help="The server to ask instead of the provider's own.",
    ),
]
