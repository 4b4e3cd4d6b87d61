"""One turn: the machine that takes input, asks the model, runs its calls, and stops for a reason.

Lives here: `TurnRun`. What ends a turn early is raised to `run`, which writes the missing ends by `closers`; what ends
it in the ordinary way is written where it happens. Two things are kept apart: the outcome that the turn has earned so
far (max-tokens sticks), and the work it still owes (results that the model has not seen).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, assert_never

import msgspec

from interlock.errors import HookContractError, ModelFailure, StoreFailed, said_error
from interlock.intercept.decisions import Continue, Enter, Reject
from interlock.intercept.point import Listener, hear
from interlock.intercept.signal import Signal, Stopped
from interlock.log.assembly import name_calls
from interlock.log.closing import (
    Ending,
    cancelled,
    closers,
    end_turn,
    failed,
    over_budget,
    owed_contexts,
)
from interlock.log.facts import (
    AssistantMessage,
    DecisionMade,
    Fact,
    Failure,
    InboxClaimed,
    InboxDropped,
    InboxReturned,
    InboxSpliced,
    RequestFailed,
    Said,
    Section,
    StepEnd,
    StepStart,
    ToolResulted,
    ToolSpec,
    TurnEnd,
    TurnStart,
    Usage,
    UserMessage,
)
from interlock.log.messages import Message, Source, ToolUse
from interlock.log.reasons import (
    Blocked,
    Cause,
    Completed,
    EndReason,
    Failed,
    MaxTokens,
    OverBudget,
    StepReason,
)
from interlock.log.state import Claim, Step, Turn
from interlock.loop.budget import Meter
from interlock.loop.points import MODEL_STREAM, PRE_STEP, REQUEST, TURN_STOPPING, Attempt, Proposal, Stopping
from interlock.loop.recovery import Recovery
from interlock.loop.stream import consume
from interlock.tools.batch import Batch
from interlock.tools.confinement import Confinement
from interlock.tools.pipeline import CallJob
from interlock.tools.restored import job_of
from interlock.tools.scheduler import Left

if TYPE_CHECKING:
    from interlock.loop.agent import Agent


class _Ended(Exception):
    """The turn ends here, with everything open closed in this way."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending


class TurnRun:
    """Drives one turn of an agent from `turn/start` to `turn/end`, or the one that an earlier life has left waiting."""

    def __init__(self, agent: Agent, meter: Meter, signal: Signal) -> None:
        self.agent = agent
        self.session = agent.session
        self.signal = signal
        left = self.session.state.turn
        self.number = left.number if left is not None else self.session.state.turns + 1
        self.stopped_text: str | None = None  # of a result that stopped the turn
        self.usage = Usage()
        self.steps = 0
        self.jobs: list[CallJob] = []  # of the step that is open
        self._meter = meter
        self._wall = _Wall(meter.wall_left(), signal)
        self._batch: Batch | None = None
        self._system: tuple[Section, ...] = ()
        self._tools: tuple[ToolSpec, ...] = ()
        self._cut_off = False  # this step's answer reached the output ceiling
        self._forced = left.forced if left is not None else 0  # continued without a person

    # From start to end

    async def run(self) -> EndReason:
        """Run it; the reason it ended with. Everything it opened is closed when this returns.

        Raises:
            Left: it waits for a person, and was left as it is.
            StoreFailed: the log cannot be written; nothing was closed.
        """
        if self.session.state.turn is None:
            self.session.append(TurnStart(self.number))
        self._wall.start()
        unlink = self.signal.on_set(self._stop_batch)
        try:
            reason = await self._work()
            self.signal.raise_if_set()
            return self._end(*owed_contexts(self.session.state), end_turn(self.session.state, reason))
        except _Ended as ended:
            return self._close(ended.ending)
        except Stopped:
            return self._close(self._cancelled())
        except (StoreFailed, Left):
            raise
        except asyncio.CancelledError:
            self.signal.set(Cause("disposed", reason="the driving task was cancelled"))
            self._close(self._cancelled())
            raise
        except Exception as error:  # whatever fails inside ends the turn, on record
            if self.session.failure is not None:
                raise self.session.failure from error
            return self._close(failed(reason_of(error)))
        except BaseException as error:  # it goes on to whoever runs the loop, but leaves no turn open
            if self.session.failure is None:
                self._close(failed(reason_of(error)))
            raise
        finally:
            unlink()
            self._wall.stop()

    def _close(self, ending: Ending) -> EndReason:
        if self.signal.cause is not None:
            ending = self._cancelled()  # a stop beats whatever else went wrong meanwhile
        elif self._turn.max_tokens and isinstance(ending.turn, Completed):
            ending = Ending(ending.step, MaxTokens(), ending.unstarted, ending.inbox)
        contexts = self._batch.contexts if self._batch is not None else None
        facts = closers(self.session.state, ending, contexts)
        reason = self._end(*facts)
        ended = [fact for fact in facts if isinstance(fact, ToolResulted)]
        for job, fact in zip(self.jobs[len(self.jobs) - len(ended) :], ended, strict=True):
            job.ended(fact)
        return reason

    def _end(self, *facts: Fact) -> EndReason:
        turn = self._turn
        self.usage = Usage(turn.tally.tokens_in, turn.tally.tokens_out)
        self.steps = turn.steps
        last = self.session.append(*facts)[-1].fact
        assert isinstance(last, TurnEnd)
        return last.reason

    def _cancelled(self) -> Ending:
        cause = self.signal.cause
        assert cause is not None
        if cause is _OUT_OF_TIME:
            return over_budget(OverBudget("wall", self._wall.limit, self._wall.limit))
        turn = self.session.state.turn
        asked = turn.cancel if turn is not None else None
        return cancelled(cause, keep_inbox=asked is None or asked.keep_inbox)

    def confine(self, confinement: Confinement | None) -> None:
        """From the next call on, processes are confined like this."""
        if self._batch is not None:
            self._batch.confinement = confinement

    def waiting(self, waits: bool) -> None:
        """A person is asked, or has answered: meanwhile the wall clock stands still."""
        if waits:
            self._wall.stop()
        else:
            self._wall.start()
        self.agent.wait(waits)

    @property
    def resting(self) -> bool:
        """Nothing of it goes on but for a person, and nothing runs: it can be left, and found again as it is."""
        batch = self._batch
        return batch is not None and batch.scheduler.resting and self.session.state.waiting

    def leave(self) -> None:
        """End the questions, and leave the turn as it is: `run` raises `Left`. Only while it is resting."""
        assert self._batch is not None
        self._batch.scheduler.leave()

    @property
    def _turn(self) -> Turn:
        turn = self.session.state.turn
        assert turn is not None
        return turn

    # Steps

    async def _work(self) -> EndReason:
        step = self.session.state.step
        ended = await self._take_up(step) if step is not None else None  # why the last step ended
        while True:
            owed = ended == "tools"  # the model has not seen the results of the last step
            stops = ended is not None and not owed and not self.session.state.queues.next_step
            if stops and not await self._goes_on(answered=ended != "concluded"):
                return self._outcome()
            spent = self._meter.before_step()
            if spent is not None:
                raise _Ended(over_budget(spent))
            entered = await self._propose(owed)
            if isinstance(entered, Blocked):
                return entered
            if not entered:
                return self._outcome()
            ended = await self._step()

    def _outcome(self) -> EndReason:
        return MaxTokens() if self._turn.max_tokens else Completed()

    # Entering a step

    async def _propose(self, owed: bool) -> bool | Blocked:
        """Claim, assemble, ask `agent/pre-step`, and enter the step. False: there is nothing to enter."""
        session, agent = self.session, self.agent
        self.signal.raise_if_set()
        turn = session.state.turn
        assert turn is not None
        step = turn.steps + 1
        riding = {owing.message.id: owing.call for owing in turn.owed} if turn.owed else {}
        batch = self._claim(step)
        self.signal.raise_if_set()
        self._system, self._tools = agent.sections, agent.specs()
        proposal = Proposal(agent, batch, self.number, step, self.signal)
        if agent.scope.listeners(PRE_STEP):
            proposal = await self._decide(proposal, riding)
            if proposal.rejected is not None:
                return Blocked(proposal.rejected, proposal.by)
        claim = session.state.claim
        reserved = claim.undecided if claim is not None else {}
        lines: list[Fact] = []
        if len(reserved) and agent.scope.listeners(PRE_STEP):
            kept = {message.id for message in proposal.messages}
            left_out = tuple([i for i in reserved if i not in kept])
            if left_out:
                lines.append(InboxDropped(self.number, left_out, "omitted", by=PRE_STEP.name))
        enters = bool(proposal.messages) or owed
        if enters:
            lines.append(StepStart(self.number, step))
            for message in proposal.messages:
                lines.append(self._prompt(message, claim, riding, f"{step}.{len(lines)}"))
            for message in (*proposal.contexts, *agent.runtime_context()):
                message_id = f"s{self.number}.{step}.{len(lines)}"
                lines.append(
                    UserMessage(message_id, message.source, _role(message), message.content, "context")
                )
        session.append(*lines)
        return enters

    def _prompt(
        self, message: Message, claim: Claim | None, riding: dict[str, int], place: str
    ) -> UserMessage:
        """The line of an entered message: a reserved one, a context that rode on a result, or a listener's own."""
        reserved = claim is not None and message.id in claim.undecided
        call = riding.get(message.id)
        return UserMessage(
            message.id or f"s{self.number}.{place}",
            message.source,
            _role(message),
            message.content,
            "context" if call is not None else "prompt",
            claim.seq if claim is not None and reserved else None,
            call,
        )

    def _claim(self, step: int) -> tuple[Message, ...]:
        """Reserve all of next-step and, for a first step, the head of next-turn; the batch that is proposed.

        Contexts of results and next-step input share one order, that of their arrival; the turn's message is last.
        """
        session, queues = self.session, self.session.state.queues
        turn = session.state.turn
        assert turn is not None
        if not turn.owed and not queues.next_step and (step > 1 or not queues.next_turn):
            return ()
        arrived = [(waiting.seq, i, waiting.message) for i, waiting in enumerate(queues.next_step)]
        arrived += [(owing.result, i, owing.message) for i, owing in enumerate(turn.owed)]
        batch = [message for _, _, message in sorted(arrived, key=lambda one: one[:2])]
        claimed = [waiting.message for waiting in queues.next_step]
        next_step = tuple([message.id for message in claimed])
        next_turn: tuple[str, ...] = ()
        if step == 1 and queues.next_turn:
            head = queues.next_turn[0].message
            batch.append(head)
            claimed.append(head)
            next_turn = (head.id,)
        if claimed:
            session.append(InboxClaimed(self.number, step, next_step, next_turn))
            self.agent.claimed(claimed, self.number)
        return tuple(batch)

    async def _decide(self, proposal: Proposal, riding: dict[str, int]) -> Proposal:
        """Fold what `agent/pre-step` says: any reject wins, messages are a pipeline, contexts are concatenated."""
        batch = proposal.messages
        known = {message.id for message in batch}
        blocked: dict[str, tuple[str, str]] = {}  # messages that are dropped: the reason, and who gave it
        said: list[Said] = []
        by = ""
        for listener in self.agent.scope.listeners(PRE_STEP):
            answer: Enter | Reject | None = await hear(listener, self.signal, proposal)
            if answer is None:
                continue
            match answer:
                case Enter(messages=messages, contexts=contexts, dropped=dropped):
                    _distinct(messages, listener)
                    blocked = {**_blocked(dropped, known, listener), **blocked}
                    messages = tuple([m if m.id in known else _from(m, listener.who) for m in messages])
                    messages = tuple([m for m in messages if m.id not in blocked])
                    contexts = tuple([_from(m, listener.who) for m in contexts])
                    proposal = msgspec.structs.replace(
                        proposal, messages=messages, contexts=proposal.contexts + contexts
                    )
                    said.append(Said(listener.who, "enter"))
                case Reject(reason=reason):
                    if proposal.rejected is None:
                        proposal = msgspec.structs.replace(proposal, rejected=reason, by=listener.who)
                    said.append(Said(listener.who, "reject", reason))
                case _:
                    assert_never(answer)
            by = by or listener.who
        self.signal.raise_if_set()
        emptied = False  # nothing of a person is left: what others sent waits for the next turn
        if proposal.step == 1 and proposal.rejected is None:
            mine = next((blocked[m.id] for m in batch if m.id in blocked and _of_person(m)), None)
            if mine is not None and not any(map(_of_person, proposal.messages)):
                emptied = True
                proposal = msgspec.structs.replace(proposal, rejected=mine[0], by=mine[1])
        session = self.session
        if not said:
            return proposal
        claim, turn = session.state.claim, session.state.turn
        assert turn is not None
        kept = {message.id for message in proposal.messages}
        rejected = proposal.rejected is not None
        session.append(
            DecisionMade(
                PRE_STEP.name,
                claim.seq if claim is not None else turn.seq,
                "reject" if rejected else "enter",
                proposal.by if rejected else by,
                tuple(said),
                () if rejected else tuple(i for i in riding if i not in kept),
            )
        )
        for message in batch:  # each with its own reason, which its sender is told
            if message.id in blocked and claim is not None and message.id in claim.undecided:
                session.append(
                    InboxDropped(self.number, (message.id,), "rejected", *blocked[message.id], (message,))
                )
        claim = session.state.claim
        if emptied and claim is not None:
            step_ids = tuple(i for i in claim.next_step if i in claim.undecided)
            turn_ids = tuple(i for i in claim.next_turn if i in claim.undecided)
            session.append(InboxReturned(self.number, step_ids, turn_ids, "blocked"))
        elif rejected and claim is not None:
            ids = tuple(claim.undecided)
            messages = tuple(m for m in batch if m.id in claim.undecided)
            session.append(
                InboxDropped(self.number, ids, "rejected", proposal.rejected, proposal.by, messages)
            )
        return proposal

    # One step

    async def _step(self) -> StepReason:
        """Ask the model and run its calls; the reason the step ended with, which is logged."""
        number = self._open_step.number
        await self._answer(number)
        if self._open_step.calls:
            return self._end_step(number, await self._run_calls())
        self.signal.raise_if_set()
        return self._end_step(number, "max-tokens" if self._cut_off else "completed")

    async def _take_up(self, step: Step) -> StepReason:
        """Go on with the calls of a step that an earlier life has left, waiting for a person."""
        return self._end_step(step.number, await self._run_calls())

    @property
    def _open_step(self) -> Step:
        step = self.session.state.step
        assert step is not None
        return step

    def _end_step(self, step: int, reason: StepReason) -> StepReason:
        state = self.session.state
        # If no step is known to follow, what rides on the results becomes history before the step ends.
        settled = reason != "tools" and not state.queues.next_step
        contexts = owed_contexts(state) if settled else []
        self.session.append(*contexts, StepEnd(self.number, step, reason))
        return reason

    async def _run_calls(self) -> Literal["concluded", "tools"]:
        """Run the calls of the open step that have no result; whether a result concludes the turn."""
        agent, step = self.agent, self._open_step
        batch = self._batch = Batch(
            session=self.session,
            scope=agent.scope,
            registry=agent.registry,
            signal=self.signal,
            turn=self.number,
            step=step.number,
            agent=agent,
            cwd=agent.cwd,
            pool=agent.pool,
            asker=agent.approvals,
            rules=agent if agent.policy.speaks else None,
            confinement=agent.confinement,
            default=agent.policy.default if agent.preset is not None else None,
            spent=self._spent,
            on_waiting=self.waiting,
            concluded=step.concluded,
        )
        self.jobs = [job_of(batch, call) for call in step.calls[step.next_result :]]
        if self.signal.cause is not None:
            self._stop_batch(self.signal.cause)
        await batch.scheduler.run(self.jobs)
        self.stopped_text = batch.stopped_text
        if batch.ending is not None:
            raise _Ended(batch.ending)
        self._batch, self.jobs = None, []
        return "concluded" if batch.concluded else "tools"

    def _stop_batch(self, _: Cause) -> None:
        """The turn was stopped: if there are calls, start no more of them."""
        if self._batch is not None:
            self._batch.stop(self._cancelled())

    def _spent(self, name: str) -> Ending | None:
        spent = self._meter.before_call(name)
        return over_budget(spent) if spent is not None else None

    # The model

    async def _answer(self, step: int) -> None:
        """Send the request until it is answered or given up."""
        agent, session, signal = self.agent, self.session, self.signal
        recovery: Recovery | None = None
        attempt = 0
        while True:
            attempt += 1
            spent = self._meter.before_request()
            if spent is not None:
                raise _Ended(over_budget(spent))
            signal.raise_if_set()
            settings: Mapping[str, Any] = agent.call_settings
            if agent.scope.listeners(REQUEST):
                settings = await agent.assembler.settings(agent, settings, self.number, step, attempt, signal)
            model, failure = agent.model_for(settings)
            request, sent = agent.assembler.send(settings, self._system, self._tools, attempt)
            policy = model.retry or agent.retry if model is not None else agent.retry
            if session.durable:
                await session.barrier()  # no byte leaves before its input is on disk
            if model is not None:
                wrappers = agent.scope.listeners(MODEL_STREAM)
                failure = await consume(session, model, request, wrappers, signal, sent, policy.idle)
            if failure is None:
                self._commit_answer(sent, step)
                return
            session.append(RequestFailed(sent, failure_of(failure)))
            recovery = recovery or Recovery(session, agent.scope, agent.rng)
            heard = Attempt(agent, self.number, step, attempt, request.provider, signal)
            retry = await recovery.wanted(failure, heard, sent, policy)
            if retry is None:
                raise _Ended(failed(reason_of(failure)))
            if attempt >= policy.attempts_per_step:
                raise _Ended(over_budget(OverBudget("attempts", policy.attempts_per_step, attempt)))
            await recovery.wait(retry, signal)

    def _commit_answer(self, sent: int, step: int) -> None:
        open_step = self.session.state.step
        assert open_step is not None and open_step.request is not None
        assembly = open_step.request.assembly
        blocks, dropped = assembly.blocks(), 0
        renamed: dict[str, str] = {}
        self._cut_off = assembly.finish == "max-tokens"
        if self._cut_off:
            # The last call may be cut in the middle, and none of them is what the model meant to ask in full.
            kept = tuple([block for block in blocks if not isinstance(block, ToolUse)])
            blocks, dropped = kept, len(blocks) - len(kept)
        else:
            blocks, renamed = name_calls(blocks, self.number, step)
        self.session.append(
            AssistantMessage(
                sent, blocks, assembly.finish, assembly.usage, renamed=renamed or None, dropped_calls=dropped
            )
        )

    # Going on

    async def _goes_on(self, answered: bool) -> bool:
        """Ask `agent/turn-stopping`, now that nothing else keeps the turn open; whether another step follows."""
        session, agent = self.session, self.agent
        state = session.state
        turn = state.turn
        assert turn is not None
        history = state.history.view()
        last = history[-1] if len(history) and history[-1].role == "assistant" else None
        stopping = Stopping(
            agent, self.number, turn.steps, last, answered, history, self.signal, self._forced
        )
        said: list[Said] = []
        steered: list[Message] = []
        for listener in agent.scope.listeners(TURN_STOPPING):
            answer: Continue | None = await hear(listener, self.signal, stopping)
            if answer is not None:
                assert isinstance(answer.message, Message)
                said.append(Said(listener.who, "continue", answer.message.text))
                steered += [_from(message, listener.who) for message in (*answer.contexts, answer.message)]
        self.signal.raise_if_set()
        state = session.state  # a listener whose append was refused has had it made anew
        queued = [waiting.message for waiting in state.queues.next_step]
        if not steered and not queued:
            return False
        if said:
            session.append(DecisionMade(TURN_STOPPING.name, turn.seq, "continue", said[0].who, tuple(said)))
        if not any(message.source.kind == "person" for message in queued):
            if self._forced >= self._meter.forced:
                for message in queued:
                    if message.source.kind != "runtime":
                        agent.inbox.remove(message.id)
                raise _Ended(over_budget(OverBudget("forced", self._meter.forced, self._forced)))
            self._forced += 1
        if steered:
            seq = session.head + 1
            inserted = [
                message if message.id else msgspec.structs.replace(message, id=f"m{seq}.{n}")
                for n, message in enumerate(steered)
            ]
            session.append(
                InboxSpliced("next-step", len(state.queues.next_step), inserted=tuple(inserted), wake=True)
            )
        return True


_OUT_OF_TIME = Cause("budget", by="wall")


class _Wall:
    """The wall clock of one turn: it can be stopped and started, and sets the signal when its time is over."""

    def __init__(self, left: tuple[float, float] | None, signal: Signal) -> None:
        self.limit = left[1] if left is not None else 0.0
        self._left = left[0] if left is not None else None
        self._signal = signal
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0

    def start(self) -> None:
        if self._left is not None and self._timer is None:
            loop = asyncio.get_running_loop()
            self._since = loop.time()
            self._timer = loop.call_later(max(self._left, 0.0), self._signal.set, _OUT_OF_TIME)

    def stop(self) -> None:
        if self._timer is not None and self._left is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= asyncio.get_running_loop().time() - self._since


def _role(message: Message) -> Literal["user", "system"]:
    return "system" if message.role == "system" else "user"


def _of_person(message: Message) -> bool:
    return message.source.kind == "person"


def _from(message: Message, who: str) -> Message:
    """What a listener says is said by the listener, never by a person."""
    if message.source.kind == "person":
        return msgspec.structs.replace(message, source=Source("plugin", who))
    return message


def _blocked(dropped: Mapping[str, str], known: set[str], listener: Listener) -> dict[str, tuple[str, str]]:
    if unknown := sorted(dropped.keys() - known):
        raise HookContractError(
            f"dropped {', '.join(unknown)}, which was not proposed", who=listener.who, point=PRE_STEP.name
        )
    return {message_id: (reason, listener.who) for message_id, reason in dropped.items()}


def _distinct(messages: tuple[Message, ...], listener: Listener) -> None:
    ids = [message.id for message in messages if message.id]
    if len(ids) != len(set(ids)):
        raise HookContractError("entered one message twice", who=listener.who, point=PRE_STEP.name)


def failure_of(failure: ModelFailure) -> Failure:
    """A model's failure as the log keeps it."""
    delay = failure.retry_after
    return Failure(
        failure.code,
        failure.message,
        failure.status,
        round(delay * 1000) if delay is not None else None,
        failure.request_id,
    )


def reason_of(error: BaseException) -> Failed:
    """The end reason for an exception: a model's failure keeps its facts, anything else is told in one line."""
    if isinstance(error, ModelFailure):
        known = failure_of(error)
        return Failed(known.code, known.message, known.status, known.retry_after_ms, known.request_id)
    if isinstance(error, HookContractError):
        return Failed("HOOK_CONTRACT_ERROR", said_error(error))
    parts: list[str] = []
    chain: BaseException | None = error
    while chain is not None and len(parts) < _CHAIN:
        parts.append(f"{type(chain).__name__}: {said_error(chain)}")
        chain = chain.__cause__
    return Failed("UNKNOWN", "; caused by ".join(parts))


_CHAIN = 5  # causes of an exception that are told
