"""Claude Code's transcripts: `~/.claude/projects/<folder>/<session>.jsonl`.

Lives here: `ClaudeReader`. One answer of the model is several lines with one `message.id`, a block each; results are
lines of type user. Lines form a tree by `parentUuid`: a prompt whose parent is not the last thing that was said is a
rewind. Lines of subagents are marked `isSidechain`; a file in which the first line is one is a subagent's own.
"""

from __future__ import annotations

from typing import Any, ClassVar

from interlock.bridges.transcripts.assembling import Assembler
from interlock.bridges.transcripts.calls import Inner, Result
from interlock.bridges.transcripts.lines import Line
from interlock.bridges.transcripts.outcomes import INTERRUPTIONS, Outcome, of_claude
from interlock.bridges.transcripts.reading import (
    About,
    Malformed,
    count,
    moment,
    picture,
    required,
    tokens,
    words,
)
from interlock.bridges.transcripts.tools import of_claude as asked_of_claude
from interlock.log.facts import Failure, Usage
from interlock.log.messages import PERSON, Message, Reasoning, Source, Text

PROGRAM = "Claude Code"
_SELF = Source("plugin", "claude-code")

#: Lines about the program's own affairs, which no model saw.
_BOOKKEEPING = frozenset(
    {
        "agent-color", "agent-name", "agent-setting", "ai-title", "attribution-snapshot", "bridge-session",
        "content-replacement", "custom-title", "file-history-snapshot", "last-prompt", "mode", "permission-mode",
        "pr-link", "progress", "queue-operation", "summary", "tag", "task-summary", "worktree-state",
    }
)  # fmt: skip
_CONTEXTS = (
    "<system-reminder>", "<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>", "<bash-stdout>",
    "<bash-stderr>", "<task-notification>", "<teammate-message",
)  # fmt: skip
_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "calls", "max_tokens": "max-tokens", "refusal": "filtered"}  # fmt: skip
_AGENTS = ("Task", "Agent")


class ClaudeReader:
    program: ClassVar[str] = PROGRAM

    def __init__(self, to: Assembler, modified: int) -> None:
        self.about = About()
        self._to = to
        self._now = modified  # until a line says a time
        # By uuid: the answers that had begun, the messages that waited, and whether it is a piece of an answer.
        self._marks: dict[str, tuple[int, int, bool]] = {}
        self._message = ""  # the id of the last answer
        self._served = "", 0  # an answer with results of the provider's own tools, and how many
        self._boundary: dict[str, Any] | None = None
        self._own: bool | None = None  # whether lines marked as a sidechain are what the file is about
        self._agents: dict[str, str] = {}  # by agent: the call that it works for
        self._roots: dict[str, str] = {}  # by uuid of a subagent's line: its agent
        self._inner: dict[str, Inner] = {}  # by id: calls of subagents without a result

    def take(self, line: Line) -> None:
        value = line.value
        if not isinstance(value, dict):
            raise Malformed("it is no JSON object")
        kind = value.get("type")
        if not isinstance(kind, str):
            raise Malformed("it has no 'type'")
        uuid = words(value.get("uuid"))
        if uuid is not None and (uuid in self._marks or uuid in self._roots):
            self._to.skip("repeated line")
            return
        self._learn(value)
        if kind in ("user", "assistant") and self._own is None:
            self._own = value.get("isSidechain") is True
        if value.get("isSidechain") is True and not self._own:
            self._subagent(value, uuid)
            return
        self._say(kind, value)
        if uuid is not None:
            self._marks[uuid] = self._to.ordinal, self._to.waiting, kind == "assistant"

    def over(self) -> None:
        if self._boundary is not None:
            self._to.keep("compaction without a summary", self._boundary)
        self._to.over()

    def _learn(self, value: dict[str, Any]) -> None:
        about = self.about
        time = moment(value.get("timestamp"))
        if time is not None:
            self._now = time
            if about.started is None:
                about.started = time
        about.cwd = about.cwd or words(value.get("cwd"))
        about.version = about.version or words(value.get("version"))
        about.session = about.session or words(value.get("sessionId"))

    def _say(self, kind: str, value: dict[str, Any]) -> None:
        match kind:
            case "user":
                self._user(value)
            case "assistant":
                self._assistant(value)
            case "system":
                self._system(value)
            case "attachment":
                self._attachment(value)
            case "progress" if _agent_progress(value):
                data = value["data"]
                self._within(words(value.get("parentToolUseID")), data["message"])
            case _ if kind in _BOOKKEEPING:
                self._to.skip(kind)
            case _:
                self._to.skip(f"{kind} (kept)")
                self._to.keep(kind, value)

    # The person's side

    def _user(self, value: dict[str, Any]) -> None:
        content = _content(value, "a user line")
        texts: list[Text] = []
        for block in content:
            if block.get("type") == "tool_result":
                self._result(block, value)
            else:
                texts += self._text(block)
        said = "".join([text.text for text in texts]).strip()
        if value.get("isCompactSummary") is True:
            self._compacted(texts)
        elif said in INTERRUPTIONS:
            if not self._to.interrupted(self._now):
                self._to.skip("interruption of nothing")
        elif texts:
            source = _source(value, said)
            if source == PERSON and not any(block.get("type") == "tool_result" for block in content):
                self._go_back(words(value.get("parentUuid")))
            self._to.prompt(texts, self._now, source=source)

    def _go_back(self, parent: str | None) -> None:
        """A prompt that does not follow on what was said last takes the place of what did."""
        mark = self._marks.get(parent or "")
        if mark is None:
            return
        ordinal, waiting, _ = mark
        if ordinal < self._to.ordinal:
            self._to.take_back(0)
            self._to.rewound(ordinal, self._now)
        elif self._to.prompted_after(waiting):
            self._to.take_back(waiting)

    def _compacted(self, texts: list[Text]) -> None:
        boundary, self._boundary = self._boundary or {}, None
        kept_from = next((self._marks[uuid] for uuid in _preserved(boundary) if uuid in self._marks), None)
        summary = Message(role="user", content=tuple(texts), source=_SELF)
        self._to.compacted(
            [summary], self._now, kept_from=(kept_from[0], kept_from[2]) if kept_from is not None else None
        )

    def _text(self, block: dict[str, Any]) -> list[Text]:
        match block.get("type"):
            case "text":
                text = self._to.text(block.get("text") or "")
                return [text] if text.text else []
            case "image" | "document" as kind:
                source = block.get("source")
                inside = source if isinstance(source, dict) else {}
                named = picture(self._to, str(kind), block, inside.get("data"), inside.get("media_type"))
                return [Text(named)]
            case other:
                return [Text(picture(self._to, f"{other}", block, None))]

    def _result(self, block: dict[str, Any], value: dict[str, Any]) -> None:
        texts, outcome = self._read_result(block, value)
        call_id = words(block.get("tool_use_id")) or ""
        told = value.get("toolUseResult")
        if isinstance(told, dict) and (agent := words(told.get("agentId"))) is not None:
            if agent not in self._agents:
                self._to.lossy["subagent whose work is in a file of its own"] += 1
            self._agents.setdefault(agent, call_id)
        if not self._to.resulted(call_id, texts, outcome, self._now):
            self._to.skip("result without a call (kept)")
            self._to.keep("result without a call", block)

    def _read_result(self, block: dict[str, Any], value: dict[str, Any]) -> tuple[list[Text], Outcome]:
        given = block.get("content")
        if isinstance(given, str):
            texts = [self._to.text(given)] if given else []
        else:
            texts = [text for one in _blocks(given) for text in self._text(one)]
        told = value.get("toolUseResult")
        denial = words(value.get("toolDenialKind"))
        if told == "User rejected tool use":
            denial = denial or "user-rejected"
        outcome = of_claude(
            "\n".join([text.text for text in texts]),
            failed=block.get("is_error") is True,
            denial=denial,
            interrupted=isinstance(told, dict) and told.get("interrupted") is True,
        )
        return texts, outcome

    # The model's side

    def _assistant(self, value: dict[str, Any]) -> None:
        content = _content(value, "an assistant line")
        message = value["message"]
        if value.get("isApiErrorMessage") is True:
            said = " ".join([str(block.get("text")) for block in content if block.get("type") == "text"])
            status = value.get("apiErrorStatus")
            code = (words(value.get("error")) or "unknown").upper()
            self._to.gave_up(
                Failure(code, self._to.text(said).text, count(status)),
                self._now,
            )
            return
        model = words(message.get("model"))
        if model is not None and model != "<synthetic>":
            self._to.provider, self._to.model = "anthropic", model
        self._message = key = (
            words(message.get("id")) or words(value.get("requestId")) or words(value.get("uuid")) or ""
        )
        part = self._part(key)
        for block in content:
            part = self._part(key)
            self._piece(part, block)
        self._to.answered(
            part,
            self._now,
            finish=_FINISH.get(str(message.get("stop_reason"))),
            usage=_usage(message.get("usage")),
        )

    def _part(self, key: str) -> str:
        """What follows on a result that the provider has put into its answer is an answer of its own."""
        message, parts = self._served
        return f"{key}.{parts}" if message == key and parts else key

    def _piece(self, key: str, block: dict[str, Any]) -> None:
        kind = str(block.get("type"))
        if kind == "text":
            self._to.said(key, self._to.text(block.get("text") or ""), self._now)
        elif kind == "thinking":
            if block.get("signature"):
                self._to.lossy["signature of a thought, left out"] += 1
            if thought := self._to.text(block.get("thinking") or "").text:
                self._to.said(key, Reasoning(thought), self._now)
        elif kind.endswith("tool_use"):
            name = required(block, "name", "a call")
            asked = asked_of_claude(str(name), block.get("input"))
            self._to.called(key, words(block.get("id")) or "", asked, self._now)
        elif kind.endswith("tool_result"):
            given = [{"type": "text", "text": self._to.text(block.get("content")).text}]
            self._result({**block, "content": given}, {})
            self._served = self._message, (self._served[1] if self._served[0] == self._message else 0) + 1
        else:
            self._to.lossy[f"{kind} of an answer, kept beside it"] += 1
            self._to.keep(kind, block)

    # The program's side

    def _system(self, value: dict[str, Any]) -> None:
        match value.get("subtype"):
            case "compact_boundary":
                self._boundary = value
            case "turn_duration":
                self._to.skip("system: turn_duration")
                self._to.turn_over(self._now)
            case "api_error":
                error = value.get("error")
                status = error.get("status") if isinstance(error, dict) else None
                said = self._to.text(error if isinstance(error, str) else value.get("content") or "API error")
                self._to.attempt_failed(Failure("UNKNOWN", said.text, count(status)), self._now)
            case subtype:
                self._to.skip(f"system: {subtype}" if subtype else "system")

    def _attachment(self, value: dict[str, Any]) -> None:
        attachment = value.get("attachment")
        if not isinstance(attachment, dict):
            raise Malformed("an attachment line has no 'attachment'")
        kind = str(attachment.get("type"))
        if kind == "queued_command" and attachment.get("prompt"):
            prompt = attachment["prompt"]
            blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else _blocks(prompt)
            texts = [text for block in blocks for text in self._text(block)]
            self._to.prompt(
                texts, self._now, source=_source(attachment, "".join([text.text for text in texts]))
            )
            return
        content = attachment.get("content")
        if kind.startswith("hook_") and content and isinstance(content, (str, list)):
            pieces = [content] if isinstance(content, str) else [str(piece) for piece in content]
            source = Source("hook", self._to.text(str(attachment.get("hookName") or PROGRAM)).text)
            self._to.prompt([self._to.text(piece) for piece in pieces if piece], self._now, source=source)
            return
        self._to.skip(f"attachment: {kind} (kept)")
        self._to.keep(f"attachment {kind}", attachment)

    # Subagents

    def _subagent(self, value: dict[str, Any], uuid: str | None) -> None:
        """A line of a subagent: its calls are calls of the call that it works for."""
        agent = words(value.get("agentId")) or self._roots.get(str(value.get("parentUuid"))) or uuid or ""
        if uuid is not None:
            self._roots[uuid] = agent
        if value.get("type") not in ("user", "assistant"):
            self._to.skip(f"{value['type']} of a subagent")
            return
        if agent not in self._agents:
            outer = self._employer(value)
            if outer is not None:
                self._agents[agent] = outer
        self._within(self._agents.get(agent), value)

    def _employer(self, value: dict[str, Any]) -> str | None:
        """The open call that has started this agent: the one with its prompt, or the first that has none."""
        taken = self._agents.values()
        free = [call for call in self._to.calls if call.asked.name in _AGENTS and call.given not in taken]
        prompt = "".join([str(block.get("text")) for block in _content(value, "a line of a subagent")])
        for call in free:
            arguments = call.asked.value
            if isinstance(arguments, dict) and arguments.get("prompt") == prompt:
                return call.given
        return free[0].given if free else None

    def _within(self, outer: str | None, value: dict[str, Any]) -> None:
        left = []
        for block in _content(value, "a line of a subagent"):
            kind = block.get("type")
            if kind == "tool_use":
                call_id = words(block.get("id")) or ""
                asked = asked_of_claude(str(required(block, "name", "a call")), block.get("input"))
                inner = Inner(call_id, asked, self._now)
                if outer is not None and self._to.called_within(outer, inner):
                    self._inner[call_id] = inner
                    continue
            elif kind == "tool_result" and (
                inner_call := self._inner.pop(str(block.get("tool_use_id")), None)
            ):
                texts, outcome = self._read_result(block, value)
                inner_call.result = Result(tuple(texts), outcome, self._now)
                continue
            left.append(block)
        if left:
            self._to.lossy["message of a subagent, kept beside its calls"] += 1
            self._to.keep("message of a subagent", {"role": value["message"].get("role"), "content": left})


def _content(value: dict[str, Any], what: str) -> list[dict[str, Any]]:
    message = value.get("message")
    if not isinstance(message, dict):
        raise Malformed(f"{what} has no 'message'")
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise Malformed(f"the message of {what} has no 'content'")
    return _blocks(content)


def _blocks(content: object) -> list[dict[str, Any]]:
    return [
        block if isinstance(block, dict) else {"type": "text", "text": str(block)}
        for block in (content if isinstance(content, list) else [])
    ]


def _source(value: dict[str, Any], said: str) -> Source:
    """A person, or the program, which speaks to the model on their side."""
    origin = value.get("origin")
    kind = origin.get("kind") if isinstance(origin, dict) else None
    if value.get("isMeta") is True or kind not in (None, "human") or said.lstrip().startswith(_CONTEXTS):
        return _SELF
    return PERSON


def _usage(value: object) -> Usage | None:
    if not isinstance(value, dict):
        return None
    cached = tokens(value.get("cache_read_input_tokens"))
    read = tokens(value.get("input_tokens")) + tokens(value.get("cache_creation_input_tokens")) + cached
    return Usage(read, tokens(value.get("output_tokens")), cached)


def _preserved(boundary: dict[str, Any]) -> list[str]:
    """The messages that a compaction has left in place."""
    about = boundary.get("compactMetadata")
    kept = about.get("preservedMessages") if isinstance(about, dict) else None
    uuids = kept.get("uuids") if isinstance(kept, dict) else None
    if isinstance(uuids, list):
        return [uuid for uuid in uuids if isinstance(uuid, str)]
    segment = about.get("preservedSegment") if isinstance(about, dict) else None
    head = segment.get("headUuid") if isinstance(segment, dict) else None
    return [head] if isinstance(head, str) else []


def _agent_progress(value: dict[str, Any]) -> bool:
    data = value.get("data")
    return (
        isinstance(data, dict)
        and data.get("type") == "agent_progress"
        and isinstance(data.get("message"), dict)
        and isinstance(data["message"].get("message"), dict)
    )
