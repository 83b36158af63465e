"""Recorded answers: the outcomes of another run's effects, for a run that is performed again with a change.

A request that equals one in the record gets its outcome, and nothing is asked for it. Another call is answered by its
policy: it is refused, carried out, or answered by the script. A record never answers a call with other arguments.

How an effect was answered is recorded as progress of its node, before its outcome.
"""

from collections import defaultdict
from typing import Any

import anyio
from msgspec.structs import replace

from callboard.actors.carrier import Job, Reporter
from callboard.actors.node import outcome_of_failure
from callboard.actors.tools.scripted import scripted_answer
from callboard.actors.tools.tool import ToolCallContext, ToolFailed
from callboard.bus import events as ev
from callboard.bus.commands import Policy, Recording
from callboard.bus.effects import Failure, Usage
from callboard.bus.errors import CallboardError
from callboard.bus.log.port import EventLog
from callboard.bus.log.recorded import readable
from callboard.bus.subjects import RunRef
from callboard.lib.json_types import JSON
from callboard.projections.comparison.behaviour import ANSWERED, HARMLESS
from callboard.projections.comparison.requests import (
    Done,
    RecordedEffect,
    call_digest,
    name_of_call,
    recorded_effects,
    turn_digest,
)
from callboard.runtime.run.log import events_of, read_run

REFUSED = "recording.refused"
UNREADABLE = "recording.unreadable"

EVERY = "*"


class RecordedAnswers:
    """The answers for one run. The log of the recorded run is read at the first effect."""

    def __init__(
        self, log: EventLog, ref: RunRef, recording: Recording, encryption_key: str, script: dict[str, Any]
    ) -> None:
        self._log = log
        self._ref = ref
        self._recording = recording
        self._encryption_key = encryption_key
        self._script = script
        self._found: dict[str, list[RecordedEffect]] | None = None
        self._reading = anyio.Lock()

    async def answer(self, job: Job, reporter: Reporter) -> ev.Payload | None:
        """Return the outcome of an effect; None if it is to be carried out."""
        call = job.intent
        try:
            recorded = await self._find(job)
        except CallboardError as error:
            return outcome_of_failure(call, Failure(UNREADABLE, f"run {self._ref.run} cannot be read: {error.message}"))
        if recorded is not None:
            data: dict[str, JSON] = {ANSWERED: "recorded", "run": self._ref.run, "n": recorded.n}
            reporter.progress(job.node, f"as recorded by {self._ref.run}", data)
            return _without_usage(recorded.outcome)
        if isinstance(call, ev.ModelCall):
            how: Policy = "live"
        else:
            how = self._policy(call)
        reporter.progress(job.node, f"not in run {self._ref.run}: {how}", {ANSWERED: how, "run": self._ref.run})
        match how:
            case "live":
                return None
            case "script":
                return self._scripted(job)
            case "refuse":
                name = name_of_call(call)
                message = f"run {self._ref.run} has no call of {name} with these arguments, and no policy allows it"
                return outcome_of_failure(call, Failure(REFUSED, message, retryable=False))

    def _policy(self, call: ev.Payload) -> Policy:
        tools = self._recording.tools
        kind = call.kind_ if isinstance(call, ev.EffectCall) else ""
        given = tools.get(name_of_call(call)) or (tools.get(kind) if kind else None)
        return given or ("live" if kind in HARMLESS else tools.get(EVERY, "refuse"))

    def _scripted(self, job: Job) -> ev.Payload:
        call = job.intent
        if not isinstance(call, ev.ToolCall):
            message = f"a script has answers of tools only, and none for {name_of_call(call)}"
            return outcome_of_failure(call, Failure(REFUSED, message, retryable=False))
        context = ToolCallContext(job.ref.run, job.event.path, job.idempotency_key, job.ordinal)
        try:
            output = scripted_answer(call.tool, self._script, context)
        except ToolFailed as error:
            return outcome_of_failure(call, error.failure)
        return ev.ToolResult(node=call.node, tool=call.tool, output=output)

    async def _find(self, job: Job) -> RecordedEffect | None:
        """Return the recorded effect with the same request: that with the same key, or else the first."""
        call = job.intent
        if isinstance(call, ev.ModelCall):
            if self._recording.fresh:
                return None
            request = turn_digest(call, job.turn)
        elif isinstance(call, ev.ToolCall | ev.EffectCall):
            request = call_digest(call)
        else:
            return None
        async with self._reading:
            if self._found is None:
                self._found = await self._read()
        found = self._found.get(request, [])
        return next((one for one in found if one.key == job.key), found[0] if found else None)

    async def _read(self) -> dict[str, list[RecordedEffect]]:
        """:raises CallboardError: if the recorded run cannot be read, or is encrypted with another key"""
        events = events_of(readable(await read_run(self._log, self._ref)))
        accepted = ev.payload_of(events[0]) if events else None
        if not isinstance(accepted, ev.RunAccepted):
            raise CallboardError(UNREADABLE, "it does not exist, or has been purged", self._ref.run)
        if accepted.encryption_key and accepted.encryption_key != self._encryption_key:
            raise CallboardError(UNREADABLE, "it is encrypted with another key than this run", self._ref.run)
        found: dict[str, list[RecordedEffect]] = defaultdict(list)
        for one in recorded_effects(events):
            found[one.request].append(one)
        return dict(found)


def _without_usage(outcome: Done) -> ev.Payload:
    """Return a recorded outcome without its usage, which was paid for once, in the recorded run."""
    if isinstance(outcome, ev.ToolResult):
        return outcome
    return replace(outcome, usage=Usage(), requests=[], unmetered=False)
