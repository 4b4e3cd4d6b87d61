from __future__ import annotations

from pathlib import Path

import pytest

from .real_hooks import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)
