"""From a name to a model."""

from __future__ import annotations

import subprocess
import sys

import pytest

from interlock import models
from interlock.errors import ConfigError, MissingKey, UnknownModel
from interlock.models.openai import OpenAIModel
from interlock.models.protocol import Model
from interlock.models.registry import register_provider, resolve_model
from interlock.models.scripted import ScriptedModel, says


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_openai_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    model = resolve_model("openai:gpt-5-mini")
    assert isinstance(model, OpenAIModel)
    assert isinstance(model, Model)
    assert repr(model) == "OpenAIModel('gpt-5-mini', provider='openai', host='api.openai.com')"


@pytest.mark.parametrize(("provider", "port"), [("ollama", 11434), ("vllm", 8000), ("llamacpp", 8080)])
def test_servers_on_this_machine_need_no_key(provider: str, port: int) -> None:
    model = resolve_model(f"{provider}:qwen3:8b")
    assert isinstance(model, OpenAIModel)
    assert (model.provider, model.name, model.base_url) == (
        provider,
        "qwen3:8b",
        f"http://localhost:{port}/v1",
    )


def test_another_server_can_be_named() -> None:
    model = resolve_model("openai:small", base_url="http://127.0.0.1:9/v1")
    assert isinstance(model, OpenAIModel)
    assert model.base_url == "http://127.0.0.1:9/v1"


def test_an_openai_key_is_not_for_other_providers_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    with pytest.raises(MissingKey, match="No API key for vllm: set VLLM_API_KEY") as caught:
        resolve_model("vllm:small", base_url="https://models.example.org/v1")
    assert (caught.value.provider, caught.value.variable) == ("vllm", "VLLM_API_KEY")


@pytest.mark.parametrize("spec", ["opnai:gpt-5-mini", "gpt-5-mini", "openai:", "", ":x"])
def test_anything_else_is_refused_with_what_is_known(spec: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        resolve_model(spec)
    assert caught.value.known == ("openai", "ollama", "vllm", "llamacpp")


def test_a_near_miss_is_named() -> None:
    with pytest.raises(UnknownModel, match="Did you mean 'openai'"):
        resolve_model("opnai:gpt-5-mini")


def test_a_model_is_returned_as_it_is() -> None:
    model = ScriptedModel()
    assert resolve_model(model) is model


def test_a_provider_can_be_added_and_taken_back() -> None:
    asked: list[tuple[str, str | None]] = []

    def make(name: str, *, base_url: str | None) -> Model:
        asked.append((name, base_url))
        return ScriptedModel(says("hi"), name=name)

    dispose = register_provider("fake", make)
    try:
        assert resolve_model("fake:one", base_url="http://x/v1").name == "one"
        assert asked == [("one", "http://x/v1")]
        with pytest.raises(ConfigError, match="already registered"):
            register_provider("fake", make)
    finally:
        dispose()
    dispose()
    with pytest.raises(UnknownModel):
        resolve_model("fake:one")


def test_a_late_dispose_leaves_a_newer_owner_alone() -> None:
    def first(name: str, *, base_url: str | None) -> Model:
        return ScriptedModel(name="first")

    def second(name: str, *, base_url: str | None) -> Model:
        return ScriptedModel(name="second")

    dispose_first = register_provider("fake", first)
    dispose_first()
    dispose_second = register_provider("fake", second)
    try:
        dispose_first()
        assert resolve_model("fake:x").name == "second"
    finally:
        dispose_second()


@pytest.mark.parametrize("name", ["", "a:b"])
def test_a_provider_needs_a_name_that_can_stand_before_a_colon(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a provider"):
        register_provider(name, lambda name, *, base_url: ScriptedModel())


def test_the_public_names_load_on_first_use_and_the_sdk_later_still() -> None:
    script = """if True:
        import sys
        import interlock.models as models
        assert "interlock.models.openai" not in sys.modules
        assert "OpenAIModel" in dir(models)
        assert {name: getattr(models, name) for name in models.__all__}.keys() == set(models.__all__)
        models.OpenAIModel("small", base_url="http://localhost:1/v1")
        assert "openai" not in sys.modules, "importing the SDK takes most of a second"
    """
    subprocess.run([sys.executable, "-c", script], check=True)
    assert set(models.__all__) <= set(dir(models))
    assert models.resolve_model is resolve_model
    with pytest.raises(AttributeError, match="nonsense"):
        _ = models.nonsense
