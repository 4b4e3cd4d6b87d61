"""Transcripts of other tools: Claude Code's and Codex's sessions, and chats in OpenAI's form, as sessions of ours.

A file (`lines`) is told line after line by a reader (`claude`, `codex`, `openai_chat`) to an `assembling.Assembler`,
which writes a lawful log. Calls get our names (`tools`, `patches`) and the outcome that their text proves
(`outcomes`); what has no line of its own is `kept`. `importing` is where it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.bridges.transcripts.importing import FORMATS as FORMATS
    from interlock.bridges.transcripts.importing import Format as Format
    from interlock.bridges.transcripts.importing import Imported as Imported
    from interlock.bridges.transcripts.importing import import_transcript as import_transcript
    from interlock.bridges.transcripts.importing import import_transcripts as import_transcripts
    from interlock.bridges.transcripts.lines import BadTranscript as BadTranscript

from interlock.lazy import names

_HERE = "interlock.bridges.transcripts"
__all__ = ["FORMATS", "BadTranscript", "Format", "Imported", "import_transcript", "import_transcripts"]
__getattr__, __dir__ = names(
    __name__,
    {name: f"{_HERE}.importing" for name in __all__ if name != "BadTranscript"}
    | {"BadTranscript": f"{_HERE}.lines"},
)
