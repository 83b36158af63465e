"""The stream of a playbook has all content, done and error messages in order, however the pieces arrive."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.bus import events as ev
from callboard.bus.commands import Resume
from callboard.bus.effects import Failure
from callboard.bus.events import Event
from callboard.projections.results.playbook import PlaybookStream
from callboard.projections.trace.live_stream import Piece, StreamEvent, StreamFilter
from callboard.runtime.client.client import UnknownRun
from callboard.runtime.client.connection import open_connection
from callboard.runtime.client.run_stream import stream
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support.playbook_cases import block, doc, says, steps, sub
from tests.support.playbooks import Play, perform
from tests.support.worker_processes import PATIENCE_S

LONG = "".join(f"word {n} " for n in range(50))
SOURCE = doc(steps("a", "@tool(s, t)", block(('if x == ""', sub("3a", "b"))), '@elicit(confirm, "?")'))
PLAY = Play(
    SOURCE,
    turns={"1": [{"text": LONG, "usage": {"input_tokens": 7, "output_tokens": 50}}], "3a": ["Short."]},
    tools={"t": [{"output": "T"}]},
    start={"options": {"autonomous": True}},
)


def pieces(event: Event, text: str, size: int = 40, epoch: int | None = None) -> list[Piece]:
    """Return the pieces of a text that a model streams for a call."""
    cut = [text[at : at + size] for at in range(0, len(text), size)]
    return [Piece(event.n, epoch or event.epoch, k, event.path, part) for k, part in enumerate(cut)]


def feed(merged: PlaybookStream, items: list[Event | Piece]) -> list[StreamEvent]:
    return [
        message for item in items for message in (merged.piece(item) if isinstance(item, Piece) else merged.event(item))
    ]


def with_pieces(events: list[Event]) -> list[Event | Piece]:
    """Return a log with the pieces of each turn between its call and its result."""
    found: list[Event | Piece] = []
    for event in events:
        found.append(event)
        if event.type == ev.ModelCall.type:
            found += pieces(event, LONG if event.path == "1" else "Short.")
    return found


def read_text(messages: list[StreamEvent], step: str) -> str:
    """Return the text of a step that a client has read at the end."""
    text = ""
    for one in messages:
        if one.type == "content" and one.step == step:
            text = (one.text or "") if one.reset else text + (one.text or "")
    return text


def check_whole(messages: list[StreamEvent]) -> None:
    """Check the order and the texts of the stream of `PLAY`, however its pieces came."""
    ends = [(one.step, one.type) for one in messages if one.type != "content"]
    assert ends == [("1", "done"), ("2", "done"), ("3a", "done"), ("3", "done"), ("4", "done")]
    assert (read_text(messages, "1"), read_text(messages, "3a")) == (LONG, "Short.")
    assert {one.step for one in messages if one.type == "content"} == {"1", "3a"}
    for step in ("1", "3a"):
        of_step = [one.type for one in messages if one.step == step]
        assert of_step[-1] == "done"
        assert set(of_step[:-1]) == {"content"}
    places = [(one.step, one.type) for one in messages]
    assert places.index(("3a", "content")) > places.index(("2", "done"))


EVENTS = perform(PLAY).events


def test_content_comes_before_done() -> None:
    messages = feed(PlaybookStream(), with_pieces(EVENTS))
    check_whole(messages)
    assert len([one for one in messages if one.step == "1"]) == len(LONG) // 40 + 2
    done = next(one for one in messages if one.type == "done")
    assert (done.status, done.output, done.input_tokens, done.output_tokens) == ("completed", LONG, 7, 50)
    assert done.latency_ms is not None


def test_an_answer_that_is_only_in_the_log_is_one_message() -> None:
    messages = feed(PlaybookStream(), list(EVENTS))
    check_whole(messages)
    assert [one.id for one in messages if one.type == "content"] == [
        f"{event.n}.{len(text)}"
        for event, text in zip((e for e in EVENTS if e.type == ev.ModelCall.type), (LONG, "Short."), strict=True)
    ]


def test_content_comes_after_the_end_of_the_previous_step() -> None:
    events = perform(Play(doc(steps("a", "b")), turns=says(s1="A", s2="B"))).events
    calls = [event for event in events if event.type == ev.ModelCall.type]
    ahead = [piece for call in calls for piece in pieces(call, "A" if call.path == "1" else "B")]
    messages = feed(PlaybookStream(), [*ahead, *events])
    ends = [("1", "content"), ("1", "done"), ("2", "content"), ("2", "done")]
    assert [(one.step, one.type) for one in messages] == ends
    # The text before a call is shown with the call, and not again with the result.
    merged = PlaybookStream()
    at = events.index(calls[1])
    before = feed(merged, [*events[:at], *pieces(calls[1], "B")])
    assert [one.type for one in before] == ["content", "done"]
    assert [(one.step, one.text) for one in feed(merged, list(events[at:])) if one.type == "content"] == [("2", "B")]


def test_a_late_reader_gets_the_text_of_a_failed_turn() -> None:
    turns = {"1": ["A"], "2": [{"error": "overloaded", "progress": ["half ", "an answer"]}]}
    events = perform(Play(doc(steps("a", "b")), turns=turns)).events
    messages = feed(PlaybookStream(), list(events))
    assert [(one.step, one.type) for one in messages][2:] == [("2", "content"), ("2", "error")]
    assert read_text(messages, "2") == "half an answer"
    call = [event for event in events if event.type == ev.ModelCall.type][1]
    at = events.index(call) + 1
    live = feed(PlaybookStream(), [*events[:at], *pieces(call, "half an answer", size=5), *events[at:]])
    assert read_text(live, "2") == "half an answer"
    assert not any(one.reset for one in live)
    # The pieces of earlier tries are shown, and then replaced.
    tries = feed(PlaybookStream(), [*events[:at], *pieces(call, "an earlier try. half an answer"), *events[at:]])
    assert (read_text(tries, "2"), [one.reset for one in tries].count(True)) == ("half an answer", 1)


def test_a_turn_after_a_failed_one_replaces_its_text() -> None:
    events = perform(Play(doc(steps("a")), turns=says(s1="Whole."))).events
    call = next(event for event in events if event.type == ev.ModelCall.type)
    at = events.index(call)
    key = f"{call.key}.earlier"
    first = msgspec.structs.replace(call, n=call.n - 1000, key=key)
    failed = msgspec.Raw(ev.encode_payload(ev.ModelResult(text="Half", error=Failure("model.rate_limited"))))
    result = msgspec.structs.replace(first, n=call.n - 999, type=ev.ModelResult.type, payload=failed)
    messages = feed(PlaybookStream(), [*events[:at], first, result, *events[at:]])
    assert [(one.text, one.reset) for one in messages if one.type == "content"] == [("Half", False), ("Whole.", True)]


def test_a_failing_step_ends_with_an_error() -> None:
    events = perform(Play(doc(steps("a", "b")), turns={"1": ["A"], "2": [{"error": "overloaded"}]})).events
    messages = feed(PlaybookStream(), list(events))
    assert [(one.step, one.type) for one in messages] == [("1", "content"), ("1", "done"), ("2", "error")]
    assert (messages[-1].code, messages[-1].message) == ("model.overloaded", "scripted")


def test_a_skipped_step_is_done() -> None:
    events = perform(Play(doc(steps(block(('if x == "y"', sub("1a", "a"))), "b")), turns=says(s2="B"))).events
    messages = feed(PlaybookStream(), list(events))
    assert [(one.step, one.type, one.status) for one in messages if one.type == "done"] == [
        ("1", "done", "skipped"),
        ("2", "done", "completed"),
    ]


def test_a_repeated_turn_replaces_its_text() -> None:
    call = next(event for event in EVENTS if event.type == ev.ModelCall.type)
    at = EVENTS.index(call) + 1
    again = [*pieces(call, "something else"), *pieces(call, LONG, epoch=7)]
    messages = feed(PlaybookStream(), [*EVENTS[:at], *again, *EVENTS[at:]])
    check_whole(messages)
    assert [one.reset for one in messages if one.step == "1"].count(True) == 1


@given(st.data())
def test_a_stream_is_complete_and_in_order_if_pieces_are_lost_late_or_early(data: st.DataObject) -> None:
    items = with_pieces(EVENTS)
    kept: list[Event | Piece] = []
    for item in items:
        if isinstance(item, Event):
            kept.append(item)
        elif data.draw(st.booleans()):
            # Events of the log and live messages arrive in any order.
            kept.insert(len(kept) - data.draw(st.integers(0, min(3, len(kept)))), item)
    messages = feed(PlaybookStream(), kept)
    check_whole(messages)
    count = data.draw(st.integers(0, len(messages)))
    if count and not any(one.reset for one in messages):
        onward = StreamFilter.behind(messages[count - 1].id)
        rest = [new for one in feed(PlaybookStream(), list(EVENTS)) if (new := onward.new(one)) is not None]
        for step in ("1", "3a"):
            assert read_text([*messages[:count], *rest], step) == read_text(messages, step)
        ends = [(one.step, one.type) for one in [*messages[:count], *rest] if one.type != "content"]
        assert ends == [(one.step, one.type) for one in messages if one.type != "content"]


@pytest.mark.parametrize("pieces_max", [1, 1000])
async def test_a_slow_reader_delays_no_run_and_reads_the_whole_stream(tmp_path: Path, pieces_max: int) -> None:
    config = load({"data_dir": tmp_path, "sync": "100ms"}, env={}, cwd=tmp_path)
    words = [f"word {n} " for n in range(200)]
    script: dict[str, Any] = {"turns": {"1": [{"text": "".join(words), "progress": words}], "2": [{"text": "B"}]}}
    message: dict[str, Any] = {
        "definition": {"source": doc(steps("a", "b"))},
        "run_id": "slow",
        "model": "scripted",
        "script": script,
        "breakpoints": ["1"],
    }
    async with open_connection(config) as connection, open_worker(connection, env={}):
        client = connection.client
        with pytest.raises(UnknownRun):
            async with stream(client, "slow"):
                pass
        await client.start(message)
        messages: list[StreamEvent] = []
        with anyio.fail_after(PATIENCE_S):
            async with stream(client, "slow", pieces_max=pieces_max) as feed_:
                async with client.follow("slow") as events:
                    async for recorded in events:
                        if recorded.event.type == ev.RunPaused.type:
                            break
                # The run has come this far although nothing has been read.
                await client.tell("slow", "resume", Resume())
                async for one in feed_:
                    messages.append(one)
    assert read_text(messages, "1") == "".join(words)
    assert [(one.step, one.type) for one in messages if one.type == "done"] == [("1", "done"), ("2", "done")]
