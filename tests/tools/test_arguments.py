"""Arguments in and values out: validation is strict, and whatever a model writes is at worst an invalid call."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, PlainSerializer

from interlock import Agent, tool
from interlock.log.facts import ToolCalled, ToolResulted, ToolSettled
from interlock.log.strictjson import MAX_ARGUMENTS, FrozenDict
from interlock.testing import ScriptedModel, assert_laws, call, calls, says
from interlock.tools.admission import look
from interlock.tools.arguments import Arguments, InvalidArguments, InvalidOutput, Output


class Colour(Enum):
    RED = "red"


class Place(BaseModel):
    x: int
    y: int = 0


@dataclass
class Size:
    width: float


def arguments(fn: Any) -> Arguments:
    return Arguments.of(fn, "t", skip=None)


def problem(fn: Any, given: dict[str, Any]) -> str:
    with pytest.raises(InvalidArguments) as refused:
        arguments(fn).validate(given)
    return str(refused.value)


# Into the function


def test_valid_arguments_become_the_types_of_the_function() -> None:
    def fn(
        n: int, at: Place, size: Size, colour: Colour, day: date, tags: list[str], rest: dict[str, Any]
    ) -> None: ...

    assert arguments(fn).validate(
        {
            "n": 1,
            "at": {"x": 1},
            "size": {"width": 2.5},
            "colour": "red",
            "day": "2026-11-02",
            "tags": ["a"],
            "rest": {"k": None},
        }
    ) == {
        "n": 1,
        "at": Place(x=1),
        "size": Size(2.5),
        "colour": Colour.RED,
        "day": date(2026, 11, 2),
        "tags": ["a"],
        "rest": {"k": None},
    }


def test_each_validation_gives_values_of_its_own() -> None:
    """A body that changes what it got changes nothing for the next run."""

    def fn(tags: list[str], extra: list[str] = []) -> None: ...  # noqa: B006  # that is the point

    made = arguments(fn)
    first, second = made.validate({"tags": ["a"]}), made.validate({"tags": ["a"]})
    first["tags"].append("b")
    first["extra"].append("b")
    assert second == {"tags": ["a"], "extra": []}


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "3"), (int, 3.0), (int, 3.5), (int, True), (int, None),
        (float, "3"), (float, True),
        (str, 3), (str, None), (str, ["a"]),
        (bool, "true"), (bool, 1), (bool, 0),
        (list[int], (1, "2")), (list[int], {"0": 1}),
        (dict[str, int], [["a", 1]]),
        (Place, {"x": "1"}), (Place, {}), (Place, [1, 2]),
        (Colour, "blue"), (Colour, "RED"),
        (date, "tomorrow"), (date, 3),
    ],
)  # fmt: skip
def test_nothing_is_coerced(annotation: Any, value: Any) -> None:
    """What a person, a rule and the body see is one and the same."""

    def fn(a: Any) -> None: ...

    fn.__annotations__["a"] = annotation
    assert problem(fn, {"a": value}).startswith("a")


def test_an_integer_is_a_number_all_the_same() -> None:
    def fn(a: float) -> None: ...

    assert arguments(fn).validate({"a": 3}) == {"a": 3.0}


def test_every_problem_is_named_with_its_place() -> None:
    def fn(n: int, at: Place, size: int = 1) -> None: ...

    assert problem(fn, {"n": "1", "at": {"x": "a"}, "sizes": 2}) == (
        "n: Input should be a valid integer; at.x: Input should be a valid integer; "
        "sizes: Extra inputs are not permitted"
    )
    assert problem(fn, {}) == "n: Field required; at: Field required"


def test_constraints_hold() -> None:
    def fn(n: Annotated[int, Field(ge=1, le=3)]) -> None: ...

    assert problem(fn, {"n": 4}) == "n: Input should be less than or equal to 3"


def check(value: int) -> int:
    if value == 1:
        raise ValueError("one is taken")
    if value == 2:
        raise KeyError("a bug of the validator")
    return value


def test_a_validator_that_fails_in_any_way_makes_the_call_invalid() -> None:
    def fn(n: Annotated[int, AfterValidator(check)]) -> None: ...

    assert problem(fn, {"n": 1}) == "n: Value error, one is taken"
    assert "a bug of the validator" in problem(fn, {"n": 2})


def test_the_text_of_a_problem_does_not_repeat_the_value() -> None:
    """It may be 10 MB, or a secret."""

    def fn(n: int) -> None: ...

    assert "hunter2" not in problem(fn, {"n": "hunter2" * 100})


# From the text of the model


@tool(effect="read")
async def add(a: int, b: int = 0) -> int:
    return a + b


def looked(text: str) -> tuple[str, str] | None:
    return look(add, "add", text, lambda: ("add",)).problem


@pytest.mark.parametrize(
    "text", ['{"a": 1}', ' {"a": 1, "b": 2}\n', '{"a":-0}', '{"b":1,"a":9007199254740991}']
)
def test_good_arguments(text: str) -> None:
    assert looked(text) is None


def test_empty_text_is_an_empty_object() -> None:
    """SC-01."""

    @tool
    async def ping() -> None: ...

    for text in ("", "  ", "\n"):
        made = look(ping, "ping", text, lambda: ("ping",))
        assert (made.problem, made.arguments) == (None, FrozenDict())
    assert looked("") == ("INVALID_ARGS", "a: Field required")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "the arguments are not valid JSON: Expecting value at line 1 column 1"),
        ('{"a": 1', "the arguments are not valid JSON"),
        ('{"a": 1}}', "the arguments are not valid JSON: Extra data at line 1 column 9"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": 1e999}', "too large for a double"),
        ('{"a": 9007199254740992}', "outside"),
        ('{"a": 1, "a": 2}', "the key 'a' appears twice"),
        ('{"a": "\\ud800"}', "a lone surrogate"),
        ("{'a': 1}", "the arguments are not valid JSON"),
        ("[" * 100_000, "nested deeper"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested deeper"),
        ("[1]", "the arguments must be a JSON object, not [1]"),
        ("null", "the arguments must be a JSON object, not null"),
        ('"{\\"a\\": 1}"', "the arguments must be a JSON object"),
        ('{"a": "1"}', "a: Input should be a valid integer"),
        ('{"c": 1, "a": 1}', "c: Extra inputs are not permitted"),
        ("{}", "a: Field required"),
        ('{"a": 1}' + " " * MAX_ARGUMENTS, "the arguments have 1,048,584 characters, more than 1,048,576"),
    ],
)
def test_bad_arguments_are_an_invalid_call_that_says_what_is_wrong(text: str, said: str) -> None:
    """TP-18, D-12."""
    found = looked(text)
    assert found is not None
    code, message = found
    assert code == "INVALID_ARGS"
    assert said in message
    assert len(message) < 500


@given(st.text(st.characters() | st.sampled_from('{}[]":,\\01aEe+-. \ud800'), max_size=60))
@settings(deadline=None)
def test_any_text_is_looked_at_without_an_exception(text: str) -> None:
    look(add, "add", text, lambda: ("add",))


def test_an_unknown_tool_is_told_which_ones_there_are() -> None:
    """TP-18."""
    assert look(None, "sub", "{}", lambda: ("add", "mul")).problem == (
        "UNKNOWN_TOOL",
        "there is no tool named 'sub'. Tools: add, mul",
    )
    assert look(None, "sub", "{}", lambda: ()).problem == (
        "UNKNOWN_TOOL",
        "there is no tool named 'sub'. Tools: none",
    )


async def ran(*texts: str) -> Agent:
    agent = Agent(ScriptedModel(calls(*[call("add", raw=text) for text in texts]), says("done")), tools=[add])
    async with agent:
        result = await agent.run("go")
        assert result.ok
        assert_laws(agent.session)
    return agent


@pytest.mark.virtual
async def test_the_log_keeps_the_text_of_the_model_and_each_call_has_its_result() -> None:
    """SC-01: exactly as it was written, valid or not."""
    texts = ["not json", "", '{ "a" : 1 }', '{"a": "1"}', "[1]"]
    agent = await ran(*texts)
    assert [fact.arguments for fact in agent.session.facts(ToolCalled)] == texts
    results = agent.session.facts(ToolResulted)
    assert [result.error.code if result.error else result.content[0].text for result in results] == [
        "INVALID_ARGS",
        "INVALID_ARGS",
        "1",
        "INVALID_ARGS",
        "INVALID_ARGS",
    ]


@pytest.mark.virtual
async def test_ten_megabytes_of_arguments_are_refused_without_being_parsed() -> None:
    agent = await ran('{"a": "' + "x" * 10_000_000 + '"}')
    (result,) = agent.session.facts(ToolResulted)
    assert result.error is not None
    assert (result.error.code, result.error.handler_executed) == ("INVALID_ARGS", False)
    assert not agent.session.facts(ToolSettled)


# Out of the function


def returned(annotation: Any, value: Any) -> Any:
    return Output("t", annotation).validate(value)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (str, "a", "a"),
        (int, 1, 1),
        (bool, True, True),
        (type(None), None, None),
        (Any, {"a": [1, (2,)]}, {"a": (1, (2,))}),
        (object, None, None),
        (list[int], [1], (1,)),
        (Place, Place(x=1), {"x": 1, "y": 0}),
        (Size, Size(1.5), {"width": 1.5}),
        (Colour, Colour.RED, "red"),
        (date, date(2026, 11, 2), "2026-11-02"),
        (str | None, None, None),
        (float, 1.5, 1.5),
    ],
)
def test_a_value_of_the_declared_type_becomes_one_frozen_json_value(
    annotation: Any, value: Any, expected: Any
) -> None:
    """TP-17."""
    assert returned(annotation, value) == expected


class Hostile:
    """Claims to be a mapping, and fails."""

    def keys(self) -> Any:
        raise RuntimeError("no keys")

    def __len__(self) -> int:
        raise RuntimeError("no length")


class Cyclic(list[Any]):
    def __init__(self) -> None:
        super().__init__()
        self.append(self)


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (str, 1, "declared to return str, got int"),
        (int, True, "declared to return int, got bool"),
        (int, "1", "declared to return int, got str"),
        (type(None), 0, "declared to return NoneType, got int"),
        (str, "\ud800", "a lone surrogate"),
        (Any, float("nan"), "nan is not a JSON number"),
        (Any, object(), "object is not a JSON value"),
        (Any, {1: "a"}, "the key 1 is int, not str"),
        (Any, 2**53, "an integer outside"),
        (Any, b"bytes", "bytes is not a JSON value"),
        (Any, {"a", "b"}, "set is not a JSON value"),
        (Any, Hostile(), "Hostile is not a JSON value"),
        (Any, Cyclic(), "nested deeper than 100 levels"),
        (list[int], ["1"], "0: Input should be a valid integer"),
        (list[int], None, "the value: Input should be a valid list"),
        (Place, {"x": "1"}, "x: Input should be a valid integer"),
        (Size, {"width": 1.5}, "the value: Input should be an instance of Size"),
        (list[Any], [object()], "Unable to serialize unknown type"),
        (float, float("inf"), "inf is not a JSON number"),
    ],
)
def test_anything_else_is_an_invalid_output(annotation: Any, value: Any, said: str) -> None:
    """TP-17: not JSON, or not of the declared type."""
    with pytest.raises(InvalidOutput) as refused:
        returned(annotation, value)
    assert said in str(refused.value)


def test_the_value_is_frozen() -> None:
    value = returned(Any, {"a": [1]})
    with pytest.raises(TypeError, match="frozen"):
        value["a"] = 2


def failing(value: Any) -> Any:
    raise KeyError("a bug of the type")


@pytest.mark.parametrize(
    "annotation", [Hostile, Annotated[int, AfterValidator(failing)], Annotated[int, PlainSerializer(failing)]]
)
def test_a_return_type_that_cannot_be_used_is_an_invalid_output_too(annotation: Any) -> None:
    """It has no schema, or code of its own that fails."""
    with pytest.raises(InvalidOutput, match=r"^it cannot be checked: "):
        returned(annotation, 1)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53) + 1, 2**53 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(codec="utf-8")),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
@settings(deadline=None)
def test_every_json_value_comes_out_as_it_went_in(value: Any) -> None:
    """As arguments of the loosest type, and as a return value."""

    def fn(value: Any) -> Any: ...

    made = arguments(fn)
    assert json.loads(json.dumps(made.validate({"value": value})["value"])) == json.loads(json.dumps(value))
    assert json.loads(json.dumps(Output.of(fn, "t").validate(value))) == json.loads(json.dumps(value))
