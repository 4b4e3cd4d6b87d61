"""Async tests run in an event loop of their own; `@pytest.mark.virtual` gives them one whose time is simulated."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import effort  # its profile has to be known before the command line names it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--examples", type=int, metavar="N", help="how many lives `make soak` tries")


def pytest_configure(config: pytest.Config) -> None:
    effort.wanted = config.getoption("--examples")


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


@pytest.fixture
def own_folder() -> Iterator[Path]:
    """A folder of a user who may not do everything, as whom the test runs. (Root may read and write all.)"""
    # What a tool imports on first use is loaded before: that user need not be able to read this checkout.
    importlib.import_module("regex")
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
            for folder in [one for one in Path(name).iterdir() if one.is_dir()]:
                folder.chmod(0o755)  # so that it can be removed
    finally:
        os.seteuid(user)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many vectors of other projects passed: a figure that is quoted."""

    def count(outcome: str) -> int:
        reports = terminalreporter.getreports(outcome)
        return sum("test_agent_hooks_sdk.py::test_vector" in report.nodeid for report in reports)

    passed, skipped, failed = count("passed"), count("skipped"), count("failed") + count("error")
    if passed + skipped + failed:
        told = f"agent-hooks-sdk: {passed} vectors passed, {skipped} skipped, {failed} failed"
        terminalreporter.write_sep("=", told)
