"""Values with sets: equal values have equal JSON, whatever the order of the sets in the process."""

import enum
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

import attrs
import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, SerializeAsAny, computed_field, field_serializer

from callboard import ask, child, set_state, step, workflow
from callboard.bus import events as ev
from callboard.bus.subjects import RunRef
from callboard.languages.python.values import codec, plain_json
from callboard.languages.registry import language
from callboard.runtime.interpreter.replay import read_admission
from callboard.service.operations.replays import replay_events
from callboard.testing import Scenario
from tests.support.scenarios import find_payload

WORDS = [f"{letter}{n}" for letter in "qwertyuiop" for n in (2, 1)]
"""So many that a set never has them in the right order by chance."""
SORTED = sorted(WORDS)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"
    GREEN = "green"
    WHITE = "white"


class Item(BaseModel):
    model_config = ConfigDict(extra="allow")
    tags: set[str] = Field(alias="TAGS")
    anything: Any = None

    @computed_field
    @property
    def derived(self) -> set[str]:
        return set(self.tags)


class Key(BaseModel, frozen=True):
    of: frozenset[str]


class Words(RootModel[set[str]]):
    pass


class Written(BaseModel):
    tags: set[str]

    @field_serializer("tags")
    def _write(self, tags: set[str]) -> Any:
        return tags


class Held(BaseModel):
    item: SerializeAsAny[BaseModel]


@dataclass(frozen=True, slots=True)
class Parcel:
    tags: frozenset[str]


class Packed(msgspec.Struct, frozen=True, rename="camel"):
    the_tags: frozenset[str]
    more: Any = None


@attrs.define
class Box:
    tags: set[str]


class Described(TypedDict):
    tags: set[str]


class Pair(NamedTuple):
    tags: set[str]


def words() -> set[str]:
    return set(WORDS)


ITEM = {"TAGS": SORTED, "anything": {"words": SORTED}, "more": SORTED, "derived": SORTED}


def item() -> Item:
    return Item(TAGS=words(), anything={"words": Words(words())}, more=words())  # type: ignore[call-arg]  # pyright: ignore


VALUES: list[tuple[Any, Any, Any]] = [
    (set[str], words(), SORTED),
    (Any, words(), SORTED),
    (object, frozenset(WORDS), SORTED),
    (set[str] | None, words(), SORTED),
    (Set[str], words(), SORTED),
    (Iterable[str], words(), SORTED),
    (set[int], {10, 9, 2**40, -3}, [-3, 9, 10, 2**40]),
    (Any, {10, 2.5, "b", "a", None}, [2.5, 10, "a", "b", None]),
    (set[Colour], set(Colour), ["blue", "green", "red", "white"]),
    (frozenset[frozenset[str]], frozenset(frozenset({word, "a"}) for word in WORDS), [["a", w] for w in SORTED]),
    (set[Key], {Key(of=frozenset({word, "a"})) for word in WORDS}, [{"of": ["a", word]} for word in SORTED]),
    (Any, {Key(of=frozenset({word, "a"})) for word in WORDS}, [{"of": ["a", word]} for word in SORTED]),
    (dict[str, list[set[str]]], {"b": [words()], "a": []}, {"b": [SORTED], "a": []}),
    (Any, {"b": [words()], "a": (words(),)}, {"b": [SORTED], "a": [SORTED]}),
    (Item, item(), ITEM),
    (Any, [item()], [ITEM]),
    (Held, Held(item=item()), {"item": ITEM}),
    (Words, Words(words()), SORTED),
    (Written, Written(tags=words()), {"tags": SORTED}),
    (Parcel, Parcel(frozenset(WORDS)), {"tags": SORTED}),
    (Any, Parcel(frozenset(WORDS)), {"tags": SORTED}),
    (Packed, Packed(frozenset(WORDS)), {"theTags": SORTED, "more": None}),
    (Any, Packed(frozenset(), [Box(words())]), {"theTags": [], "more": [{"tags": SORTED}]}),
    (Described, {"tags": words()}, {"tags": SORTED}),
    (Pair, Pair(words()), [SORTED]),
    (Any, Pair(words()), [SORTED]),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), VALUES)
def test_sets_are_written_in_one_order(annotation: Any, value: Any, expected: Any) -> None:
    found = codec(annotation).encode(value)
    assert found == expected
    assert msgspec.json.encode(found) == msgspec.json.encode(expected), "the members are in another order"


def test_lists_and_members_keep_their_order() -> None:
    assert codec(set[int] | list[int]).encode([3, 1, 2]) == [3, 1, 2]
    assert list(plain_json({"b": {2, 1}, "a": [2, 1]})) == ["b", "a"]


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(RecursionError):
        plain_json(value)


@dataclass
class Order:
    tags: set[str] = field(default_factory=set[str])


@step
async def tag(order: Order) -> Order:
    return Order(order.tags | set(WORDS))


@workflow
async def inner(tags: set[str]) -> set[str]:
    return tags


@workflow
async def tagging(order: Order) -> dict[str, Any]:
    order = await tag(await tag(order))
    set_state({"tags": order.tags})
    await ask("Which?", options=order.tags, data=order)  # type: ignore[call-overload]  # pyright: ignore
    return {"tags": order.tags}


@workflow
async def starting(order: Order) -> None:
    await child(inner, order.tags)


def test_the_requests_of_a_run_have_their_sets_in_order(scenario: Scenario) -> None:
    scenario.start(tagging, input={"tags": ["b", "a"]})
    scenario.answer(SORTED[0])
    assert scenario.result.output == {"tags": sorted({*WORDS, "a", "b"})}
    found = sorted({*WORDS, "a", "b"})
    calls = [one.request["arguments"]["order"]["tags"] for one in scenario.payloads("effect.call")]  # type: ignore[attr-defined]  # pyright: ignore
    assert calls == [["a", "b"], found]
    (state,) = [one.data for one in scenario.payloads("node.progress")]  # type: ignore[attr-defined]  # pyright: ignore
    assert state == {"tags": found}
    asked = find_payload(scenario, ev.HumanAsked)
    assert (asked.options, asked.request_data) == (found, {"data": {"tags": found}})


def test_the_input_of_a_child_has_its_sets_in_order(scenario: Scenario) -> None:
    scenario.start(starting, input={"tags": WORDS})
    started = find_payload(scenario, ev.ChildStart)
    assert started.input == {"tags": SORTED}


class Plain:
    def __init__(self, name: str) -> None:
        self.name = name


@workflow
async def failing(name: str) -> None:
    raise LookupError(f"none of {words()} is {Plain(name)}")


def test_a_failure_has_no_addresses_and_is_the_same_in_another_process(scenario: Scenario) -> None:
    scenario.start(failing, input={"name": "x"})
    error = scenario.result.error
    events = scenario.events
    assert error is not None
    assert " at 0x" not in error.message
    elsewhere = [_as_in_another_process(event) for event in events]
    assert elsewhere != events
    replay_events(RunRef("default", "run-1"), elsewhere, read_admission(events[0], language), {})


def _as_in_another_process(event: ev.Event) -> ev.Event:
    """Return an event whose message has the set in another order."""
    payload = bytes(event.payload)
    start, end = payload.find(b"{'"), payload.find(b"'}")
    if start < 0:
        return event
    turned = b"{" + b", ".join(reversed(payload[start + 1 : end + 1].split(b", "))) + b"}"
    return msgspec.structs.replace(event, payload=msgspec.Raw(payload[:start] + turned + payload[end + 2 :]))


@workflow
async def asking_about() -> None:
    data = dict.fromkeys(("b", "a"), 1)
    set_state({"data": data})
    await ask("Go on?", bool, data=data)


@pytest.mark.parametrize("event_type", ["node.progress", "human.asked"])
def test_a_dictionary_with_its_members_in_another_order_is_the_same(event_type: str) -> None:
    with Scenario() as run:
        run.start(asking_about)
        events = run.events
    elsewhere = [_reversed(event) if event.type == event_type else event for event in events]
    assert elsewhere != events
    replay_events(RunRef("default", "run-1"), elsewhere, read_admission(events[0], language), {})


def _reversed(event: ev.Event) -> ev.Event:
    """Return an event with the members of its data in the order of another process."""
    payload = bytes(event.payload)
    assert b'"b":1,"a":1' in payload
    return msgspec.structs.replace(event, payload=msgspec.Raw(payload.replace(b'"b":1,"a":1', b'"a":1,"b":1')))
