"""Codex's transcripts: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`.

Lives here: `CodexReader`. What the model read and wrote is in `response_item` lines; `event_msg` lines say it again
for people, and some things that no item says: that a turn is over, was stopped or taken back, and tokens. The first
rollouts had items without an envelope.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from interlock.bridges.transcripts.assembling import Assembler
from interlock.bridges.transcripts.calls import Inner, Result
from interlock.bridges.transcripts.lines import Line
from interlock.bridges.transcripts.outcomes import FAILED, RAN, of_codex
from interlock.bridges.transcripts.reading import About, Malformed, moment, picture, required, tokens, words
from interlock.bridges.transcripts.tools import Asked, as_text, asked_of_item, codex_command, codex_patch
from interlock.bridges.transcripts.tools import of_codex as asked_of_codex
from interlock.log.facts import Failure, Section, Usage
from interlock.log.messages import MODEL, PERSON, Message, Reasoning, Source, Text

PROGRAM = "Codex"
_SELF = Source("plugin", "codex")
CELL = "exec"  # a call whose input is code that makes further calls
_AT_PROVIDER = "[done by the provider; the transcript has no result]"

#: What the program itself says in the role of the user.
_CONTEXTS = (
    "<environment_context>", "<user_instructions>", "<turn_aborted>", "<subagent_notification>", "<skill>",
    "<user_shell_command>", "<permissions instructions>", "<INSTRUCTIONS>", "# AGENTS.md instructions",
    "<collaboration_mode>", "<app-context>",
)  # fmt: skip
#: Events that say again what items say, or what only a screen needs.
_TWICE = frozenset(
    {
        "user_message", "agent_message", "agent_message_delta", "agent_reasoning", "agent_reasoning_raw_content",
        "agent_reasoning_section_break", "task_started", "turn_started", "context_compacted", "exec_command_begin",
        "exec_command_end", "exec_command_output_delta", "patch_apply_begin", "patch_apply_end", "mcp_tool_call_begin",
        "mcp_tool_call_end", "web_search_begin", "web_search_end", "item_started", "item_completed", "turn_diff",
        "view_image_tool_call", "plan_update", "session_configured", "background_event", "thread_name_updated",
    }
)  # fmt: skip
_BOOKKEEPING = frozenset({"world_state", "token_usage_record", "inter_agent_communication_metadata", "state"})
_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output", "local_shell_call"})


class CodexReader:
    program: ClassVar[str] = PROGRAM

    def __init__(self, to: Assembler, modified: int) -> None:
        self.about = About()
        self._to = to
        self._now = modified  # until a line says a time
        self._answers = 0
        self._whole = True  # whether the next piece of an answer begins another one
        self._calls = 0

    def take(self, line: Line) -> None:
        value = line.value
        if not isinstance(value, dict):
            raise Malformed("it is no JSON object")
        kind, payload = value.get("type"), value.get("payload")
        time = moment(value.get("timestamp"))
        if time is not None:
            self._now = time
            if self.about.started is None:
                self.about.started = time
        if not isinstance(payload, dict):
            kind, payload = _bare(value)
        if not isinstance(kind, str):
            raise Malformed("it has no 'type'")
        match kind:
            case "session_meta":
                self._meta(payload)
            case "turn_context":
                self._turn_context(payload)
            case "response_item":
                self._item(payload)
            case "event_msg":
                self._event(payload)
            case "compacted":
                self._compacted(payload)
            case _ if kind in _BOOKKEEPING:
                self._to.skip(kind)
            case _:
                self._to.skip(f"{kind} (kept)")
                self._to.keep(kind, payload)

    def over(self) -> None:
        self._to.over()

    # What is known of the whole

    def _meta(self, payload: dict[str, Any]) -> None:
        if self.about.session is not None:
            self._to.skip("session_meta of an earlier session")
            return
        self.about.session = words(payload.get("id")) or ""
        self.about.cwd = words(payload.get("cwd"))
        self.about.version = words(payload.get("cli_version"))
        self._to.provider = words(payload.get("model_provider")) or "openai"
        given = payload.get("base_instructions") or payload.get("instructions")
        text = given.get("text") if isinstance(given, dict) else given
        if isinstance(text, str) and text:
            self._to.system = (Section("codex", self._to.text(text).text),)

    def _turn_context(self, payload: dict[str, Any]) -> None:
        self.about.cwd = self.about.cwd or words(payload.get("cwd"))
        self._to.model = words(payload.get("model")) or self._to.model

    # Items

    def _item(self, item: dict[str, Any]) -> None:
        match item.get("type"):
            case "message":
                self._message(item)
            case "reasoning":
                self._reasoning(item)
            case "function_call":
                name, arguments = str(required(item, "name", "a call")), as_text(item.get("arguments") or "")
                self._call(item, asked_of_codex(name, arguments))
            case "custom_tool_call":
                name, given = str(required(item, "name", "a call")), as_text(item.get("input") or "")
                patch = codex_patch(given) if name == "apply_patch" else None
                self._call(item, patch or Asked(name, as_text({"input": given})))
            case "local_shell_call":
                self._shell(item)
            case "function_call_output" | "custom_tool_call_output" | "tool_search_output" as kind:
                self._output(item, str(kind))
            case str(kind) if kind.endswith("_call"):
                self._at_provider(kind, item)
            case kind:
                self._to.skip(f"{kind} item (kept)")
                self._to.keep(str(kind), item)

    def _message(self, item: dict[str, Any]) -> None:
        role, texts = item.get("role"), self._texts(item.get("content"))
        said = "".join([text.text for text in texts]).lstrip()
        if role == "assistant":
            for text in texts:
                self._to.said(self._key(), text, self._now)
        elif role == "user":
            self._to.prompt(texts, self._now, source=_SELF if said.startswith(_CONTEXTS) else PERSON)
        elif role in ("developer", "system"):
            self._to.prompt(texts, self._now, source=_SELF, role="system")
        else:
            raise Malformed(f"a message of role {role!r}")

    def _texts(self, content: object) -> list[Text]:
        if isinstance(content, str):
            return [self._to.text(content)] if content else []
        made = []
        for part in content if isinstance(content, list) else []:
            if not isinstance(part, dict):
                made.append(self._to.text(part))
            elif isinstance(part.get("text"), str):
                made.append(self._to.text(part["text"]))
            elif part.get("type") == "input_image":
                made.append(Text(picture(self._to, "image", part, part.get("image_url"))))
            else:
                made.append(Text(picture(self._to, str(part.get("type")), part, None)))
        return [text for text in made if text.text]

    def _reasoning(self, item: dict[str, Any]) -> None:
        if item.get("encrypted_content"):
            self._to.lossy["encrypted thought, left out"] += 1
        thoughts = [*_parts(item.get("summary")), *_parts(item.get("content"))]
        if text := "\n\n".join([self._to.text(thought).text for thought in thoughts if thought]):
            self._to.said(self._key(), Reasoning(text), self._now)

    def _key(self) -> str:
        """The answer that this piece belongs to: another one, once a result or a count of tokens has come."""
        if self._whole:
            self._answers += 1
            self._whole = False
        return f"{self._answers}"

    def _call(self, item: dict[str, Any], asked: Asked) -> str:
        self._calls += 1
        call_id = words(item.get("call_id")) or words(item.get("id")) or f"call-{self._calls}"
        self._to.called(self._key(), call_id, asked, self._now)
        return call_id

    def _shell(self, item: dict[str, Any]) -> None:
        action = item.get("action")
        asked = (
            codex_command(action) if isinstance(action, dict) and action.pop("type", None) == "exec" else None
        )
        self._call(item, asked or Asked("local_shell", as_text(action)))

    def _at_provider(self, kind: str, item: dict[str, Any]) -> None:
        """A call that the provider has answered itself, such as a search of the web."""
        given = {key: value for key, value in item.items() if key not in ("type", "id", "call_id", "status")}
        call_id = self._call(item, Asked(kind.removesuffix("_call"), as_text(given)))
        if kind != "tool_search_call":
            self._to.resulted(call_id, [Text(_AT_PROVIDER)], RAN, self._now)
            self._whole = True  # what follows rests on it

    def _output(self, item: dict[str, Any], kind: str) -> None:
        self._whole = True
        given = item.get("output", item.get("tools"))
        success: bool | None = None
        if isinstance(given, dict):  # the first rollouts
            success = given.get("success") if isinstance(given.get("success"), bool) else None
            given = given.get("content", "")
        searched = kind == "tool_search_output"
        texts = [self._to.text(given)] if searched and given else self._texts(given)
        outcome = of_codex("\n".join([text.text for text in texts]), success=success)
        if not self._to.resulted(words(item.get("call_id")) or "", texts, outcome, self._now):
            self._to.skip("output without a call (kept)")
            self._to.keep(kind, item)

    # Events

    def _event(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "token_count":
                self._tokens(event.get("info"))
            case "turn_aborted":
                self._aborted(str(event.get("reason")))
            case "task_complete" | "turn_complete":
                self._whole = True
                self._to.turn_over(self._now)
            case "error":
                message = self._to.text(event.get("message") or "").text
                self._whole = True
                self._to.gave_up(Failure("UNKNOWN", message), self._now)
            case "stream_error":
                message = self._to.text(event.get("message") or "").text
                self._whole = True
                self._to.attempt_failed(Failure("STREAM_CLOSED", message), self._now)
            case "thread_rolled_back":
                self._whole = True
                self._to.rolled_back(tokens(event.get("num_turns")), self._now)
            case "item_completed" if self._cell(event.get("item")):
                pass
            case str(kind) if kind in _TWICE:
                self._to.skip(f"event {kind}")
            case kind:
                self._to.skip(f"event {kind} (kept)")
                self._to.keep(f"event {kind}", event)

    def _cell(self, item: object) -> bool:
        """What the code of a cell has done is a call within the cell's call. False: no cell is open."""
        cell = next((one for one in self._to.calls if one.asked.name == CELL and one.result is None), None)
        if cell is None or not isinstance(item, dict):
            return False
        made = asked_of_item(item)
        for n, asked in enumerate(made, 1):
            name = words(item.get("id")) or cell.given
            said = self._texts(item.get("aggregated_output"))
            inner = Inner(name if len(made) == 1 else f"{name}.{n}", asked, self._now)
            inner.result = Result(tuple(said), FAILED if item.get("status") == "failed" else RAN, self._now)
            self._to.called_within(cell.given, inner)
        return bool(made)

    def _tokens(self, info: object) -> None:
        self._to.skip("event token_count")
        last = info.get("last_token_usage") if isinstance(info, dict) else None
        if not isinstance(last, dict) or self._whole:
            return
        usage = Usage(
            tokens(last.get("input_tokens")),
            tokens(last.get("output_tokens")),
            tokens(last.get("cached_input_tokens")),
            tokens(last.get("reasoning_output_tokens")),
        )
        self._to.answered(self._key(), self._now, usage=usage)
        self._whole = True

    def _aborted(self, reason: str) -> None:
        self._whole = True
        if reason in ("interrupted", "replaced", "None"):
            if not self._to.interrupted(self._now):
                self._to.skip("interruption of nothing")
        else:
            self._to.turn_over(self._now)
            self._to.keep("event turn_aborted", reason)

    def _compacted(self, payload: dict[str, Any]) -> None:
        self._whole = True
        made: list[Message] = []
        items = payload.get("replacement_history")
        for item in items if isinstance(items, list) else []:
            message = self._replacement(item)
            if message is None:
                self._to.lossy["item of a compaction, kept beside it"] += 1
                self._to.keep("item of a compaction", item)
            else:
                made.append(message)
        if text := self._to.text(payload.get("message") or "").text:
            made.append(Message(role="user", content=(Text(text),), source=_SELF))
        self._to.compacted(made, self._now)

    def _replacement(self, item: object) -> Message | None:
        if not isinstance(item, dict) or item.get("type") != "message":
            return None
        texts = tuple(self._texts(item.get("content")))
        if not texts:
            return None
        if item.get("role") == "assistant":
            return Message(role="assistant", content=texts, source=MODEL)
        if item.get("role") == "user":
            own = texts[0].text.lstrip().startswith(_CONTEXTS)
            return Message(role="user", content=texts, source=_SELF if own else PERSON)
        return Message(role="system", content=texts, source=_SELF)


def _bare(value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A line without an envelope, as the first rollouts have them."""
    kind = value.get("type")
    if isinstance(kind, str) and (kind in _ITEMS or kind.endswith(("_call", "_call_output"))):
        return "response_item", value
    if kind is None and words(value.get("id")) is not None:
        return "session_meta", value
    if kind is None and "record_type" in value:
        return "state", value
    if isinstance(kind, str):
        return kind, value
    raise Malformed("it has no 'type'")


def _parts(value: object) -> Iterable[object]:
    for part in value if isinstance(value, list) else []:
        yield part.get("text") if isinstance(part, dict) else part
