"""The catalog: how a model's name finds its provider, and what the port asks of all of them."""

import subprocess
import sys
from collections.abc import Callable
from typing import get_args

import pytest

from callboard.actors.models.anthropic import AnthropicModel
from callboard.actors.models.catalog import API, PROVIDERS, Endpoint, exact, open_model, resolve, with_endpoints
from callboard.actors.models.model import Model, ModelTurn, ModelTurnFailed
from callboard.actors.models.recorded import RecordedModel
from callboard.actors.models.scripted import ScriptedModel

ENV = {"ANTHROPIC_API_KEY": "sk-test", "OPENAI_API_KEY": "sk-test", "GEMINI_API_KEY": "k-test"}


def refusal(act: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ModelTurnFailed) as caught:
        act()
    return caught.value.failure.code, caught.value.failure.message


@pytest.mark.parametrize(
    ("spec", "provider", "model"),
    [
        ("anthropic:claude-x", "anthropic", "claude-x"),
        ("anthropic", "anthropic", "claude-sonnet-5-5"),
        ("claude-haiku-4-5", "anthropic", "claude-haiku-4-5"),
        ("openai:gpt-5-nano", "openai", "gpt-5-nano"),
        ("openai", "openai", "gpt-6-sol"),
        ("gpt-5-nano", "openai", "gpt-5-nano"),
        ("gemini:gemini-2.5-pro", "gemini", "gemini-2.5-pro"),
        ("gemini", "gemini", "gemini-3.8-flash"),
        ("gemini-2.5-pro", "gemini", "gemini-2.5-pro"),
        (" scripted ", "scripted", "scripted"),
        ("recorded", "recorded", "recorded"),
    ],
)
def test_a_name_finds_its_provider(spec: str, provider: str, model: str) -> None:
    assert resolve(spec) == (provider, model)


@pytest.mark.parametrize("spec", ["", "llama3", "ollama:llama3", "anthropic:", "claude-x:y", ":x"])
def test_an_unknown_name_lists_what_is_known(spec: str) -> None:
    code, message = refusal(lambda: open_model(spec, env=ENV))
    assert code == "model.unknown"
    assert repr(spec) in message
    for provider in PROVIDERS:
        assert provider in message
    assert "claude-…" in message


async def test_models_are_opened_with_what_they_need() -> None:
    claude, name = open_model("claude-haiku-4-5", env=ENV)
    assert isinstance(claude, AnthropicModel)
    assert name == "claude-haiku-4-5"
    await claude.aclose()
    assert isinstance(open_model("recorded", recorded_events=[], allow_scripts=True)[0], RecordedModel)
    scripted, name = open_model("scripted", script={"default": {"text": "ok"}}, allow_scripts=True)
    turn = ModelTurn(model=name, path="a", key="a#1.1!turn.0", ordinal=0, idempotency_key="i")
    assert (await scripted.turn(turn, lambda _: None)).text == "ok"


def test_a_run_without_a_script_may_still_be_scripted() -> None:
    assert isinstance(open_model("scripted", allow_scripts=True)[0], ScriptedModel)


@pytest.mark.parametrize("spec", ["scripted", "recorded"])
def test_scripted_and_recorded_models_are_refused_where_they_are_not_allowed(spec: str) -> None:
    code, message = refusal(lambda: open_model(spec, script={}, env=ENV))
    assert code == "model.scripts_refused"
    assert spec in message


def test_a_missing_key_or_an_invalid_script_fails_the_opening() -> None:
    assert refusal(lambda: open_model("anthropic"))[0] == "model.auth"
    code, message = refusal(lambda: open_model("scripted", script={"turns": 1}, allow_scripts=True))
    assert code == "model.bad_request"
    assert "script.turns" in message


async def closed(model: Model) -> None:
    """Close a model that holds something open."""
    if (close := getattr(model, "aclose", None)) is not None:
        await close()


async def test_every_provider_opens_as_a_model_of_its_name() -> None:
    for name in PROVIDERS:
        model, _ = open_model(name, env=ENV, allow_scripts=True)
        assert model.provider == name
        await closed(model)


@pytest.mark.parametrize("api", get_args(API))
async def test_an_endpoint_is_a_provider_of_its_own_name(api: API) -> None:
    providers = with_endpoints({"local": Endpoint(api, "http://127.0.0.1:9/v1"), "near": Endpoint(api, "x", "k", "m")})
    assert resolve("local:llama3:8b", providers) == ("local", "llama3:8b")
    assert resolve("near", providers) == ("near", "m")
    assert exact("near", providers) == "near:m"
    model, name = open_model("local:llama3", env={}, providers=providers)
    assert (model.provider, name) == ("local", "llama3")
    await closed(model)
    code, message = refusal(lambda: resolve("local", providers))
    assert code == "model.unknown"
    assert "local:<model>" in message
    assert "near[:<model>]" in message


def test_the_error_for_a_missing_sdk_names_the_package_to_install() -> None:
    """Run in a separate process, where only the SDK of Anthropic can be found."""
    code = f"""
import sys
sys.modules["openai"] = sys.modules["google.genai"] = None
from callboard.actors.models.catalog import PROVIDERS, open_model
from callboard.actors.models.model import ModelTurnFailed
for name in ("openai", "gemini"):
    print(PROVIDERS[name].lacks())
    try:
        open_model(name, env={ENV!r})
    except ModelTurnFailed as failed:
        print(failed)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    for name, lacking, failure in (("openai", *lines[:2]), ("gemini", *lines[2:])):
        assert lacking == f"callboard[{name}]"
        assert failure.startswith("model.not_installed: ")
        assert f"pip install 'callboard[{name}]'" in failure


def test_installed_sdks_are_not_reported_as_missing() -> None:
    assert [name for name, provider in PROVIDERS.items() if provider.lacks()] == []


def test_no_sdk_is_imported_by_the_thread_of_the_event_loop() -> None:
    """Run in a separate process, which has imported no SDK; the requests import more of their SDK."""
    code = f"""
import sys, threading
import anyio
from callboard.runtime.worker.model_selection import Models

loop, held, others = threading.get_ident(), set(), set()

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("anthropic", "openai"):
            (held if threading.get_ident() == loop else others).add(name)

async def main():
    models = Models({ENV!r}, allow_scripts=False)
    claude, _ = await models.open("anthropic", {{}})
    openai, _ = await models.open("openai", {{}})
    claude._client.messages.create
    openai._client.responses.create
    openai._client.embeddings.create
    await models.aclose()

sys.meta_path.insert(0, Finder())
anyio.run(main)
print(sorted(held), len(others) > 100)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"
