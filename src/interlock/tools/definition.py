"""What a tool is: a typed function and what it declares about itself.

Lives here: `Tool`, the `tool` decorator, and the declarations `Effect` and `StopMode`.
A definition is immutable. Its schema is built on first use, so that importing a module of tools stays cheap.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from interlock.errors import ConfigError
from interlock.intercept.point import is_async
from interlock.log.facts import ToolSpec
from interlock.log.messages import Source
from interlock.log.strictjson import NotJSON, freeze
from interlock.tools.arguments import Arguments, Output, docstring_parts, resolve_hints
from interlock.tools.claims import Concurrency, Mode
from interlock.tools.subject import Subject

if TYPE_CHECKING:
    from interlock.tools.call import ToolCall, ToolResult


class Effect(StrEnum):
    """What a crash or a retry may do with a call."""

    READ = "read"  # changes nothing: may be repeated, need not wait for the disk
    IDEMPOTENT = "idempotent"  # twice is as good as once
    WRITE = "write"  # the default: assume the worst


class StopMode(StrEnum):
    """How a running body is told to end."""

    COOPERATIVE = "cooperative"  # its signal is set; an async body also gets one CancelledError
    PROCESS = "process"  # its signal is set, and the body ends its process group: SIGTERM, grace, SIGKILL


Classifier: TypeAlias = "Callable[[ToolCall], Mode | str]"

_EFFECTS = {member.value: member for member in Effect}
_CONCURRENCY = {member.value: member for member in Concurrency}
_STOPS = {member.value: member for member in StopMode}


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool's definition. Make one with `@tool`; change a copy with `with_`."""

    name: str
    fn: Callable[..., Any]
    effect: Effect = Effect.WRITE
    concurrency: Concurrency | Classifier = Concurrency.EXCLUSIVE
    timeout: float | None = None  # seconds for one run of the body
    stop: StopMode = StopMode.COOPERATIVE
    render: Callable[[Any], str] | None = None  # the returned value as the model reads it
    finalise: Callable[[ToolCall, ToolResult], str | None] | None = None  # a last word on content
    description: str = ""
    subject: Subject | None = None  # what of its calls the permission rules are about
    sandbox: bool = False  # it runs processes, and confines them as its context says
    #: The name of the parameter that gets the ToolContext, found by its type.
    context_parameter: str | None = field(default=None, compare=False)

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.fn)

    @cached_property
    def source(self) -> Source:
        """Of what it says."""
        return Source("tool", self.name)

    @cached_property
    def awaits(self) -> bool:
        """Whether its body may suspend. An async function that awaits nothing cannot: no code that it calls can do it."""
        code = getattr(self.fn, "__code__", None)
        if not self.is_async or code is None or not code.co_flags & inspect.CO_COROUTINE:
            return True
        return any(instruction.opname == "YIELD_VALUE" for instruction in dis.get_instructions(code))

    @cached_property
    def arguments(self) -> Arguments:
        """The validator and schema of the arguments."""
        return Arguments.of(self.fn, self.name, skip=self.context_parameter)

    @cached_property
    def output(self) -> Output:
        """The validator of what the function returns."""
        return Output.of(self.fn, self.name)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, as the model sees it."""
        return self.arguments.schema

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.schema)

    def with_(self, **changes: Any) -> Tool:
        """A changed copy: `read.with_(name="read_file")`.

        Raises:
            ConfigError: an unknown field or an illegal value.
        """
        unknown = changes.keys() - {
            "name", "effect", "concurrency", "timeout", "stop", "render", "finalise", "description", "subject",
            "sandbox",
        }  # fmt: skip
        if unknown:
            raise ConfigError(f"a tool has no {', '.join(sorted(unknown))!s} to change")
        return replace(self, **_checked(changes))


F = TypeVar("F", bound=Callable[..., Any])


def _member(kind: str, known: dict[str, Any], value: object) -> Any:
    if isinstance(value, Enum) and value in known.values():
        return value
    if isinstance(value, str) and value in known:
        return known[value]
    raise ConfigError(f"{kind} must be one of {', '.join(known)}, not {value!r}")


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    made = dict(given)
    if "effect" in made:
        made["effect"] = _member("effect", _EFFECTS, made["effect"])
    if "stop" in made:
        made["stop"] = _member("stop", _STOPS, made["stop"])
    if "concurrency" in made and not callable(made["concurrency"]):
        made["concurrency"] = _member("concurrency", _CONCURRENCY, made["concurrency"])
    for plain in ("concurrency", "render", "finalise"):
        fn = made.get(plain)
        if fn is not None and (is_async(fn) or (plain != "concurrency" and not callable(fn))):
            raise ConfigError(f"{plain} is a plain function, not {fn!r}")
    timeout = made.get("timeout")
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise ConfigError(f"timeout is a number of seconds above 0, not {timeout!r}")
    name = made.get("name")
    if name is not None and not (
        isinstance(name, str)
        and 0 < len(name) <= 64
        and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    ):
        raise ConfigError(f"a tool's name is 1 to 64 ASCII letters, digits, _ and -, not {name!r}")
    subject = made.get("subject")
    if subject is not None and not isinstance(subject, Subject):
        raise ConfigError(f"subject is a Subject(kind, argument), not {subject!r}")
    sandbox: object = made.get("sandbox", False)
    if not isinstance(sandbox, bool):
        raise ConfigError(f"sandbox is True or False, not {sandbox!r}")
    if "description" in made and not _is_text(made["description"]):
        raise ConfigError(f"description is text, not {made['description']!r}")
    return made


def _is_text(value: object) -> bool:
    try:
        return type(freeze(value)) is str
    except NotJSON:
        return False


EffectName: TypeAlias = Effect | Literal["read", "idempotent", "write"]
ConcurrencyName: TypeAlias = Concurrency | Literal["exclusive", "parallel"] | Classifier
StopName: TypeAlias = StopMode | Literal["cooperative", "process"]


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    name: str | None = None,
    /,
    *,
    effect: EffectName = "write",
    concurrency: ConcurrencyName = "exclusive",
    timeout: float | None = None,
    stop: StopName = "cooperative",
    render: Callable[[Any], str] | None = None,
    finalise: Callable[[ToolCall, ToolResult], str | None] | None = None,
    description: str | None = None,
    subject: Subject | None = None,
    sandbox: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    fn: Callable[..., Any] | str | None = None, /, **declared: Any
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function: `@tool` or `@tool(effect="read", concurrency="parallel")`.

    The name is the function's, the description its docstring, the schema comes from its annotations and from the
    `Args:` of the docstring. A parameter annotated `ToolContext` gets the context and is not shown to the model.
    Async functions run on the event loop; others in a thread of ours, which never holds the exit.

    effect: what a crash or retry may do with it. concurrency: `exclusive`, `parallel`, or a function of the
    `ToolCall` that says so or names `Claims`. timeout: seconds for one run. stop: `process` if the body ends its
    processes when its signal is set. render: value to the model's text. finalise: a last word on the content.
    subject: which argument is the command, path or address that permission rules look at. sandbox: it runs processes
    and confines them by `ToolContext.confinement`.

    Raises:
        ConfigError: an illegal declaration, or parameters that cannot be arguments (`*args`, no annotation).
    """
    if callable(fn):
        return _make(fn, None, {})
    if fn is not None and not isinstance(fn, str):
        raise ConfigError(f"@tool decorates a function, not {type(fn).__name__}")
    return lambda function: _make(function, fn, declared)


def _make(fn: Callable[..., Any], name: str | None, declared: dict[str, Any]) -> Tool:
    if isinstance(fn, Tool):
        raise ConfigError(f"{fn.name!r} is a tool already: change a copy with .with_()")
    known = {
        "effect", "concurrency", "timeout", "stop", "render", "finalise", "description", "subject", "sandbox",
    }  # fmt: skip
    if unknown := declared.keys() - known:
        raise ConfigError(f"@tool has no {', '.join(sorted(unknown))}: it takes {', '.join(sorted(known))}")
    if declared.get("description") is None:
        declared = {**declared, "description": docstring_parts(fn)[0]}
    checked = _checked({**declared, "name": name or getattr(fn, "__name__", "")})
    return Tool(fn=fn, context_parameter=_context_parameter(fn), **checked)


def _context_parameter(fn: Callable[..., Any]) -> str | None:
    from interlock.tools.context import ToolContext

    for name, parameter in inspect.signature(fn).parameters.items():
        annotation = parameter.annotation
        if annotation is ToolContext:
            return name
        if (
            isinstance(annotation, str)
            and annotation.rpartition(".")[2] == "ToolContext"
            and resolve_hints(fn).get(name) is ToolContext
        ):
            return name
    return None
