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
from callboard.bus.run_ids import child_id
from callboard.lib.canonical_json import digest
from callboard.lib.concurrency import background_tasks
from callboard.lib.json_types import JSON
from callboard.runtime.client.client import Client
from callboard.runtime.interpreter.nodes import NOT_UNDERSTOOD
from callboard.runtime.run.log import events_of, read_run

OURS = "case."
"""The beginning of the ids of the answers."""

REFUSING = (ev.CommandRefused.type, ev.NodeWarning.type)
"""Events that may say that an answer is not accepted."""

ASKING = (ev.HumanAsked.type, ev.SignalAwaited.type, ev.RunPaused.type, ev.ToolCall.type)
"""Events that may wait for a person or for another program."""


async def answer_case(client: Client, origin: str, child: str) -> dict[str, JSON]:
    """Answer a case, and the child runs that it performs, until its run ends; return how many answers were sent.

    :raises CallboardError: if the record cannot be read
    """
    record = events_of(readable(await read_run(client.log, client.ref(origin)))) if origin else []
    answers = _Answers(record)
    sent, last = 0, 0
    async with background_tasks() as below, client.follow(child) as feed:
        async for recorded in feed:
            if recorded.sequence <= last:
                continue
            # The events that a fork shares are not in the feed, but are read with its first one.
            found = await read_run(client.log, client.ref(child), last)
            last = found[-1].sequence
            waits: dict[str, Event] = {}
            for event in events_of(found):
                _note(waits, event)
                if event.type == ev.ChildStart.type:
                    inner = child_id(child, event.key)
                    below.start_soon(answer_case, client, answers.children.get(event.key, ""), inner)
            for event in waits.values():
                sent += await _answer(client, child, event, answers)
            if found[-1].event.type in ev.AT_REST:
                break
    return {"answers": sent}


async def _answer(client: Client, child: str, event: Event, answers: "_Answers") -> int:
    if event.type in REFUSING:
        refused: Any = ev.payload_of(event)
        await _give_up(client, child, refused.message if isinstance(refused, ev.CommandRefused) else refused.reason)
        return 0
    told = answers.to(event)
    if told is None:
        what = ev.payload_of(event)
        asked = getattr(what, "question", "") or getattr(what, "name", "") or getattr(what, "tool", "") or event.type
        reason = f"the recorded run has no answer to {asked} at {event.path or 'the run'}"
        told = [("cancel", Cancel(id="unanswered", reason=reason))]
    for verb, tell in told:
        verdict = await client.tell(child, verb, tell)
        if verdict.status == "rejected" and not verdict.duplicate:
            await _give_up(client, child, "; ".join(problem.message for problem in verdict.problems))
    return len(told)


async def _give_up(client: Client, child: str, why: str) -> None:
    """Cancel a case whose recorded answer is not accepted, such as one that only a person with a role may give."""
    await client.tell(child, "cancel", Cancel(id="unanswered", reason=f"the recorded answer is not accepted: {why}"))


def _note(waits: dict[str, Event], event: Event) -> None:
    """Keep an event that waits for an answer, until its outcome, and one that says that an answer is not accepted."""
    refused = ev.payload_of(event) if event.type in REFUSING else None
    is_refused = isinstance(refused, ev.CommandRefused) and (refused.id or "").startswith(OURS)
    if is_refused or (isinstance(refused, ev.NodeWarning) and refused.code == NOT_UNDERSTOOD):
        waits[f"{event.n}"] = event
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
        self.children: dict[str, str] = {}
        """The child runs of the record, by the key of their effect."""
        asked: dict[str, str] = {}
        for event in record:
            match ev.payload_of(event):
                case ev.HumanAsked() | ev.SignalAwaited() | ev.ToolCall() as asking:
                    asked[event.key] = _request(asking)
                case ev.ChildStart(child=child):
                    self.children[event.key] = child
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
            return None if payload.reason == "budget" else [("resume", Resume(id=f"{OURS}{event.n}"))]
        found = self._given.get(_request(payload))
        if found is None:
            return None
        return [self._tell(event, verb, members, place) for place, (verb, members) in enumerate(found)]

    def _tell(self, event: Event, verb: str, members: dict[str, Any], place: int) -> tuple[str, Tell]:
        id = f"{OURS}{event.n}.{place}"
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
