"""Reports of a run from its events: its state, and pages of its events."""

from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.events import Event, Problem
from callboard.bus.log.port import whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.subjects import RunRef
from callboard.projections.lists.question_data import without_repetitions
from callboard.projections.projection import known_payload
from callboard.projections.run.run_result import OpenEffect
from callboard.runtime.client.client import Client, UnknownRun
from callboard.service.operations.event_filter import matches
from callboard.service.operations.narration import narrate
from callboard.service.operations.results import event_object, path_of, result_of
from callboard.surfaces.mcp.answers import Page, Run, Seen, Waiting
from callboard.surfaces.mcp.arguments import WatchRun

PAGE_BYTES_MAX = 256 * 1024
"""A page of whole events ends before the event that would make it larger than this; it has one event at least."""


def run_of(events: Sequence[Event]) -> Run:
    """Return the state of a run from its events."""
    result = result_of(events)
    ended = events[-1].type == ev.RunEnd.type
    by_n = {event.n: event for event in events}
    return Run(
        run_id=result.run,
        status=result.status,
        ended=ended,
        definition=result.definition,
        continued_as=result.continued_as,
        output=result.output,
        results=result.results,
        error=result.error,
        cause=result.cause,
        failures=result.failures,
        warnings=[Problem(one.code, one.reason, one.where or one.path, severity="warning") for one in result.warnings],
        usage=result.usage,
        path=path_of(events),
        # Once the run has ended, the results contain the same.
        nodes=[] if ended else list(result.nodes.values()),
        waits_for=[_waiting(effect, by_n[effect.n]) for effect in result.open if not _at_work(by_n[effect.n])],
    )


def _at_work(event: Event) -> bool:
    """Whether an open effect is work that the worker performs, rather than something external to wait for."""
    match known_payload(event):
        case ev.ModelCall() | ev.EffectCall() | ev.ToolCall(via="worker"):
            return True
        case _:
            return False


def _waiting(effect: OpenEffect, event: Event) -> Waiting:
    more: dict[str, Any] = {}
    match known_payload(event):
        case ev.HumanAsked() as asked:
            about = without_repetitions(asked.request_data, asked.question)
            more = {"question": asked.question, "options": asked.options, "data": about}
        case ev.SignalAwaited() as awaited:
            more = {"signal": awaited.name}
        case ev.ToolCall() as call:
            more = {"tool": call.tool, "input": call.input}
        case _:
            pass
    return Waiting(type=effect.type, key=effect.key, since=effect.since, path=effect.path, **more)


async def page_of(client: Client, ref: RunRef, asked: WatchRun, after: int) -> Page:
    """Return a page of a run's events after a sequence of the stream.

    :raises UnknownRun: if the run does not exist
    """
    last = await client.log.last(ref)
    if last is None:
        raise UnknownRun(ref)
    end = ev.payload_of(last.event) if last.event.type == ev.RunEnd.type else None
    status = end.status if isinstance(end, ev.RunEnd) else None
    seen: list[Seen] = []
    size = 0
    for recorded in await client.log.read(ref, after):
        event = recorded.event
        if not asked.types or any(matches(pattern, event.type) for pattern in asked.types):
            one = await _see_run(client, recorded, asked)
            size += len(msgspec.json.encode(one))
            if len(seen) == asked.limit or (seen and size > PAGE_BYTES_MAX):
                return Page(events=seen, next_after=after, more=True, ended=False)
            seen.append(one)
        after = recorded.sequence
    ended = status is not None and after >= last.sequence
    return Page(events=seen, next_after=after, more=False, ended=ended, status=status if ended else None)


async def _see_run(client: Client, recorded: Recorded, asked: WatchRun) -> Seen:
    event = await whole(client.log, recorded)
    payload = known_payload(event)
    text = narrate(event, payload) if payload is not None else event.type
    detail = {"event": event_object(event)} if asked.detail == "full" else {}
    return Seen(sequence=recorded.sequence, type=event.type, time=event.time, path=event.path, text=text, **detail)
