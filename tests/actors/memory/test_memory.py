"""Memories: one suite for every store, and what each kind of memory keeps, tells and forgets."""

import datetime as dt
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import pytest
from nats.js.kv import KeyValue

from callboard.actors.carrier import EffectFailed, Job, Spent
from callboard.actors.kinds.memory import Memory
from callboard.actors.memory import embedder, exact, session, texts
from callboard.actors.memory import store as store_port
from callboard.actors.memory.conversation import CONTENT_CHARS_MAX, MESSAGES_MAX, SUMMARY_BYTES_MAX
from callboard.actors.memory.embedder import Embeddings, Hashing, cosine, pack_vector, unpack_vector
from callboard.actors.memory.entities import ENTITIES_MAX, FACT_CHARS_MAX, FACTS_MAX, find_mentions
from callboard.actors.memory.store import (
    APPLIED_MAX,
    DOCUMENT_BYTES_MAX,
    Document,
    InMemory,
    Store,
    Unavailable,
    change_document,
    encode_document,
    read,
)
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.key_value import Conflict, KeyValueEntry, KeyValueStore
from callboard.bus.subjects import RunRef
from tests.support.event_logs import T0
from tests.support.graphs import check_deaths, graph, node, webhook
from tests.support.lane_server import AccountServer
from tests.support.memory_access import Asking, always

# -- the stores --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def in_memory(_folder: Path) -> AsyncGenerator[tuple[Store, Store]]:
    store = InMemory()
    yield store, store


@asynccontextmanager
async def on_jetstream(folder: Path) -> AsyncGenerator[tuple[Store, Store]]:
    async with (
        AccountServer(folder) as server,
        open_nats_connection(server.url, name="a") as one,
        open_nats_connection(server.url, name="b") as other,
    ):
        yield KeyValueStore(one, "CB_MEMORY", 1, Unavailable), KeyValueStore(other, "CB_MEMORY", 1, Unavailable)


Opens = Callable[[Path], AbstractAsyncContextManager[tuple[Store, Store]]]


@pytest.fixture(params=[in_memory, on_jetstream])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    """A store as two workers have it."""
    opens: Opens = request.param
    async with opens(tmp_path) as opened:
        yield opened


async def test_a_document_is_written_over_the_revision_that_was_read(stores: tuple[Store, Store]) -> None:
    one, other = stores
    assert await one.get("a.b") is None
    await one.put("a.b", b"1", 0)
    found = await other.get("a.b")
    assert found is not None
    assert (found.key, found.value) == ("a.b", b"1")
    with pytest.raises(Conflict):
        await other.put("a.b", b"2", 0)
    await other.put("a.b", b"2", found.revision)
    with pytest.raises(Conflict):
        await one.put("a.b", b"3", found.revision)
    assert cast(KeyValueEntry, await one.get("a.b")).value == b"2"


async def test_documents_are_listed_by_their_place_and_can_be_removed(stores: tuple[Store, Store]) -> None:
    one, other = stores
    assert await one.below("a") == []
    for key in ("a.x.2", "a.x.1", "a.xy.1", "b.x.1"):
        await one.put(key, key.encode(), 0)
    assert [(entry.key, entry.value) for entry in await other.below("a.x")] == [
        ("a.x.1", b"a.x.1"),
        ("a.x.2", b"a.x.2"),
    ]
    assert await other.keys("a.x") == ["a.x.1", "a.x.2"]
    revision = cast(KeyValueEntry, await other.get("a.x.1")).revision
    await other.delete("a.x.1", revision)
    for key in ("a.x.1", "a.x.7"):
        with pytest.raises(Conflict):
            await other.delete(key, revision)
    assert [entry.key for entry in await one.below("a")] == await one.keys("a") == ["a.x.2", "a.xy.1"]
    assert await one.keys("a.x") == ["a.x.2"]
    assert await one.keys("c") == []
    assert await one.get("a.x.1") is None
    await one.put("a.x.1", b"anew", 0)
    with pytest.raises(Conflict):
        await other.delete("a.x.1", revision)
    assert cast(KeyValueEntry, await other.get("a.x.1")).value == b"anew"
    assert await one.keys("a.x") == ["a.x.1", "a.x.2"]


async def test_a_change_is_made_once_and_none_is_lost(stores: tuple[Store, Store]) -> None:
    def add(document: Document) -> None:
        document["n"] = document.get("n", 0) + 1

    async def adding(store: Store, number: int) -> None:
        await change_document(store, "a.n", f"{number:064}"[::-1], add)
        await change_document(store, "a.n", f"{number:064}"[::-1], add)

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(adding, stores[number % 2], number)
    document = read(await stores[0].get("a.n"))
    assert document["n"] == 6
    assert len(document["applied"]) == 6


async def test_what_is_too_large_is_refused_and_what_is_remembered_bounded() -> None:
    store = InMemory()
    with pytest.raises(EffectFailed, match=r"memory\.too_large"):
        await change_document(store, "a", "once", lambda document: document.update(text="x" * DOCUMENT_BYTES_MAX))
    for number in range(APPLIED_MAX + 5):
        await change_document(store, "a", str(number), lambda document: document.update(n=1))
    assert len(read(await store.get("a"))["applied"]) == APPLIED_MAX


async def test_a_store_that_cannot_be_reached_is_a_failure_that_may_pass(tmp_path: Path) -> None:
    async with AccountServer(tmp_path) as server, open_nats_connection(server.url, name="w") as nc:
        store = KeyValueStore(nc, "CB_MEMORY", 1, Unavailable)
        await nc.close()
        with pytest.raises(EffectFailed) as caught:
            await store.get("a")
    assert (caught.value.failure.code, caught.value.failure.retryable) == ("memory.unavailable", True)


async def test_what_is_changed_over_and_over_by_others_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Contended(InMemory):
        async def put(self, key: str, value: bytes, revision: int) -> None:
            raise Conflict

    monkeypatch.setattr("callboard.actors.memory.store.TRY_AGAIN_MAX_S", 0.0)
    with pytest.raises(EffectFailed, match=r"memory\.contended"):
        await change_document(Contended(), "a", "once", lambda _document: None)


class Unanswered(InMemory):
    """Writes what it is told to, and loses these answers and those to as many questions after it."""

    def __init__(self, writes: int, reads: int = 0) -> None:
        super().__init__()
        self.writes = writes
        self.reads = reads

    async def get(self, key: str) -> KeyValueEntry | None:
        if self._entries and self.reads > 0:
            self.reads -= 1
            raise Unavailable("lost")
        return await super().get(key)

    async def put(self, key: str, value: bytes, revision: int) -> None:
        await super().put(key, value, revision)
        if self.writes > 0:
            self.writes -= 1
            raise Unavailable("lost")


@pytest.mark.parametrize("reads", [0, 2])
async def test_a_change_whose_answer_is_lost_is_found_to_be_made(reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.actors.memory.store.TRY_AGAIN_MAX_S", 0.0)
    store = Unanswered(writes=1, reads=reads)
    changes: list[Document] = []
    made = await change_document(store, "a", "once", changes.append)
    assert made == read(await store.get("a")) == {"applied": ["once"]}
    assert len(changes) == 1


async def test_what_is_not_answered_over_and_over_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.actors.memory.store.TRY_AGAIN_MAX_S", 0.0)
    with pytest.raises(EffectFailed, match=r"memory\.unavailable"):
        await change_document(Unanswered(writes=1, reads=1_000), "a", "once", lambda _document: None)


# -- a memory, as runs ask it ------------------------------------------------------------------------------------------


async def test_a_memory_is_that_of_a_tenant_a_workflow_a_user_and_a_node() -> None:
    ask = Asking("CONVERSATION_BUFFER")
    await ask.say("Hello")
    assert len((await ask.context())["messages"]) == 2
    others: list[dict[str, Any]] = [
        {"id": "mem2"},
        {"user": "v"},
        {"user": None},
        {"tenant": "t2"},
        {"id": "x" * 500},
        {"id": "Ä.*>"},
        {"id": "記" * 60},
        {"id": "憶" * 60},
    ]
    for other in others:
        assert await ask.context(**other) == {"messages": []}
    for long in ("x" * 500, "記" * 60):
        await ask.say("Long", id=long)
        assert len((await ask.context(id=long))["messages"]) == 2


async def test_a_configured_member_is_overridden_by_the_input_member_of_that_name_only() -> None:
    ask = Asking("VECTOR_DATABASE", query="the invoice", similarity_threshold=0.2)
    await ask.own("store", items=["the invoice of May", "a holiday in Spain"])
    for input in ({"message": "a holiday in Spain"}, "a holiday in Spain"):
        found = await ask("search", input=input)
        assert [one["text"] for one in found["results"]] == ["the invoice of May"]
    [found] = (await ask.own("search", query="a holiday in Spain", message="the invoice"))["results"]
    assert found["text"] == "a holiday in Spain"
    kept = Asking("KEY_VALUE_STORE", key="guests", value=1)
    await kept("set", input="another key")
    assert (await kept.own("keys"))["keys"] == ["guests"]


async def test_what_no_memory_understands() -> None:
    ask = Asking("CONVERSATION_BUFFER")
    assert await ask.refused("fly", input={}) == "memory.operation"
    assert await Asking("TOOTHBRUSH").refused("store", input={}) == "memory.subtype"
    with pytest.raises(EffectFailed, match=r"memory\.malformed"):
        await ask.memory.carry(cast(Job, None), {"operation": "store"})


def test_whatever_dies_is_said_once() -> None:
    """A worker that dies anywhere, and one that takes over: what an agent has kept, it has kept once."""
    buffer = {"id": "mem", "name": "mem", "type": "MEMORY", "subtype": "CONVERSATION_BUFFER", "configurations": {}}
    agent = node("ai", "AI_AGENT", "ANTHROPIC_CLAUDE", attached=["mem"], model="m")
    kept = InMemory()
    memory = Memory(kept)
    seen: list[int] = []

    async def carry(job: Job, request: Any) -> Any:
        value, _ = await memory.carry(job, request)
        seen.extend(len(read(entry)["messages"]) for entry in await kept.below("acme"))
        return value

    script = {"turns": {"ai": [{"text": "Hi."}]}}
    check_deaths(
        graph([webhook(), agent, buffer], "t -> ai"), {"message": "Hello?"}, kinds={"memory": carry}, script=script
    )
    assert len(seen) > 4
    assert set(seen) == {2}


# -- conversations -----------------------------------------------------------------------------------------------------


async def test_a_conversation_is_told_in_its_order_and_bounded() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=6, auto_summarize=False)
    for number in range(5):
        assert await ask.say(f"q{number}", f"a{number}") == {}
    told = await ask.context()
    assert [one["content"] for one in told["messages"]] == ["q2", "a2", "q3", "a3", "q4", "a4"]
    assert told["messages"][0] == {"role": "user", "content": "q2"}
    assert len((await ask("get_context", query="", limit=3))["messages"]) == 3


async def test_carried_out_again_nothing_is_said_twice() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=4, summarize_count=2)
    await ask.say("one")
    first = await ask.say("two")
    assert await ask.say("two", again=True) == first
    assert len((await ask.context())["messages"]) == 4


async def test_the_oldest_messages_are_folded_into_a_summary_once() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=8, summarize_count=2, auto_summarize=True)
    assert await ask.say("one") == {}
    wanted = (await ask.say("two"))["to_summarize"]
    assert [one["content"] for one in wanted["messages"]] == ["one", "Yes."]
    assert wanted["summary"] == ""
    folded: dict[str, Any] = {"summary": "They said one.", "count": 2, "from": wanted["from"]}
    await ask("summarize", **folded)
    # Another agent was asked for the same.
    await ask("summarize", **folded)
    told = await ask.context()
    assert [one["content"] for one in told["messages"]] == ["two", "Yes."]
    assert told["context"] == "Summary of the conversation so far: They said one."
    assert (await ask.say("three"))["to_summarize"]["summary"] == "They said one."


async def test_a_summary_counts_though_some_of_its_messages_have_made_room() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=6, summarize_count=4)
    await ask.say("one")
    wanted = (await ask.say("two"))["to_summarize"]
    await ask.say("three")
    await ask.say("four")
    folded: dict[str, Any] = {"summary": "They said one and two.", "count": 4, "from": wanted["from"]}
    await ask("summarize", **folded)
    told = await ask.context()
    assert [one["content"] for one in told["messages"]] == ["three", "Yes.", "four", "Yes."]
    assert told["context"] == "Summary of the conversation so far: They said one and two."
    late: dict[str, Any] = {"summary": "They said one.", "count": 2, "from": wanted["from"]}
    await ask("summarize", **late)
    assert await ask.context() == told


async def test_no_node_summarizes() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=4, summarize_count=2)
    wanted = (await ask.say("one"))["to_summarize"]
    folded: dict[str, Any] = {"summary": "They said one.", "count": 2, "from": wanted["from"]}
    await ask("summarize", **folded)
    assert await ask.refused("summarize", input={}) == "memory.operation"
    assert (await ask.own("retrieve"))["summary"] == "They said one."


async def test_long_messages_make_room() -> None:
    ask = Asking("CONVERSATION_BUFFER", auto_summarize=False)
    for number in range(12):
        await ask.say(f"{number}" + "x" * 70_000)
    told = await ask.context()
    assert told["messages"][-2]["content"].startswith("11x")
    assert 2 <= len(told["messages"]) < 24


@pytest.mark.parametrize("sign", ["Ä", "\x01"])
async def test_the_longest_messages_and_summary_fit(sign: str) -> None:
    """Some characters are longer as JSON than they look."""
    ask = Asking("CONVERSATION_BUFFER", max_messages=MESSAGES_MAX, auto_summarize=False)
    longest = sign * (CONTENT_CHARS_MAX + 1)
    for _ in range(MESSAGES_MAX // 2):
        await ask.say(longest, longest)
    kept = await ask.own("retrieve")
    first = read(await ask.store.get((await ask.store.keys("t"))[0]))["first"]
    folded: dict[str, Any] = {"summary": longest, "count": 1, "from": first}
    await ask("summarize", **folded)
    told = await ask.own("retrieve")
    assert told["summary"] == sign * len(told["summary"])
    assert 0.9 * SUMMARY_BYTES_MAX < len(msgspec.json.encode(told["summary"])) <= SUMMARY_BYTES_MAX
    assert told["total_messages"] < kept["total_messages"] or kept["total_messages"] == 1
    told = await ask.own("store", message=f"last {longest}")
    assert told["messages"][-1]["content"] == f"last {longest}"[:CONTENT_CHARS_MAX]
    assert told["summary"]


async def test_a_message_that_is_too_large_is_refused_and_costs_no_other() -> None:
    ask = Asking("CONVERSATION_BUFFER", auto_summarize=False)
    await ask.say("Hello")
    large = {"message": "Hi", "metadata": "x" * DOCUMENT_BYTES_MAX}
    assert await ask.refused("store", input=large) == "memory.too_large"
    assert len((await ask.context())["messages"]) == 2


async def test_a_node_has_a_conversation_of_its_own() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=2)
    await ask("store", input="Hello")
    told = await ask.own("store", message="Hi", role="assistant", metadata={"a": 1})
    assert [(one["role"], one["content"]) for one in told["messages"]] == [("user", "Hello"), ("assistant", "Hi")]
    assert told["messages"][1]["metadata"] == {"a": 1}
    assert (told["total_messages"], told["buffer_full"], told["success"]) == (2, True, True)
    assert await ask.own("retrieve") == told
    assert (await ask.own("clear"))["messages"] == []


# -- values ------------------------------------------------------------------------------------------------------------


async def test_values_under_keys() -> None:
    ask = Asking("KEY_VALUE_STORE", key_prefix="p-")
    assert await ask.own("get", key="a") == {"success": True, "value": None, "exists": False}
    await ask.own("set", key="a", value={"n": 1})
    await ask.own("store", key="b", value="")
    assert await ask.own("get", key="a") == {"success": True, "value": {"n": 1}, "exists": True}
    assert (await ask("get", input="a"))["value"] == {"n": 1}
    assert (await ask.own("exists", key="b"))["exists"] is True
    assert (await ask.own("get", key="a", namespace="n"))["exists"] is False
    assert (await ask.own("keys"))["keys"] == ["p-a", "p-b"]
    assert await ask.context() == {"context": 'p-a: {"n":1}\np-b: '}
    assert (await ask.own("delete", key="a"))["exists"] is True
    assert (await ask.own("delete", key="c"))["exists"] is False
    assert (await ask.own("clear"))["exists"] is True
    assert (await ask.own("keys"))["keys"] == []
    assert await ask.context() == await ask.say("kept under no key") == {}
    assert await ask.refused("get", input={}) == "memory.malformed"


async def test_values_are_appended() -> None:
    ask = Asking("KEY_VALUE_STORE")
    for value, expected in ((1, [1]), (2, [1, 2]), ([3, 4], [1, 2, 3, 4])):
        assert (await ask.own("append", key="list", value=value))["value"] == expected
    assert (await ask("append", input={"key": "list", "value": [3, 4]}, again=True))["value"] == [1, 2, 3, 4]
    for value, expected in (("a", "a"), ("b", "ab"), (1, ["ab", 1])):
        assert (await ask.own("append", key="text", value=value))["value"] == expected


async def test_values_expire_and_are_swept_away() -> None:
    ask = Asking("KEY_VALUE_STORE", default_ttl=10)
    await ask.own("set", key="a", value=1)
    await ask.own("set", key="b", value=1, options={"ttl": 10_000})
    assert (await ask.own("keys"))["keys"] == ["a", "b"]
    ask.asked += 20
    assert (await ask.own("get", key="a"))["exists"] is False
    assert (await ask.own("keys"))["keys"] == ["b"]
    assert len(await ask.store.keys("t")) == 2
    ask.asked += 3_700
    assert (await ask.own("keys"))["keys"] == ["b"]
    assert len(await ask.store.keys("t")) == 1


async def test_a_value_that_comes_while_others_are_swept_away_stays() -> None:
    class Rival(InMemory):
        async def below(self, prefix: str) -> list[KeyValueEntry]:
            found = await super().below(prefix)
            for entry in found:
                fresh = {**read(entry), "value": "fresh", "expires_ms": None}
                await self.put(entry.key, encode_document(fresh), entry.revision)
            return found

    ask = Asking("KEY_VALUE_STORE", Rival())
    await ask.own("set", key="a", value="old", options={"ttl": 10})
    ask.asked += 4_000
    await ask.own("keys")
    assert (await ask.own("get", key="a"))["value"] == "fresh"


async def test_a_removal_that_is_carried_out_again_spares_what_came_after_it() -> None:
    ask = Asking("KEY_VALUE_STORE")
    await ask.own("set", key="a", value=1)
    await ask.own("delete", key="a")
    removal = ask.asked
    await ask.own("set", key="a", value=2)
    ask.asked = removal
    assert (await ask("delete", input={"key": "a"}, again=True))["exists"] is True
    assert (await ask.own("get", key="a"))["value"] == 2


async def test_keys_are_bounded() -> None:
    ask = Asking("KEY_VALUE_STORE", max_keys=1)
    await ask.own("set", key="a", value=1)
    assert (await ask.own("set", key="a", value=2))["success"] is True
    assert (await ask.own("set", key="b", value=1))["success"] is False


# -- texts -------------------------------------------------------------------------------------------------------------

TEXTS = [
    {"id": "tea", "text": "Ada drinks green tea in the morning.", "metadata": {"of": "Ada"}},
    {"id": "chair", "text": "The chair of order A-17 arrived broken.", "metadata": {"of": "Bob"}},
    {"id": "sea", "content": "Ships sail to the islands in summer."},
]


@pytest.mark.parametrize("subtype", ["VECTOR_DATABASE", "DOCUMENT_STORE", "KNOWLEDGE_BASE"])
async def test_texts_are_found_by_what_they_are_about(subtype: str) -> None:
    ask = Asking(subtype, similarity_threshold=0.7, max_results=5)
    stored = await ask.own("store", items=TEXTS)
    assert stored["total_results"] == 3
    found = await ask.own("search", query="which chair is broken?")
    assert [one["id"] for one in found["results"]] == ["chair"]
    assert found["scores"] == [found["results"][0]["score"]]
    assert found["results"][0]["score"] >= 0.7
    assert [one["id"] for one in (await ask.own("search", query="green tea"))["results"]] == ["tea"]
    assert (await ask.own("search", query="a volcano erupted"))["results"] == []
    assert (await ask.own("search", query=" "))["total_results"] == 0
    assert [one["id"] for one in (await ask("search", input="ISLANDS"))["results"]] == ["sea"]
    assert (await ask.context("What tea does Ada drink?"))["context"] == "- Ada drinks green tea in the morning."
    assert await ask.context("volcano") == {}


async def test_texts_are_filtered_replaced_and_removed() -> None:
    ask = Asking("VECTOR_DATABASE", similarity_threshold=0.0)
    await ask.own("store", items=TEXTS)
    assert [one["id"] for one in (await ask.own("search", query="x", filters={"of": "Bob"}))["results"]] == ["chair"]
    await ask.own("upsert", items=[{"id": "tea", "text": "Ada drinks coffee."}])
    assert [one["text"] for one in (await ask.own("get", ids=["tea"]))["results"]] == ["Ada drinks coffee."]
    assert (await ask.own("delete", ids=["tea"]))["total_results"] == 1
    assert (await ask.own("search", query="coffee"))["total_results"] == 2
    assert (await ask.own("clear"))["total_results"] == 2
    assert (await ask.own("search", query="chair"))["total_results"] == 0
    first = await ask.own("add", text="said twice")
    assert await ask.own("add", text="said twice") == first
    assert await ask.refused("store", input={"items": [{"text": ""}]}) == "memory.malformed"


@pytest.mark.parametrize("named", ["text", "content", "document"])
async def test_a_single_text_has_its_id_and_metadata(named: str) -> None:
    ask = Asking("VECTOR_DATABASE")
    single = {"id": "tea", named: "Ada drinks tea.", "metadata": {"of": "Ada"}}
    assert (await ask("store", input=single))["results"] == [{"id": "tea"}]
    [kept] = (await ask.own("get", ids=["tea"]))["results"]
    assert (kept["text"], kept["metadata"]) == ("Ada drinks tea.", {"of": "Ada"})


async def test_what_is_no_text_is_kept_as_json() -> None:
    value, written = {"of": None, "is": [True]}, '{"is":[true],"of":null}'
    texts, said, facts = (Asking(kind) for kind in ("VECTOR_DATABASE", "CONVERSATION_BUFFER", "ENTITY_MEMORY"))
    await texts.own("store", id="a", document=value)
    assert (await texts.own("get", ids="a"))["results"][0]["text"] == written
    assert (await said.own("store", message=value))["messages"][0]["content"] == written
    await said("store", messages=[{"role": "user", "content": value}])
    assert (await said.context())["messages"][1]["content"] == written
    told = await facts.own("store", entity_name="Ada", facts={"likes": value, "writes": True})
    assert told["facts"] == [f"likes: {written}", "writes: true"]
    assert (await facts.own("store", entity_name="Bob", facts=[value]))["facts"] == [written]


async def test_the_best_texts_come_first_and_not_too_many() -> None:
    ask = Asking("VECTOR_DATABASE", similarity_threshold=0.1, max_results=2)
    await ask.own("store", items=["red apples", "red apples and green pears", "red wine", "blue sky"])
    found = await ask.own("search", query="red apples")
    assert [one["text"] for one in found["results"]] == ["red apples", "red apples and green pears"]
    assert found["scores"] == sorted(found["scores"], reverse=True)
    assert found["scores"][0] == 1.0


async def test_what_was_said_is_an_episode_each_time_and_once_if_carried_out_again() -> None:
    ask = Asking("EPISODIC_MEMORY", similarity_threshold=0.5)
    await ask.say("I like tea")
    await ask.say("I like tea")
    await ask.say("I like tea", again=True)
    assert (await ask.context("like tea"))["context"].count("User: I like tea") == 2


async def test_a_text_whose_answer_is_lost_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.actors.memory.store.TRY_AGAIN_MAX_S", 0.0)
    ask = Asking("EPISODIC_MEMORY", Unanswered(writes=1))
    await ask.say("I like tea")
    assert len(await ask.store.keys("t")) == 1


async def test_texts_are_bounded(stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "TEXTS_MAX", 3)
    ask = Asking("VECTOR_DATABASE", stores[0])
    await ask.own("store", items=TEXTS)
    assert await ask.refused("store", input={"text": "one more"}) == "memory.full"
    await ask.own("store", items=TEXTS)
    await ask.own("clear")
    await ask.own("store", items=[*TEXTS, {"id": "tea", "text": "Ada drinks coffee."}])
    assert [one["text"] for one in (await ask.own("get", ids=["tea"]))["results"]] == ["Ada drinks coffee."]
    assert await ask.refused("store", input={"items": ["x"] * (texts.ITEMS_MAX + 1)}) == "memory.full"


async def test_vectors_of_another_embedder_are_made_anew() -> None:
    class Other(Hashing):
        name = "other"

        async def embed(self, texts: Any, once: str) -> Embeddings:
            return Embeddings([vector[::-1] for vector in (await super().embed(texts, once)).vectors])

    store = InMemory()
    ask = Asking("VECTOR_DATABASE", store)
    await ask.own("store", items=TEXTS)
    ask.memory = Memory(store, always(Other()))
    assert [one["id"] for one in (await ask.own("search", query="which chair is broken?"))["results"]] == ["chair"]


async def test_texts_longer_than_are_kept_are_cut_in_questions_too() -> None:
    class Counting(Hashing):
        def __init__(self) -> None:
            self.lengths: list[int] = []

        async def embed(self, texts: Any, once: str) -> Embeddings:
            self.lengths += [len(text) for text in texts]
            return await super().embed(texts, once)

    embedder = Counting()
    ask = Asking("EPISODIC_MEMORY")
    ask.memory = Memory(ask.store, always(embedder))
    long = "x" * (texts.TEXT_CHARS_MAX + 1)
    await ask.say(long)
    await ask.context(long)
    await ask.own("search", query=long)
    assert embedder.lengths == [texts.TEXT_CHARS_MAX] * 3


async def test_the_loop_waits_neither_for_vectors_nor_for_many_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def noting(known: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any) -> Any:
            threads.append(threading.get_ident())
            return known(*given)

        return noted

    ask, values = Asking("VECTOR_DATABASE"), Asking("KEY_VALUE_STORE")
    await ask.own("store", items=TEXTS)
    await values.own("set", key="a", value=1)
    monkeypatch.setattr(embedder, "_count_words", noting(embedder._count_words))  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(store_port, "read", noting(read))
    await ask.own("search", query="chair")
    await values.own("keys")
    assert len(threads) == len(TEXTS) + 2
    assert threading.get_ident() not in threads


async def test_counted_words_are_the_same_everywhere() -> None:
    texts = ["Green tea, please", "green TEA please", "a broken chair", ""]
    [one, same, other, none], *_ = await Hashing().embed(texts, "once")
    assert one == same == pytest.approx(unpack_vector(pack_vector(one)))
    assert cosine(one, one) == pytest.approx(1)
    assert abs(cosine(one, other)) < 0.2
    assert cosine(one, none) == 0
    assert [Hashing().likeness(at) for at in (-1.0, 0.3, 1.0)] == [0.0, 0.7, 1.0]


# -- entities ----------------------------------------------------------------------------------------------------------


def test_who_is_mentioned() -> None:
    told = "Hello! Ada Lovelace lives in London. She likes tea, and so do I. What about Bob?"
    assert [name for name, _ in find_mentions(told)] == ["Ada Lovelace", "London", "Bob"]
    assert find_mentions(told)[0][1] == "Ada Lovelace lives in London."
    assert find_mentions("nobody is here. The end.") == []


async def test_facts_are_told_of_whoever_is_mentioned() -> None:
    ask = Asking("ENTITY_MEMORY")
    await ask.say("Ada likes tea. Bob is away.")
    await ask.say("Ada likes tea.")
    assert await ask.context("what does ada like?") == {"context": "- Ada: Ada likes tea."}
    assert await ask.context("what about Adam?") == {}
    assert await ask.say("nothing") == {}


async def test_entities_of_a_node() -> None:
    ask = Asking("ENTITY_MEMORY")
    stored = await ask.own("store", entity_name="Ada", facts={"born": 1815})
    assert stored == {"success": True, "entity": "Ada", "facts": ["born: 1815"]}
    await ask.own("store", entity_name="ada", facts=["writes"])
    assert (await ask("retrieve", input="ADA"))["facts"] == ["born: 1815", "writes"]
    assert (await ask.own("list"))["entities"] == ["Ada"]
    assert (await ask.own("get_context", query="Ada?"))["context"] == "- Ada: born: 1815\n- Ada: writes"
    await ask.own("delete", entity_name="Ada")
    assert (await ask.own("retrieve", entity_name="Ada"))["facts"] == []
    assert await ask.refused("retrieve", input={}) == "memory.malformed"


async def test_entities_and_facts_are_bounded() -> None:
    ask = Asking("ENTITY_MEMORY")
    await ask.own("store", entity_name="First", facts=[str(number) for number in range(FACTS_MAX + 1)])
    kept = (await ask.own("retrieve", entity_name="First"))["facts"]
    assert (len(kept), kept[0]) == (FACTS_MAX, "1")
    for number in range(ENTITIES_MAX):
        await ask.own("store", entity_name=f"E{number}", facts=["x"])
    assert len((await ask.own("list"))["entities"]) == ENTITIES_MAX
    assert (await ask.own("retrieve", entity_name="First"))["facts"] == []


@pytest.mark.parametrize("sign", ["Ä", "\x01"])
async def test_the_most_and_longest_facts_fit(sign: str) -> None:
    ask = Asking("ENTITY_MEMORY")
    facts = [f"{number:02}{sign * FACT_CHARS_MAX}" for number in range(FACTS_MAX)]
    entities = ENTITIES_MAX // 4
    for number in range(entities):
        await ask.own("store", entity_name=f"E{number}", facts=facts)
    assert (await ask.own("retrieve", entity_name="E0"))["facts"] == []
    last = (await ask.own("retrieve", entity_name=f"E{entities - 1}"))["facts"]
    assert last == [fact[:FACT_CHARS_MAX] for fact in facts]
    assert 5 < len((await ask.own("list"))["entities"]) < entities
    assert await ask.refused("store", input={"entity_name": "x" * DOCUMENT_BYTES_MAX, "facts": "x"}) == (
        "memory.too_large"
    )
    assert (await ask.own("retrieve", entity_name=f"E{entities - 1}"))["facts"] == last


async def test_a_listing_is_whole_though_the_client_takes_it_for_complete_too_early(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its watch does so if the server tells what there is to come before the first of it has arrived."""
    told: list[None] = []
    updates = KeyValue.KeyWatcher.updates

    async def early(watcher: KeyValue.KeyWatcher, timeout: float = 5.0) -> object:
        if not told:
            told.append(None)
            return None
        return await updates(watcher, timeout)

    monkeypatch.setattr(KeyValue.KeyWatcher, "updates", early)
    async with on_jetstream(tmp_path) as (store, _other):
        await store.put("a.b.c", b"1", 0)
        assert [entry.value for entry in await store.below("a.b")] == [b"1"]
        assert told


async def test_a_session_changes_once_per_effect_keeps_the_latest_items_and_expires() -> None:
    ask = Asking("SESSION", items_max=3, expires_s=10)
    assert await ask("append", items=["a", {"b": 1}], run="r1") == {"items": 2}
    assert await ask("append", items=["a", {"b": 1}], run="r1", again=True) == {"items": 2}
    assert await ask("append", items=["c", "d"]) == {"items": 3}
    assert await ask("items") == {"items": [{"b": 1}, "c", "d"]}
    assert await ask("items", limit=1) == {"items": ["d"]}
    assert await ask("pop") == await ask("pop", again=True) == {"item": "d", "exists": True}
    assert await ask("items", id="other") == {"items": []}
    ask.asked += 10
    assert await ask("items") == {"items": []}
    assert await ask("pop") == {"item": None, "exists": False}
    assert await ask("append", items=["e"]) == {"items": 1}
    assert await ask("forget") == {}
    assert await ask("items") == {"items": []}
    assert await ask.refused("search") == "memory.operation"
    assert await ask.refused("append", items=["x" * DOCUMENT_BYTES_MAX]) == "memory.too_large"


async def test_sessions_that_ended_long_ago_are_removed_when_sessions_are_listed() -> None:
    store = InMemory()
    memory = Memory(store)

    async def append(key: str, at: dt.datetime) -> None:
        request = {
            "operation": "append",
            "memory": {"id": key, "subtype": "SESSION", "configurations": {"expires_s": 10}},
            "scope": {"workflow_id": session.SCOPE},
            "key": key,
            "items": [key],
        }
        job = SimpleNamespace(
            ref=RunRef("t", "r1"), event=SimpleNamespace(time=at), idempotency_key=key * 64, spent=Spent()
        )
        await memory.carry(cast(Job, job), request)

    await append("a", T0)
    await append("b", T0 + dt.timedelta(hours=2))
    now_ms = int((T0 + dt.timedelta(hours=2)).timestamp() * 1000)
    assert [one["key"] for one in await session.list_sessions(store, "t", now_ms)] == ["b"]
    assert len(await store.keys("t")) == 1
    assert await session.list_sessions(store, "u", now_ms) == []
