"""Embeddings by the real SDKs, against a local server that speaks their APIs; and memories that have texts embedded."""

import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.actors.carrier import EffectFailed
from callboard.actors.memory import exact
from callboard.actors.memory.embedder import Hashing, unpack_vector
from callboard.actors.memory.embedders import Embedders
from callboard.actors.memory.store import InMemory, read
from callboard.actors.models.catalog import Endpoint, open_model, with_endpoints
from callboard.actors.models.embedding_models import (
    REQUEST_BYTES_MAX,
    REQUEST_TEXTS_MAX,
    TEXT_BYTES_MAX,
    EmbeddingReply,
    EmbeddingRequest,
)
from callboard.actors.models.gemini import GeminiModel
from callboard.actors.models.model import Model, ModelTurnFailed
from callboard.actors.models.openai import OpenAIModel
from callboard.actors.models.request_retries import RetryPolicy
from callboard.bus import events as ev
from callboard.bus.effects import Failure, Usage
from callboard.projections.projection import fold
from callboard.projections.results.graph import GraphExecution
from callboard.projections.run.run_result import Results
from callboard.projections.spans.span_attributes import outcome_attributes
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support import gemini_api, openai_api
from tests.support.graphs import graph, node, webhook
from tests.support.memory_access import Asking, Placed, placing
from tests.support.model_api import Answer, ModelApi, model_api, refusing
from tests.support.qdrant_api import KEY, qdrant_api

QUICK = RetryPolicy(tries_max=3, total_s=60.0, delay_first_s=0.001, delay_max_s=0.001)

Vectors = Sequence[Sequence[float]]


def by_openai(vectors: Vectors, tokens: int | None = 7) -> Answer:
    data = [{"object": "embedding", "index": at, "embedding": list(vector)} for at, vector in enumerate(vectors)]
    usage = {} if tokens is None else {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    return refusing(200, {"object": "list", "model": "served", "data": data, **usage})


def by_gemini(vectors: Vectors, tokens: int | None = 7) -> Answer:
    usage = {} if tokens is None else {"usageMetadata": {"promptTokenCount": tokens}}
    return refusing(200, {"embeddings": [{"values": list(vector)} for vector in vectors], **usage})


SAYING: Mapping[str, Callable[..., Answer]] = {"openai": by_openai, "gemini": by_gemini}
LIMITED: Mapping[str, Callable[[Mapping[str, str]], Answer]] = {
    "openai": lambda headers: openai_api.failing(429, "rate_limit_exceeded", "slower", headers),
    "gemini": lambda headers: gemini_api.failing(429, "RESOURCE_EXHAUSTED", "slower", headers),
}

both = pytest.mark.parametrize("provider", ["openai", "gemini"])


@asynccontextmanager
async def serving(provider: str, *answers: Answer) -> AsyncGenerator[tuple[OpenAIModel | GeminiModel, ModelApi]]:
    async with model_api() as server:
        server.will(*answers)
        made: dict[str, Any] = {"api_key": "sk-test", "retry": QUICK}
        model = (
            OpenAIModel(base_url=f"{server.url}/v1", **made)
            if provider == "openai"
            else GeminiModel(base_url=server.url, **made)
        )
        try:
            yield model, server
        finally:
            await model.aclose()
        assert not server.answers, "not every scripted answer was asked for"


def a_request(*texts: str, **fields: Any) -> EmbeddingRequest:
    return EmbeddingRequest(model="embeds", texts=texts, idempotency_key="idem", **fields)


async def failure_of(provider: str, *answers: Answer, **fields: Any) -> Failure:
    async with serving(provider, *answers) as (model, _):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.embed(a_request("a", "b", **fields))
    return caught.value.failure


# -- the providers -----------------------------------------------------------------------------------------------------


async def test_an_openai_embedding_request_and_its_answer() -> None:
    shuffled = json.loads(by_openai([[1, 0], [0, 1]]).body)
    shuffled["data"].reverse()
    async with serving("openai", refusing(200, shuffled), by_openai([[3, 4]])) as (model, server):
        assert await model.embed(a_request("a", "b", dimensions=2)) == EmbeddingReply([[1, 0], [0, 1]], Usage(7))
        await model.embed(a_request("a"))
    first, second = server.requests
    assert first.path == "/v1/embeddings"
    assert first.body == {"model": "embeds", "input": ["a", "b"], "dimensions": 2, "encoding_format": "float"}
    assert first.headers["authorization"] == "Bearer sk-test"
    assert first.headers["idempotency-key"] == "idem-0"
    assert "dimensions" not in second.body


async def test_an_answer_without_optional_members_is_accepted() -> None:
    bare = refusing(200, {"data": [{"embedding": [1, 0]}, {"embedding": [0, 1]}]})
    async with serving("openai", bare) as (model, _):
        assert await model.embed(a_request("a", "b")) == EmbeddingReply([[1, 0], [0, 1]], unmetered=True)


@pytest.mark.parametrize("name", ["gemini-embedding-001", "gemini-embedding-2"])
async def test_a_gemini_embedding_request_and_its_answer(name: str) -> None:
    async with serving("gemini", by_gemini([[1, 0], [0, 1]]), by_gemini([[1]], tokens=None)) as (model, server):
        request = msgspec.structs.replace(a_request("a", "b", dimensions=2), model=name)
        assert await model.embed(request) == EmbeddingReply([[1, 0], [0, 1]], Usage(7))
        assert (await model.embed(a_request("a"))).usage == Usage()
    asked = server.requests[0]
    assert asked.path.endswith(f"/models/{name}:batchEmbedContents")
    assert asked.headers["x-goog-api-key"] == "sk-test"
    assert [one["content"]["parts"] for one in asked.body["requests"]] == [[{"text": "a"}], [{"text": "b"}]]
    assert {one["outputDimensionality"] for one in asked.body["requests"]} == {2}


@both
async def test_many_texts_are_sent_in_parts_each_with_its_own_idempotency_key(provider: str) -> None:
    many = [str(number) for number in range(REQUEST_TEXTS_MAX + 1)]
    answers = [SAYING[provider]([[1, number] for number in range(count)]) for count in (REQUEST_TEXTS_MAX, 1)]
    async with serving(provider, *answers) as (model, server):
        answer = await model.embed(a_request(*many))
    assert (len(answer.vectors), answer.usage) == (REQUEST_TEXTS_MAX + 1, Usage(14))
    assert answer.vectors[-2:] == [[1, REQUEST_TEXTS_MAX - 1], [1, 0]]
    if provider == "openai":
        assert [len(one.body["input"]) for one in server.requests] == [REQUEST_TEXTS_MAX, 1]
        assert [one.headers["idempotency-key"] for one in server.requests] == ["idem-0", "idem-1"]


async def test_long_texts_are_cut_between_characters_and_sent_in_parts() -> None:
    count = REQUEST_BYTES_MAX // TEXT_BYTES_MAX
    answers = [by_openai([[1]] * (count + 1)), by_openai([[1]])]
    async with serving("openai", *answers) as (model, server):
        await model.embed(a_request("", *["ä" * TEXT_BYTES_MAX] * (count + 1)))
    first, second = (one.body["input"] for one in server.requests)
    assert first[0] == " "
    assert {len(text.encode()) for text in [*first[1:], *second]} == {TEXT_BYTES_MAX}
    assert (len(first), len(second)) == (count + 1, 1)


async def test_no_text_is_cut_within_a_character() -> None:
    async with serving("openai", by_openai([[1]])) as (model, server):
        await model.embed(a_request("a" + "記" * TEXT_BYTES_MAX))
    [text] = server.requests[0].body["input"]
    assert text == "a" + "記" * ((TEXT_BYTES_MAX - 1) // 3)


@both
async def test_a_rate_limit_is_waited_for_as_the_provider_requests(provider: str) -> None:
    again = LIMITED[provider]({"retry-after-ms": "1"})
    async with serving(provider, again, SAYING[provider]([[1], [2]])) as (model, server):
        assert (await model.embed(a_request("a", "b"))).tries == 2
    assert server.requests[0].body == server.requests[1].body
    # Longer than all tries may take: it is not waited for.
    failure = await failure_of(provider, LIMITED[provider]({"retry-after": "3600"}))
    assert (failure.code, failure.retryable) == ("model.rate_limited", True)
    assert failure.details["tries"] == 1


@both
@pytest.mark.parametrize(
    ("vectors", "words"),
    [
        ([[1, 0]], "1 vectors of 2 texts"),
        ([[1, 0]] * 3, "3 vectors of 2 texts"),
        ([[1, 0], [1]], "1, 2 dimensions"),
        ([[], []], "0 dimensions"),
        ([[1, 0], [1, math.nan]], "not numbers"),
        ([[1, 0], [1, math.inf]], "not numbers"),
        ([[1, 0], [0, 0]], "no direction"),
        ([[1, 0], ["x", 0]], "cannot be read"),
    ],
)
async def test_an_invalid_answer_is_a_bad_reply(provider: str, vectors: Any, words: str) -> None:
    failure = await failure_of(provider, SAYING[provider](vectors))
    assert (failure.code, failure.retryable) == ("model.bad_reply", False)
    assert words in failure.message


@both
async def test_vectors_of_another_dimension_than_was_asked_for_are_refused(provider: str) -> None:
    failure = await failure_of(provider, SAYING[provider]([[1, 0], [0, 1]]), dimensions=3)
    assert failure.code == "model.bad_reply"
    assert "2 dimensions, and 3 were asked for" in failure.message


async def test_a_failure_has_the_usage_of_the_parts_before_it() -> None:
    async with serving("openai", by_openai([[1.0]] * REQUEST_TEXTS_MAX), by_openai([[0.0]])) as (model, _):
        with pytest.raises(ModelTurnFailed) as caught:
            await model.embed(a_request(*["x"] * (REQUEST_TEXTS_MAX + 1)))
    assert caught.value.usage == Usage(14)


async def test_vectors_whose_dimension_changes_on_the_way_are_refused() -> None:
    answers = [by_openai([[1, 0]] * REQUEST_TEXTS_MAX), by_openai([[1]])]
    async with serving("openai", *answers) as (model, _):
        with pytest.raises(ModelTurnFailed, match=r"model\.bad_reply.* 2 dimensions, and then 1"):
            await model.embed(a_request(*["x"] * (REQUEST_TEXTS_MAX + 1)))


@both
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"data": null}', b'{"data": [{}], "embeddings": [{}]}'])
async def test_an_unreadable_answer_is_a_bad_reply(provider: str, body: bytes) -> None:
    answer = Answer(body, headers={"content-type": "application/json"})
    assert (await failure_of(provider, answer)).code == "model.bad_reply"


@both
async def test_the_failure_omits_a_refused_key(provider: str) -> None:
    refused = {
        "openai": openai_api.failing(401, "invalid_api_key", "no such key"),
        "gemini": gemini_api.failing(400, "INVALID_ARGUMENT", "no such key", details=[{"reason": "API_KEY_INVALID"}]),
    }
    failure = await failure_of(provider, refused[provider])
    assert (failure.code, failure.retryable) == ("model.auth", False)
    assert "sk-test" not in str(failure)


# -- which one is asked ------------------------------------------------------------------------------------------------


ENDPOINTS = with_endpoints({"local": Endpoint("openai-chat", "http://h/v1")})
ENV = {"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}


def opening(env: dict[str, str]) -> Callable[[str], Awaitable[tuple[Model, str]]]:
    async def opened(spec: str) -> tuple[Model, str]:
        return open_model(spec, env=env, providers=ENDPOINTS)

    return opened


def embedders(default: str = "") -> Embedders:
    return Embedders(opening(ENV), default=default, providers=ENDPOINTS)


@pytest.mark.parametrize(
    ("named", "default", "name"),
    [
        ("", "", Hashing.name),
        ("text-embedding-ada-002", "", Hashing.name),
        ("sentence-transformers/all-MiniLM-L6-v2", "", Hashing.name),
        ("openai/text-embedding-3-small", "", "openai:text-embedding-3-small"),
        ("openai:text-embedding-3-small", "gemini", "openai:text-embedding-3-small"),
        ("gemini/gemini-embedding-001", "", "gemini:gemini-embedding-001"),
        ("local/nomic-embed-text:v1.5", "", "local:nomic-embed-text:v1.5"),
        ("local:BAAI/bge-m3", "", "local:BAAI/bge-m3"),
        ("text-embedding-ada-002", "openai:text-embedding-3-large", "openai:text-embedding-3-large"),
        ("text-embedding-ada-002", "openai/text-embedding-3-large", "openai:text-embedding-3-large"),
        ("text-embedding-ada-002", "openai", "openai:text-embedding-ada-002"),
        ("", "openai", "openai:text-embedding-3-small"),
        ("", "gemini", "gemini:gemini-embedding-001"),
        ("BAAI/bge-m3", "local", "local:BAAI/bge-m3"),
    ],
)
async def test_the_embedding_model_is_that_of_the_node_or_of_the_worker(named: str, default: str, name: str) -> None:
    found = await embedders(default)({"embedding_model": named, "vector_dimension": 1536})
    assert found.name == name


@pytest.mark.parametrize(
    ("named", "default"),
    [
        ("opneai/text-embedding-3-small", ""),
        ("opneai:text-embedding-3-small", "openai"),
        ("opneai/text-embedding-3-small", "openai:text-embedding-3-small"),
        ("anthropic:claude", ""),
        ("", "local"),
        ("", "nowhere"),
        ("", "nowhere:x"),
    ],
)
async def test_a_model_that_cannot_embed_is_unknown(named: str, default: str) -> None:
    with pytest.raises(EffectFailed, match=r"model\.unknown"):
        await embedders(default)({"embedding_model": named})


async def test_a_missing_key_is_an_authentication_failure() -> None:
    found = Embedders(opening({}))
    with pytest.raises(EffectFailed, match=r"model\.auth"):
        await found({"embedding_model": "openai/text-embedding-3-small"})


async def test_a_dimension_is_requested_if_it_differs_from_the_table() -> None:
    asked = {"embedding_model": "openai/e", "vector_dimension": 512}
    assert (await embedders()(asked)).name == "openai:e@512"
    for wrong in (0, "512", True, 1e9):
        with pytest.raises(EffectFailed, match=r"memory\.malformed"):
            await embedders()({**asked, "vector_dimension": wrong})


# -- memories ----------------------------------------------------------------------------------------------------------


async def test_texts_are_found_by_the_vectors_of_a_model_and_its_usage_is_counted() -> None:
    model = Placed()
    ask = Asking("VECTOR_DATABASE", embedder_of=placing(model))
    await ask.own("store", items=["green tea", "a chair"])
    assert (ask.spent.model, ask.spent.usage) == ("placed:p", Usage(2))
    found = await ask.own("search", query="coffee")
    assert [(one["text"], one["score"]) for one in found["results"]] == [("green tea", 0.96)]
    assert ask.spent.usage == Usage(1)
    assert (await ask.context("coffee"))["context"] == "- green tea"
    keys = [request.idempotency_key for request in model.requests]
    assert len(keys) == len(set(keys)) == 3
    await ask.own("store", items=["green tea"], again=True)


async def test_vectors_that_replace_those_of_another_model_are_stored() -> None:
    model, store = Placed(), InMemory()
    await Asking("VECTOR_DATABASE", store).own("store", items=["green tea", "a chair"])
    ask = Asking("VECTOR_DATABASE", store, placing(model))
    for _ in range(2):
        assert len((await ask.own("search", query="coffee"))["results"]) == 1
    assert [len(request.texts) for request in model.requests] == [1, 2, 1]
    kept = [read(entry) for entry in await store.below("t")]
    assert {one["embedder"] for one in kept} == {"placed:p"}
    assert [len(unpack_vector(one["vector"])) for one in kept] == [3, 3]


async def test_replaced_vectors_are_stored_before_a_later_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Placed):
        async def embed(self, request: EmbeddingRequest) -> EmbeddingReply:
            if len(self.requests) == 2:
                raise ModelTurnFailed(Failure("model.rate_limited", "slower", retryable=True))
            return await super().embed(request)

    monkeypatch.setattr(exact, "ANEW_MAX", 1)
    store = InMemory()
    await Asking("VECTOR_DATABASE", store).own("store", items=["green tea", "a chair"])
    failing = Asking("VECTOR_DATABASE", store, placing(Failing()))
    assert await failing.refused("search", input={"query": "coffee"}) == "model.rate_limited"
    assert failing.spent.usage == Usage(2)
    model = Placed()
    assert len((await Asking("VECTOR_DATABASE", store, placing(model)).own("search", query="coffee"))["results"]) == 1
    assert [len(request.texts) for request in model.requests] == [1, 1]


async def test_vectors_of_another_dimension_than_the_stored_ones_fail() -> None:
    class Shrunk(Placed):
        places: Mapping[str, list[float]] = {"tea": [1.0, 2.0]}

    ask = Asking("VECTOR_DATABASE", embedder_of=placing(Placed()))
    await ask.own("store", items=["green tea"])
    other = Asking("VECTOR_DATABASE", ask.store, placing(Shrunk()))
    assert await other.refused("search", input={"query": "tea"}) == "memory.dimension"


async def test_a_model_that_fails_is_the_failure_of_the_memory() -> None:
    class Failing(Placed):
        async def embed(self, request: EmbeddingRequest) -> EmbeddingReply:
            raise ModelTurnFailed(Failure("model.rate_limited", "slower", retryable=True), usage=Usage(5))

    ask = Asking("VECTOR_DATABASE", embedder_of=placing(Failing()))
    assert await ask.refused("store", input={"items": ["tea"]}) == "model.rate_limited"
    assert ask.spent.usage == Usage(5), "what came before the failure has been paid for"
    assert await ask.store.keys("t") == []


async def test_vectors_of_any_size_are_normalized() -> None:
    class Vast(Placed):
        places: Mapping[str, list[float]] = {"large": [1e300, -1e300], "small": [1e-300, 0.0]}

    made = await (await placing(Vast())({})).embed(["large", "small"], "once")
    assert made.vectors == [pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)]), [1.0, 0.0]]


# -- runs --------------------------------------------------------------------------------------------------------------


TABLE: dict[str, Any] = {
    "database_provider": "qdrant",
    "database_url": "http://127.0.0.1:9",
    "table_name": "notes",
    "embedding_model": "text-embedding-3-small",
    "vector_dimension": 1536,
}


def remembering(**settings: Any) -> str:
    notes = node("notes", "MEMORY", "VECTOR_DATABASE", operation="store", **{**TABLE, **settings})
    return json.dumps(graph([webhook(), notes], "t -> notes | lambda data: data['body']"))


async def performed(folder: Path, source: str, env: Mapping[str, str], **start: Any) -> list[ev.Event]:
    config = load({"data_dir": folder, "sync": "100ms"}, env=env, cwd=folder)
    definition = {"language": "graph", "source": source}
    async with open_connection(config) as connection, open_worker(connection, env):
        verdict = await connection.client.start(
            {"definition": definition, "run_id": "r1", "input": {"body": {"text": "green tea"}}, **start}
        )
        assert verdict.status == "accepted", verdict.problems
        async with connection.client.follow("r1", event_type=ev.RunEnd.type) as ends:
            await anext(aiter(ends))
        return list(await connection.client.events("r1"))


async def test_the_usage_of_embeddings_is_counted_with_that_of_model_turns(tmp_path: Path) -> None:
    async with model_api() as server:
        server.will(by_openai([[3, 4]]))
        endpoint = {"api": "openai-chat", "base_url": f"{server.url}/v1", "key": "sk-local"}
        env = {"CALLBOARD_ENDPOINTS": json.dumps({"ours": endpoint}), "CALLBOARD_EMBEDDING": "ours:e5"}
        events = await performed(tmp_path, remembering(), env, model="anthropic")
    [request] = server.requests
    assert (request.path, request.body["model"]) == ("/v1/embeddings", "e5")
    assert request.headers["authorization"] == "Bearer sk-local"
    payloads = [ev.payload_of(event) for event in events]
    [result] = [payload for payload in payloads if isinstance(payload, ev.EffectResult) and payload.model]
    assert (result.error, result.model, result.usage) == (None, "ours:e5", Usage(7))
    end = payloads[-1]
    assert isinstance(end, ev.RunEnd)
    assert (end.status, end.usage) == ("completed", Usage(7))
    told = fold(Results(), events)
    assert (told.usage, told.usage_by_model) == (Usage(7), {"ours:e5": Usage(7)})
    assert fold(GraphExecution(), events).tokens_used["total_tokens"] == 7
    said = outcome_attributes(result)
    assert (said["gen_ai.provider.name"], said["gen_ai.request.model"]) == ("ours", "e5")
    assert said["gen_ai.usage.input_tokens"] == 7
    assert "sk-local" not in str(events)


async def test_a_run_keeps_its_texts_where_the_worker_says(tmp_path: Path) -> None:
    with qdrant_api() as qdrant:
        async with model_api() as server:
            server.will(by_openai([[3, 4]]))
            endpoint = {"api": "openai-chat", "base_url": f"{server.url}/v1"}
            vectors = {"store": "qdrant", "url": qdrant.url, "key": KEY}
            env = {
                "CALLBOARD_ENDPOINTS": json.dumps({"ours": endpoint}),
                "CALLBOARD_VECTORS": json.dumps(vectors),
                "CALLBOARD_TENANT": "acme",
            }
            events = await performed(tmp_path, remembering(embedding_model="ours/e5"), env, model="anthropic")
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    assert end.status == "completed", end.error
    [(name, collection)] = qdrant.collections.items()
    assert name.startswith("cb_acme_")
    [point] = collection.points.values()
    assert (point["vector"], point["payload"]["text"]) == ([0.6, 0.8], "green tea")
    assert KEY not in str(events)


async def test_a_scripted_run_sends_no_embedding_request(tmp_path: Path) -> None:
    env = {
        "CALLBOARD_EMBEDDING": "openai",
        "CALLBOARD_VECTORS": json.dumps({"store": "qdrant", "url": "http://127.0.0.1:9"}),
        "OPENAI_API_KEY": "sk-none",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    }
    events = await performed(tmp_path, remembering(embedding_model="openai/e"), env, model="scripted", script={})
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    assert (end.status, end.usage) == ("completed", Usage())
