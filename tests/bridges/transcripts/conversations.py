"""Conversations, as Hypothesis makes them, and how each program would have written them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from interlock.bridges.hooks.dialects.tools import CLAUDE, encode_input

from .telling import Claude, Codex, text, use


@dataclass(frozen=True)
class Asked:
    name: str
    arguments: dict[str, Any]
    result: str


@dataclass(frozen=True)
class Step:
    texts: tuple[str, ...]
    calls: tuple[Asked, ...]


@dataclass(frozen=True)
class Turn:
    prompt: str
    steps: tuple[Step, ...]  # each with calls
    answer: str


Conversation = tuple[Turn, ...]
NEVER = (
    "<",
    "#",
    "[",
    "The user",
    "exec",
    "patch",
    "abort",
    "reject",
    "unsupp",
    "unknown",
    "failed",
    "not ",
    "apply",
)

some_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda said: not said.lstrip().startswith(NEVER) and "reject" not in said
)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(some_text, inner, max_size=3),
    max_leaves=5,
)
_others = st.builds(
    Asked,
    st.sampled_from(["look", "mcp__place__find"]),
    st.dictionaries(some_text, _values, max_size=3),
    some_text,
)
_boxed = st.one_of(
    st.builds(lambda c, r: Asked("bash", {"command": c}, r), some_text, some_text),
    st.builds(
        lambda p, n, r: Asked("read", {"path": p, "offset": n}, r), some_text, st.integers(1, 99), some_text
    ),
    st.builds(lambda p, c, r: Asked("write", {"path": p, "content": c}, r), some_text, some_text, some_text),
    st.builds(
        lambda p, o, n, r: Asked("edit", {"path": p, "old": o, "new": n}, r),
        some_text,
        some_text,
        some_text,
        some_text,
    ),
    st.builds(
        lambda p, i, r: Asked("grep", {"pattern": p, "ignore_case": i}, r),
        some_text,
        st.booleans(),
        some_text,
    ),
)
_steps = st.builds(
    Step,
    st.lists(some_text, max_size=2).map(tuple),
    st.lists(_others | _boxed, min_size=1, max_size=3).map(tuple),
)
conversations = st.lists(
    st.builds(Turn, some_text, st.lists(_steps, max_size=3).map(tuple), some_text), min_size=1, max_size=3
).map(tuple)


def expected(conversation: Conversation) -> list[tuple[object, ...]]:
    """The messages, with the calls numbered through."""
    made: list[tuple[object, ...]] = []
    n = 0
    for turn in conversation:
        made.append(("user", turn.prompt))
        for step in turn.steps:
            ids = [f"c{n + i}" for i in range(len(step.calls))]
            n += len(ids)
            calls = [(i, call.name, call.arguments) for i, call in zip(ids, step.calls, strict=True)]
            made.append(("assistant", step.texts, calls))
            made += [("tool", i, call.result) for i, call in zip(ids, step.calls, strict=True)]
        made.append(("assistant", (turn.answer,), []))
    return made


def as_claude(conversation: Conversation, folder: Path) -> Path:
    claude, n = Claude(), 0
    for turn in conversation:
        claude.user(turn.prompt)
        for step in turn.steps:
            uses = []
            for call in step.calls:
                form = CLAUDE.get(call.name)
                given = encode_input(form, call.arguments, Path("/"))
                if form is not None and "path" in call.arguments:
                    given["file_path"] = call.arguments["path"]  # as it is, which need not be absolute
                uses.append(use(f"c{n + len(uses)}", form.name if form is not None else call.name, **given))
            claude.answer(*map(text, step.texts), *uses)
            for i, call in reversed(list(enumerate(step.calls, n))):
                claude.result(f"c{i}", call.result)
            n += len(uses)
        claude.answer(text(turn.answer))
    return claude.save(folder)


def as_codex(conversation: Conversation, folder: Path) -> Path:
    codex, n = Codex(), 0
    for turn in conversation:
        codex.turn(turn.prompt)
        for step in turn.steps:
            for said in step.texts:
                codex.said("assistant", said)
            for i, call in enumerate(step.calls, n):
                name, given = call.name, call.arguments
                if name == "bash":
                    name, given = "shell", {"command": ["bash", "-lc", given["command"]]}
                codex.call(f"c{i}", name, **given)
            codex.tokens()
            for i, call in reversed(list(enumerate(step.calls, n))):
                codex.output(f"c{i}", call.result)
            n += len(step.calls)
        codex.said("assistant", turn.answer)
        codex.tokens()
        codex.event("task_complete")
    return codex.save(folder)


def as_chat(conversation: Conversation, folder: Path) -> Path:
    messages: list[dict[str, Any]] = []
    n = 0
    for turn in conversation:
        messages.append({"role": "user", "content": turn.prompt})
        for step in turn.steps:
            made = [
                {
                    "id": f"c{i}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for i, call in enumerate(step.calls, n)
            ]
            parts = [{"type": "text", "text": said} for said in step.texts]
            messages.append({"role": "assistant", "content": parts or None, "tool_calls": made})
            for i, call in reversed(list(enumerate(step.calls, n))):
                messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": call.result})
            n += len(made)
        messages.append({"role": "assistant", "content": turn.answer})
    path = folder / "chat.json"
    path.write_text(json.dumps({"messages": messages}))
    return path
