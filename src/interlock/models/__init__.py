"""Who answers: what an author of a model or of a test needs. Every name is loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import names

if TYPE_CHECKING:
    from interlock.models.openai import OpenAIModel as OpenAIModel
    from interlock.models.protocol import CallDelta as CallDelta
    from interlock.models.protocol import Chunk as Chunk
    from interlock.models.protocol import Finish as Finish
    from interlock.models.protocol import Model as Model
    from interlock.models.protocol import ModelRequest as ModelRequest
    from interlock.models.protocol import ReasoningDelta as ReasoningDelta
    from interlock.models.protocol import TextDelta as TextDelta
    from interlock.models.protocol import UsageReport as UsageReport
    from interlock.models.registry import register_provider as register_provider
    from interlock.models.registry import resolve_model as resolve_model
    from interlock.models.retry import RetryPolicy as RetryPolicy

_HOME = {
    "CallDelta": "interlock.models.protocol",
    "Chunk": "interlock.models.protocol",
    "Finish": "interlock.models.protocol",
    "Model": "interlock.models.protocol",
    "ModelRequest": "interlock.models.protocol",
    "OpenAIModel": "interlock.models.openai",
    "ReasoningDelta": "interlock.models.protocol",
    "RetryPolicy": "interlock.models.retry",
    "TextDelta": "interlock.models.protocol",
    "UsageReport": "interlock.models.protocol",
    "register_provider": "interlock.models.registry",
    "resolve_model": "interlock.models.registry",
}
__all__ = list(_HOME)

__getattr__, __dir__ = names(__name__, _HOME)
