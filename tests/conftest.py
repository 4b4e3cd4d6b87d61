"""Async tests run in an event loop of their own; `@pytest.mark.virtual` gives them one whose time is simulated."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    if pyfuncitem.get_closest_marker("virtual"):
        from interlock.testing import run_virtual

        run_virtual(pyfuncitem.obj(**arguments))
    else:
        asyncio.run(pyfuncitem.obj(**arguments))
    return True
