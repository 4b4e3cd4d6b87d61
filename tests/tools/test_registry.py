"""Which tools there are: layers, names, and what the model is shown."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import ConfigError, DuplicateTool, Tool, tool
from interlock.tools.registry import Registry


class Opaque:
    """A type without a JSON schema."""


def named(name: str, description: str = "") -> Tool:
    @tool(name, description=description)
    def body() -> str:
        return description

    return body


def test_what_is_registered_is_found_until_it_is_disposed_of() -> None:
    registry, read = Registry(), named("read")
    dispose = registry.register(read)
    assert registry.get("read") is read
    dispose()
    assert registry.get("read") is None
    dispose()
    assert registry.names() == ()


def test_one_layer_has_one_tool_of_a_name() -> None:
    registry = Registry()
    registry.register(named("read"))
    with pytest.raises(DuplicateTool) as refused:
        registry.register(named("read"))
    assert refused.value.name == "read"


def test_a_disposer_takes_back_its_own_tool_only() -> None:
    """The name may have gone to another tool meanwhile."""
    registry = Registry()
    dispose = registry.register(named("read", "old"))
    dispose()
    new = named("read", "new")
    registry.register(new)
    dispose()
    assert registry.get("read") is new


def test_an_inner_layer_is_seen_before_an_outer_one() -> None:
    outer = Registry()
    inner = Registry(outer)
    mine, theirs = named("read", "mine"), named("read", "theirs")
    outer.register(theirs)
    write = named("write")
    outer.register(write)
    dispose = inner.register(mine)
    assert (inner.get("read"), inner.get("write"), outer.get("read")) == (mine, write, theirs)
    dispose()
    assert inner.get("read") is theirs


def test_the_model_is_shown_the_visible_tools_sorted_by_name() -> None:
    """TL-16: the same tools always give the same header."""
    outer = Registry()
    inner = Registry(outer)
    for name in ("write", "read"):
        outer.register(named(name, "outer"))
    for name in ("grep", "read"):
        inner.register(named(name, "inner"))
    shown = [(spec.name, spec.description) for spec in inner.specs()]
    assert shown == [("grep", "inner"), ("read", "inner"), ("write", "outer")]
    assert inner.names() == ("grep", "read", "write")


def test_what_is_shown_is_made_once_until_something_changes_anywhere() -> None:
    outer = Registry()
    inner = Registry(outer)
    inner.register(named("read"))
    before = inner.specs()
    assert inner.specs() is before
    dispose = outer.register(named("write"))
    assert [spec.name for spec in inner.specs()] == ["read", "write"]
    dispose()
    assert inner.specs() == before


def test_something_that_is_no_tool_is_refused() -> None:
    registry: Any = Registry()
    with pytest.raises(ConfigError, match="is not a tool: decorate the function with @tool"):
        registry.register(lambda: None)


def test_an_unusable_signature_is_said_at_registration() -> None:
    """Not in the middle of a turn."""

    @tool
    def take(thing: Opaque) -> None:
        """Made without a complaint: its schema is built on first use."""

    registry = Registry()
    with pytest.raises(ConfigError, match="tool 'take': its parameters have no JSON schema"):
        registry.register(take)
    assert registry.names() == ()
