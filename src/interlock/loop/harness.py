"""What agents share: a layer of registrations, and the settings they start from.

Lives here: `Layer`, a scope with tools, guards, hooks and points, and `Harness`, the outermost one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.errors import UsageError
from interlock.intercept.decisions import Deny
from interlock.intercept.scope import Dispose, Scope
from interlock.log.stores.memory.store import MemoryStore
from interlock.log.stores.store import Store
from interlock.loop.budget import Budget
from interlock.loop.points import On
from interlock.models.protocol import Model
from interlock.models.retry import RetryPolicy
from interlock.policy.approval import ApproverFunction
from interlock.policy.ceiling import Ceiling, ceiling_of
from interlock.policy.policy import GivenRules, rules_given
from interlock.tools.call import ToolCall
from interlock.tools.definition import Tool
from interlock.tools.points import GUARD
from interlock.tools.registry import Registry
from interlock.tools.scheduler import checked_pool

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor
    from interlock.loop.agent import Agent
    from interlock.loop.hooks import HookSurface

Guard = Callable[[ToolCall], Deny | None]


class Layer:
    """A scope that can be registered in: harness, preset or agent. What is registered ends when it is left."""

    def __init__(self, name: str, outer: Layer | None = None) -> None:
        self.scope: Scope = Scope(name, outer.scope if outer is not None else None)
        self.registry: Registry = Registry(outer.registry if outer is not None else None)

    # Made when somebody registers something: most agents never do, and there may be thousands of them.

    @cached_property
    def on(self) -> On:
        """Registration at the points: `agent.on.pre_execute(listener)`."""
        return On(self.scope)

    @cached_property
    def hooks(self) -> HookSurface:
        """Registration under the hook names of other programs: `agent.hooks.register("PreToolUse", callback)`."""
        from interlock.loop.hooks import HookSurface

        return HookSurface(self.scope)

    def guard(self, fn: Guard, *, name: str | None = None) -> Dispose:
        """Register a guard: it may deny or abstain, never allow; it speaks before the asking and before the body.

        Raises:
            UsageError: it is a coroutine function: a guard must not suspend.
        """
        if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None)):  # noqa: B004
            raise UsageError(
                "a guard must be a plain function, not async: it speaks right before the body starts"
            )
        return self.scope.listen(GUARD, fn, name=name)

    def add_tool(self, tool: Tool | Callable[..., Any]) -> Dispose:
        """Offer a tool; a plain function is made one, as with `@tool`.

        Raises:
            ConfigError: not a tool, or one of that name is there already.
        """
        from interlock.tools.definition import tool as make

        return self.scope.owns(self.registry.register(tool if isinstance(tool, Tool) else make(tool)))

    def close_scope(self) -> None:
        self.scope.close()


class Harness(Layer):
    """What several agents share; an async context manager, or closed by `aclose`.

    pool: how many bodies of one answer may run at once. store: where sessions are kept, in memory by default.
    redact: takes secrets out of all that the log and the model get, for agents that name no redactor of their own.
    rules: permission rules that hold for all of them. ceiling: what nothing below may loosen, or the file that says
    it; `/etc/interlock/policy.toml` and the file that INTERLOCK_CEILING names hold as well, where there are any.

    Raises:
        ConfigError: a setting that cannot work, or a ceiling that cannot be read in full.
    """

    def __init__(
        self,
        *,
        model: str | Model | None = None,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        store: Store | None = None,
        approver: ApproverFunction | None = None,
        budget: Budget | None = None,
        pool: int = 10,
        retry: RetryPolicy | None = None,
        rules: GivenRules | None = None,
        ceiling: Ceiling | str | Path | None = None,
        redact: Redactor | None = None,
    ) -> None:
        super().__init__("harness")
        self.redact = redact
        self.ceiling = ceiling_of(ceiling)
        self.limit = Budget(**self.ceiling.limits) if self.ceiling.limits else None  # of every turn
        if self.ceiling.guards:
            self.guard(self.ceiling.guard, name=self.ceiling.name)
        self.rules = rules_given(rules, Path.cwd()) if rules is not None else None
        self.model = model
        self.store: Store = store if store is not None else MemoryStore()
        self._owns_store = store is None
        self.approver = approver
        self.budget = budget
        self.pool = checked_pool(pool)
        self.retry = retry
        self._agents: list[Agent] = []
        for tool in tools:
            self.add_tool(tool)

    def agent(self, model: str | Model | None = None, **settings: Any) -> Agent:
        """An agent of this harness: its own session, its own scope. Arguments as of `Agent`."""
        from interlock.loop.agent import Agent

        return Agent(model, harness=self, **settings)

    def preset(self, name: str) -> PresetLayer:
        """A layer between this harness and some of its agents."""
        return PresetLayer(name, self)

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The agents of this harness that are open, oldest first."""
        return tuple(self._agents)

    def joined(self, agent: Agent) -> None:
        self._agents.append(agent)

    def left(self, agent: Agent) -> None:
        if agent in self._agents:
            self._agents.remove(agent)

    async def aclose(self) -> None:
        """Close every agent, newest first, then the scope, then the store if it was made here."""
        async with AsyncExitStack() as stack:
            if self._owns_store:
                stack.push_async_callback(self.store.close)
            stack.callback(self.close_scope)
            for agent in self._agents:
                stack.push_async_callback(agent.aclose)

    async def __aenter__(self) -> Harness:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class PresetLayer(Layer):
    """A layer for agents of one kind; `with` or `async with` unwinds it.

    An open agent does not outlive its layer, since the layer's guards and rules hold for it: `async with` closes it.
    """

    def __init__(self, name: str, harness: Harness) -> None:
        super().__init__(name, harness)
        self.harness = harness

    def agent(self, model: str | Model | None = None, **settings: Any) -> Agent:
        """An agent inside this layer. Arguments as of `Agent`."""
        from interlock.loop.agent import Agent

        return Agent(model, harness=self.harness, layer=self, **settings)

    def close(self) -> None:
        """Take back what was registered here. Twice is harmless.

        Raises:
            UsageError: an agent of this layer is open.
        """
        inside = self._open_agents()
        if inside:
            raise UsageError(
                f"{len(inside)} open agent(s) of {self.scope.name!r} would lose its guards: close them first, or "
                f"use `async with`, which does"
            )
        self.close_scope()

    async def aclose(self) -> None:
        """Close every agent of this layer, newest first, then take back what was registered here."""
        async with AsyncExitStack() as stack:
            stack.callback(self.close_scope)
            for agent in self._open_agents():
                stack.push_async_callback(agent.aclose)

    def _open_agents(self) -> list[Agent]:
        return [agent for agent in self.harness.agents if agent.scope.parent is self.scope]

    def __enter__(self) -> PresetLayer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> PresetLayer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
