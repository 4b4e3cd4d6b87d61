"""Who answers: what an author of a model or of a test needs. Every name is loaded on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
    "CallDelta": "protocol",
    "Chunk": "protocol",
    "Finish": "protocol",
    "Model": "protocol",
    "ModelRequest": "protocol",
    "OpenAIModel": "openai",
    "ReasoningDelta": "protocol",
    "RetryPolicy": "retry",
    "TextDelta": "protocol",
    "UsageReport": "protocol",
    "register_provider": "registry",
    "resolve_model": "registry",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
