"""`interlock demo`: watch one agent work."""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli.options import BaseUrl


def demo(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER:NAME", help="Let a real model do the task instead of the scripted one."
        ),
    ] = None,
    base_url: BaseUrl = None,
) -> None:
    """Watch one agent work, be corrected, be denied and be stopped.

    It takes a few seconds and needs neither network nor key: the model is scripted, the tools, the files, the policy
    and the log are real. The folder it works in, and the session, are kept.
    """
    import asyncio

    from interlock.cli.story import tell, tell_real

    raise typer.Exit(asyncio.run(tell() if model is None else tell_real(model, base_url)))
