"""Arguments in and values out: schemas and validation of a function's types.

Lives here: `Arguments` and `Output`, which wrap pydantic and import it on first use, and the reading of docstrings.
Validation is strict: "3" is not a number. A person, a rule and the body all speak of the same arguments, so nothing
is coerced between what is shown and what runs.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from interlock.errors import ConfigError, said_error
from interlock.log.strictjson import JSON, NotJSON, freeze


class InvalidArguments(ValueError):
    """The arguments do not fit the tool. The text is for the model: what was wrong and where."""


class InvalidOutput(ValueError):
    """What the tool returned is not a JSON value of the type it declares."""


class Arguments:
    """The arguments of one function: `schema` for the model, `validate` for the call."""

    __slots__ = ("_names", "_validator", "schema")

    def __init__(self, schema: dict[str, Any], validator: Any, names: tuple[tuple[str, str], ...]) -> None:
        self.schema = schema
        self._validator = validator
        self._names = names

    @classmethod
    def of(cls, fn: Callable[..., Any], name: str, *, skip: str | None) -> Arguments:
        """
        Raises:
            ConfigError: a parameter that cannot be an argument, or a type that has no JSON schema.
        """
        import pydantic

        hints = resolve_hints(fn)
        described = docstring_parts(fn)[1]
        fields: dict[str, Any] = {}
        names = []
        for i, (parameter_name, parameter) in enumerate(inspect.signature(fn).parameters.items()):
            if parameter_name == skip:
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise ConfigError(
                    f"tool {name!r}: {parameter} cannot be an argument; give it a name and a type"
                )
            if parameter_name not in hints:
                raise ConfigError(f"tool {name!r}: the parameter {parameter_name!r} needs a type annotation")
            # Fields are numbered and aliased, so that an argument may be called `schema` or `json`.
            fields[f"p{i}"] = (
                hints[parameter_name],
                pydantic.Field(
                    default=... if parameter.default is parameter.empty else parameter.default,
                    alias=parameter_name,
                    description=described.get(parameter_name),
                ),
            )
            names.append((f"p{i}", parameter_name))
        try:
            model = pydantic.create_model(
                f"{name}_arguments",
                __config__=pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False, frozen=True),
                **fields,
            )
            schema = model.model_json_schema(by_alias=True)
        except (pydantic.errors.PydanticUserError, NameError) as error:
            raise ConfigError(f"tool {name!r}: its parameters have no JSON schema: {error}") from error
        return cls(_plain(schema), model.__pydantic_validator__, tuple(names))

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments for the function.

        Raises:
            InvalidArguments: with one line a problem.
        """
        try:
            made = self._validator.validate_json(msgspec.json.encode(arguments), strict=True)
        except Exception as error:  # noqa: BLE001  # pydantic's own, or a validator's of the tool's types
            raise InvalidArguments(_problems(error)) from None
        values = made.__dict__
        return {name: values[field] for field, name in self._names}


def _problems(error: Exception) -> str:
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return f"they cannot be checked: {said_error(error)}"
    lines = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(str(part) for part in problem["loc"]) or "arguments"
        lines.append(f"{where}: {problem['msg']}")
    return "; ".join(lines)


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without pydantic's titles, which cost tokens and say nothing."""

    def walk(node: Any, *, names: bool) -> Any:
        if isinstance(node, dict):
            return {
                key: walk(value, names=not names and key in ("properties", "$defs"))
                for key, value in node.items()
                if names or key != "title"
            }
        if isinstance(node, list):
            return [walk(item, names=False) for item in node]
        return node

    made = walk(schema, names=False)
    made.setdefault("properties", {})
    return dict(made)


class Output:
    """What a function returns, held to its annotation and to JSON."""

    __slots__ = ("_adapter", "_exact", "_hint", "_name")

    def __init__(self, name: str, hint: Any) -> None:
        self._name = name
        self._hint = hint
        self._exact: type | None = (
            hint if hint in (str, int, bool) else type(None) if hint is type(None) else None
        )
        self._adapter: Any = None

    @classmethod
    def of(cls, fn: Callable[..., Any], name: str) -> Output:
        return cls(name, resolve_hints(fn).get("return", Any))

    def validate(self, value: object) -> JSON:
        """The frozen JSON value.

        Raises:
            InvalidOutput: it is not JSON, or not of the declared type.
        """
        if self._exact is not None and type(value) is not self._exact:
            raise InvalidOutput(f"declared to return {self._exact.__name__}, got {type(value).__name__}")
        plain = self._exact is not None or self._hint is Any or self._hint is object
        try:
            return freeze(value if plain else self._written(value))
        except NotJSON as error:
            raise InvalidOutput(str(error)) from None

    def _written(self, value: object) -> object:
        """The value as its declared type writes it."""
        from pydantic import TypeAdapter, ValidationError

        try:
            if self._adapter is None:
                self._adapter = TypeAdapter(self._hint)
            checked = self._adapter.validate_python(value, strict=True)
            written: object = self._adapter.dump_python(checked, mode="json")
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the value"
            raise InvalidOutput(f"{where}: {first['msg']}") from None
        except Exception as error:  # noqa: BLE001  # the type's own code: no schema, a validator, a serialiser
            raise InvalidOutput(f"it cannot be checked: {said_error(error)}") from None
        return written


def resolve_hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """The function's annotations, with strings resolved.

    Raises:
        ConfigError: a name in them cannot be found.
    """
    from interlock.tools.call import ToolOutput
    from interlock.tools.context import ToolContext

    known = {"ToolContext": ToolContext, "ToolOutput": ToolOutput}
    try:
        hints = typing.get_type_hints(fn, localns=known, include_extras=True)
    except Exception as error:  # an annotation is foreign code: it can fail in any way
        raise ConfigError(
            f"tool {getattr(fn, '__name__', fn)!r}: an annotation cannot be resolved ({error}). "
            f"Define the type at module level."
        ) from error
    if hints.get("return") is ToolOutput:
        hints["return"] = Any
    return hints


_ARGS_HEAD = re.compile(r"^(\s*)(Args|Arguments|Parameters):\s*$")
_ARG = re.compile(r"^\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


def docstring_parts(fn: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description and the text of each argument, from a docstring with an `Args:` section."""
    description: list[str] = []
    arguments: dict[str, str] = {}
    current: str | None = None
    inside = False
    margin: int | None = None
    for line in (inspect.getdoc(fn) or "").splitlines():
        if not inside:
            if _ARGS_HEAD.match(line):
                inside = True
            else:
                description.append(line)
            continue
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            inside = False
            description.append(line)
            continue
        margin = indent if margin is None else margin
        found = _ARG.match(line.strip()) if indent <= margin else None
        if found:
            current = found[1]
            arguments[current] = found[2].strip()
        elif current is not None:
            arguments[current] = f"{arguments[current]} {line.strip()}".strip()
    text = "\n".join(description)
    for head in ("Returns:", "Raises:", "Yields:", "Source:", "Example:", "Examples:"):
        text = re.split(rf"(?m)^{head}\s*$", text)[0]
    return text.strip(), arguments
