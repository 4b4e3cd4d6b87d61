"""From a name to a model: `openai:gpt-5-mini`.

Lives here: `resolve_model`, the providers that come with the package, and `register_provider` for others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from interlock.errors import ConfigError, UnknownModel
from interlock.models.protocol import Model


class ModelFactory(Protocol):
    """Makes a model of one provider. `base_url` is None unless the caller named a server."""

    def __call__(self, name: str, *, base_url: str | None) -> Model: ...


def _compatible(provider: str, default_url: str | None) -> ModelFactory:
    def make(name: str, *, base_url: str | None) -> Model:
        from interlock.models.openai import OpenAIModel  # with all that speaks HTTP

        return OpenAIModel(name, base_url=base_url or default_url, provider=provider)

    return make


_providers: dict[str, ModelFactory] = {
    "openai": _compatible("openai", None),
    "ollama": _compatible("ollama", "http://localhost:11434/v1"),
    "vllm": _compatible("vllm", "http://localhost:8000/v1"),
    "llamacpp": _compatible("llamacpp", "http://localhost:8080/v1"),
}


def register_provider(name: str, factory: ModelFactory) -> Callable[[], None]:
    """Let `resolve_model` know `name:...` until the returned function is called; calling it twice is harmless.

    Raises:
        ConfigError: the name is taken, empty or has a colon in it.
    """
    if not name or ":" in name:
        raise ConfigError(f"{name!r} cannot name a provider: it stands before the colon of provider:model.")
    if name in _providers:
        raise ConfigError(f"A provider named {name!r} is already registered. Give this one another name.")
    _providers[name] = factory

    def dispose() -> None:
        if _providers.get(name) is factory:  # another may own the name by now
            del _providers[name]

    return dispose


def resolve_model(spec: str | Model, *, base_url: str | None = None) -> Model:
    """The model for `provider:name`; a model is returned as it is.

    base_url: the server to ask instead of the provider's usual one.

    Raises:
        UnknownModel: not of that form, or no such provider; it lists those that are known.
        ConfigError: what the provider's factory says, for example `MissingKey`.
    """
    if not isinstance(spec, str):
        return spec
    provider, _, name = spec.partition(":")
    factory = _providers.get(provider)
    if factory is None or not name:
        raise UnknownModel(spec, tuple(_providers))
    return factory(name, base_url=base_url)
