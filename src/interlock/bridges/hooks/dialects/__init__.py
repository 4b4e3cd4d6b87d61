"""The formats of other programs: Claude Code's, Codex's, Gemini CLI's.

Lives here: `DIALECTS`, by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from interlock.bridges.hooks.dialects.claude import CLAUDE_CODE
from interlock.bridges.hooks.dialects.codex import CODEX_CLI
from interlock.bridges.hooks.dialects.dialect import Dialect
from interlock.bridges.hooks.dialects.gemini import GEMINI_CLI
from interlock.bridges.hooks.handler import DialectName

DIALECTS: Mapping[DialectName, Dialect] = {
    dialect.name: dialect for dialect in (CLAUDE_CODE, CODEX_CLI, GEMINI_CLI)
}
