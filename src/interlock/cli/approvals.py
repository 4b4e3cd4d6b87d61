"""`interlock approvals`: what waits for a person, and what was allowed for longer than once.

Lives here: the commands `list`, `show`, `answer` and `revoke`. With `--json`, one JSON object a line, whose fields only
ever become more:

    {"kind":"pending","id":"SESSION/APPROVAL","session":…,"approval":…,"tool":…,"call":…,"arguments":{…},"question":…,
     "by":…,"digest":…,"options":[…],"asked":ms,"expires":ms|null,"workspace":…|null,"nested":false}
    {"kind":"grant","scope":"always","number":n,"rule":…,"workspace":…,"by":…|null,"how":…|null,"channel":…|null,
     "time":ms,"session":…|null,"file":…,"line":n|null}
    {"kind":"grant","scope":"session","number":n,"rule":…,"session":…,"seq":n}
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.stores.questions import OpenApproval
    from interlock.log.stores.store import Store
    from interlock.policy.approvals.grants import Grant

approvals = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_JSON = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
_ID = Annotated[
    str,
    typer.Argument(metavar="ID", help="SESSION/APPROVAL, or as much of its end as says which one is meant."),
]
_SESSION = Annotated[
    str | None,
    typer.Option(metavar="SESSION", help="Its id, the beginning or the end of it, or `last`."),
]


@approvals.callback()
def _approvals() -> None:
    """See and answer what waits for a person, and take back what was allowed for longer than once."""


@approvals.command("list")
def list_(session: _SESSION = None, json: _JSON = False) -> None:
    """List the questions that are open in all sessions, and the rules that are allowed always.

    With --session, the rules that are allowed for that session, too.
    """
    import asyncio

    asyncio.run(_list(session, json))


@approvals.command()
def show(approval: _ID, json: _JSON = False) -> None:
    """Show one open question: what would run, who asks, and what may be answered."""
    import asyncio

    asyncio.run(_show(approval, json))


@approvals.command()
def answer(
    approval: _ID,
    answer: Annotated[
        Literal["yes", "no", "session", "always"],
        typer.Argument(
            help="Run it once; not; or write the rule that was offered, for the session or always."
        ),
    ],
    message: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With `no`: what the model reads.")
    ] = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="With `yes`: run it with these arguments instead.")
    ] = None,
    digest: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST", help="Of what you saw, as `show` has it: refused if it is not what is asked."
        ),
    ] = None,
) -> None:
    """Answer a question. Whoever drives the session goes on; if nobody does, `interlock run --resume SESSION` will."""
    import asyncio

    asyncio.run(_answer(approval, answer, message, arguments, digest))


@approvals.command()
def revoke(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="The rule, or its number in `list`.")],
    session: _SESSION = None,
) -> None:
    """Take a rule back: what it covers is asked again. Without --session, one that is allowed always."""
    import asyncio

    asyncio.run(_revoke(rule, session))


# list


async def _list(session: str | None, as_json: bool) -> None:
    from interlock.cli.reading import find, stored
    from interlock.log.event import encode_json
    from interlock.log.stores.questions import open_approvals
    from interlock.policy.approvals.grants import Grants

    async with stored() as store:
        pending = await open_approvals(store)
        granted = await _granted(store, await find(store, session)) if session is not None else []
    remembered = Grants().load()
    lines = [_pending(one) for one in pending]
    lines += [_always(number, grant) for number, grant in enumerate(remembered, 1)]
    lines += granted
    if as_json:
        for line in lines:
            sys.stdout.buffer.write(encode_json(line) + b"\n")
        return
    if not lines:
        print("Nothing waits for a person, and no rule is remembered.")
        return
    for text in _told(lines):
        print(text)


def _told(lines: list[dict[str, Any]]) -> list[str]:
    from interlock.cli.oneline import arguments, moment, short

    told = []
    for line in lines:
        if line["kind"] == "pending":
            what = arguments(line["arguments"], 100)
            told.append(f"? {line['id']}  {short(line['tool'], 40)} {what}")
            told.append(f"    {moment(line['asked'])}  {short(line['question'], 120)}")
        elif line["scope"] == "always":
            who = f" by {short(line['by'], 40)}" if line["by"] else ""
            told.append(
                f"{line['number']:>3}  always in {short(line['workspace'], 200)}: {short(line['rule'], 200)}"
            )
            told.append(f"     {moment(line['time'])}{who}")
        else:
            told.append(f"{line['number']:>3}  in session {line['session']}: {short(line['rule'], 200)}")
    return told


def _pending(one: OpenApproval) -> dict[str, Any]:
    asked = one.asked
    return {
        "kind": "pending",
        "id": one.id,
        "session": one.session,
        "approval": asked.approval_id,
        "tool": one.tool,
        "call": one.call_id,
        "arguments": asked.effective,
        "question": asked.question,
        "by": asked.by,
        "digest": asked.digest,
        "options": asked.options,
        "asked": one.time,
        "expires": asked.expires,
        "workspace": one.cwd,
        "nested": one.nested,
    }


def _always(number: int, grant: Grant) -> dict[str, Any]:
    return {
        "kind": "grant",
        "scope": "always",
        "number": number,
        "rule": grant.rule,
        "workspace": grant.workspace,
        "by": grant.by,
        "how": grant.how,
        "channel": grant.channel,
        "time": grant.time,
        "session": grant.session,
        "file": grant.file,
        "line": grant.line,
    }


async def _granted(store: Store, session_id: str) -> list[dict[str, Any]]:
    """What is allowed for this session."""
    from interlock.log.session import open_session

    session = await open_session(session_id, store=store, readonly=True)
    try:
        return [
            {
                "kind": "grant",
                "scope": "session",
                "number": number,
                "rule": rule,
                "session": session_id,
                "seq": seq,
            }
            for number, (rule, seq) in enumerate(session.state.grants.items(), 1)
        ]
    finally:
        await session.close()


# show


async def _show(typed: str, as_json: bool) -> None:
    from interlock.cli.reading import stored
    from interlock.log.event import encode_json

    async with stored() as store:
        one = await _find(store, typed)
    if as_json:
        sys.stdout.buffer.write(encode_json(_pending(one)) + b"\n")
        return
    from pathlib import Path

    from interlock.cli.oneline import moment
    from interlock.policy.approval import offered
    from interlock.policy.preview import preview
    from interlock.policy.printable import one_line
    from interlock.toolkit import workspace

    asked = one.asked
    subject = next((tool.subject for tool in workspace() if tool.name == one.tool), None)
    print(f"{one_line(one.tool)} wants to run: {one_line(asked.question)}")
    print(f"  {one.id}, asked {moment(one.time)} by {one_line(asked.by) or 'nobody who is named'}")
    if one.cwd is not None:
        print(f"  in {one_line(one.cwd)}")
    for line in preview(asked.effective, subject, Path(one.cwd) if one.cwd is not None else None):
        print(f"  {line.text}")
    print(f"  digest {asked.digest}")
    if asked.expires is not None:
        print(f"  without an answer by {moment(asked.expires)} it is a no")
    if one.nested:
        print("  It is asked within another call, and ends with the process that runs that one.")
    print(f"interlock approvals answer {one.id} yes|no")
    for scope, rule in offered(asked.options).items():
        print(f"interlock approvals answer {one.id} {scope}    writes {one_line(rule)}")


async def _find(store: Store, typed: str) -> OpenApproval:
    """The open question that is meant.

    Raises:
        UnknownApproval: there is none. UsageError: there are several.
    """
    from interlock.errors import UnknownApproval, UsageError
    from interlock.log.stores.questions import open_approvals

    pending = await open_approvals(store)
    exact = [one for one in pending if one.id == typed or one.asked.approval_id == typed]
    found = exact or [one for one in pending if one.id.endswith(typed) or one.id.startswith(typed)]
    if not found or not typed:  # every id begins with nothing
        raise UnknownApproval(typed, [one.id for one in pending])
    if len(found) > 1:
        some = ", ".join([one.id for one in found[:3]]) + (", …" if len(found) > 3 else "")
        raise UsageError(f"{typed!r} could be any of {len(found)} questions: {some}. Type more of the id.")
    return found[0]


# answer


async def _answer(
    typed: str, answer: str, message: str | None, arguments: str | None, digest: str | None
) -> None:
    from interlock.cli.reading import stored
    from interlock.errors import UnknownApproval, UsageError
    from interlock.loop.mailbox import Mailbox
    from interlock.loop.pending import answer_pending

    if message is not None and answer != "no":
        raise UsageError("--message goes with `no`: a yes says nothing to the model.")
    if arguments is not None and answer != "yes":
        raise UsageError("--arguments goes with `yes`.")
    edited = _edited(arguments) if arguments is not None else None
    async with stored() as store:
        try:
            one = await _find(store, typed)
        except UnknownApproval:
            session_id, _, approval_id = typed.partition("/")
            if approval_id:  # it may have been decided: then it is said by whom
                await answer_pending(session_id, approval_id, _said("no", None), store=store)
            raise
        if one.nested and await Mailbox(one.session, store=store).driver() is None:
            raise UsageError(
                f"{one.id} is asked within another call: it has ended with the process that ran that one."
            )
        answered = _said(answer, message)
        if answer in ("session", "always"):
            driver = await _answer_and_remember(store, one, answer, digest)
        else:
            from msgspec.structs import replace

            answered = replace(answered, edited=edited)
            driver = await answer_pending(
                one.session, one.asked.approval_id, answered, store=store, digest=digest, redactor=_redactor()
            )
        left = [other for other, _ in await store.approvals() if other == one.session]
    print(f"{one.id}: {answer}.")
    if left:
        print(
            f"{len(left)} more of this session {'waits' if len(left) == 1 else 'wait'}: interlock approvals list"
        )
    elif driver is None:
        print(f"Go on: interlock run --resume {one.session}")
    else:
        print(f"{driver} goes on.")


def _edited(text: str) -> Any:
    from interlock.errors import UsageError
    from interlock.log.strictjson import FrozenDict, NotJSON, parse

    try:
        value = parse(text)
    except NotJSON as error:
        raise UsageError(f"--arguments is not JSON: {error}") from None
    if type(value) is not FrozenDict:
        raise UsageError("--arguments is a JSON object, as `show` has it.")
    return value


def _said(answer: str, message: str | None) -> Any:
    """The answer of whoever runs this command."""
    from interlock.cli.person import name
    from interlock.tools.approval import Answered, How

    who = name()
    how: How = "tty" if sys.stdin.isatty() else "api"
    return Answered("rejected" if answer == "no" else "allowed-once", message, who, how, "command line")


async def _answer_and_remember(store: Store, one: OpenApproval, scope: str, digest: str | None) -> str | None:
    """Who drives the session, None: nobody.

    Raises:
        ApprovalError: it was not offered. ConfigError, OSError: the rule cannot be kept; nothing was answered.
    """
    from typing import cast

    from msgspec.structs import replace

    from interlock.errors import ApprovalError
    from interlock.loop.pending import answer_pending
    from interlock.policy.approval import offered
    from interlock.policy.approvals.grants import Grant, Grants, workspace_of
    from interlock.tools.approval import Remember

    remember = cast("Remember", scope)
    rule = offered(one.asked.options).get(remember)
    if rule is None:
        raise ApprovalError(one.id, f"to remember it ({scope}) was not offered; answer yes or no.")
    answered = replace(_said("yes", None), remember=remember, rule=rule)
    grants, grant = Grants(), None
    if scope == "always":
        from time import time

        assert one.cwd is not None  # it is offered only where there is a folder
        grant = Grant(
            workspace_of(one.cwd),
            rule,
            answered.by,
            answered.how,
            answered.channel,
            int(time() * 1000),
            one.session,
        )
        if any(kept.rule == rule for kept in grants.load(one.cwd)):
            grant = None
        else:
            grants.add(grant)
    try:
        return await answer_pending(
            one.session, one.asked.approval_id, answered, store=store, digest=digest, redactor=_redactor()
        )
    except BaseException:
        if grant is not None:
            grants.revoke(grant.workspace, rule)
        raise


# revoke


async def _revoke(typed: str, session: str | None) -> None:
    if session is not None:
        await _revoke_in_session(typed, session)
        return
    from interlock.errors import UsageError
    from interlock.policy.approvals.grants import Grants, workspace_of

    grants = Grants()
    kept = grants.load()
    if typed.isdecimal() and 1 <= int(typed) <= len(kept):
        found = [kept[int(typed) - 1]]
    else:
        found = [grant for grant in kept if grant.rule == typed]
        here = [grant for grant in found if grant.workspace == workspace_of(".")]
        found = here or found
    if not found:
        raise UsageError(
            f"No rule {typed!r} is allowed always. `interlock approvals list` shows those that are."
        )
    if len(found) > 1:
        folders = ", ".join([grant.workspace for grant in found])
        raise UsageError(f"{typed!r} is allowed in several folders: {folders}. Give its number in `list`.")
    (grant,) = found
    grants.revoke(grant.workspace, grant.rule)
    print(f"{_plain(grant.rule)} is asked again in {_plain(grant.workspace)}.")


async def _revoke_in_session(typed: str, session: str) -> None:
    from interlock.cli.reading import find, stored
    from interlock.errors import UsageError
    from interlock.log.facts import GrantRevoked
    from interlock.log.session import open_session

    async with stored() as store:
        session_id = await find(store, session)
        looking = await open_session(session_id, store=store, readonly=True)
        try:
            rules = list(looking.state.grants)
        finally:
            await looking.close()
        rule = rules[int(typed) - 1] if typed.isdecimal() and 1 <= int(typed) <= len(rules) else typed
        if rule not in rules:
            allowed = ", ".join(rules) or "nothing"
            raise UsageError(f"{typed!r} is not allowed for session {session_id}; allowed: {allowed}.")
        writing = await open_session(session_id, store=store)
        try:
            writing.append(GrantRevoked(rule, _said("no", None).by))
            await writing.barrier()
        finally:
            await writing.close()
    print(f"{_plain(rule)} is asked again in session {session_id}.")


def _redactor() -> Redactor:
    """What is said with an answer goes into the log, and to the model."""
    from interlock.cli.place import redactor

    return redactor()


def _plain(text: str) -> str:
    from interlock.policy.printable import one_line

    return one_line(text)
