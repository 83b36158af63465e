"""The people of a case: questions, pauses and awaited signals are answered from the record, if it has them.

A case with another question is cancelled, because it would wait forever. The recorded answers are sent unchanged, in
their order.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import Answer, Cancel, Resume, Signal, Tell
from callboard.bus.events import Event
from callboard.bus.log.recorded import readable
from callboard.lib.canonical_json import digest
from callboard.lib.json_types import JSON
from callboard.runtime.client.client import Client
from callboard.runtime.run.log import events_of, read_run

ASKING = (ev.HumanAsked.type, ev.SignalAwaited.type, ev.RunPaused.type, ev.ToolCall.type)
"""Events that may wait for a person or for another program."""


async def answer_case(client: Client, origin: str, child: str) -> dict[str, JSON]:
    """Answer a case until its run ends; return how many answers were sent.

    :raises CallboardError: if the record cannot be read
    """
    record = events_of(readable(await read_run(client.log, client.ref(origin)))) if origin else []
    answers = _Answers(record)
    waits: dict[str, Event] = {}
    sent, last = 0, 0
    async with client.follow(child) as feed:
        async for recorded in feed:
            if recorded.sequence <= last:
                continue
            # The events that a fork shares are not in the feed, but are read with its first one.
            found = await read_run(client.log, client.ref(child), last)
            for event in events_of(found):
                _note(waits, event)
            last = found[-1].sequence
            for event in waits.values():
                sent += await _answer(client, child, event, answers)
            waits.clear()
            if found[-1].event.type in ev.AT_REST:
                break
    return {"answers": sent}


async def _answer(client: Client, child: str, event: Event, answers: "_Answers") -> int:
    told = answers.to(event)
    if told is None:
        what = ev.payload_of(event)
        asked = getattr(what, "question", "") or getattr(what, "name", "") or getattr(what, "tool", "") or event.type
        reason = f"the recorded run has no answer to {asked} at {event.path or 'the run'}"
        told = [("cancel", Cancel(id="unanswered", reason=reason))]
    for verb, tell in told:
        await client.tell(child, verb, tell)
    return len(told)


def _note(waits: dict[str, Event], event: Event) -> None:
    """Keep an event that waits for an answer, until its outcome."""
    if event.type in ASKING:
        payload = ev.payload_of(event)
        if not isinstance(payload, ev.ToolCall) or payload.via == "caller":
            waits[event.key or event.type] = event
    elif event.type in ev.TYPES and ev.TYPES[event.type].kind == "outcome":
        waits.pop(event.key or ev.RunPaused.type, None)


class _Answers:
    """The recorded answers of people and other programs, by the digest of the question."""

    def __init__(self, record: Sequence[Event]) -> None:
        self._given: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        asked: dict[str, str] = {}
        for event in record:
            match ev.payload_of(event):
                case ev.HumanAsked() | ev.SignalAwaited() | ev.ToolCall() as asking:
                    asked[event.key] = _request(asking)
                case ev.HumanAnswered(interaction=key) as given if key in asked:
                    members = {"user_response": given.user_response, "response_data": given.response_data}
                    self._keep(asked[key], "answer", {**members, "by": given.by, "channel": given.channel})
                case ev.SignalReceived(name=name, data=data, by=by) if event.key in asked:
                    self._keep(asked[event.key], "signal", {"name": name, "data": data, "by": by})
                case ev.ToolResult(output=output, error=None) if event.key in asked:
                    self._keep(asked[event.key], "answer", {"user_response": output})
                case _:
                    pass

    def _keep(self, request: str, verb: str, members: dict[str, Any]) -> None:
        self._given.setdefault(request, []).append((verb, members))

    def to(self, event: Event) -> list[tuple[str, Tell]] | None:
        """Return the commands that answer an event; None if the record has none."""
        payload = ev.payload_of(event)
        if isinstance(payload, ev.RunPaused):
            return None if payload.reason == "budget" else [("resume", Resume(id=f"case.{event.n}"))]
        found = self._given.get(_request(payload))
        if found is None:
            return None
        return [self._tell(event, verb, members, place) for place, (verb, members) in enumerate(found)]

    def _tell(self, event: Event, verb: str, members: dict[str, Any], place: int) -> tuple[str, Tell]:
        id = f"case.{event.n}.{place}"
        if verb == "signal":
            return verb, msgspec.convert({**members, "id": id}, Signal)
        return verb, msgspec.convert({**members, "id": id, "interaction": event.key}, Answer)


def _request(payload: ev.Payload | ev.Newer) -> str:
    match payload:
        case ev.HumanAsked(question=question, interaction_type=kind, options=options, request_data=data):
            return digest("question", question, kind, options, data)
        case ev.SignalAwaited(name=name, match=match):
            return digest("signal", name, match)
        case ev.ToolCall(tool=tool, input=given):
            return digest("tool", tool, given)
        case _:
            return ""
