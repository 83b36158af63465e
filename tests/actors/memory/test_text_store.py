"""Stores of texts: one suite for all of them, and tests of each one."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec
import pytest

from callboard.actors.carrier import EffectFailed
from callboard.actors.memory import pgvector, qdrant
from callboard.actors.memory.exact import Exact
from callboard.actors.memory.pgvector import PgVector
from callboard.actors.memory.qdrant import Qdrant
from callboard.actors.memory.store import APPLIED_MAX, DOCUMENT_BYTES_MAX, Store
from callboard.actors.memory.text_store import TextStore, collection_of
from callboard.bus.errors import ConfigInvalid
from callboard.runtime.settings.config import Config, load
from tests.support.memory_access import Asking, Placed, placing
from tests.support.ports import free_ports
from tests.support.postgres import PASSWORD, Postgres, postgres
from tests.support.qdrant_api import KEY, QdrantApi, Reply, qdrant_api

Closes = TypeVar("Closes", Qdrant, PgVector)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as serving:
        yield serving


@pytest.fixture
def with_vector(server: Postgres) -> Postgres:
    if not server.has_vector:
        pytest.skip("PostgreSQL has no extension `vector` on this machine")
    return server


@asynccontextmanager
async def exact(_request: pytest.FixtureRequest) -> AsyncGenerator[TextStore]:
    yield Exact()


@asynccontextmanager
async def on_qdrant(_request: pytest.FixtureRequest) -> AsyncGenerator[TextStore]:
    with qdrant_api() as api:
        async with closing(Qdrant(api.url, KEY, "CB_MEMORY")) as store:
            yield store


@asynccontextmanager
async def on_postgres(request: pytest.FixtureRequest) -> AsyncGenerator[TextStore]:
    serving: Postgres = request.getfixturevalue("with_vector")
    # All tests share a database, in which each uses a namespace of another name.
    async with closing(PgVector(serving.url, PASSWORD, request.node.nodeid)) as store:
        yield store


@asynccontextmanager
async def closing(store: Closes) -> AsyncGenerator[Closes]:
    try:
        yield store
    finally:
        await store.aclose()


@pytest.fixture(params=[exact, on_qdrant, on_postgres])
async def text_store(request: pytest.FixtureRequest) -> AsyncIterator[TextStore]:
    async with request.param(request) as store:
        yield store


TEXTS = [
    {"id": "tea", "text": "green tea", "metadata": {"of": "Ada", "at": 1.5, "tags": ["a", "b"]}},
    {"id": "chair", "text": "a broken chair", "metadata": {"of": "Bob", "at": 2}},
    {"text": "black coffee"},
]


def asking(text_store: TextStore, model: Placed | None = None, store: Store | None = None, **settings: Any) -> Asking:
    return Asking("VECTOR_DATABASE", store, placing(model or Placed()), text_store, **settings)


async def found(ask: Asking, query: str, **more: Any) -> list[str]:
    return [one["text"] for one in (await ask.own("search", query=query, **more))["results"]]


async def test_stored_texts_are_found_by_similarity(text_store: TextStore) -> None:
    ask = asking(text_store)
    assert await found(ask, "tea") == []
    kept = (await ask.own("store", items=TEXTS))["results"]
    answer = await ask.own("search", query="tea")
    assert [(one["id"], one["score"]) for one in answer["results"]] == [("tea", 1.0), (kept[2]["id"], 0.96)]
    assert answer["results"][0]["metadata"] == TEXTS[0]["metadata"]
    assert answer["results"][1]["metadata"] is None
    assert answer["scores"] == [1.0, 0.96]
    assert (await ask.context("coffee"))["context"] == "- black coffee\n- green tea"
    ask.settings = {"similarity_threshold": 0.97}
    assert await found(ask, "tea") == ["green tea"]
    ask.settings = {"similarity_threshold": 0.0, "max_results": 2}
    assert await found(ask, "tea") == ["green tea", "black coffee"]


async def test_texts_are_read_replaced_and_removed(text_store: TextStore) -> None:
    ask = asking(text_store)
    assert (await ask.own("get", ids=["tea"]))["results"] == []
    assert (await ask.own("delete", ids=["tea"]))["success"]
    assert (await ask.own("clear"))["total_results"] == 0
    await ask.own("store", items=TEXTS)
    results = (await ask.own("get", ids=["chair", "nobody", "tea", "chair"]))["results"]
    assert [(one["id"], one["text"], one["metadata"]) for one in results] == [
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


async def test_a_memory_does_not_read_the_texts_of_another(text_store: TextStore) -> None:
    ask = asking(text_store)
    await ask.own("store", items=TEXTS)
    others: list[dict[str, Any]] = [{"tenant": "t2"}, {"user": "v"}, {"user": None}, {"id": "mem2"}, {"id": "Ä" * 99}]
    for other in others:
        assert (await ask("search", input={"query": "tea"}, **other))["results"] == []
        assert (await ask("get", input={"ids": ["tea"]}, **other))["results"] == []
        assert (await ask("clear", input={}, **other))["total_results"] == 0
    await ask("store", input={"items": ["tea of another"]}, tenant="t2")
    assert len(await found(ask, "tea")) == 2


async def test_a_repeated_store_does_not_undo_a_later_one(text_store: TextStore) -> None:
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


async def test_a_repeated_store_embeds_nothing_again(text_store: TextStore) -> None:
    ask = asking(text_store)
    await ask.own("store", items=["tea", "coffee"])
    cost = ask.spent.usage.input_tokens
    await ask("store", input={"items": ["tea", "coffee"]}, again=True)
    assert (cost, ask.spent.usage.input_tokens) == (2, 0)


async def test_a_text_is_kept_for_each_message_and_once_for_a_repeated_effect(text_store: TextStore) -> None:
    ask = asking(text_store, similarity_threshold=0.5)
    await ask.say("I like tea")
    await ask.say("I like tea")
    await ask.say("I like tea", again=True)
    assert (await ask.context("tea"))["context"].count("User: I like tea") == 2


class Shrunk(Placed):
    places: Mapping[str, list[float]] = {"tea": [1.0, 2.0], "coffee": [2.0, 1.0]}


async def test_vectors_of_another_dimension_fail_until_the_memory_is_cleared(text_store: TextStore) -> None:
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


async def test_texts_of_another_embedder_are_embedded_again_or_the_search_fails(text_store: TextStore) -> None:
    ask = asking(text_store)
    await ask.own("store", items=["tea"])
    other = Asking("VECTOR_DATABASE", ask.store, placing(Placed(), "placed:q"), text_store)
    if isinstance(text_store, Exact):
        assert await found(other, "tea") == ["tea"]
        return
    assert await other.refused("search", input={"query": "tea"}) == "memory.embedder"
    other.asked = 100
    await other.own("store", items=["tea"])
    assert await found(other, "tea") == ["tea"]


async def test_a_text_with_a_zero_vector_is_not_found(text_store: TextStore) -> None:
    ask = Asking("VECTOR_DATABASE", text_store=text_store)
    await ask.own("store", items=["?!", "green tea"])
    assert await found(ask, "green tea") == ["green tea"]


async def test_texts_that_are_too_large_are_refused(text_store: TextStore) -> None:
    ask = asking(text_store)
    large = {"text": "tea", "metadata": {"much": "x" * DOCUMENT_BYTES_MAX}}
    assert await ask.refused("store", input={"items": [large]}) == "memory.too_large"


@pytest.fixture
async def api() -> AsyncIterator[QdrantApi]:
    with qdrant_api() as api:
        yield api


@asynccontextmanager
async def open_qdrant(api: QdrantApi, key: str = KEY, namespace: str = "CB_MEMORY") -> AsyncGenerator[Asking]:
    async with closing(Qdrant(api.url, key, namespace)) as store:
        yield asking(store)


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qdrant, "TRY_AGAIN_MAX_S", 0.001)


async def test_the_collection_of_a_memory_names_its_tenant(api: QdrantApi) -> None:
    async with open_qdrant(api) as ask:
        await ask("store", input={"text": "tea"}, tenant="Acme GmbH & Co.")
        await ask("store", input={"text": "tea"}, tenant="acme")
    async with open_qdrant(api, namespace="OTHER_MEMORY") as ask:
        await ask("store", input={"text": "tea"}, tenant="acme")
    names = list(api.collections)
    assert len(set(names)) == 3
    assert [name.split("_")[1] for name in names] == ["acme"] * 3
    assert all(len(collection.points) == 1 for collection in api.collections.values())


def test_collection_names_are_valid_for_every_store() -> None:
    for tenant in ("t", "x" * 200, "==ab", "Ä"):
        name = collection_of("CB_MEMORY", f"{tenant}.w.u.m")
        assert len(name) <= 63
        assert name.replace("_", "").isalnum()
        assert name == name.lower()


async def test_many_texts_are_sent_in_several_requests(api: QdrantApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qdrant, "POINTS_BYTES_MAX", 1000)
    async with open_qdrant(api) as ask:
        await ask.own("store", items=[f"tea {number}" for number in range(10)])
    [collection] = api.collections.values()
    assert len(collection.points) == 10
    assert len([one for one in api.asked if one.method == "PUT" and one.path.endswith("/points")]) > 2


@pytest.mark.usefixtures("short_waits")
async def test_a_busy_server_is_asked_again(api: QdrantApi) -> None:
    async with open_qdrant(api) as ask:
        api.instead = [Reply(429, headers={"retry-after": "0"}), Reply(503), Reply(200, b"{")]
        await ask.own("store", items=["tea"])
        assert await found(ask, "tea") == ["tea"]
        # Longer than all tries may take: it is not waited for.
        api.instead = [Reply(429, headers={"retry-after": "3600"})]
        assert await ask.refused("search", input={"query": "tea"}) == "memory.unavailable"
        api.instead = [Reply(500)] * qdrant.TRIES_MAX
        assert await ask.refused("search", input={"query": "tea"}) == "memory.unavailable"
        assert api.instead == []


@pytest.mark.usefixtures("short_waits")
async def test_an_unreachable_server_is_a_retryable_failure() -> None:
    with qdrant_api() as api:
        pass
    async with open_qdrant(api) as ask:
        assert await ask.refused("search", input={"query": "tea"}) == "memory.unavailable"


async def test_the_failure_omits_a_refused_key(api: QdrantApi) -> None:
    async with open_qdrant(api, key="wrong-k3y") as ask:
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
async def test_an_invalid_or_refusing_answer_has_its_failure_code(api: QdrantApi, reply: Reply, code: str) -> None:
    async with open_qdrant(api) as ask:
        await ask.own("store", items=["tea"])
        api.instead = [reply]
        assert await ask.refused("search", input={"query": "tea"}) == code


async def test_a_refusal_that_is_not_about_the_dimension_has_its_reason(api: QdrantApi) -> None:
    async with open_qdrant(api) as ask:
        await ask.own("store", items=["tea"])
        api.instead = [Reply(400, {"status": {"error": "Wrong input: shape"}})]
        with pytest.raises(Exception, match=r"memory\.refused.*Wrong input: shape"):
            await ask.own("search", query="tea")


@pytest.mark.parametrize("taken", [409, 400])
async def test_a_collection_that_another_worker_creates_first_is_used(api: QdrantApi, taken: int) -> None:
    api.taken = taken
    async with open_qdrant(api) as ask, open_qdrant(api) as other:
        await other.own("store", items=["coffee"])
        [(name, made)] = api.collections.items()
        api.collections.clear()

        def create_collection(asked: Any) -> None:
            if asked.method == "PUT" and asked.path == f"/collections/{name}":
                api.collections[name] = made

        api.before = create_collection
        ask.asked = 100
        await ask.own("store", items=["tea"])
    assert len(made.points) == 2


async def test_a_store_fails_if_its_collection_disappears_repeatedly(api: QdrantApi) -> None:
    def remove_collections(asked: Any) -> None:
        if asked.path.endswith("/points"):
            api.collections.clear()

    api.before = remove_collections
    async with open_qdrant(api) as ask:
        assert await ask.refused("store", input={"items": ["tea"]}) == "memory.unavailable"


@asynccontextmanager
async def open_postgres(
    server: Postgres, request: pytest.FixtureRequest, password: str = PASSWORD
) -> AsyncGenerator[Asking]:
    async with closing(PgVector(server.url, password, request.node.nodeid)) as store:
        yield asking(store)


async def sql(server: Postgres, statement: str) -> list[Any]:
    connection = await asyncpg.connect(server.url, password=PASSWORD)
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


async def test_the_failure_does_not_contain_a_refused_password(
    server: Postgres, request: pytest.FixtureRequest
) -> None:
    async with open_postgres(server, request, password="wrong-passw0rd") as ask:
        with pytest.raises(EffectFailed, match=r"memory\.refused.*28P01") as caught:
            await ask.own("search", query="tea")
    assert "wrong-passw0rd" not in str(caught.value)


async def test_the_failure_names_a_missing_extension(server: Postgres, request: pytest.FixtureRequest) -> None:
    if server.has_vector:
        pytest.skip("PostgreSQL has the extension `vector` on this machine")
    async with open_postgres(server, request) as ask:
        with pytest.raises(EffectFailed, match=r'memory\.refused.*extension "vector" is not available'):
            await ask.own("store", items=["tea"])


async def test_an_unreachable_database_is_a_retryable_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgvector, "TRY_AGAIN_MAX_S", 0.001)
    url = f"postgresql://u@127.0.0.1:{free_ports(1)[0]}/d"
    async with closing(PgVector(url, "", "n")) as store:
        assert await asking(store).refused("search", input={"query": "tea"}) == "memory.unavailable"


async def test_the_table_of_a_memory_has_the_name_of_its_tenant(
    with_vector: Postgres, request: pytest.FixtureRequest
) -> None:
    async with open_postgres(with_vector, request) as ask:
        await ask("store", input={"items": ["tea", "coffee"]}, tenant="table-tenant")
        [row] = await sql(with_vector, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'cb_table_tenant_%'")
        [count] = await sql(with_vector, f"SELECT count(*) FROM {row['tablename']} WHERE vector_dims(vector) = 3")
        assert count["count"] == 2
        assert (await ask("clear", input={}, tenant="table-tenant"))["total_results"] == 2
        assert await sql(with_vector, f"SELECT 1 FROM pg_tables WHERE tablename = '{row['tablename']}'") == []


async def test_workers_that_create_a_table_at_the_same_time_both_store(
    with_vector: Postgres, request: pytest.FixtureRequest
) -> None:
    async with open_postgres(with_vector, request) as one, open_postgres(with_vector, request) as other:
        other.asked = 100
        async with anyio.create_task_group() as tasks:
            for ask, text in ((one, "tea"), (other, "coffee")):
                tasks.start_soon(lambda ask=ask, text=text: ask.own("store", items=[text]))
        assert await found(one, "tea") == ["tea", "coffee"]


async def test_a_lost_connection_is_replaced(with_vector: Postgres, request: pytest.FixtureRequest) -> None:
    async with open_postgres(with_vector, request) as ask:
        await ask.own("store", items=["tea"])
        lost = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'callboard'"
        assert len(await sql(with_vector, lost)) == 1
        assert await found(ask, "tea") == ["tea"]


async def test_the_number_of_remembered_changes_of_a_text_is_limited(
    with_vector: Postgres, request: pytest.FixtureRequest
) -> None:
    async with open_postgres(with_vector, request) as ask:
        for number in range(APPLIED_MAX + 3):
            await ask("store", input={"items": [{"id": "x", "text": f"tea {number}"}]}, tenant="bound-tenant")
        [row] = await sql(with_vector, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'cb_bound_tenant_%'")
        [text] = await sql(with_vector, f"SELECT cardinality(applied) AS count, applied FROM {row['tablename']}")
    assert text["count"] == APPLIED_MAX
    assert text["applied"][-1] == f"{ask.asked:064}"[::-1][: len(text["applied"][-1])]


class RecordingPool:
    """Records statements instead of executing them, and returns the rows that a test prepares."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, tuple[Any, ...]]] = []
        self.rows: list[Any] = []

    @asynccontextmanager
    async def acquire(self, timeout: float) -> AsyncGenerator["RecordingPool"]:
        yield self

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        yield

    async def fetch(self, statement: str, *values: Any) -> list[Any]:
        self.sent.append((" ".join(statement.split()), values))
        return self.rows.pop(0) if self.rows else []

    async def executemany(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        self.sent += [(" ".join(statement.split()), row) for row in rows]

    async def close(self) -> None:
        """Nothing is open."""


async def test_the_statements_name_the_table_and_pass_values_as_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = RecordingPool()

    async def pool(*_given: Any, **_names: Any) -> RecordingPool:
        return sent

    monkeypatch.setattr(asyncpg, "create_pool", pool)
    async with closing(PgVector("postgresql://u@h/d", "", "n")) as store:
        ask = asking(store)
        await ask.own("store", items=[{"id": "x'; --", "text": "tea", "metadata": {"of": "Ada"}}])
        document = {"id": "x", "text": "tea", "metadata": None, "at_ms": 1}
        sent.rows = [[{"document": msgspec.json.encode(document), "near": 0.9}]]
        assert await found(ask, "tea", filters={"of": "Ada"}) == ["tea"]
        await ask.own("delete", ids=["x'; --"])
    table = sent.sent[0][0].split()[3]
    assert table.startswith("cb_t_")
    (seen, asked), (keep, row), (find, wanted), (delete, ids) = sent.sent
    assert seen == f"SELECT id FROM {table} WHERE id = ANY($1::text[]) AND applied @> ARRAY[$2::text]"
    assert keep.startswith(f"INSERT INTO {table} AS kept (id, document, facets, embedder, applied, vector) VALUES ($1,")
    assert keep.endswith("WHERE NOT kept.applied @> EXCLUDED.applied")
    assert (asked[0], ids[0], asked[1]) == ([row[0]], [row[0]], row[4])
    assert (row[3], row[5], len(row[2])) == ("placed:p", "[0.6,0.8,0.0]", 1)
    assert f"FROM {table} WHERE embedder = $2 AND facets @> $3::text[] ORDER BY vector <#> $1" in find
    assert wanted == ("[0.6,0.8,0.0]", "placed:p", row[2], 5)
    assert delete == f"DELETE FROM {table} WHERE id = ANY($1::text[])"


def configured(folder: Path, table: str, env: dict[str, str]) -> Config:
    (folder / "callboard.toml").write_text(table, encoding="utf-8")
    return load(env=env, cwd=folder)


def test_the_configured_key_of_a_store_is_never_shown(tmp_path: Path) -> None:
    table = '[vectors]\nstore = "qdrant"\nurl = "https://q.example.com:6333"\nkey = "${QDRANT_KEY}"\n'
    config = configured(tmp_path, table, {"QDRANT_KEY": "k3y"})
    assert (config.vectors.store, config.vectors.key.get_secret_value()) == ("qdrant", "k3y")
    assert "k3y" in config.secrets()
    assert "k3y" not in str(config.explain()) + str(config.values())
    assert [shown for name, shown, _ in config.explain() if name == "vectors"] == ["qdrant https://q.example.com:6333"]
    [warning] = configured(tmp_path, table, {}).warnings
    assert (warning.code, "QDRANT_KEY" in warning.message) == ("config.unset", True)


def test_the_key_of_a_database_is_its_password(tmp_path: Path) -> None:
    table = {"store": "pgvector", "url": "postgresql://me@h:5432/d?sslmode=require", "key": "k3y"}
    config = load(env={"CALLBOARD_VECTORS": json.dumps(table)}, cwd=tmp_path)
    assert str(config.vectors) == "pgvector postgresql://me@h:5432/d?sslmode=require"
    assert "k3y" in config.secrets()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "vectors"),
        ('{"store": "chroma"}', "vectors.store"),
        ('{"store": "qdrant"}', "must begin with http:// or https://"),
        ('{"store": "qdrant", "url": "ftp://h"}', "must begin with http:// or https://"),
        ('{"store": "qdrant", "url": "http://u:k3y@h"}', "vectors.url"),
        ('{"store": "qdrant", "url": "http://k3y@h"}', "must not contain a secret"),
        ('{"store": "pgvector", "url": "http://h"}', "must begin with postgresql:// or postgres://"),
        ('{"store": "pgvector", "url": "postgresql://u:k3y@h/d"}', "vectors.url"),
        ('{"store": "pgvector", "url": "postgresql://u@h/d?password=k3y"}', "must not contain a secret"),
        ('{"url": "http://h"}', "takes neither url nor key"),
        ('{"key": "k3y"}', "takes neither url nor key"),
        ('{"kee": "k3y"}', "vectors.kee"),
    ],
)
def test_an_invalid_store_is_refused_without_its_secret(tmp_path: Path, given: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(env={"CALLBOARD_VECTORS": given}, cwd=tmp_path)
    [problem] = caught.value.problems
    assert (problem.code, problem.where) == ("config.value", "CALLBOARD_VECTORS")
    assert words in problem.message
    assert "k3y" not in str(caught.value)
