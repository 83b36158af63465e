"""Runs over a local server that speaks for a provider: odd answers, unreported usage and waits."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support import messages_api, openai_api
from tests.support.event_logs import known_payload
from tests.support.model_api import Answer, ModelApi, model_api, refusing, streaming
from tests.support.workflows import document

NUMBERS = count()
SCHEMA = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/A"}},
    "required": ["a"],
    "$defs": {"A": {"type": "string"}},
}


@asynccontextmanager
async def deployment(folder: Path, **settings: Any) -> AsyncGenerator[tuple[Connection, ModelApi]]:
    """A worker whose endpoints ``claude`` and ``chat``, and whose provider ``anthropic``, are one server."""
    async with model_api() as server:
        endpoints = {
            "claude": {"api": "anthropic", "base_url": server.url, "key": "k", "model": "m"},
            "chat": {"api": "openai-chat", "base_url": f"{server.url}/v1", "key": "k", "model": "m"},
        }
        config = load({"data_dir": folder, "sync": "100ms", "endpoints": endpoints, **settings}, env={}, cwd=folder)
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        async with open_connection(config) as connection, open_worker(connection, env):
            yield connection, server


async def run(
    place: tuple[Connection, ModelApi], raw: dict[str, Any], *answers: Answer, model: str = "claude", **start: Any
) -> list[ev.Payload]:
    """Have a workflow run to its end; return its payloads."""
    connection, server = place
    server.requests.clear()
    server.will(*answers)
    run_id = f"r{next(NUMBERS)}"
    definition = {"language": "workflow", "source": json.dumps(raw)}
    verdict = await connection.client.start({"definition": definition, "run_id": run_id, "model": model, **start})
    assert verdict.status == "accepted", verdict.problems
    async with connection.client.follow(run_id, event_type=ev.RunEnd.type) as ends:
        await anext(aiter(ends))
    return [known_payload(event) for event in await connection.client.events(run_id)]


def of(payloads: list[ev.Payload], kind: type[Any]) -> list[Any]:
    return [payload for payload in payloads if isinstance(payload, kind)]


async def test_answers_that_are_not_json_are_read_or_retried(tmp_path: Path) -> None:
    raw = document({"a": {"output": SCHEMA, "retry": {"max": 2}}})
    good = messages_api.saying('{"a": "x"}')
    async with deployment(tmp_path) as place:
        for text, turns in (('Here: {"a": "x"}', 1), ('{"a": "x",}', 1), ("no idea", 2), ('{"b": 1}', 2)):
            answers = [messages_api.saying(text), *[good] * (turns - 1)]
            payloads = await run(place, raw, *answers)
            assert [end.status for end in of(payloads, ev.RunEnd)] == ["completed"]
            assert len(of(payloads, ev.ModelCall)) == turns
        empty = streaming([*messages_api.start(), *messages_api.stop("end_turn")])
        assert len(of(await run(place, raw, empty, good), ev.NodeRetry)) == 1


@pytest.mark.parametrize("answer", ["b", '"b"', "I choose b", '{"choice": "b",}', "B."])
async def test_the_route_that_an_answer_names_is_taken(tmp_path: Path, answer: str) -> None:
    raw = document({"a": {}, "b": {}, "c": {}}, [("a", "b", "all is good"), ("a", "c")])
    done = openai_api.chatting("done")
    async with deployment(tmp_path) as place:
        payloads = await run(place, raw, done, openai_api.chatting(answer), done, model="chat")
    assert [route.target for route in of(payloads, ev.Route)] == ["b"]
    assert of(payloads, ev.NodeWarning) == []


async def test_the_model_gets_an_error_for_unreadable_tool_input(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    skill = {"id": "s", "name": "S", "description": "Looks.", "category": "data", "config": {}}
    tool = {"name": "look", "description": "Looks.", "input_schema": schema, "nats": "tools.look"}
    raw = document({"a": {"skills": ["s"]}})
    call = streaming(
        [*messages_api.start(), *messages_api.tool_block(0, "c1", "look", '{"q": '), *messages_api.stop("tool_use")]
    )
    async with deployment(tmp_path) as place:
        options = {"skills": [{**skill, "tools": [tool]}]}
        payloads = await run(place, raw, call, messages_api.saying("done"), options=options)
        told = place[1].requests[1].body["messages"][-1]["content"][0]
    assert [end.status for end in of(payloads, ev.RunEnd)] == ["completed"]
    assert [warning.code for warning in of(payloads, ev.NodeWarning)] == ["INVALID_TOOL_INPUT"]
    assert (told["is_error"], '{"q": ' in told["content"]) == (True, True)
    assert of(payloads, ev.ToolCall) == []


async def test_a_run_is_warned_once_of_a_provider_that_reports_no_usage(tmp_path: Path) -> None:
    bare = streaming([*openai_api.text_chunks("ok"), openai_api.chunk(finish_reason="stop"), openai_api.DONE])
    raw = document({"a": {}, "b": {}}, [("a", "b")])
    async with deployment(tmp_path) as place:
        payloads = await run(place, raw, bare, bare, model="chat", limits={"tokens": 10})
    [warning] = of(payloads, ev.NodeWarning)
    assert (warning.code, "limits.tokens" in warning.reason) == ("model.unmetered", True)
    [end] = of(payloads, ev.RunEnd)
    assert [(one.model, one.unmetered) for one in end.models] == [("chat:m", 2)]


async def test_a_wait_beyond_the_policy_fails_the_turn_with_the_reason(tmp_path: Path) -> None:
    later = refusing(429, {"error": {"type": "rate_limit_error", "message": "used up"}}, {"retry-after": "3600"})
    async with deployment(tmp_path, model_wait_max_s=60) as place:
        payloads = await run(place, document({"a": {}}), later)
    [result] = of(payloads, ev.ModelResult)
    assert result.error.details["retry_after_s"] == 3600
    assert "resume_at" not in result.error.details
    assert "model_wait_max_s" in result.error.message


async def test_a_model_that_must_get_its_reasoning_back_can_use_tools(tmp_path: Path) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}, "extra_content": {"signed": "s"}}
    pieces = [openai_api.chunk({"reasoning_content": text}) for text in ("I should ", "look.")]
    asks = streaming([*pieces, openai_api.chunk({"tool_calls": [call]}), *openai_api.finish("tool_calls")])
    skill = {"id": "s", "name": "S", "description": "Looks.", "category": "data", "config": {}}
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}, "nats": "tools.look"}
    options = {"skills": [{**skill, "tools": [tool]}]}
    async with deployment(tmp_path) as place:
        payloads = await run(
            place, document({"a": {"skills": ["s"]}}), asks, openai_api.chatting("done"), model="chat", options=options
        )
        [sent] = [one for one in place[1].requests[1].body["messages"] if one["role"] == "assistant"]
    assert [end.status for end in of(payloads, ev.RunEnd)] == ["completed"]
    assert (sent["reasoning_content"], sent["tool_calls"][0]["extra_content"]) == ("I should look.", {"signed": "s"})
    first, _ = of(payloads, ev.ModelResult)
    assert ("I should look." in first.thought, "signed" in first.tool_calls[0].thought) == (True, True)


async def test_a_model_has_one_name_and_one_price_however_a_definition_names_it(tmp_path: Path) -> None:
    names = ["claude-haiku-4-5", "anthropic:claude-haiku-4-5", " claude-haiku-4-5 "]
    raw = document({id: {"model": name} for id, name in zip("abc", names, strict=True)}, [("a", "b"), ("b", "c")])
    async with deployment(tmp_path) as place:
        answers = [messages_api.saying("done") for _ in names]
        payloads = await run(place, raw, *answers, model="claude-haiku-4-5", limits={"usd": 1})
    [start], [end] = of(payloads, ev.RunStart), of(payloads, ev.RunEnd)
    exact = "anthropic:claude-haiku-4-5"
    assert (start.environment.default_model, end.status) == (exact, "completed")
    assert [(call.model, call.provider) for call in of(payloads, ev.ModelCall)] == [(exact, "anthropic")] * 3
    assert {result.model for result in of(payloads, ev.ModelResult)} == {one.model for one in end.models} == {exact}
    assert of(payloads, ev.RunPaused) == []
