"""What a tool is: its name, description and schema, what it declares, and what is refused when it is made."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import pytest
from pydantic import Field

import interlock
from interlock import Claims, Concurrency, ConfigError, Effect, StopMode, Tool, ToolContext, ToolOutput, tool
from interlock.log.strictjson import thaw
from interlock.tools.arguments import docstring_parts


@dataclass
class Point:
    x: int
    y: int = 0


def schema_of(fn: Any) -> dict[str, Any]:
    schema: dict[str, Any] = tool(fn).schema
    return schema


# Names, descriptions, schemas


def test_a_function_becomes_a_tool_with_its_name_docstring_and_types() -> None:
    @tool
    def area(width: float, height: float = 1.0) -> float:
        """Area of a rectangle.

        In square metres.

        Args:
            width: From left to right,
                in metres.
            height (float): From top to bottom.

        Returns:
            The area.

        Raises:
            ValueError: never.
        """
        return width * height

    assert (area.name, area.description) == ("area", "Area of a rectangle.\n\nIn square metres.")
    assert area.schema == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "width": {"type": "number", "description": "From left to right, in metres."},
            "height": {"type": "number", "description": "From top to bottom.", "default": 1.0},
        },
        "required": ["width"],
    }
    assert (area.spec.name, area.spec.description) == (area.name, area.description)
    assert thaw(area.spec.schema) == area.schema


def test_what_is_not_declared_is_assumed_to_be_the_worst() -> None:
    @tool
    def change() -> None: ...

    assert (change.effect, change.concurrency, change.stop) == (
        Effect.WRITE,
        Concurrency.EXCLUSIVE,
        StopMode.COOPERATIVE,
    )
    assert change.timeout is None


def test_everything_can_be_declared() -> None:
    def render(value: object) -> str:
        return f"<{value}>"

    def finalise(call: object, result: object) -> None:
        return None

    @tool(
        "read_file",
        effect="read",
        concurrency="parallel",
        timeout=2.5,
        stop="process",
        render=render,
        finalise=finalise,
        description="Read it.",
    )
    def read(path: str) -> str:
        """Not this."""
        return path

    assert (read.name, read.description) == ("read_file", "Read it.")
    assert (read.effect, read.concurrency, read.stop) == (
        Effect.READ,
        Concurrency.PARALLEL,
        StopMode.PROCESS,
    )
    assert (read.timeout, read.render, read.finalise) == (2.5, render, finalise)


def test_the_enums_can_be_given_instead_of_their_names() -> None:
    @tool(effect=Effect.IDEMPOTENT, concurrency=Concurrency.PARALLEL, stop=StopMode.PROCESS)
    def put() -> None: ...

    assert (put.effect, put.concurrency, put.stop) == (
        Effect.IDEMPOTENT,
        Concurrency.PARALLEL,
        StopMode.PROCESS,
    )


def test_concurrency_may_be_a_function_of_the_call() -> None:
    def claims(call: Any) -> Claims:
        return Claims(writes=[call.arguments["path"]])

    @tool(concurrency=claims)
    def write(path: str) -> None: ...

    assert write.concurrency is claims


def test_a_tool_without_parameters_has_an_empty_object() -> None:
    def nothing() -> None: ...

    assert schema_of(nothing) == {"type": "object", "additionalProperties": False, "properties": {}}


def test_richer_types_keep_their_constraints_and_lose_only_the_titles() -> None:
    def place(
        point: Point,
        title: str,
        kind: Literal["dot", "cross"] = "dot",
        size: Annotated[int, Field(ge=1, description="In pixels.")] = 1,
        tags: list[str] | None = None,
    ) -> None: ...

    schema = schema_of(place)
    assert schema["properties"]["point"] == {"$ref": "#/$defs/Point"}
    assert schema["$defs"]["Point"]["properties"]["x"] == {"type": "integer"}
    assert schema["properties"]["title"] == {"type": "string"}, "a parameter may be called title"
    assert schema["properties"]["kind"]["enum"] == ["dot", "cross"]
    assert schema["properties"]["size"]["minimum"] == 1
    assert schema["properties"]["tags"]["anyOf"] == [
        {"items": {"type": "string"}, "type": "array"},
        {"type": "null"},
    ]
    assert schema["required"] == ["point", "title"]


def test_parameters_may_have_any_name() -> None:
    """Names that a model class has for itself are no exception."""

    def odd(
        schema: str, json: int, copy: bool, model_config: str, p0: str = "x", _private: int = 1
    ) -> None: ...

    made = tool(odd)
    assert list(made.schema["properties"]) == ["schema", "json", "copy", "model_config", "p0", "_private"]
    assert made.arguments.validate({"schema": "s", "json": 1, "copy": True, "model_config": "m"}) == {
        "schema": "s",
        "json": 1,
        "copy": True,
        "model_config": "m",
        "p0": "x",
        "_private": 1,
    }


def test_keyword_only_parameters_are_arguments_like_others() -> None:
    def search(pattern: str, *, limit: int = 10) -> None: ...

    assert list(schema_of(search)["properties"]) == ["pattern", "limit"]


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (None, ("", {})),
        ("One line.", ("One line.", {})),
        ("Do it.\n\nArguments:\n    a: One.\n    *b: Two.", ("Do it.", {"a": "One.", "b": "Two."})),
        ("Do it.\n\nParameters:\n    a: One:\n      with a colon.", ("Do it.", {"a": "One: with a colon."})),
        ("Do it.\n\nArgs:\n    a: One.\n\nMore about it.", ("Do it.\n\nMore about it.", {"a": "One."})),
        ("Args:\n    a: One.\nReturns:\n    It.", ("", {"a": "One."})),
        ("Do it.\n\nExamples:\n    do()", ("Do it.", {})),
        ("Args: are what this is about.", ("Args: are what this is about.", {})),
        ("Do it.\n\nArgs:\n    not a name\n    a: One.", ("Do it.", {"a": "One."})),
    ],
)
def test_a_docstring_gives_the_description_and_its_args_section_the_arguments(
    docstring: str | None, expected: tuple[str, dict[str, str]]
) -> None:
    def fn() -> None: ...

    fn.__doc__ = docstring
    assert docstring_parts(fn) == expected


# The context parameter


def test_a_parameter_of_the_context_type_is_found_by_its_type_and_not_shown_to_the_model() -> None:
    def one(text: str, ctx: ToolContext) -> str:
        return text

    def two(where: ToolContext, text: str) -> str:
        return text

    assert [tool(fn).context_parameter for fn in (one, two)] == ["ctx", "where"]
    assert [list(schema_of(fn)["properties"]) for fn in (one, two)] == [["text"], ["text"]]


def test_the_context_type_may_be_written_with_its_module() -> None:
    def one(ctx: interlock.ToolContext) -> None: ...

    assert one.__annotations__["ctx"] == "interlock.ToolContext"
    assert tool(one).context_parameter == "ctx"


class Other:
    ToolContext: TypeAlias = int


def test_another_type_of_that_name_is_no_context() -> None:
    def one(ctx: Other.ToolContext) -> None: ...

    made = tool(one)
    assert made.context_parameter is None
    assert made.schema["properties"]["ctx"] == {"type": "integer"}


def test_the_context_and_the_output_are_known_where_they_are_only_imported_for_typing() -> None:
    namespace: dict[str, Any] = {}
    exec(
        "from __future__ import annotations\n"
        "def body(text: str, ctx: ToolContext) -> ToolOutput:\n    return text\n",
        namespace,
    )
    made = tool(namespace["body"])
    assert made.context_parameter == "ctx"
    assert made.output.validate({"any": "value"}) == {"any": "value"}


def test_a_tool_that_returns_an_output_may_return_any_value() -> None:
    @tool
    def body() -> ToolOutput:
        return ToolOutput(1)

    assert body.output.validate([1, "a"]) == (1, "a")


# Sync and async


def test_it_is_known_whether_the_body_is_async() -> None:
    async def one() -> None: ...
    def two() -> None: ...

    assert [tool(one).is_async, tool(two).is_async] == [True, False]
    assert tool("three")(functools.partial(one)).is_async


# Changed copies


def test_with_makes_a_changed_copy() -> None:
    @tool(effect="read")
    def read(path: str) -> str:
        """Read a file."""
        return path

    renamed = read.with_(name="read_file", effect="write", timeout=3, description="Look.")
    assert (renamed.name, renamed.effect, renamed.timeout, renamed.description) == (
        "read_file",
        Effect.WRITE,
        3,
        "Look.",
    )
    assert (read.name, read.effect, read.timeout) == ("read", Effect.READ, None)
    assert renamed.schema == read.schema
    assert renamed.spec.name == "read_file"


def test_a_definition_is_immutable() -> None:
    @tool
    def read() -> None: ...

    with pytest.raises(dataclasses.FrozenInstanceError):
        read.name = "write"  # type: ignore[misc]  # that is the point


def test_only_what_is_declared_can_be_changed() -> None:
    @tool
    def read() -> None: ...

    with pytest.raises(ConfigError, match="a tool has no colour, fn to change"):
        read.with_(colour="red", fn=print)
    with pytest.raises(ConfigError, match="effect must be one of read, idempotent, write, not 'maybe'"):
        read.with_(effect="maybe")


# Illegal declarations


async def coroutine_function(*_: object) -> None: ...


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"effect": "maybe"}, "effect must be one of read, idempotent, write, not 'maybe'"),
        ({"effect": "READ"}, "effect must be one of"),
        ({"effect": Concurrency.PARALLEL}, "effect must be one of"),
        ({"effect": None}, "effect must be one of"),
        ({"concurrency": "both"}, "concurrency must be one of exclusive, parallel, not 'both'"),
        ({"concurrency": True}, "concurrency must be one of"),
        ({"concurrency": coroutine_function}, "concurrency is a plain function"),
        ({"stop": "kill"}, "stop must be one of cooperative, process, not 'kill'"),
        ({"timeout": 0}, "timeout is a number of seconds above 0, not 0"),
        ({"timeout": -1}, "timeout is a number"),
        ({"timeout": "5"}, "timeout is a number"),
        ({"timeout": float("nan")}, "timeout is a number"),
        ({"render": "upper"}, "render is a plain function, not 'upper'"),
        ({"render": coroutine_function}, "render is a plain function"),
        ({"finalise": 5}, "finalise is a plain function, not 5"),
        ({"finalise": coroutine_function}, "finalise is a plain function"),
        ({"description": 5}, "description is text, not 5"),
        ({"description": "\ud800"}, "description is text"),
        ({"parallel": True}, "@tool has no parallel: it takes concurrency, description, effect"),
    ],
)
def test_an_illegal_declaration_is_refused_when_the_tool_is_made(declared: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:

        @tool(**declared)
        def body() -> None: ...

    assert problem in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "é", "x" * 65, "a\n"])
def test_a_name_is_short_ascii_without_spaces(name: str) -> None:
    def body() -> None: ...

    body.__name__ = name
    with pytest.raises(ConfigError, match="a tool's name is 1 to 64 ASCII letters, digits, _ and -, not"):
        tool(body)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="not '<lambda>'"):
        tool(lambda: None)
    assert tool("constant")(lambda: 1).name == "constant"


def test_a_tool_is_not_made_twice() -> None:
    @tool
    def read() -> None: ...

    with pytest.raises(ConfigError, match=r"'read' is a tool already: change a copy with .with_\(\)"):
        tool("again")(read)  # type: ignore[arg-type]  # that is the point


def test_only_a_function_can_be_decorated() -> None:
    given: Any = 5
    with pytest.raises(ConfigError, match="@tool decorates a function, not int"):
        tool(given)


def several(*paths: str) -> None: ...
def named(**paths: str) -> None: ...
def first(path: str, /) -> None: ...
def untyped(path) -> None: ...  # type: ignore[no-untyped-def]
def unknown(path: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def unreadable(path: "not a type") -> None: ...  # type: ignore[valid-type]  # noqa: F722


@pytest.mark.parametrize(
    ("fn", "problem"),
    [
        (several, "tool 'several': *paths: 'str' cannot be an argument; give it a name and a type"),
        (named, "tool 'named': **paths: 'str' cannot be an argument"),
        (first, "tool 'first': path: 'str' cannot be an argument"),
        (untyped, "tool 'untyped': the parameter 'path' needs a type annotation"),
        (unknown, "tool 'unknown': an annotation cannot be resolved (name 'Missing' is not defined)"),
        (unreadable, "tool 'unreadable': an annotation cannot be resolved"),
    ],
)
def test_parameters_that_cannot_be_arguments_are_refused_on_first_use(fn: Any, problem: str) -> None:
    made = tool(fn)
    with pytest.raises(ConfigError) as refused:
        _ = made.schema
    assert problem in str(refused.value)


def test_importing_a_module_of_tools_builds_no_schema() -> None:
    @tool
    def read(path: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert isinstance(read, Tool)
    assert "arguments" not in read.__dict__
