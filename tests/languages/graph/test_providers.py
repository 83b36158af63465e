"""Agents of a graph ask the provider that their subtype names, each over its own API."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support import gemini_api, messages_api, openai_api
from tests.support.graphs import graph, node, webhook
from tests.support.model_api import model_api

SUBTYPES: dict[str, tuple[str, dict[str, Any]]] = {
    "chatgpt": ("OPENAI_CHATGPT", {"model": "gpt-5-nano", "temperature": 0.7, "top_p": 0.9, "presence_penalty": 1}),
    "claude": ("ANTHROPIC_CLAUDE", {"model": "claude-sonnet-5-5"}),
    "gemini": ("GOOGLE_GEMINI", {"model": "gemini-2.5-flash", "user_prompt": "unused"}),
}


def make_graph() -> dict[str, Any]:
    """Return agents in sequence: each one reads the reply of the previous one."""
    agents = [
        node(name, "AI_AGENT", subtype, system_prompt="Be brief.", **configurations)
        for name, (subtype, configurations) in SUBTYPES.items()
    ]
    return graph([webhook("hook"), *agents], *(f"{a} -> {b}" for a, b in pairwise(["hook", *SUBTYPES])))


async def test_each_agent_asks_its_own_provider(tmp_path: Path) -> None:
    async with model_api() as server:
        refused = openai_api.failing(400, "unsupported_parameter", "no temperature here", param="temperature")
        server.will(refused, openai_api.responding("One."), messages_api.saying("Two."), gemini_api.saying("Three."))
        env = {
            "OPENAI_API_KEY": "sk-openai",
            "OPENAI_BASE_URL": f"{server.url}/openai",
            "ANTHROPIC_API_KEY": "sk-anthropic",
            "ANTHROPIC_BASE_URL": f"{server.url}/anthropic",
            "GEMINI_API_KEY": "k-gemini",
            "GOOGLE_GEMINI_BASE_URL": f"{server.url}/gemini",
        }
        config = load({"data_dir": tmp_path, "sync": "100ms", "model": "gemini"}, env=env, cwd=tmp_path)
        definition = {"language": "graph", "source": msgspec.json.encode(make_graph()).decode()}
        start = {"definition": definition, "input": {"message": "Hello?"}, "run_id": "r1", "options": {"user_id": "u"}}
        async with open_connection(config) as connection, open_worker(connection, env):
            verdict = await connection.client.start(start)
            assert verdict.status == "accepted", verdict.problems
            [warning] = [one for one in verdict.warnings if one.code == "model.parameter_unsupported"]
            assert warning.where == "nodes.chatgpt.configurations"
            assert "presence_penalty" in warning.message
            assert "top_p" not in warning.message
            async with connection.client.follow("r1", event_type=ev.RunEnd.type) as ends:
                await anext(aiter(ends))
            payloads = [ev.payload_of(event) for event in await connection.client.events("r1")]
    asked = [(request.path, request.body.get("model")) for request in server.requests]
    assert asked == [
        ("/openai/responses", "gpt-5-nano"),
        ("/openai/responses", "gpt-5-nano"),
        ("/anthropic/v1/messages", "claude-sonnet-5-5"),
        ("/gemini/v1/models/gemini-2.5-flash:streamGenerateContent?alt=sse", None),
    ]
    calls = [payload.model for payload in payloads if isinstance(payload, ev.ModelCall)]
    results = [(payload.provider, payload.text) for payload in payloads if isinstance(payload, ev.ModelResult)]
    assert calls == ["openai:gpt-5-nano", "anthropic:claude-sonnet-5-5", "gemini:gemini-2.5-flash"]
    assert results == [("openai", "One."), ("anthropic", "Two."), ("gemini", "Three.")]
    assert [request.body["top_p"] for request in server.requests[:2]] == [0.9, 0.9]
    assert "One." in str(server.requests[2].body)
    assert "Two." in str(server.requests[3].body)
    [end] = [payload for payload in payloads if isinstance(payload, ev.RunEnd)]
    assert end.status == "completed"
