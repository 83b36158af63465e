"""A scenario: one run on an in-memory log under virtual time, controlled step by step."""

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import msgspec
from msgspec import Struct

from callboard.actors.models.model import ModelTurn
from callboard.bus import events as ev
from callboard.bus.commands import TELLS
from callboard.bus.events import Event, RunParked
from callboard.bus.log.port import Entry
from callboard.bus.prices import Prices, list_prices, read_prices
from callboard.bus.subjects import RunRef
from callboard.languages.kit import kits
from callboard.languages.language import NOT_UNDERSTOOD
from callboard.lib.threads import on_the_loop
from callboard.projections.projection import Projection, fold
from callboard.projections.run.run_result import RunResult
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.run.activation import Command
from callboard.runtime.run.actor import RunActor
from callboard.runtime.run.log import RunLog, read_run
from callboard.service.client.errors import UsageInvalid
from callboard.service.operations.results import result_of
from callboard.service.operations.settlement import NotTaken
from callboard.start_options import Message, Start, Startable, start_message
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import Crash, CrashingLog, CrashPoint
from callboard.testing.door import accept_start
from callboard.testing.services import Answers, Services
from callboard.testing.toolsets import Listing
from callboard.testing.virtual_time import VirtualClock, VirtualLoop

ACTIVATIONS_MAX = 400
"""The maximum number of activations until a run must be at rest."""

FIRST_SEQUENCE = 1_000
"""The first stream sequence of commands, which identifies them. It is higher than that of any event."""

V = TypeVar("V")


class _Step(Struct, frozen=True):
    """A step of a scenario, to be repeated, and the exception that it raised."""

    do: Callable[["Scenario"], object]
    raised: type[Exception] | None


class Scenario:
    """One run that a test controls: ``with Scenario() as scenario``, or the fixture.

    Every step returns when the run is at rest: it waits for input or for a timer, or has ended. ``effects`` are the
    answers by kind of effect (``service``, ``code`` …) or by the URI of a provider, such as that of HTTP. Models and
    tools answer from the start's ``script``. ``servers`` are the tools of MCP servers, by name. ``env`` are the
    worker's variables; without it, the worker has all variables that the definition needs. With ``newest_first``,
    concurrent effects end in the opposite order of their intents. ``prices`` are those of the configuration, which
    override the list prices. With ``own_models``, agents of other libraries ask their own models, such as those that
    these libraries have for tests, and not the script.
    """

    def __init__(
        self,
        *,
        effects: Mapping[str, Answers] | None = None,
        servers: Mapping[str, Listing] | None = None,
        env: Mapping[str, str] | None = None,
        newest_first: bool = False,
        prices: Mapping[str, Any] | None = None,
        own_models: bool = False,
    ) -> None:
        self._alike = partial(
            Scenario,
            effects=effects,
            servers=servers,
            env=env,
            newest_first=newest_first,
            prices=prices,
            own_models=own_models,
        )
        self._runner = asyncio.Runner(loop_factory=VirtualLoop)
        self._log = CrashingLog()
        self._clock = VirtualClock()
        self._services = Services(Definitions(), effects or {}, env, servers or {}, newest_first, own_models)
        self._services.clock = self._clock
        self._services.prices = Prices(read_prices(prices or {})[0], list_prices())
        self._acting: RunActor | None = None
        self._ref: RunRef | None = None
        self._sequence = FIRST_SEQUENCE
        self._steps: list[_Step] = []
        self._replays_at_rest = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the event loop."""
        self._runner.close()

    # -- steps --------------------------------------------------------------------------------------------------------

    def start(self, file: Startable | None = None, **start: Unpack[Start]) -> Self:
        """Start the run, as `callboard.Client.start` does; ``file`` may be a workflow of this program. One that is code
        is replayed whenever the run rests: what it does otherwise the second time fails the run.

        :raises RequestRefused: with every problem of the definition, or of the start
        """
        made: list[Message] = []

        def begin(scenario: "Scenario") -> None:
            # A repetition has the same message: to load code takes long.
            if not made:
                made.append(start_message(file, start))
            scenario._start(made[0], str(file or ""))

        return self._step(begin)

    def answer(self, response: Any, *, interaction: str = "", data: Any = None, by: str | None = None) -> Self:
        """Answer the open question, in the name of ``by``.

        If there are several, ``interaction``, the key of the question, selects one.

        :raises NotTaken: if the answer is invalid, or no question is open
        """
        return self._send("answer", interaction=interaction, user_response=response, response_data=data, by=by)

    def signal(self, name: str, data: Any = None) -> Self:
        """Send the run a signal."""
        return self._send("signal", name=name, data=data)

    def pause(self) -> Self:
        """Pause the run before its next node, or effect in a workflow in Python."""
        return self._send("pause")

    def resume(self, variables: Mapping[str, Any] | None = None) -> Self:
        """Resume the paused run."""
        return self._send("resume", variables=dict(variables or {}))

    def step(self, variables: Mapping[str, Any] | None = None) -> Self:
        """Resume the paused run for one node."""
        return self._send("resume", variables=dict(variables or {}), step=True)

    def cancel(self, reason: str = "", *, at: str = "") -> Self:
        """Cancel the run, which then runs its clean-up. With ``at``, cancel it when the effect with that key begins."""
        if at:
            return self._step(lambda scenario: scenario._cancel_at(at, reason))
        return self._send("cancel", reason=reason)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> Self:
        """Advance the virtual time. Timers that become due fire in order."""
        delta = dt.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return self._step(lambda scenario: scenario._run(scenario._advance(delta)))

    # -- observations -------------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        """The events of the run so far."""
        return self._run(self._read())

    @property
    def result(self) -> RunResult:
        """The current state of the run, or its result."""
        return result_of(self.events)

    @property
    def carried_out(self) -> list[str]:
        """The keys of the executed effects in order, including repetitions."""
        return list(self._services.carried)

    @property
    def turns(self) -> dict[str, ModelTurn]:
        """The requests to models, by the key of the call, with all messages in full, as the model receives them."""
        return dict(self._services.turns)

    @property
    def now(self) -> dt.datetime:
        """The virtual time of day."""

        async def clock() -> dt.datetime:
            return self._clock()

        return self._run(clock())

    def view(self, projection: Projection[V]) -> V:
        """Fold the log so far into a view."""
        return fold(projection, self.events)

    def payloads(self, event_type: str) -> list[ev.Payload]:
        """Return the payloads of all events of a type, such as ``human.asked``."""
        return [ev.payload_of(event) for event in self.events if event.type == event_type]

    # -- checks -------------------------------------------------------------------------------------------------------

    def crash_everywhere(self, same: Callable[["Scenario"], object] = lambda _scenario: None) -> None:
        """Repeat the scenario once for each event, with a worker that crashes directly after it, and compare.

        ``same`` returns further values that must not differ, besides status, output, error and nodes.

        :raises AssertionError: if the run ends differently, if an effect is executed again although its outcome is in
            the log, or if the log or its replay is invalid
        """
        self._check()
        expected = (*self._essence(), same(self))
        events = self.events
        for n in self._crash_points(events):
            event = events[n - 1]
            with self._alike() as other:
                # The replays of code at rest have passed in this scenario. Here the crash is followed by one, and the
                # check of the log by another.
                other._replays_at_rest = False
                # The definition has been parsed.
                other._services.definitions = self._services.definitions
                other._die_after(n)
                for step in self._steps:
                    other._repeat(step)
                other._check()
                found = (*other._essence(), same(other))
                assert found == expected, (
                    f"with a death after event {n} ({event.type}) it came out otherwise:\n"
                    f"{found}\ninstead of\n{expected}"
                )
                repeated = [key for key in set(other.carried_out) if other.carried_out.count(key) > 1]
                done = {one.key for one in other.events if one.n <= n and ev.TYPES[one.type].kind == "outcome"}
                again = sorted(done & set(repeated))
                assert not again, f"with a death after event {n} ({event.type}) {again} were carried out twice"

    @staticmethod
    def _crash_points(events: Sequence[Event]) -> Sequence[int]:
        """Return the numbers of the events after which `crash_everywhere` lets a worker crash."""
        return range(1, len(events) + 1)

    def _essence(self) -> tuple[Any, ...]:
        """Return the values that must not depend on crashes."""
        result = self.result
        left = {path: (node.iteration, node.outcome) for path, node in result.nodes.items()}
        code = result.error.code if result.error else None
        return result.status, result.output, code, left, sorted(one.key for one in result.open)

    def _check(self) -> None:
        events = self.events
        if events[-1].type == ev.RunEnd.type:
            check_log(events)
            check_replay(self._services.language, self._require_run(), events)

    def _die_after(self, n: int) -> None:
        died: list[Entry] = []

        def crash(entry: Entry) -> CrashPoint:
            if died or entry.n != n:
                return None
            died.append(entry)
            return "after"

        self._log.crash = crash

    # -- implementation -----------------------------------------------------------------------------------------------

    def _step(self, do: Callable[["Scenario"], object]) -> Self:
        raised: type[Exception] | None = None
        try:
            do(self)
        except Exception as error:
            raised = type(error)
            raise
        finally:
            self._steps.append(_Step(do, raised))
        return self

    def _repeat(self, step: _Step) -> None:
        try:
            step.do(self)
        except Exception as error:
            if type(error) is not step.raised:
                raise

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    def _require_run(self) -> RunRef:
        if self._ref is None:
            raise UsageInvalid("the scenario has not started a run yet", "start")
        return self._ref

    async def _read(self) -> list[Event]:
        return [item.event for item in await read_run(self._log, self._require_run())]

    def _start(self, made: Message, file: str) -> None:
        if self._ref is not None:
            raise UsageInvalid("the scenario has already started its run", "start")
        self._ref, first, definition = accept_start(self._services, made, file)
        code = bool(kits()[first.definition.language].code_module)
        self._services.always_replay = code and self._replays_at_rest
        self._run(self._admit(self._ref, first, definition))

    async def _admit(self, ref: RunRef, first: ev.RunAccepted, definition: str) -> None:
        runlog = RunLog(self._log, ref, writer="admission", clock=self._clock, beside=on_the_loop)
        runlog.definition = definition
        runlog.state(first)
        with suppress(Crash):  # the event is stored, so that the next worker finds it
            await runlog.append_queued()
        await self._to_rest()

    def _send(self, verb: str, **fields: Any) -> Self:
        return self._step(lambda scenario: scenario._run(scenario._tell(verb, fields)))

    def _cancel_at(self, key: str, reason: str) -> None:
        self._sequence += 1
        command = _command(self._sequence, "cancel", {"reason": reason})

        def cancel() -> None:
            assert self._acting is not None
            self._acting.tell(command)

        self._services.instead[key] = cancel

    async def _tell(self, verb: str, fields: dict[str, Any]) -> None:
        before = len(events := await self._read())
        if events[-1].type == ev.RunEnd.type:
            raise NotTaken("run.finished", f"the run has ended; {verb} comes too late", self._require_run().run)
        self._sequence += 1
        sequence = self._sequence
        await self._to_rest(_command(sequence, verb, fields))
        for event in (await self._read())[before:]:
            match ev.payload_of(event):
                case ev.CommandRefused(code=code, message=message) if event.cause == sequence:
                    raise NotTaken(code, message, self._require_run().run)
                case ev.NodeWarning(code=code, reason=reason) if verb == "answer" and code == NOT_UNDERSTOOD:
                    raise NotTaken("answer.not_understood", reason, self._require_run().run)
                case _:
                    pass

    async def _advance(self, delta: dt.timedelta) -> None:
        until = self._clock() + delta
        while (due := await self._due()) is not None and due <= until:
            self._clock.set(max(self._clock(), due))
            self._sequence += 1
            await self._to_rest(Command(self._sequence, "alarm", b"{}"))
        self._clock.set(max(self._clock(), until))

    async def _due(self) -> dt.datetime | None:
        last = (await self._read())[-1]
        payload = ev.payload_of(last)
        return payload.deadline if isinstance(payload, RunParked) else None

    async def _to_rest(self, *commands: Command) -> None:
        """Activate the run until it is parked or has ended, with a new worker after each crash."""
        for _ in range(ACTIVATIONS_MAX):
            actor = self._acting = RunActor(self._require_run(), self._log, self._services, self._clock)
            for command in commands:
                actor.tell(command)
            try:
                await actor.run()
            except Crash:
                continue
            except BaseExceptionGroup as group:
                _died, other = group.split(Crash)
                if other is not None:
                    raise
                continue
            return
        raise AssertionError(f"the run is not at rest after {ACTIVATIONS_MAX} activations")


def _command(sequence: int, verb: str, fields: dict[str, Any]) -> Command:
    return Command(sequence, verb, msgspec.json.encode(TELLS[verb](**fields)))
