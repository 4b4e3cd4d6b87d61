"""The places around a tool call where others may speak.

Lives here: the points of the pipeline, in the order in which a call meets them.
"""

from __future__ import annotations

from typing import Any

from interlock.intercept.decisions import (
    Accept,
    Advise,
    Allow,
    Ask,
    Block,
    Deny,
    Refuse,
    Replace,
    Rewrite,
)
from interlock.intercept.point import Kind, Point
from interlock.tools.call import ToolResult

PREPARE: Point[Any] = Point(
    "tools/prepare",
    "prepare",
    Kind.DECIDE,
    (Rewrite, Advise, Refuse),
    "rewrites: pipeline, validated again after each; the first Refuse ends the point; advice joins pre-execute",
    "(ToolCall)",
)
PRE_EXECUTE: Point[Any] = Point(
    "tools/pre-execute",
    "pre_execute",
    Kind.DECIDE,
    (Allow, Ask, Deny),
    "deny > ask > allow > the preset's default",
    "(ToolCall)",
)
GUARD: Point[Any] = Point(
    "guard",
    "guard",
    Kind.DECIDE,
    (Deny,),
    "any deny; the first reason is given; synchronous, before the question and again before the body",
    "(ToolCall)",
    awaited=False,
)
EXECUTE: Point[Any] = Point(
    "tools/execute",
    "execute",
    Kind.AROUND,
    (ToolResult,),
    "onion; next() a second time only for READ and IDEMPOTENT",
    "(ToolCall, next)",
)
POST_EXECUTE: Point[Any] = Point(
    "tools/post-execute",
    "post_execute",
    Kind.DECIDE,
    (Accept, Replace, Block),
    "pipeline; any Block wins; contexts in listener order",
    "(ToolCall, ToolResult)",
)
RESULT: Point[Any] = Point(
    "tools/result", "result", Kind.OBSERVE, (), "", "(ToolCall, ToolResult)", awaited=False
)
PROGRESS: Point[Any] = Point(
    "tools/progress", "progress", Kind.OBSERVE, (), "", "(ToolCall, str)", awaited=False
)

POINTS = (PREPARE, PRE_EXECUTE, GUARD, EXECUTE, POST_EXECUTE, RESULT, PROGRESS)
