"""Endpoints: addresses that speak as a provider does, by the names that the configuration gives them."""

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from callboard.actors.models.catalog import Endpoint, open_model, with_endpoints
from callboard.actors.models.model import NO_KEY, ModelTurn
from callboard.bus import events as ev
from callboard.bus.effects import user
from callboard.bus.errors import ConfigInvalid
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import Config, load
from callboard.service.worker.bootstrap import open_worker
from tests.support import messages_api, openai_api
from tests.support.model_api import model_api
from tests.support.openai_api import chatting

TABLE = """
[endpoints.local]
api = "openai-chat"
base_url = "http://127.0.0.1:11434/v1"
model = "llama3"

[endpoints.azure]
api = "openai"
base_url = "https://ours.openai.azure.com/openai/v1"
key = "${AZURE_KEY}"
"""


def configured(folder: Path, table: str, env: dict[str, str]) -> Config:
    (folder / "callboard.toml").write_text(table, encoding="utf-8")
    return load(env=env, cwd=folder)


def test_the_keys_of_configured_endpoints_are_never_shown(tmp_path: Path) -> None:
    config = configured(tmp_path, TABLE, {"AZURE_KEY": "sk-azure"})
    azure = config.endpoints["azure"].endpoint()
    assert (azure.api, azure.key, azure.model) == ("openai", "sk-azure", "")
    assert config.endpoints["local"].endpoint().model == "llama3"
    assert "sk-azure" in config.secrets()
    assert "sk-azure" not in str(config.explain()) + str(config.values())
    [shown] = [value for name, value, _ in config.explain() if name == "endpoints"]
    assert shown == (
        "local=openai-chat http://127.0.0.1:11434/v1, azure=openai https://ours.openai.azure.com/openai/v1"
    )
    assert config.warnings == []


def test_a_key_that_is_not_set_is_warned_of(tmp_path: Path) -> None:
    [warning] = configured(tmp_path, TABLE, {}).warnings
    assert warning.code == "config.unset"
    assert "endpoints.azure" in warning.message
    assert "AZURE_KEY" in warning.message


def test_the_environment_has_the_table_as_json(tmp_path: Path) -> None:
    table = {"local": {"api": "openai-chat", "base_url": "http://h/v1"}}
    config = load(env={"CALLBOARD_ENDPOINTS": msgspec.json.encode(table).decode()}, cwd=tmp_path)
    assert config.endpoints["local"].api == "openai-chat"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "dict"),
        ('{"x": "sk-secret"}', "endpoints.x"),
        ('{"x": {"api": "openai"}}', "endpoints.x.base_url"),
        ('{"x": {"api": "smoke", "base_url": "http://h"}}', "endpoints.x.api"),
        ('{"x": {"api": "openai", "base_url": "ftp://h"}}', "endpoints.x.base_url"),
        ('{"x": {"api": "openai", "base_url": "http://u:sk-secret@h"}}', "endpoints.x.base_url"),
        ('{"x": {"api": "openai", "base_url": "http://h", "kee": "sk-secret"}}', "endpoints.x.kee"),
        ('{"x:y": {"api": "openai", "base_url": "http://h"}}', "endpoints.x:y"),
        ('{"openai": {"api": "openai", "base_url": "http://h"}}', "endpoints.openai: is the name of a provider"),
        ('{"scripted": {"api": "openai", "base_url": "http://h"}}', "endpoints.scripted: is the name of a provider"),
    ],
)
def test_an_invalid_endpoint_is_refused_without_its_key(tmp_path: Path, given: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(env={"CALLBOARD_ENDPOINTS": given}, cwd=tmp_path)
    [problem] = caught.value.problems
    assert (problem.code, problem.where) == ("config.value", "CALLBOARD_ENDPOINTS")
    assert words in problem.message
    assert "sk-secret" not in str(caught.value)


WORKFLOW: dict[str, Any] = {
    "id": "count",
    "name": "Count",
    "entry": "a",
    "nodes": {"a": {"name": "A", "instruction": "Count."}},
    "edges": [],
}


async def test_a_run_asks_an_endpoint_by_its_name(tmp_path: Path) -> None:
    async with model_api() as server:
        server.will(chatting("Three."))
        endpoints = {"local": {"api": "openai-chat", "base_url": f"{server.url}/v1", "key": "sk-local", "model": "m"}}
        env = {"CALLBOARD_ENDPOINTS": msgspec.json.encode(endpoints).decode(), "CALLBOARD_MODEL": "local"}
        config = load({"data_dir": tmp_path, "sync": "100ms"}, env=env, cwd=tmp_path)
        source = msgspec.json.encode(WORKFLOW).decode()
        start = {"definition": {"language": "workflow", "source": source}, "run_id": "r1"}
        async with open_connection(config) as connection, open_worker(connection, {}):
            verdict = await connection.client.start(start)
            assert verdict.status == "accepted", verdict.problems
            async with connection.client.follow("r1", event_type=ev.RunEnd.type) as ends:
                await anext(aiter(ends))
            payloads = [ev.payload_of(event) for event in await connection.client.events("r1")]
    [request] = server.requests
    assert request.headers["authorization"] == "Bearer sk-local"
    assert request.body["model"] == "m"
    [call] = [payload for payload in payloads if isinstance(payload, ev.ModelCall)]
    [result] = [payload for payload in payloads if isinstance(payload, ev.ModelResult)]
    assert (call.model, call.provider) == ("local:m", "local")
    assert (result.text, result.provider, result.response_model) == ("Three.", "local", "gpt-served")


AMBIENT = {
    "OPENAI_ORG_ID": "org-ours",
    "OPENAI_PROJECT_ID": "proj-ours",
    "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer sk-ours\nX-Team: ours",
    "ANTHROPIC_CUSTOM_HEADERS": "X-Api-Key: sk-ours\nAuthorization: Bearer sk-ours\nX-Team: ours",
}
"""The variables of the environment that the SDKs send as headers."""

SAYING = {"openai": openai_api.responding, "openai-chat": openai_api.chatting, "anthropic": messages_api.saying}
TURN = ModelTurn(model="m", path="a", key="a#1.1!turn.0", ordinal=0, idempotency_key="i", messages=[user("Count.")])


@pytest.fixture
def ambient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AMBIENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("ambient")
@pytest.mark.parametrize("key", ["sk-theirs", ""])
@pytest.mark.parametrize("api", SAYING)
async def test_an_endpoint_gets_no_environment_settings_of_another(api: Any, key: str) -> None:
    async with model_api() as server:
        server.will(SAYING[api]("Three."))
        providers = with_endpoints({"local": Endpoint(api, f"{server.url}/v1", key)})
        model, _ = open_model("local:m", providers=providers)
        await model.turn(TURN, lambda _: None)
        await cast(Any, model).aclose()
    [request] = server.requests
    assert "ours" not in str(request.headers)
    assert not {"openai-organization", "openai-project", "x-team"} & request.headers.keys()
    told = request.headers.get("x-api-key") or request.headers["authorization"].removeprefix("Bearer ")
    assert told == (key or NO_KEY)


@pytest.mark.usefixtures("ambient")
async def test_a_provider_gets_its_environment_settings() -> None:
    async with model_api() as server:
        server.will(openai_api.responding("Three."), messages_api.saying("Three."))
        env = {
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
        }
        for provider in ("openai", "anthropic"):
            model, _ = open_model(f"{provider}:m", env=env)
            await model.turn(TURN, lambda _: None)
            await cast(Any, model).aclose()
    by_openai, by_anthropic = [request.headers for request in server.requests]
    assert (by_openai["openai-organization"], by_openai["openai-project"]) == ("org-ours", "proj-ours")
    assert by_openai["x-team"] == by_anthropic["x-team"] == "ours"
