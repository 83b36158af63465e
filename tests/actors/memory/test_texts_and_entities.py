"""Memories of texts, of entities and of sessions: what they keep, return and remove."""

import datetime as dt
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from callboard.actors.carrier import Job, Spent
from callboard.actors.kinds.memory import Memory
from callboard.actors.memory import embedder, session, text_store
from callboard.actors.memory import store as store_port
from callboard.actors.memory.embedder import Embeddings, Hashing, cosine, pack_vector, unpack_vector
from callboard.actors.memory.entities import ENTITIES_MAX, FACT_CHARS_MAX, FACTS_MAX, find_mentions
from callboard.actors.memory.store import (
    DOCUMENT_BYTES_MAX,
    InMemory,
    read,
)
from callboard.bus.subjects import RunRef
from tests.support.event_logs import T0
from tests.support.memory_access import TEXTS, AnswerLosingStore, Asking, always


@pytest.mark.parametrize("subtype", ["VECTOR_DATABASE", "DOCUMENT_STORE", "KNOWLEDGE_BASE"])
async def test_texts_are_found_by_similarity(subtype: str) -> None:
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
async def test_a_single_text_keeps_its_id_and_metadata(named: str) -> None:
    ask = Asking("VECTOR_DATABASE")
    single = {"id": "tea", named: "Ada drinks tea.", "metadata": {"of": "Ada"}}
    assert (await ask("store", input=single))["results"] == [{"id": "tea"}]
    [stored] = (await ask.own("get", ids=["tea"]))["results"]
    assert (stored["text"], stored["metadata"]) == ("Ada drinks tea.", {"of": "Ada"})


async def test_other_values_than_texts_are_stored_as_json() -> None:
    value, written = {"of": None, "is": [True]}, '{"is":[true],"of":null}'
    texts, said, facts = (Asking(kind) for kind in ("VECTOR_DATABASE", "CONVERSATION_BUFFER", "ENTITY_MEMORY"))
    await texts.own("store", id="a", document=value)
    assert (await texts.own("get", ids="a"))["results"][0]["text"] == written
    assert (await said.own("store", message=value))["messages"][0]["content"] == written
    await said("store", messages=[{"role": "user", "content": value}])
    assert (await said.context())["messages"][1]["content"] == written
    answer = await facts.own("store", entity_name="Ada", facts={"likes": value, "writes": True})
    assert answer["facts"] == [f"likes: {written}", "writes: true"]
    assert (await facts.own("store", entity_name="Bob", facts=[value]))["facts"] == [written]


async def test_the_most_similar_texts_come_first_up_to_the_maximum() -> None:
    ask = Asking("VECTOR_DATABASE", similarity_threshold=0.1, max_results=2)
    await ask.own("store", items=["red apples", "red apples and green pears", "red wine", "blue sky"])
    found = await ask.own("search", query="red apples")
    assert [one["text"] for one in found["results"]] == ["red apples", "red apples and green pears"]
    assert found["scores"] == sorted(found["scores"], reverse=True)
    assert found["scores"][0] == 1.0


async def test_an_episode_is_kept_for_each_message_and_once_for_a_repeated_effect() -> None:
    ask = Asking("EPISODIC_MEMORY", similarity_threshold=0.5)
    await ask.say("I like tea")
    await ask.say("I like tea")
    await ask.say("I like tea", again=True)
    assert (await ask.context("like tea"))["context"].count("User: I like tea") == 2


async def test_a_text_is_kept_once_if_the_answer_to_its_write_is_lost() -> None:
    ask = Asking("EPISODIC_MEMORY", AnswerLosingStore(writes=1))
    await ask.say("I like tea")
    assert len(await ask.store.keys("t")) == 1


async def test_vectors_of_another_embedder_are_replaced() -> None:
    class Other(Hashing):
        name = "other"

        async def embed(self, texts: Any, once: str) -> Embeddings:
            return Embeddings([vector[::-1] for vector in (await super().embed(texts, once)).vectors])

    store = InMemory()
    ask = Asking("VECTOR_DATABASE", store)
    await ask.own("store", items=TEXTS)
    ask.memory = Memory(store, always(Other()))
    assert [one["id"] for one in (await ask.own("search", query="which chair is broken?"))["results"]] == ["chair"]


async def test_texts_over_the_maximum_are_cut_in_messages_and_queries() -> None:
    class RecordingEmbedder(Hashing):
        def __init__(self) -> None:
            self.lengths: list[int] = []

        async def embed(self, texts: Any, once: str) -> Embeddings:
            self.lengths += [len(text) for text in texts]
            return await super().embed(texts, once)

    embedder = RecordingEmbedder()
    ask = Asking("EPISODIC_MEMORY")
    ask.memory = Memory(ask.store, always(embedder))
    long = "x" * (text_store.TEXT_CHARS_MAX + 1)
    await ask.say(long)
    await ask.context(long)
    await ask.own("search", query=long)
    assert embedder.lengths == [text_store.TEXT_CHARS_MAX] * 3


async def test_embedding_and_decoding_run_outside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def recording_thread(known: Callable[..., Any]) -> Callable[..., Any]:
        def record_thread(*given: Any) -> Any:
            threads.append(threading.get_ident())
            return known(*given)

        return record_thread

    ask, values = Asking("VECTOR_DATABASE"), Asking("KEY_VALUE_STORE")
    await ask.own("store", items=TEXTS)
    await values.own("set", key="a", value=1)
    monkeypatch.setattr(embedder, "_count_words", recording_thread(embedder._count_words))  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(store_port, "read", recording_thread(read))
    await ask.own("search", query="chair")
    await values.own("keys")
    assert len(threads) == len(TEXTS) + 2
    assert threading.get_ident() not in threads


async def test_the_hashing_embedder_is_deterministic() -> None:
    texts = ["Green tea, please", "green TEA please", "a broken chair", ""]
    [one, same, other, none], *_ = await Hashing().embed(texts, "once")
    assert one == same == pytest.approx(unpack_vector(pack_vector(one)))
    assert cosine(one, one) == pytest.approx(1)
    assert abs(cosine(one, other)) < 0.2
    assert cosine(one, none) == 0
    assert [Hashing().likeness(at) for at in (-1.0, 0.3, 1.0)] == [0.0, 0.7, 1.0]


def test_mentions_are_capitalized_names_outside_sentence_starts() -> None:
    answer = "Hello! Ada Lovelace lives in London. She likes tea, and so do I. What about Bob?"
    assert [name for name, _ in find_mentions(answer)] == ["Ada Lovelace", "London", "Bob"]
    assert find_mentions(answer)[0][1] == "Ada Lovelace lives in London."
    assert find_mentions("nobody is here. The end.") == []


async def test_the_context_has_the_facts_of_the_mentioned_entities() -> None:
    ask = Asking("ENTITY_MEMORY")
    await ask.say("Ada likes tea. Bob is away.")
    await ask.say("Ada likes tea.")
    assert await ask.context("what does ada like?") == {"context": "- Ada: Ada likes tea."}
    assert await ask.context("what about Adam?") == {}
    assert await ask.say("nothing") == {}


async def test_a_node_stores_lists_and_deletes_entities() -> None:
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


async def test_the_numbers_of_entities_and_facts_are_limited() -> None:
    ask = Asking("ENTITY_MEMORY")
    await ask.own("store", entity_name="First", facts=[str(number) for number in range(FACTS_MAX + 1)])
    stored = (await ask.own("retrieve", entity_name="First"))["facts"]
    assert (len(stored), stored[0]) == (FACTS_MAX, "1")
    for number in range(ENTITIES_MAX):
        await ask.own("store", entity_name=f"E{number}", facts=["x"])
    assert len((await ask.own("list"))["entities"]) == ENTITIES_MAX
    assert (await ask.own("retrieve", entity_name="First"))["facts"] == []


@pytest.mark.parametrize("sign", ["Ä", "\x01"])
async def test_the_maximum_number_of_longest_facts_fits(sign: str) -> None:
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
