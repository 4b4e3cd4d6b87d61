"""What the bodies of one test have done is no concern of the next."""

from __future__ import annotations

import pytest

from .calling import ran


@pytest.fixture(autouse=True)
def _nothing_has_run() -> None:
    ran.clear()
