"""Memories: the stores of documents, and what each kind of memory keeps, returns and removes."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest
from nats.js.kv import KeyValue

from callboard.actors.carrier import EffectFailed, Job
from callboard.actors.kinds.memory import Memory
from callboard.actors.memory import exact, text_store
from callboard.actors.memory import store as store_port
from callboard.actors.memory.conversation import CONTENT_CHARS_MAX, MESSAGES_MAX, SUMMARY_BYTES_MAX
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
from tests.support.graphs import check_deaths, graph, node, webhook
from tests.support.lane_server import AccountServer
from tests.support.memory_access import TEXTS, AnswerLosingStore, Asking


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
    """A store, opened by two workers."""
    opens: Opens = request.param
    async with opens(tmp_path) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_port, "TRY_AGAIN_MAX_S", 0.0)


async def test_a_write_succeeds_only_over_the_revision_that_was_read(stores: tuple[Store, Store]) -> None:
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


async def test_documents_are_listed_by_prefix_and_removed(stores: tuple[Store, Store]) -> None:
    one, other = stores
    assert await one.below("a") == []
    for key in ("a.x.2", "a.x.1", "a.xy.1", "b.x.1"):
        await one.put(key, key.encode(), 0)
    assert [(entry.key, entry.value) for entry in await other.below("a.x")] == [
        (key, key.encode()) for key in ("a.x.1", "a.x.2")
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


async def test_concurrent_changes_are_each_made_once(stores: tuple[Store, Store]) -> None:
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


async def test_the_size_and_the_remembered_changes_of_a_document_are_bounded() -> None:
    store = InMemory()
    with pytest.raises(EffectFailed, match=r"memory\.too_large"):
        await change_document(store, "a", "once", lambda document: document.update(text="x" * DOCUMENT_BYTES_MAX))
    for number in range(APPLIED_MAX + 5):
        await change_document(store, "a", str(number), lambda document: document.update(n=1))
    assert len(read(await store.get("a"))["applied"]) == APPLIED_MAX


async def test_an_unreachable_store_is_a_retryable_failure(tmp_path: Path) -> None:
    async with AccountServer(tmp_path) as server, open_nats_connection(server.url, name="w") as nc:
        store = KeyValueStore(nc, "CB_MEMORY", 1, Unavailable)
        await nc.close()
        with pytest.raises(EffectFailed) as caught:
            await store.get("a")
    assert (caught.value.failure.code, caught.value.failure.retryable) == ("memory.unavailable", True)


async def test_a_change_fails_after_too_many_conflicts() -> None:
    class ConflictingStore(InMemory):
        async def put(self, key: str, value: bytes, revision: int) -> None:
            raise Conflict

    with pytest.raises(EffectFailed, match=r"memory\.contended"):
        await change_document(ConflictingStore(), "a", "once", lambda _document: None)


@pytest.mark.parametrize("reads", [0, 2])
async def test_a_change_whose_answer_was_lost_is_made_once(reads: int) -> None:
    store = AnswerLosingStore(writes=1, reads=reads)
    changes: list[Document] = []
    made = await change_document(store, "a", "once", changes.append)
    assert made == read(await store.get("a")) == {"applied": ["once"]}
    assert len(changes) == 1


async def test_a_change_fails_after_too_many_lost_answers() -> None:
    with pytest.raises(EffectFailed, match=r"memory\.unavailable"):
        await change_document(AnswerLosingStore(writes=1, reads=1_000), "a", "once", lambda _document: None)


async def test_memories_are_separate_by_tenant_workflow_user_and_node() -> None:
    ask = Asking("CONVERSATION_BUFFER")
    await ask.say("Hello")
    assert len((await ask.context())["messages"]) == 2
    ids = ("mem2", "x" * 500, "Ä.*>", "記" * 60, "憶" * 60)
    others: list[dict[str, Any]] = [{"user": "v"}, {"user": None}, {"tenant": "t2"}, *({"id": id} for id in ids)]
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
    stored = Asking("KEY_VALUE_STORE", key="guests", value=1)
    await stored("set", input="another key")
    assert (await stored.own("keys"))["keys"] == ["guests"]


async def test_unknown_operations_and_memories_are_refused() -> None:
    ask = Asking("CONVERSATION_BUFFER")
    assert await ask.refused("fly", input={}) == "memory.operation"
    assert await Asking("TOOTHBRUSH").refused("store", input={}) == "memory.subtype"
    with pytest.raises(EffectFailed, match=r"memory\.malformed"):
        await ask.memory.carry(cast(Job, None), {"operation": "store"})


def test_an_agent_keeps_its_messages_once_despite_a_crash() -> None:
    """A worker dies at any append and another one takes over."""
    buffer = {"id": "mem", "name": "mem", "type": "MEMORY", "subtype": "CONVERSATION_BUFFER", "configurations": {}}
    agent = node("ai", "AI_AGENT", "ANTHROPIC_CLAUDE", attached=["mem"], model="m")
    stored = InMemory()
    memory = Memory(stored)
    seen: list[int] = []

    async def carry(job: Job, request: Any) -> Any:
        value, _ = await memory.carry(job, request)
        seen.extend(len(read(entry)["messages"]) for entry in await stored.below("acme"))
        return value

    script = {"turns": {"ai": [{"text": "Hi."}]}}
    check_deaths(
        graph([webhook(), agent, buffer], "t -> ai"), {"message": "Hello?"}, kinds={"memory": carry}, script=script
    )
    assert len(seen) > 4
    assert set(seen) == {2}


async def test_a_conversation_keeps_its_latest_messages_in_order() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=6, auto_summarize=False)
    for number in range(5):
        assert await ask.say(f"q{number}", f"a{number}") == {}
    answer = await ask.context()
    assert [one["content"] for one in answer["messages"]] == ["q2", "a2", "q3", "a3", "q4", "a4"]
    assert answer["messages"][0] == {"role": "user", "content": "q2"}
    assert len((await ask("get_context", query="", limit=3))["messages"]) == 3


async def test_a_repeated_effect_adds_no_message_twice() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=4, summarize_count=2)
    await ask.say("one")
    first = await ask.say("two")
    assert await ask.say("two", again=True) == first
    assert len((await ask.context())["messages"]) == 4


async def test_the_oldest_messages_are_summarized_once() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=8, summarize_count=2, auto_summarize=True)
    assert await ask.say("one") == {}
    wanted = (await ask.say("two"))["to_summarize"]
    assert [one["content"] for one in wanted["messages"]] == ["one", "Yes."]
    assert wanted["summary"] == ""
    folded: dict[str, Any] = {"summary": "They said one.", "count": 2, "from": wanted["from"]}
    await ask("summarize", **folded)
    # Another agent summarizes the same messages.
    await ask("summarize", **folded)
    answer = await ask.context()
    assert [one["content"] for one in answer["messages"]] == ["two", "Yes."]
    assert answer["context"] == "Summary of the conversation so far: They said one."
    assert (await ask.say("three"))["to_summarize"]["summary"] == "They said one."


async def test_a_summary_is_kept_if_some_of_its_messages_were_already_removed() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=6, summarize_count=4)
    await ask.say("one")
    wanted = (await ask.say("two"))["to_summarize"]
    await ask.say("three")
    await ask.say("four")
    folded: dict[str, Any] = {"summary": "They said one and two.", "count": 4, "from": wanted["from"]}
    await ask("summarize", **folded)
    answer = await ask.context()
    assert [one["content"] for one in answer["messages"]] == ["three", "Yes.", "four", "Yes."]
    assert answer["context"] == "Summary of the conversation so far: They said one and two."
    late: dict[str, Any] = {"summary": "They said one.", "count": 2, "from": wanted["from"]}
    await ask("summarize", **late)
    assert await ask.context() == answer


async def test_a_node_cannot_summarize_a_conversation() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=4, summarize_count=2)
    wanted = (await ask.say("one"))["to_summarize"]
    folded: dict[str, Any] = {"summary": "They said one.", "count": 2, "from": wanted["from"]}
    await ask("summarize", **folded)
    assert await ask.refused("summarize", input={}) == "memory.operation"
    assert (await ask.own("retrieve"))["summary"] == "They said one."


async def test_long_messages_displace_older_ones() -> None:
    ask = Asking("CONVERSATION_BUFFER", auto_summarize=False)
    for number in range(12):
        await ask.say(f"{number}" + "x" * 70_000)
    answer = await ask.context()
    assert answer["messages"][-2]["content"].startswith("11x")
    assert 2 <= len(answer["messages"]) < 24


@pytest.mark.parametrize("sign", ["Ä", "\x01"])
async def test_the_longest_messages_and_the_longest_summary_fit_into_a_document(sign: str) -> None:
    """Some characters take more bytes in JSON than in UTF-8."""
    ask = Asking("CONVERSATION_BUFFER", max_messages=MESSAGES_MAX, auto_summarize=False)
    longest = sign * (CONTENT_CHARS_MAX + 1)
    for _ in range(MESSAGES_MAX // 2):
        await ask.say(longest, longest)
    stored = await ask.own("retrieve")
    first = read(await ask.store.get((await ask.store.keys("t"))[0]))["first"]
    folded: dict[str, Any] = {"summary": longest, "count": 1, "from": first}
    await ask("summarize", **folded)
    answer = await ask.own("retrieve")
    assert answer["summary"] == sign * len(answer["summary"])
    assert 0.9 * SUMMARY_BYTES_MAX < len(msgspec.json.encode(answer["summary"])) <= SUMMARY_BYTES_MAX
    assert answer["total_messages"] < stored["total_messages"] or stored["total_messages"] == 1
    answer = await ask.own("store", message=f"last {longest}")
    assert answer["messages"][-1]["content"] == f"last {longest}"[:CONTENT_CHARS_MAX]
    assert answer["summary"]


async def test_a_message_that_is_too_large_is_refused_and_displaces_no_other() -> None:
    ask = Asking("CONVERSATION_BUFFER", auto_summarize=False)
    await ask.say("Hello")
    large = {"message": "Hi", "metadata": "x" * DOCUMENT_BYTES_MAX}
    assert await ask.refused("store", input=large) == "memory.too_large"
    assert len((await ask.context())["messages"]) == 2


async def test_a_node_stores_retrieves_and_clears_its_conversation() -> None:
    ask = Asking("CONVERSATION_BUFFER", max_messages=2)
    await ask("store", input="Hello")
    answer = await ask.own("store", message="Hi", role="assistant", metadata={"a": 1})
    assert [(one["role"], one["content"]) for one in answer["messages"]] == [("user", "Hello"), ("assistant", "Hi")]
    assert answer["messages"][1]["metadata"] == {"a": 1}
    assert (answer["total_messages"], answer["buffer_full"], answer["success"]) == (2, True, True)
    assert await ask.own("retrieve") == answer
    assert (await ask.own("clear"))["messages"] == []


async def test_values_are_stored_read_and_deleted_by_key() -> None:
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
    assert await ask.context() == await ask.say("stored under no key") == {}
    assert await ask.refused("get", input={}) == "memory.malformed"


async def test_append_extends_lists_and_texts() -> None:
    ask = Asking("KEY_VALUE_STORE")
    for value, expected in ((1, [1]), (2, [1, 2]), ([3, 4], [1, 2, 3, 4])):
        assert (await ask.own("append", key="list", value=value))["value"] == expected
    assert (await ask("append", input={"key": "list", "value": [3, 4]}, again=True))["value"] == [1, 2, 3, 4]
    for value, expected in (("a", "a"), ("b", "ab"), (1, ["ab", 1])):
        assert (await ask.own("append", key="text", value=value))["value"] == expected


async def test_expired_values_are_removed() -> None:
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


async def test_a_value_that_is_written_during_the_removal_of_expired_ones_stays() -> None:
    class RacingStore(InMemory):
        async def below(self, prefix: str) -> list[KeyValueEntry]:
            found = await super().below(prefix)
            for entry in found:
                fresh = {**read(entry), "value": "fresh", "expires_ms": None}
                await self.put(entry.key, encode_document(fresh), entry.revision)
            return found

    ask = Asking("KEY_VALUE_STORE", RacingStore())
    await ask.own("set", key="a", value="old", options={"ttl": 10})
    ask.asked += 4_000
    await ask.own("keys")
    assert (await ask.own("get", key="a"))["value"] == "fresh"


async def test_a_repeated_removal_spares_a_later_value() -> None:
    ask = Asking("KEY_VALUE_STORE")
    await ask.own("set", key="a", value=1)
    await ask.own("delete", key="a")
    removal = ask.asked
    await ask.own("set", key="a", value=2)
    ask.asked = removal
    assert (await ask("delete", input={"key": "a"}, again=True))["exists"] is True
    assert (await ask.own("get", key="a"))["value"] == 2


async def test_the_number_of_keys_is_limited() -> None:
    ask = Asking("KEY_VALUE_STORE", max_keys=1)
    await ask.own("set", key="a", value=1)
    assert (await ask.own("set", key="a", value=2))["success"] is True
    assert (await ask.own("set", key="b", value=1))["success"] is False


async def test_a_listing_is_complete_if_the_client_reports_its_end_too_early(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The watch of the client does so if the number of pending entries arrives before the first entry."""
    answer: list[None] = []
    updates = KeyValue.KeyWatcher.updates

    async def early(watcher: KeyValue.KeyWatcher, timeout: float = 5.0) -> object:
        if not answer:
            answer.append(None)
            return None
        return await updates(watcher, timeout)

    monkeypatch.setattr(KeyValue.KeyWatcher, "updates", early)
    async with on_jetstream(tmp_path) as (store, _other):
        await store.put("a.b.c", b"1", 0)
        assert [entry.value for entry in await store.below("a.b")] == [b"1"]
        assert answer


async def test_the_number_of_texts_is_limited(stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "TEXTS_MAX", 3)
    ask = Asking("VECTOR_DATABASE", stores[0])
    await ask.own("store", items=TEXTS)
    assert await ask.refused("store", input={"text": "one more"}) == "memory.full"
    await ask.own("store", items=TEXTS)
    await ask.own("clear")
    await ask.own("store", items=[*TEXTS, {"id": "tea", "text": "Ada drinks coffee."}])
    assert [one["text"] for one in (await ask.own("get", ids=["tea"]))["results"]] == ["Ada drinks coffee."]
    assert await ask.refused("store", input={"items": ["x"] * (text_store.ITEMS_MAX + 1)}) == "memory.full"
