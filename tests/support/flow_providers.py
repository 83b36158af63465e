"""Helpers of tests of providers: requests, flows of one call, runs that crash at every append."""

import datetime as dt
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from callboard.actors.providers.provider import Answer, Request
from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.bus.log.port import Entry
from callboard.lib.json_types import JSON
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog, CrashPoint
from callboard.testing.virtual_time import simulate
from tests.support.flows import SCHEMA, FlowTheatre, result_of
from tests.support.simulation import World, finish
from tests.support.sweeps import select

ASKED_AT = dt.datetime(2026, 11, 20, 11, tzinfo=dt.UTC)

RETRY = "mwl:provider.middleware/mwl/retry/v1"


def ours(name: str) -> str:
    """The URI of one of Callboard's call providers."""
    return f"mwl:provider.call/callboard/{name}/v1"


def request(uri: str, input: JSON = None, key: str = "key-1", **arguments: Any) -> Request:
    return Request(uri, arguments, input, key, "r1", "main/a:call", ASKED_AT)


def value_of(answer: Answer) -> Any:
    """The value of a success."""
    assert answer.result["type"] == "success", answer
    return answer.result["value"]


def code_of(answer: Answer) -> str:
    """The last segment of a failure's code."""
    assert answer.result["type"] != "success", answer
    return answer.result["code"].rpartition(".")[2]


def flow_of(uri: str, **arguments: Any) -> dict[str, Any]:
    """A flow that makes one call in its step ``a``; it returns the value or failure, and the provider's metadata."""
    made: dict[str, Any] = {
        "provider": uri,
        "with": arguments,
        "onSuccess": {"assign": {"seen": "{{ provider.metadata }}"}},
        "onFailure": {"assign": {"seen": "{{ provider.metadata }}"}},
    }
    return {
        "$schema": SCHEMA,
        "entrypoint": "a",
        "parameters": {"type": "object", "properties": {"seen": {"default": {}}}},
        "steps": {
            "a": {"action": "Call", "call": made, "next": "done", "catch": [_caught()]},
            "done": {"action": "Return", "value": {"value": "{{ step.input }}", "metadata": "{{ vars.seen }}"}},
            "failed": {"action": "Return", "value": {"failure": "{{ failure }}", "metadata": "{{ vars.seen }}"}},
        },
    }


def _caught() -> dict[str, Any]:
    return {"match": {"codes": ["*"]}, "next": "failed"}


Made = Callable[[CrashingLog], FlowTheatre]


async def played(
    harness: FlowTheatre, flow: dict[str, Any], input: JSON = None, world: World | None = None
) -> tuple[dict[str, Any], list[Event]]:
    """Run a flow to its end, check its log and its replay; return what `flow_of` returns, and the events."""
    ref = await harness.begin(flow, input)
    events = await finish(harness, ref, world or World())
    check_log(events)
    check_replay(harness.language, ref, events)
    result = result_of(events)
    assert result["type"] == "success", result
    return result["value"], events


async def crashing_everywhere(
    made: Made, flow: dict[str, Any], check: Callable[[dict[str, Any]], Awaitable[None] | None], **names: Any
) -> int:
    """Run a flow again and again, each time dying once, around another append; return how many there are.

    The log is the same before an append and after the previous one, so one of the two is tested at each boundary.
    """
    appended: list[str] = []

    def counted(entry: Entry) -> CrashPoint:
        appended.append(entry.type)
        return None

    log = CrashingLog()
    log.crash = counted
    value, _events = await played(made(log), flow, **names)
    check(value)
    for n in select([*itertools.pairwise([*appended, ""])]):
        log = CrashingLog()
        log.crash = _once(n, "after") if n % 2 == 0 or n == len(appended) else _once(n + 1, "before")
        value, _events = await played(made(log), flow, **names)
        check(value)
    return len(appended)


def simulate_flow(
    harness: FlowTheatre, flow: dict[str, Any], input: JSON = None, world: World | None = None
) -> tuple[dict[str, Any], list[Event]]:
    """Run a flow in virtual time, as `played` does."""
    ends: list[tuple[dict[str, Any], list[Event]]] = []

    async def body() -> None:
        ends.append(await played(harness, flow, input, world))

    simulate(body)
    [end] = ends
    return end


def simulate_crashes(make: Made, flow: dict[str, Any], value: JSON, **names: Any) -> int:
    """Run a flow in virtual time with a crash at every append; each run must return the same output, with ``value``.

    Return the number of appends.
    """
    counts: list[int] = []
    outputs: list[dict[str, Any]] = []

    async def body() -> None:
        counts.append(await crashing_everywhere(make, flow, outputs.append, **names))

    simulate(body)
    assert outputs == [outputs[0]] * len(outputs)
    assert outputs[0]["value"] == value
    [count] = counts
    return count


def payloads_of(events: list[Event], payload: type[Any]) -> list[Any]:
    """Return the payloads of a type."""
    return [ev.payload_of(event) for event in events if event.type == payload.type]


def _once(at: int, point: CrashPoint) -> Callable[[Entry], CrashPoint]:
    seen = 0

    def crash(_entry: Entry) -> CrashPoint:
        nonlocal seen
        seen += 1
        return point if seen == at else None

    return crash
