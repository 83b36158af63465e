"""The encoding of events: one golden line per event type, byte for byte, and the guarantees for readers.

The lines of ``golden/events.jsonl`` never change while `SCHEMA_VERSION` is the same, as old logs contain such lines.
"""

import datetime as dt
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Raw

from callboard.bus import events as ev
from callboard.bus.effects import (
    Choice,
    Failure,
    Message,
    ModelUsage,
    Recall,
    Text,
    ToolOutput,
    ToolSpec,
    ToolUse,
    Usage,
)
from tests.support.places import TESTS

GOLDEN = TESTS / "golden" / "events.jsonl"
AT = dt.datetime(2026, 11, 20, 11, 0, 0, 1, tzinfo=dt.UTC)
FAILURE = Failure("flaky.down", "no answer", "error", {"status": 503}, True, Failure("first"), "main/fetch")
USAGE = Usage(10, 5, 4, 1)
MODEL = ModelUsage("anthropic:claude-1", USAGE, 200_000)
MESSAGES = [
    Message("user", [Text("Count."), Recall("gather#1", "/result/data")]),
    Message("assistant", [ToolUse("call_1", "search", {"q": 1})]),
    Message("user", [ToolOutput("call_1", "gather#1.1!tool.1.0"), ToolOutput("call_2", None, {"x": 1}, FAILURE)]),
]
TOOL = ToolSpec("search", "Search.", {"type": "object"}, "files")

EXAMPLES: list[ev.Payload] = [
    ev.RunAccepted(
        definition=ev.DefinitionRef("flow", "0f", "{}", "triage"),
        start={"definition": {"language": "flow"}, "input": 7},
        outline=ev.Outline([ev.OutlineNode("a", "A", "FLOW", "IF")], [ev.OutlineEdge("a", "b", "yes")]),
        breakpoints=["a"],
        limits={"deadline_s": 60},
        seed="5eed",
        forked_from=ev.ForkedFrom("r0", 3),
        parent=ev.Parent("r0", "a#1.1!call", 2),
    ),
    ev.RunRejected([ev.Problem("x.bad", "bad", "steps.a", 1, 2, "a number", "warning")], "answer", "m1"),
    ev.RunClaimed("w1", 2),
    ev.RunParked(["a#1.1!ask"], AT, "waiting:human"),
    ev.RunStart("triage", {"x": 1}, {"y": 2}, {"z": 3}, "r1", ev.Environment(default_model="scripted")),
    ev.SourcesResolved({"a.instruction": {"content": "Do.", "kind": "inline"}}),
    ev.RunPaused("breakpoint", "1", "Ada", "Lunch.", AT),
    ev.RunResumed({"x": 1}, "Ada"),
    ev.CancelRequested("late", "Ada", "Thanks.", {"x": 1}, True),
    ev.CommandRefused("answer", "answer.late", "too late", "m1"),
    ev.RunFailed(FAILURE),
    ev.RunEnd("failed", {"x": 1}, [1], FAILURE, USAGE),
    ev.NodeEnter("step", "a", "A", "Do it.", {"x": 1}, AT),
    ev.NodeExit("skipped", {"data": 1}, FAILURE, {"told": 1}),
    ev.NodeRetry("a", 1, "too few", "Again.", {"times": 3}, 1.5, FAILURE),
    ev.Route("a", "b", "yes", 1, "true", 2),
    ev.NodeProgress("a", "halfway", "half", {"done": 1}),
    ev.NodeWarning("a", "keys.missing", "no such key", ["x"]),
    ev.ModelCall(
        "judge",
        "anthropic:claude",
        "d1",
        "anthropic",
        "a#1.1!turn.1",
        "Be brief.",
        MESSAGES,
        [TOOL],
        {"type": "object"},
        [Choice("yes", "go on")],
        "is_good",
        100,
        0.5,
    ),
    ev.ModelResult(
        text="text",
        data={"x": 1},
        tool_calls=[ToolUse("c", "t", 1)],
        usage=USAGE,
        stop_reason="tool_use",
        response_id="id",
        response_model="claude-1",
        provider="anthropic",
        first_chunk_ms=1.5,
        tries=2,
        error=FAILURE,
    ),
    ev.ToolCall("a", "search", {"q": 1}, "call_1", "files", "caller"),
    ev.ToolResult("a", "search", {"hits": 1}, FAILURE),
    ev.EffectCall("http", "a", {"url": "http://x"}, "d2"),
    ev.EffectResult({"status": 200}, FAILURE, {"ms": 1}),
    ev.TimerSet(AT, "retry"),
    ev.TimerFired(AT),
    ev.ClockRead(AT),
    ev.HumanAsked("Who?", "select", ["Ada"], "slack", {"x": 1}, AT, "reject"),
    ev.HumanAnswered("a#1.1!ask", 1, "Ada", {"x": 1}, "Ada", "web"),
    ev.HumanClosed("answered", 1, "approved"),
    ev.SignalAwaited("morning", {"x": 1}, AT),
    ev.SignalReceived("morning", {"x": 1}, "Ada"),
    ev.ChildStart({"name": "triage"}, "r2", {"x": 1}, {"model": "scripted"}),
    ev.ChildEnd("completed", 1, [2], FAILURE, USAGE),
    ev.EffectCancelled("tool.call", FAILURE),
    ev.RunQuarantined("log.unreadable", 57, "cb.run.acme.r1.triage.node.enter", "JSON is malformed"),
    ev.ChildUsage("r2", [MODEL], 3),
    ev.RunReleased("w1"),
    ev.RunDiverged("replay.diverged", "event 7 records a, and this replay asks for b", 7, "w1", "0.1.0"),
    ev.RunAdopted("w1", "ab" * 32, "cd" * 32),
    ev.CodeMarked("new-tax"),
]


WARNED = [ev.Warned("SKILL_UNAVAILABLE", "no key", "a", 2, "r3", "nodes.a.skills[0]")]

ADDED: dict[str, dict[str, Any]] = {
    "human.asked": {"schema": {"enum": ["Ada"]}},
    "run.accepted": {
        "warnings": [ev.Problem("SKILL_UNAVAILABLE", "no key", "nodes.a.skills[0]", severity="warning")],
        "trace": ev.Traced("5703e", "acme", "00-0af7-b7ad-01", "a=1"),
        "tags": {"customer": "acme"},
        "encryption_key": "ada",
        "continues": ev.Continues("r0", [ev.CarriedSignal("go", 1, "ada")], USAGE, [MODEL], "first", 2),
    },
    "run.claimed": {"version": "0.1.0", "process": "fcf42a8a9f100457.4711.8675309"},
    "run.parked": {"waits_for": "anthropic:claude-1 (model.rate_limited)"},
    "model.result": {
        "model": "anthropic:claude-1",
        "requests": [USAGE],
        "unmetered": True,
        "native": {"x": 1},
        "thought": "sealed",
    },
    "run.rejected": {"cause": 7, "schedule": "nightly"},
    "run.resumed": {"step": True},
    "cancel.requested": {"code": "budget"},
    "model.call": {"parameters": {"top_p": 0.9}, "retooled": True},
    "tool.call": {
        "responses": {"r": {"action": "accept"}},
        "state": "s",
        "earlier": [{"q": {"action": "accept"}}],
        "own_name": "find",
    },
    "tool.result": {"asks": {"requests": {}, "state": "s"}, "listings": {"a#1.1!toolbox": [TOOL]}},
    "effect.result": {"model": "openai:text-embedding-3-small", "requests": [USAGE], "unmetered": True},
    "run.end": {
        "warnings": WARNED,
        "models": [MODEL],
        "successor": ev.Successor("r2", {"left": 1}, [ev.CarriedSignal("go", 1, "ada")]),
    },
    "run.diverged": {
        "entry": "triage:triage",
        "digest": "ab" * 32,
        "difference": ev.Difference("a#1.1!step", "effect.call {}", "triage.py:3 f", "timer.set {}", "triage.py:4 f"),
        "performed": "cd" * 32,
    },
    "child.end": {"warnings": WARNED, "models": [MODEL]},
    "human.answered": {"roles": ["cfo"], "proven": True},
}
"""Members that payloads have got since their golden lines were written."""


def event_of(n: int, payload: ev.Payload) -> ev.Event:
    """An event with a whole envelope around a payload."""
    return ev.Event(
        type=payload.type,
        run="r1",
        n=n,
        epoch=1,
        v=ev.SCHEMA_VERSION,
        time=AT,
        path="main/fan-out[3]",
        definition="triage",
        iteration=2,
        attempt=3,
        key="main/fan-out[3]#2.3!turn.1",
        cause=17,
        blobs=["0f"],
        payload=Raw(ev.encode_payload(payload)),
    )


def test_there_is_an_example_of_every_type() -> None:
    assert [type(payload) for payload in EXAMPLES] == list(get_args(ev.Payload))
    for payload in EXAMPLES:
        defaults = {name for name in payload.__struct_fields__ if not getattr(payload, name)}
        assert defaults == ADDED.get(payload.type, {}).keys(), f"{payload.type}: the example leaves {defaults} out"


@pytest.mark.parametrize("event_type", ADDED)
def test_new_members_of_events_come_after_the_old_ones(event_type: str) -> None:
    [before] = [payload for payload in EXAMPLES if payload.type == event_type]
    grown = msgspec.structs.replace(before, **ADDED[event_type])
    line = ev.encode_payload(grown)
    assert line.startswith(ev.encode_payload(before)[:-1] + b",")
    assert ev.decode_payload(event_type, line) == grown


@pytest.mark.parametrize(("n", "payload"), list(enumerate(EXAMPLES, 1)), ids=lambda item: getattr(item, "type", ""))
def test_each_event_type_encodes_as_its_golden_line(n: int, payload: ev.Payload) -> None:
    line = GOLDEN.read_bytes().splitlines()[n - 1]
    event = event_of(n, payload)
    assert ev.encode_event(event) == line
    read = ev.decode_event(line)
    assert msgspec.structs.replace(read, payload=event.payload) == event
    assert ev.payload_of(read) == payload
    assert ev.decode_payload(read.type, bytes(read.payload)) == payload
    assert ev.encode_event(read) == line


@pytest.mark.parametrize("payload", EXAMPLES, ids=lambda payload: payload.type)
def test_readers_ignore_unknown_members(payload: ev.Payload) -> None:
    document = msgspec.json.decode(ev.encode_event(event_of(1, payload)))
    document["from_the_future"] = document["payload"]["from_the_future"] = {"x": 1}
    read = ev.decode_event(msgspec.json.encode(document))
    assert ev.payload_of(read) == payload


def test_the_envelope_omits_default_members() -> None:
    event = ev.Event(type="run.claimed", run="r", n=1, epoch=1, v=1, time=AT, path="", payload=Raw(b"{}"))
    assert set(msgspec.json.decode(ev.encode_event(event))) == {
        "type",
        "run",
        "n",
        "epoch",
        "v",
        "time",
        "path",
        "payload",
    }


def test_every_intent_has_its_outcome() -> None:
    intents = {kind for kind in ev.TYPES.values() if kind.kind == "intent"}
    outcomes = {kind for kind in ev.TYPES.values() if kind.kind == "outcome"}
    assert set(ev.OUTCOME_OF) == intents
    assert {*ev.OUTCOME_OF.values(), ev.EffectCancelled} == outcomes
    assert len(ev.TYPES) == len(get_args(ev.Payload))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"type":"run.end"}', b'{"type":1'])
def test_invalid_event_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        ev.decode_event(data)


def test_an_unknown_type_and_a_wrong_payload_are_refused() -> None:
    with pytest.raises(KeyError):
        ev.decode_payload("run.sang", b"{}")
    with pytest.raises(msgspec.ValidationError):
        ev.decode_payload("run.end", b'{"status":"sung"}')
    assert (
        ev.decode_event(
            b'{"type":"run.sang","run":"r","n":1,"epoch":0,"v":9,"time":"2026-11-20T11:00:00Z",'
            b'"path":"","payload":{"x":[1]}}'
        ).type
        == "run.sang"
    )


def test_a_problem_reads_as_a_sentence() -> None:
    problem = ev.Problem("flow.type", "not a number", "steps.a.wait", 3, 5, "seconds")
    assert str(problem) == "flow.type steps.a.wait: not a number; expected seconds (line 3)"
    assert str(ev.Problem("x", "y")) == "x y"
