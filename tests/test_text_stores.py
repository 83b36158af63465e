"""Stores of texts: one suite for all of them, and what each does by itself."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.memory import qdrant, remote
from callboard.actors.memory.exact import Exact
from callboard.actors.memory.qdrant import Qdrant
from callboard.actors.memory.store import APPLIED_MAX, DOCUMENT_BYTES_MAX, Store
from callboard.actors.memory.text_store import TextStore, collection_of
from callboard.bus.errors import ConfigInvalid
from callboard.runtime.settings.config import Config, load
from tests.memories import Asking, Placed, placing
from tests.qdrant_api import KEY, QdrantApi, Reply, qdrant_api

# -- the suite ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def exact(_folder: Path) -> AsyncGenerator[TextStore]:
    yield Exact()


@asynccontextmanager
async def on_qdrant(_folder: Path) -> AsyncGenerator[TextStore]:
    with qdrant_api() as api:
        store = Qdrant(api.url, KEY, "CB_MEMORY")
        try:
            yield store
        finally:
            await store.aclose()


Opens = Callable[[Path], AbstractAsyncContextManager[TextStore]]


@pytest.fixture(params=[exact, on_qdrant])
async def text_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TextStore]:
    opens: Opens = request.param
    async with opens(tmp_path) as opened:
        yield opened


TEXTS = [
    {"id": "tea", "text": "green tea", "metadata": {"of": "Ada", "at": 1.5, "tags": ["a", "b"]}},
    {"id": "chair", "text": "a broken chair", "metadata": {"of": "Bob", "at": 2}},
    {"text": "black coffee"},
]


def asking(text_store: TextStore, model: Placed | None = None, store: Store | None = None, **settings: Any) -> Asking:
    return Asking("VECTOR_DATABASE", store, placing(model or Placed()), text_store, **settings)


async def found(ask: Asking, query: str, **more: Any) -> list[str]:
    return [one["text"] for one in (await ask.own("search", query=query, **more))["results"]]


async def test_texts_are_kept_and_found(text_store: TextStore) -> None:
    ask = asking(text_store)
    assert await found(ask, "tea") == []
    kept = (await ask.own("store", items=TEXTS))["results"]
    told = await ask.own("search", query="tea")
    assert [(one["id"], one["score"]) for one in told["results"]] == [("tea", 1.0), (kept[2]["id"], 0.96)]
    assert told["results"][0]["metadata"] == TEXTS[0]["metadata"]
    assert told["results"][1]["metadata"] is None
    assert told["scores"] == [1.0, 0.96]
    assert (await ask.context("coffee"))["context"] == "- black coffee\n- green tea"
    ask.settings = {"similarity_threshold": 0.97}
    assert await found(ask, "tea") == ["green tea"]
    ask.settings = {"similarity_threshold": 0.0, "max_results": 2}
    assert await found(ask, "tea") == ["green tea", "black coffee"]


async def test_texts_are_got_replaced_and_removed(text_store: TextStore) -> None:
    ask = asking(text_store)
    assert (await ask.own("get", ids=["tea"]))["results"] == []
    assert (await ask.own("delete", ids=["tea"]))["success"]
    assert (await ask.own("clear"))["total_results"] == 0
    await ask.own("store", items=TEXTS)
    got = (await ask.own("get", ids=["chair", "nobody", "tea", "chair"]))["results"]
    assert [(one["id"], one["text"], one["metadata"]) for one in got] == [
        ("chair", "a broken chair", TEXTS[1]["metadata"]),
        ("tea", "green tea", TEXTS[0]["metadata"]),
    ]
    await ask.own("upsert", items=[{"id": "tea", "text": "no more coffee \x00 \U0001f600"}])
    assert (await ask.own("get", ids="tea"))["results"][0]["text"] == "no more coffee \x00 \U0001f600"
    await ask.own("delete", ids=["tea", "nobody"])
    assert await found(ask, "tea") == ["black coffee"]
    assert (await ask.own("clear"))["total_results"] == 2
    assert await found(ask, "tea") == []


@pytest.mark.parametrize(
    ("filters", "texts"),
    [
        ({"of": "Bob"}, ["a broken chair"]),
        ({"at": 1.5}, ["green tea"]),
        ({"at": 2.0}, ["a broken chair"]),
        ({"tags": ["a", "b"]}, ["green tea"]),
        ({"tags": ["a"]}, []),
        ({"of": "Ada", "at": 2}, []),
        ({"nothing": 1}, []),
    ],
)
async def test_texts_are_filtered_by_their_metadata(text_store: TextStore, filters: Any, texts: list[str]) -> None:
    ask = asking(text_store, similarity_threshold=0.0)
    await ask.own("store", items=TEXTS)
    assert await found(ask, "tea", filters=filters) == texts


async def test_no_memory_reads_anothers_texts(text_store: TextStore) -> None:
    ask = asking(text_store)
    await ask.own("store", items=TEXTS)
    others: list[dict[str, Any]] = [{"tenant": "t2"}, {"user": "v"}, {"user": None}, {"id": "mem2"}, {"id": "Ä" * 99}]
    for other in others:
        assert (await ask("search", input={"query": "tea"}, **other))["results"] == []
        assert (await ask("get", input={"ids": ["tea"]}, **other))["results"] == []
        assert (await ask("clear", input={}, **other))["total_results"] == 0
    await ask("store", input={"items": ["tea of another"]}, tenant="t2")
    assert len(await found(ask, "tea")) == 2


async def test_what_is_carried_out_again_undoes_nothing(text_store: TextStore) -> None:
    ask = asking(text_store)
    await ask.own("store", items=[{"id": "x", "text": "tea"}])
    first = ask.asked
    await ask.own("store", items=[{"id": "x", "text": "coffee"}, {"id": "y", "text": "chair"}])
    ask.asked = first
    await ask("store", input={"items": [{"id": "x", "text": "tea"}]}, again=True)
    assert [one["text"] for one in (await ask.own("get", ids=["x"]))["results"]] == ["coffee"]
    for number in range(3):
        ask.asked = APPLIED_MAX * 2 + number
        await ask.own("store", items=[{"id": "x", "text": f"tea {number}"}])
    assert [one["text"] for one in (await ask.own("get", ids=["x"]))["results"]] == ["tea 2"]


async def test_what_was_said_is_kept_each_time_and_once_if_carried_out_again(text_store: TextStore) -> None:
    ask = asking(text_store, similarity_threshold=0.5)
    await ask.say("I like tea")
    await ask.say("I like tea")
    await ask.say("I like tea", again=True)
    assert (await ask.context("tea"))["context"].count("User: I like tea") == 2


class Shrunk(Placed):
    places: Mapping[str, list[float]] = {"tea": [1.0, 2.0], "coffee": [2.0, 1.0]}


async def test_vectors_of_another_dimension_are_a_failure_until_the_memory_is_cleared(text_store: TextStore) -> None:
    ask = asking(text_store)
    await ask.own("store", items=TEXTS)
    other = asking(text_store, Shrunk(), ask.store)
    other.asked = 100
    assert await other.refused("search", input={"query": "tea"}) == "memory.dimension"
    if not isinstance(text_store, Exact):
        assert await other.refused("store", input={"items": ["tea"]}) == "memory.dimension"
    await other.own("clear")
    await other.own("store", items=["tea"])
    assert await found(other, "coffee") == ["tea"]


async def test_a_text_without_a_direction_is_like_nothing(text_store: TextStore) -> None:
    ask = Asking("VECTOR_DATABASE", text_store=text_store)
    await ask.own("store", items=["?!", "green tea"])
    assert await found(ask, "green tea") == ["green tea"]


async def test_texts_that_are_too_large_are_refused(text_store: TextStore) -> None:
    ask = asking(text_store)
    large = {"text": "tea", "metadata": {"much": "x" * DOCUMENT_BYTES_MAX}}
    assert await ask.refused("store", input={"items": [large]}) == "memory.too_large"


# -- Qdrant ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def api() -> AsyncIterator[QdrantApi]:
    with qdrant_api() as opened:
        yield opened


@asynccontextmanager
async def opened(api: QdrantApi, key: str = KEY, namespace: str = "CB_MEMORY") -> AsyncGenerator[Asking]:
    store = Qdrant(api.url, key, namespace)
    try:
        yield asking(store)
    finally:
        await store.aclose()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "TRY_AGAIN_MAX_S", 0.001)


async def test_a_memory_is_a_collection_that_names_its_tenant(api: QdrantApi) -> None:
    async with opened(api) as ask:
        await ask("store", input={"text": "tea"}, tenant="Acme GmbH & Co.")
        await ask("store", input={"text": "tea"}, tenant="acme")
    async with opened(api, namespace="OTHER_MEMORY") as ask:
        await ask("store", input={"text": "tea"}, tenant="acme")
    names = list(api.collections)
    assert len(set(names)) == 3
    assert [name.split("_")[1] for name in names] == ["acme"] * 3
    assert all(len(collection.points) == 1 for collection in api.collections.values())


def test_names_of_collections_fit_everywhere() -> None:
    for tenant in ("t", "x" * 200, "==ab", "Ä"):
        name = collection_of("CB_MEMORY", f"{tenant}.w.u.m")
        assert len(name) <= 63
        assert name.replace("_", "").isalnum()
        assert name == name.lower()


async def test_what_has_been_carried_out_is_not_embedded_again(api: QdrantApi) -> None:
    async with opened(api) as ask:
        await ask.own("store", items=["tea", "coffee"])
        cost = ask.spent.usage.input_tokens
        await ask("store", input={"items": ["tea", "coffee"]}, again=True)
        assert (cost, ask.spent.usage.input_tokens) == (2, 0)


async def test_many_texts_are_brought_in_parts(api: QdrantApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qdrant, "POINTS_BYTES_MAX", 1000)
    async with opened(api) as ask:
        await ask.own("store", items=[f"tea {number}" for number in range(10)])
    [collection] = api.collections.values()
    assert len(collection.points) == 10
    assert len([one for one in api.asked if one.method == "PUT" and one.path.endswith("/points")]) > 2


@pytest.mark.usefixtures("at_once")
async def test_a_server_that_has_much_to_do_is_asked_again(api: QdrantApi) -> None:
    async with opened(api) as ask:
        api.instead = [Reply(429, headers={"retry-after": "0"}), Reply(503), Reply(200, b"{")]
        await ask.own("store", items=["tea"])
        assert await found(ask, "tea") == ["tea"]
        # Longer than all tries may take: it is not waited for.
        api.instead = [Reply(429, headers={"retry-after": "3600"})]
        assert await ask.refused("search", input={"query": "tea"}) == "memory.unavailable"
        api.instead = [Reply(500)] * remote.TRIES_MAX
        assert await ask.refused("search", input={"query": "tea"}) == "memory.unavailable"
        assert api.instead == []


@pytest.mark.usefixtures("at_once")
async def test_a_server_that_is_not_there_is_a_failure_that_may_pass() -> None:
    with qdrant_api() as api:
        pass
    async with opened(api) as ask:
        assert await ask.refused("search", input={"query": "tea"}) == "memory.unavailable"


async def test_a_key_that_is_not_taken_is_told_nobody(api: QdrantApi) -> None:
    async with opened(api, key="wrong-k3y") as ask:
        with pytest.raises(Exception, match=r"memory\.refused.*does not take the key: status 401") as caught:
            await ask.own("search", query="tea")
    assert "wrong-k3y" not in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(200, {"status": "ok"}), "memory.unavailable"),
        (Reply(200, {"result": {}}), "memory.unavailable"),
        (Reply(403, b"no"), "memory.refused"),
        (Reply(422, {"status": {"error": "what?"}}), "memory.refused"),
    ],
)
async def test_what_is_no_answer_of_qdrants_is_a_failure_by_name(api: QdrantApi, reply: Reply, code: str) -> None:
    async with opened(api) as ask:
        await ask.own("store", items=["tea"])
        api.instead = [reply]
        assert await ask.refused("search", input={"query": "tea"}) == code


async def test_a_request_that_is_refused_for_another_reason_than_the_dimension(api: QdrantApi) -> None:
    async with opened(api) as ask:
        await ask.own("store", items=["tea"])
        api.instead = [Reply(400, {"status": {"error": "Wrong input: shape"}})]
        with pytest.raises(Exception, match=r"memory\.refused.*Wrong input: shape"):
            await ask.own("search", query="tea")


async def test_a_collection_that_another_worker_makes_first_is_as_good(api: QdrantApi) -> None:
    async with opened(api) as ask, opened(api) as other:
        await other.own("store", items=["coffee"])
        [(name, made)] = api.collections.items()
        api.collections.clear()

        def meanwhile(asked: Any) -> None:
            if asked.method == "PUT" and asked.path == f"/collections/{name}":
                api.collections[name] = made

        api.before = meanwhile
        ask.asked = 100
        await ask.own("store", items=["tea"])
    assert len(made.points) == 2


async def test_a_collection_that_goes_again_and_again_is_given_up(api: QdrantApi) -> None:
    def gone(asked: Any) -> None:
        if asked.path.endswith("/points"):
            api.collections.clear()

    api.before = gone
    async with opened(api) as ask:
        assert await ask.refused("store", input={"items": ["tea"]}) == "memory.unavailable"


async def test_where_only_others_have_embedded_what_is_there_it_is_said(api: QdrantApi) -> None:
    async with opened(api) as ask:
        await ask.own("store", items=["tea"])
        store = Qdrant(api.url, KEY, "CB_MEMORY")
        other = Asking("VECTOR_DATABASE", embedder_of=placing(Placed(), "placed:q"), text_store=store)
        assert await other.refused("search", input={"query": "tea"}) == "memory.embedder"
        await store.aclose()


# -- the configuration -------------------------------------------------------------------------------------------------


def configured(folder: Path, table: str, env: dict[str, str]) -> Config:
    (folder / "callboard.toml").write_text(table, encoding="utf-8")
    return load(env=env, cwd=folder)


def test_a_store_is_configured_with_a_key_which_nobody_sees(tmp_path: Path) -> None:
    table = '[vectors]\nstore = "qdrant"\nurl = "https://q.example.com:6333"\nkey = "${QDRANT_KEY}"\n'
    config = configured(tmp_path, table, {"QDRANT_KEY": "k3y"})
    assert (config.vectors.store, config.vectors.key.get_secret_value()) == ("qdrant", "k3y")
    assert "k3y" in config.secrets()
    assert "k3y" not in str(config.explain()) + str(config.values())
    assert [shown for name, shown, _ in config.explain() if name == "vectors"] == ["qdrant https://q.example.com:6333"]
    [warning] = configured(tmp_path, table, {}).warnings
    assert (warning.code, "QDRANT_KEY" in warning.message) == ("config.unset", True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "vectors"),
        ('{"store": "chroma"}', "vectors.store"),
        ('{"store": "qdrant"}', "begins with http:// or https://"),
        ('{"store": "qdrant", "url": "ftp://h"}', "begins with http:// or https://"),
        ('{"store": "qdrant", "url": "http://u:k3y@h"}', "vectors.url"),
        ('{"url": "http://h"}', "beside the log"),
        ('{"key": "k3y"}', "beside the log"),
        ('{"kee": "k3y"}', "vectors.kee"),
    ],
)
def test_what_is_no_store_is_refused_and_not_repeated(tmp_path: Path, given: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(env={"CALLBOARD_VECTORS": given}, cwd=tmp_path)
    [problem] = caught.value.problems
    assert (problem.code, problem.where) == ("config.value", "CALLBOARD_VECTORS")
    assert words in problem.message
    assert "k3y" not in str(caught.value)
