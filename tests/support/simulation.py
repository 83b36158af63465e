"""A simulated world for the harness: effects and people who answer, in virtual time, and runs brought to their end."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import anyio
import msgspec

from callboard.actors.carrier import EffectFailed, Job
from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.events import Event
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import Entry
from callboard.bus.log.recorded import Recorded
from callboard.bus.subjects import RunRef
from callboard.languages.language import End
from callboard.lib.json_types import JSON
from callboard.runtime.run.activation import Command
from callboard.testing.checks import open_intents
from callboard.testing.crashes import Crash, CrashingLog
from callboard.testing.virtual_time import VirtualClock
from tests.support.run_harness import RunHarness, types

ACTIVATIONS_MAX = 400
"""A run that has not ended after this number of activations never will."""


async def copied(recorded: Sequence[Recorded], log: MemoryLog) -> None:
    """Append recorded events to an empty log: the log as it was when the last of them had been stored."""
    after = 0
    for item in recorded:
        event = item.event
        entry = Entry(event.n, event.epoch, event.type, event.definition, item.id, item.data)
        after = await log.put(item.ref, [entry], after)


# -- the world outside -------------------------------------------------------------------------------------------------


@dataclass
class World:
    """People and programs around a run: they answer the open questions and calls of its log, with one command each."""

    answers: dict[str, list[JSON]] = field(default_factory=dict[str, list[JSON]])
    """By effect key of the question or call: the answers, in order."""
    signals: dict[str, JSON] = field(default_factory=dict[str, JSON])
    variables: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By step: what resuming its breakpoint overrides."""
    step: bool = False
    """Whether a pause is ended by a step, not by a resume."""

    def says(self, events: Sequence[Event]) -> list[Command]:
        """Return the commands that this log calls for; asked again they have the same stream sequences."""
        answered = [ev.payload_of(event) for event in events if event.type == ev.HumanAnswered.type]
        said: list[Command] = []
        for event in open_intents(events):
            match ev.payload_of(event):
                case ev.HumanAsked() | ev.ToolCall(via="caller"):
                    k = sum(isinstance(past, ev.HumanAnswered) and past.interaction == event.key for past in answered)
                    given = self.answers.get(event.key, [])
                    if k < len(given):
                        said.append(command("answer", k, interaction=event.key, user_response=given[k]))
                case ev.SignalAwaited(name=name):
                    if name in self.signals:
                        said.append(command("signal", 0, name=name, data=self.signals[name]))
                case ev.RunPaused(step=step):
                    said.append(self._resumed(event.n, step or ""))
                case _:
                    pass
        return said

    def _resumed(self, n: int, step: str) -> Command:
        how = {"step": True} if self.step else {}
        return command("resume", n, variables=self.variables.get(step, {}), **how)


def command(verb: str, k: int, **body: Any) -> Command:
    data = msgspec.json.encode(body)
    return Command(crc32(data + verb.encode() + str(k).encode()), verb, data, lambda: None)


class Effects:
    """Carries out the effects of simulated plays as their requests say.

    ``after`` seconds, then ``value``, or a failure of the code ``fail``; ``hang`` never ends; ``tell`` first sends the
    run that command, always with the same stream sequence.
    """

    def __init__(self) -> None:
        self.harness: RunHarness

    async def __call__(self, job: Job, request: JSON) -> tuple[JSON, JSON]:
        if "tell" in request:
            assert self.harness.acting is not None
            self.harness.acting.tell(command(request["tell"], 0, reason=job.key))
        if request.get("hang"):
            await anyio.sleep_forever()
        await anyio.sleep(request.get("after", 0))
        if "fail" in request:
            raise EffectFailed(Failure(code=request["fail"]))
        return request.get("value"), None


def harness_for(play: Callable[[Any], Awaitable[End]], log: MemoryLog | None = None, **names: Any) -> RunHarness:
    """A harness in virtual time with one play, ``p``."""
    effects = Effects()
    harness = RunHarness({"p": play}, log=log or CrashingLog(), clock=VirtualClock(), calls=effects, **names)
    effects.harness = harness
    return harness


async def finish(harness: RunHarness, ref: RunRef, world: World) -> list[Event]:
    """Activate a run until it has ended, as workers and the server would: alarms ring, people answer."""
    assert isinstance(harness.clock, VirtualClock)
    for _ in range(ACTIVATIONS_MAX):
        events = await harness.events(ref)
        commands = world.says(events)
        if events[-1].type == ev.RunParked.type and not commands:
            parked = ev.payload_of(events[-1])
            assert isinstance(parked, ev.RunParked)
            assert parked.deadline is not None, f"nobody will ever wake this run: {parked.awaits}"
            assert isinstance(harness.log, MemoryLog)
            harness.clock.set(max(harness.clock(), parked.deadline))
            commands = [harness.command("alarm")]
        with suppress(Crash):
            try:
                if await harness.perform(ref, *commands) in ("ended", "finished_before"):
                    return await harness.events(ref)
            except BaseExceptionGroup as group:
                died, other = group.split(Crash)
                if other is not None or died is None:
                    raise
    raise AssertionError(f"no end after {ACTIVATIONS_MAX} activations: {types(await harness.events(ref))[-20:]}")
