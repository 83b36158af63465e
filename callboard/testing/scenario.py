"""A scenario: one run, with its child runs, on an in-memory log under virtual time, controlled step by step."""

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from msgspec import Struct

from callboard.actors.models.model import ModelTurn
from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.bus.log.port import Entry
from callboard.bus.prices import Prices, list_prices, read_prices
from callboard.bus.subjects import RunRef
from callboard.projections.projection import Projection, fold
from callboard.projections.run.run_result import RunResult
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.client.errors import UsageInvalid
from callboard.runtime.interpreter.nodes import NOT_UNDERSTOOD
from callboard.runtime.run.activation import Command
from callboard.runtime.run.actor import RunActor
from callboard.runtime.settings.logs import configure_for_client
from callboard.service.operations.results import result_of
from callboard.service.operations.settlement import NotTaken
from callboard.start_options import Start, Startable, StartMessage, start_message
from callboard.testing.answers import Answers
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import Crash, CrashingLog, CrashPoint
from callboard.testing.door import Admission, NamedDefinitions, is_code
from callboard.testing.family import Family
from callboard.testing.replay_process import replay_elsewhere
from callboard.testing.services import ScriptedServices
from callboard.testing.toolsets import Listing
from callboard.testing.virtual_time import VirtualClock, VirtualLoop

ACTIVATIONS_MAX = 400
"""The maximum number of activations of a run until it must be at rest."""

MESSAGES_MAX = 20_000
"""The maximum number of activations of child runs, and of their parents by them, until all must be at rest."""

V = TypeVar("V")


class _Step(Struct, frozen=True):
    """A step of a scenario, to be repeated, and the exception that it raised."""

    do: Callable[["Scenario"], object]
    raised: type[Exception] | None


class Scenario:
    """One run that a test controls: ``with Scenario() as scenario``, or the fixture.

    Every step returns when the run and its child runs are at rest: they wait for input or for a timer, or have ended.
    ``effects`` are the answers by kind of effect (``service``, ``code`` …), by the URI of a provider, such as that of
    HTTP, or by the name of a step. Models and tools answer from the start's ``script``. A step without an answer fails
    with ``testing.unscripted``; with ``call_steps``, its function is called. ``definitions`` are those that child runs
    name. ``servers`` are the tools of MCP servers, by name. ``env`` are the worker's variables; without it, the worker
    has all variables that the definition needs. With ``newest_first``, concurrent effects end in the opposite order of
    their intents. ``prices`` are those of the configuration, which override the list prices. With ``own_models``,
    agents of other libraries ask their own models, such as those that these libraries have for tests, and not the
    script; then ``call_steps`` is on unless it is given, because the tools of such agents are steps.
    """

    def __init__(
        self,
        *,
        effects: Mapping[str, Answers] | None = None,
        call_steps: bool | None = None,
        definitions: Mapping[str, Startable] | None = None,
        servers: Mapping[str, Listing] | None = None,
        env: Mapping[str, str] | None = None,
        newest_first: bool = False,
        prices: Mapping[str, Any] | None = None,
        own_models: bool = False,
    ) -> None:
        self._alike = partial(
            Scenario,
            effects=effects,
            call_steps=call_steps,
            definitions=definitions,
            servers=servers,
            env=env,
            newest_first=newest_first,
            prices=prices,
            own_models=own_models,
        )
        calls = own_models if call_steps is None else call_steps
        configure_for_client()
        self._runner = asyncio.Runner(loop_factory=VirtualLoop)
        self._log = CrashingLog()
        self._clock = VirtualClock()
        self._services = ScriptedServices(
            Definitions(), effects or {}, env, servers or {}, newest_first, own_models, calls, clock=self._clock
        )
        self._named = NamedDefinitions(definitions or {})
        self._family = self._services.children = Family(self._services, self._log, self._named)
        self._services.prices = Prices(read_prices(prices or {})[0], list_prices())
        self._acting: RunActor | None = None
        self._ref: RunRef | None = None
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
        _outside_of_loops(self._runner.close)

    # -- steps --------------------------------------------------------------------------------------------------------

    def start(self, file: Startable | None = None, **start: Unpack[Start]) -> Self:
        """Start the run, as `callboard.Client.start` does; ``file`` may be a workflow of this program. One that is code
        is replayed whenever the run rests: what it does otherwise the second time fails the run.

        :raises RequestRefused: with every problem of the definition, or of the start
        :raises UsageInvalid: if ``effects`` has a name that no effect has
        """
        made: list[StartMessage] = []

        def begin(scenario: "Scenario") -> None:
            # A repetition has the same message: to load code takes long.
            if not made:
                made.append(start_message(file, start))
            scenario._start(made[0], str(file or ""))

        return self._step(begin)

    def answer(
        self, response: Any, *, interaction: str = "", data: Any = None, by: str | None = None, run: str = ""
    ) -> Self:
        """Answer the open question, in the name of ``by``.

        If there are several, ``interaction``, the key of the question, selects one. Without ``run``, the question may
        be that of a child run, if the run itself asks none.

        :raises NotTaken: if the answer is invalid, or no question is open
        """
        told = {"interaction": interaction, "user_response": response, "response_data": data, "by": by}
        return self._step(lambda scenario: scenario._run(scenario._answer(interaction, told, run)))

    def signal(self, name: str, data: Any = None, *, run: str = "") -> Self:
        """Send a signal to the run, or to the child run ``run``."""
        return self._send("signal", run, name=name, data=data)

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
        return self._run(self._family.events(self._require_run()))

    @property
    def result(self) -> RunResult:
        """The current state of the run, or its result."""
        return result_of(self.events)

    @property
    def children(self) -> dict[str, list[Event]]:
        """The events of the child runs so far, by the id of the run, in the order in which the runs began."""
        root = self._require_run()
        return {ref.run: self._run(self._family.events(ref)) for ref in self._family.runs if ref != root}

    @property
    def carried_out(self) -> list[str]:
        """The keys of the run's executed effects in order, including repetitions."""
        return [key for run, key in self._services.carried if run == self._require_run().run]

    @property
    def turns(self) -> dict[str, ModelTurn]:
        """The requests to models, by the key of the call, with all messages in full, as the model receives them. Those
        of child runs have the id of the run and a space before the key."""
        root = self._require_run().run
        return {key if run == root else f"{run} {key}": turn for (run, key), turn in self._services.turns.items()}

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
        payloads = [ev.payload_of(event) for event in self.events if event.type == event_type]
        return [one for one in payloads if not isinstance(one, ev.Newer)]

    # -- checks -------------------------------------------------------------------------------------------------------

    def crash_everywhere(self, same: Callable[["Scenario"], object] = lambda _scenario: None) -> None:
        """Repeat the scenario once for each event, with a worker that crashes directly after it, and compare.

        ``same`` returns further values that must not differ, besides status, output, error and nodes.

        :raises AssertionError: if the run ends differently, if an effect is executed again although its outcome is in
            the log, or if the log or its replay is invalid
        """
        self._check()
        expected = (*self._essence(), same(self))
        for ref in self._family.runs:
            events = self._run(self._family.events(ref))
            for n in self._crash_points(events):
                death = f"with a death after event {n} ({events[n - 1].type}) of {ref.run}"
                self._crash_after(ref, n, expected, same, death)

    def replay_elsewhere(self, processes: int = 2) -> Self:
        """Replay the run and its child runs in other processes, whose strings have other hashes, and verify them.

        :raises AssertionError: if a replay asks for something else than the log holds, or ends differently
        :raises UsageInvalid: if another process cannot import the code of the run
        """
        replay_elsewhere([self._run(self._family.events(ref)) for ref in self._family.runs], processes)
        return self

    def _crash_after(
        self, ref: RunRef, n: int, expected: tuple[Any, ...], same: Callable[["Scenario"], object], death: str
    ) -> None:
        with self._alike() as other:
            # The replays of code at rest have passed in this scenario. Here the crash is followed by one, and the check
            # of the log by another.
            other._replays_at_rest = False
            # The definitions have been parsed.
            other._services.definitions = self._services.definitions
            other._die_after(ref, n)
            for step in self._steps:
                other._repeat(step)
            other._check()
            found = (*other._essence(), same(other))
            assert found == expected, f"{death} it came out otherwise:\n{found}\ninstead of\n{expected}"
            carried = Counter(key for run, key in other._services.carried if run == ref.run)
            events = other._run(other._family.events(ref))
            done = {one.key for one in events if one.n <= n and ev.TYPES[one.type].kind == "outcome"}
            again = sorted(key for key in done if carried[key] > 1)
            assert not again, f"{death} {again} were carried out twice"

    @staticmethod
    def _crash_points(events: Sequence[Event]) -> Sequence[int]:
        """Return the numbers of the events after which `crash_everywhere` lets a worker crash."""
        return range(1, len(events) + 1)

    def _essence(self) -> tuple[Any, ...]:
        """Return the values that must not depend on crashes."""
        result = self.result
        left = {path: (node.iteration, node.outcome) for path, node in result.nodes.items()}
        code = result.error.code if result.error else None
        children = {run: result_of(events).status for run, events in self.children.items()}
        return result.status, result.output, code, left, sorted(one.key for one in result.open), children

    def _check(self) -> None:
        for ref in self._family.runs:
            events = self._run(self._family.events(ref))
            if events[-1].type == ev.RunEnd.type:
                check_log(events)
                check_replay(self._services.language, ref, events)

    def _die_after(self, ref: RunRef, n: int) -> None:
        died: list[Entry] = []

        def crash(entry: Entry) -> CrashPoint:
            if died or entry.n != n:
                return None
            died.append(entry)
            return "after"

        self._log.crash, self._log.only = crash, ref

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
        return _outside_of_loops(lambda: self._runner.run(work))

    def _require_run(self) -> RunRef:
        if self._ref is None:
            raise UsageInvalid("the scenario has not started a run yet", "start")
        return self._ref

    def _start(self, made: StartMessage, file: str) -> None:
        if self._ref is not None:
            raise UsageInvalid("the scenario has already started its run", "start")
        ref, admission = self._family.accept(made, file)
        coded = is_code(admission[0])
        self._services.check_effects([made.source, *made.message.get("files", {}).values(), *self._named.texts], coded)
        self._ref, self._services.started = ref, ref.run
        self._run(self._admit(ref, admission))

    async def _admit(self, ref: RunRef, admission: Admission) -> None:
        with suppress(Crash):  # the event is stored, so that the next worker finds it
            await self._family.store(ref, admission)
        await self._to_rest(ref)

    def _send(self, verb: str, run: str = "", **fields: Any) -> Self:
        return self._step(lambda scenario: scenario._run(scenario._tell(verb, fields, scenario._find(run))))

    def _find(self, run: str) -> RunRef:
        root = self._require_run()
        found = next((ref for ref in self._family.runs if ref.run == run), None) if run else root
        if found is None:
            known = ", ".join(ref.run for ref in self._family.runs)
            raise UsageInvalid(f"the scenario has no run {run!r}", "run", f"Name one of {known}.")
        return found

    def _cancel_at(self, key: str, reason: str) -> None:
        command = self._family.tell("cancel", reason=reason)

        def cancel() -> None:
            assert self._acting is not None
            self._acting.tell(command)

        self._services.instead[key] = cancel

    async def _answer(self, interaction: str, told: dict[str, Any], run: str) -> None:
        found = self._find(run) if run else await self._family.find_asking(interaction) or self._require_run()
        await self._tell("answer", told, found)

    async def _tell(self, verb: str, fields: dict[str, Any], ref: RunRef) -> None:
        before = len(events := await self._family.events(ref))
        if events[-1].type == ev.RunEnd.type:
            raise NotTaken("run.finished", f"the run has ended; {verb} comes too late", ref.run)
        command = self._family.tell(verb, **fields)
        await self._to_rest(ref, command)
        for event in (await self._family.events(ref))[before:]:
            match ev.payload_of(event):
                case ev.CommandRefused(code=code, message=message) if event.cause == command.sequence:
                    raise NotTaken(code, message, ref.run)
                case ev.NodeWarning(code=code, reason=reason) if verb == "answer" and code == NOT_UNDERSTOOD:
                    raise NotTaken("answer.not_understood", reason, ref.run)
                case _:
                    pass

    async def _advance(self, delta: dt.timedelta) -> None:
        until = self._clock() + delta
        while (found := await self._family.next_due()) is not None and found[0] <= until:
            due, ref = found
            self._clock.set(max(self._clock(), due))
            await self._to_rest(ref, self._family.command("alarm"))
        self._clock.set(max(self._clock(), until))

    async def _to_rest(self, ref: RunRef, *commands: Command) -> None:
        """Activate a run, and then all others that something reaches from it, until all are parked or have ended."""
        await self._activate(ref, commands)
        for _ in range(MESSAGES_MAX):
            found = await self._family.next_activation()
            if found is None:
                return
            await self._activate(*found)
        raise AssertionError(f"the run and its child runs are not at rest after {MESSAGES_MAX} activations")

    async def _activate(self, ref: RunRef, commands: Sequence[Command]) -> None:
        """Activate a run until it is parked or has ended, with a new worker after each crash."""
        self._services.always_replay = self._replays_at_rest and self._family.runs[ref]
        for _ in range(ACTIVATIONS_MAX):
            actor = self._acting = RunActor(ref, self._log, self._services, self._clock)
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


def _outside_of_loops(call: Callable[[], V]) -> V:
    """Call a function that runs an event loop. A notebook has one in this thread already, which waits meanwhile."""
    if asyncio._get_running_loop() is None:  # pyright: ignore - without an exception, which others would have as context
        return call()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()
