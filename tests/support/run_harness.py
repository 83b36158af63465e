"""A harness for tests: small languages written as Python coroutines, on the real run actor and an in-memory log.

`RunHarness` does the worker's part by hand: it starts runs, activates them again after crashes, rings alarms. `Nursery`
admits child runs, and keeps the messages between runs until the test delivers them.
"""

import datetime as dt
import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec

from callboard.actors.carrier import Carrier, CarryEffect, Job
from callboard.actors.models.model import Model
from callboard.actors.models.scripted import ScriptedModel
from callboard.actors.tools.tool import Keep, ToolEnvironment
from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.errors import RunLost
from callboard.bus.events import Environment, Event, Outline, Problem
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import EventLog, RunMessage
from callboard.bus.prices import Prices, list_prices
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Language, Stage
from callboard.languages.plan import Definition, Plan
from callboard.lib.json_types import JSON
from callboard.runtime.budgets.allowances import Allowances
from callboard.runtime.interpreter.replay import Admitted, read_admission
from callboard.runtime.run.activation import ActivationEnd, Arrivals, Command, NoArrivals
from callboard.runtime.run.actor import RunActor
from callboard.runtime.run.log import Clock, RunLog, read_run, utc_now
from callboard.runtime.run.pace import Pace

Interpreter = Callable[[Stage], Awaitable[End]]


class PlayLanguage:
    """A language whose definitions are names of Python coroutine functions."""

    name = "play"
    rules = 0

    def __init__(self, plays: Mapping[str, Interpreter]) -> None:
        self._plays = plays

    def parse(self, source: str) -> Definition[str] | list[Problem]:
        if source not in self._plays:
            return [Problem(code="play.unknown", message=f"there is no play {source!r}")]
        return Definition("play", source, source, source.encode(), source)

    def admit(self, definition: Definition[str], start: StartRun) -> Plan[str] | list[Problem]:
        return Plan(definition, start.input, start.arguments, start.options, Outline())

    async def interpret(self, plan: Plan[str], stage: Stage) -> End:
        return await self._plays[plan.definition.document](stage)


@dataclass
class RunHarness:
    """The services, the log and the activation of runs."""

    plays: Mapping[str, Interpreter]
    script: dict[str, Any] = field(default_factory=dict[str, Any])
    log: EventLog = field(default_factory=MemoryLog)
    clock: Clock = utc_now
    calls: Callable[[Job, JSON], Awaitable[tuple[JSON, JSON]]] | None = None
    kinds: Mapping[str, CarryEffect] = field(default_factory=dict[str, CarryEffect])
    """Further kinds of effects."""
    worker: str = "w1"
    partitions: int = 4
    park_linger_s: float = 0.0
    inline_bytes_max: int = 256 * 1024
    pace: Pace = field(default_factory=lambda: Pace(math.inf))
    always_replay: bool = field(default_factory=lambda: os.environ.get("CALLBOARD_ALWAYS_REPLAY") == "true")
    secret: dict[str, str] = field(default_factory=dict[str, str])
    prices: Prices = field(default_factory=list_prices)
    allowances: Allowances = field(default_factory=lambda: Allowances({}, list_prices()))
    executed: list[str] = field(default_factory=list[str])
    """Keys of effects in the order in which they were carried out, repetitions included."""
    carried: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The same, each with the id of its run."""
    arrivals: Arrivals = field(default_factory=NoArrivals)
    acting: RunActor | None = None
    """The run actor that was made last."""

    def __post_init__(self) -> None:
        self.effects = anyio.CapacityLimiter(100)
        self.children = Nursery(self)
        self._sequence = 1000

    # the services

    def language(self, name: str) -> Language[Any]:
        return PlayLanguage(self.plays)

    async def read_admission(self, first: Event, code: str = "") -> Admitted:
        return read_admission(first, self.language, code)

    def environment(self, admission: Admitted) -> Environment:
        return Environment(default_model="scripted")

    def secrets(self, admission: Admitted) -> dict[str, str]:
        return self.secret

    def carrier(self, ref: RunRef, admission: Admitted, keep: Keep) -> Carrier:
        script = admission.start.script or {}

        async def models(_spec: str) -> tuple[Model, str]:
            return ScriptedModel(script), "scripted"

        async def call(job: Job, request: JSON) -> tuple[JSON, JSON]:
            if self.calls is not None:
                return await self.calls(job, request)
            return {"echo": request}, None

        harness = self

        class Counting(Carrier):
            async def carry(self, job: Job, sessions: Any, reporter: Any) -> ev.Payload:
                harness.executed.append(job.key)
                harness.carried.append((ref.run, job.key))
                return await super().carry(job, sessions, reporter)

        return Counting(
            models=models,
            tools=ToolEnvironment(env={}, script=script),
            kinds={"http": call, "code": call, **self.kinds},
            on_delta=lambda _job, _k, _text: None,
            model_timeout_s=10,
        )

    # the hand

    async def accept(
        self,
        play: str,
        run: str = "r1",
        input: JSON = None,
        breakpoints: list[str] | None = None,
        forked_from: ev.ForkedFrom | None = None,
        limits: dict[str, Any] | None = None,
        encryption_key: str | None = None,
        options: dict[str, Any] | None = None,
        warnings: Sequence[Problem] = (),
    ) -> RunRef:
        """Admit a run."""
        ref = RunRef("acme", run)
        source = DefinitionSource(language="play", source=play)
        start = StartRun(
            source, input=input, run_id=run, script=self.script, breakpoints=breakpoints or [], options=options or {}
        )
        runlog = RunLog(self.log, ref, writer="admission", clock=self.clock, inline_bytes_max=self.inline_bytes_max)
        runlog.definition = play
        runlog.key = await self.log.keys.make(ref.tenant, encryption_key) if encryption_key else None
        accepted = ev.RunAccepted(
            definition=ev.DefinitionRef("play", "", play, play),
            start=msgspec.to_builtins(start),
            breakpoints=start.breakpoints,
            seed="seed",
            forked_from=forked_from,
            limits=limits or {},
            warnings=list(warnings),
        )
        runlog.state(accepted)
        await runlog.append_queued()
        return ref

    def actor(self, ref: RunRef, *commands: Command) -> RunActor:
        actor = self.acting = RunActor(ref, self.log, self, self.clock)
        for command in commands:
            actor.tell(command)
        return actor

    async def perform(self, ref: RunRef, *commands: Command) -> ActivationEnd:
        """Activate a run and let it act until it parks or ends."""
        return await self.actor(ref, *commands).run()

    def command(self, verb: str, sequence: int | None = None, **body: Any) -> Command:
        if sequence is None:
            self._sequence += 1
            sequence = self._sequence
        return Command(sequence, verb, msgspec.json.encode(body), lambda: None)

    async def play(self, play: str, **names: Any) -> list[Event]:
        """Accept and perform a run to its first stop; return its events."""
        ref = await self.accept(play, **names)
        await self.perform(ref)
        return await self.events(ref)

    async def events(self, ref: RunRef) -> list[Event]:
        return [recorded.event for recorded in await read_run(self.log, ref)]


class Nursery:
    """`callboard.runtime.run.activation.Children` in a list."""

    def __init__(self, harness: RunHarness) -> None:
        self.called: list[RunRef] = []
        """Runs that are to be activated, in order."""
        self._theatre = harness

    @property
    def run_messages(self) -> list[RunMessage]:
        """The messages between runs, in order."""
        assert isinstance(self._theatre.log, MemoryLog)
        return self._theatre.log.run_messages

    async def admit_child(self, child: RunRef, message: bytes, parent: ev.Parent) -> list[Problem]:
        start = msgspec.json.decode(message, type=StartRun)
        play = start.definition.source or ""
        definition = self._theatre.language("play").parse(play)
        if isinstance(definition, list):
            return definition
        runlog = RunLog(self._theatre.log, child, writer="admission", clock=self._theatre.clock)
        runlog.definition = play
        ref = ev.DefinitionRef("play", "", play, play)
        runlog.state(ev.RunAccepted(definition=ref, start=msgspec.to_builtins(start), seed="seed", parent=parent))
        with suppress(RunLost):
            await runlog.append_queued()
        return []

    async def refusal_of(self, child: RunRef) -> list[Problem]:
        return []

    async def call_child(self, child: RunRef) -> None:
        self.called.append(child)


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def end_of(events: list[Event]) -> ev.RunEnd:
    payload = ev.payload_of(events[-1])
    assert isinstance(payload, ev.RunEnd)
    return payload


def later(seconds: float, clock: Clock = utc_now) -> dt.datetime:
    return clock() + dt.timedelta(seconds=seconds)
