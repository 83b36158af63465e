"""Graphs on the real run actor: a harness that speaks the graph language in virtual time, and ways to write graphs."""

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from callboard.actors.carrier import Carrier, CarryEffect, EffectFailed, Job
from callboard.actors.tools.tool import Keep, ToolEnvironment
from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.effects import Failure
from callboard.bus.events import Event, Problem
from callboard.bus.subjects import RunRef
from callboard.languages.graph.language import LANGUAGE
from callboard.languages.language import Language
from callboard.languages.plan import Definition
from callboard.lib.json_types import JSON
from callboard.projections.projection import fold
from callboard.projections.results.graph import GraphExecution
from callboard.runtime.admission.definitions import Remembering
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.run.log import RunLog, read_run
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import BEGINNING, VirtualClock, simulate
from tests.support.run_harness import RunHarness
from tests.support.simulation import World, copied, finish
from tests.support.sweeps import select_deaths

REMEMBERING = Remembering(LANGUAGE)
"""As workers have it: a definition that was parsed is not parsed again."""

Answering = Callable[[Job, Any], Awaitable[JSON]]
"""Carries out an effect of some kind, for a test."""


class GraphTheatre(RunHarness):
    """A harness whose plays are graphs. ``kinds`` carries out the effects of each kind."""

    def __init__(
        self, log: CrashingLog | None = None, kinds: Mapping[str, Answering] | None = None, **names: Any
    ) -> None:
        super().__init__({}, log=log or CrashingLog(), clock=VirtualClock(), **names)
        self.kinds = dict(kinds or {})
        self.asked: list[tuple[str, Any]] = []
        """Kind and request of the effects in the order in which they were carried out."""

    def language(self, name: str) -> Language[Any]:
        assert name == LANGUAGE.name
        return REMEMBERING

    def carrier(self, ref: RunRef, admission: Admitted, keep: Keep) -> Carrier:
        carrier = super().carrier(ref, admission, keep)
        harness = self

        class Counting(Carrier):
            async def carry(self, job: Job, sessions: Any, reporter: Any) -> ev.Payload:
                harness.executed.append(job.key)
                intent = job.intent
                if isinstance(intent, ev.EffectCall) and intent.kind_ == "toolbox" and "'mcp'" in str(intent.request):
                    # No server of tools is reached in virtual time.
                    return ev.EffectResult(error=Failure("tool.unavailable", "no server"))
                return await super().carry(job, sessions, reporter)

        return Counting(
            models=carrier._models,  # pyright: ignore[reportPrivateUsage] - the same models, other effects
            tools=ToolEnvironment(env={}, script=self.script),
            kinds={kind: self._carrying(kind, answering) for kind, answering in self.kinds.items()},
            on_delta=lambda _job, _k, _text: None,
            model_timeout_s=10,
        )

    def _carrying(self, kind: str, answering: Answering) -> CarryEffect:
        async def carry(job: Job, request: JSON) -> tuple[JSON, JSON]:
            self.asked.append((kind, request))
            return await answering(job, request), None

        return carry

    async def begin(
        self,
        graph: dict[str, Any],
        input: JSON = None,
        run: str = "r1",
        breakpoints: Sequence[str] = (),
        **options: Any,
    ) -> RunRef:
        """Admit a run of a graph, as the intake does."""
        definition = REMEMBERING.parse(json.dumps(graph))
        assert isinstance(definition, Definition), definition
        start = StartRun(
            DefinitionSource("graph"),
            input=input,
            run_id=run,
            script=self.script or None,
            breakpoints=list(breakpoints),
            options=options,
        )
        plan = LANGUAGE.admit(definition, start)
        assert not isinstance(plan, list), plan
        ref = RunRef("acme", run)
        runlog = RunLog(self.log, ref, writer="admission", clock=self.clock)
        runlog.definition = definition.name
        accepted = ev.RunAccepted(
            definition=ev.DefinitionRef("graph", definition.hash, definition.source, definition.name),
            start=msgspec.to_builtins(start),
            outline=plan.outline,
            breakpoints=start.breakpoints,
            seed="seed",
        )
        runlog.state(accepted)
        await runlog.append_queued()
        return ref


# -- writing graphs ----------------------------------------------------------------------------------------------------


def node(id: str, type: str, subtype: str, attached: Sequence[str] = (), **configurations: Any) -> dict[str, Any]:
    written = {"id": id, "name": id, "type": type, "subtype": subtype, "configurations": configurations}
    return {**written, "attached_nodes": list(attached)} if attached else written


def webhook(id: str = "t", **configurations: Any) -> dict[str, Any]:
    """A trigger that passes on ``body``."""
    return node(id, "TRIGGER", "WEBHOOK", **{"webhook_path": "/x", **configurations})


def step(id: str, **configurations: Any) -> dict[str, Any]:
    """A node that passes on what it gets."""
    return node(id, "FLOW", "SPLIT", **configurations)


def flow(id: str, subtype: str, **configurations: Any) -> dict[str, Any]:
    return node(id, "FLOW", subtype, **configurations)


def condition(id: str, expression: str) -> dict[str, Any]:
    return flow(id, "IF", condition_expression=expression)


def where(field: str, operator: str, value: Any = None) -> dict[str, Any]:
    """A condition on items."""
    return {"field": field, "operator": operator, "value": value}


def graph(nodes: Sequence[dict[str, Any]], *wires: str, triggers: Sequence[str] | None = None, **more: Any) -> Any:
    """A graph. A wire reads ``source -> target`` or ``source.port -> target``, after ``|`` its conversion function."""
    connections: list[dict[str, Any]] = []
    for index, wire in enumerate(wires):
        way, _, conversion = wire.partition("|")
        source, target = (end.strip() for end in way.split("->"))
        name, _, port = source.partition(".")
        one: dict[str, Any] = {"id": f"c{index}", "from_node": name, "to_node": target}
        if port:
            one["output_key"] = port
        if conversion:
            one["conversion_function"] = conversion.strip()
        connections.append(one)
    listed = [one["id"] for one in nodes if one["type"] == "TRIGGER"] if triggers is None else list(triggers)
    metadata = {"id": "g", "name": "g", "created_time": 0, "created_by": "u"}
    return {"metadata": metadata, "nodes": list(nodes), "connections": connections, "triggers": listed, **more}


def problems_of(written: dict[str, Any] | str) -> list[Problem]:
    """The problems of a definition that is refused."""
    found = LANGUAGE.parse(written if isinstance(written, str) else json.dumps(written))
    assert isinstance(found, list), "it is not refused"
    return found


def parsed(written: dict[str, Any]) -> Definition[Any]:
    found = LANGUAGE.parse(json.dumps(written))
    assert isinstance(found, Definition), found
    return found


# -- performing them ---------------------------------------------------------------------------------------------------


@dataclass
class Performance:
    """A graph that has been run to its end."""

    harness: GraphTheatre
    ref: RunRef
    events: list[Event]

    @property
    def end(self) -> ev.RunEnd:
        found = ev.payload_of(self.events[-1])
        assert isinstance(found, ev.RunEnd)
        return found

    @property
    def results(self) -> dict[str, Any]:
        assert isinstance(self.end.results, dict), self.end
        return self.end.results

    @property
    def sequence(self) -> list[str]:
        return self.results["execution_sequence"]

    def record(self, node_id: str) -> dict[str, Any]:
        return self.results["node_executions"][node_id]

    def runs(self, node_id: str) -> list[dict[str, Any]]:
        return self.results["node_runs"][node_id]

    def out(self, node_id: str, port: str = "result") -> Any:
        """The output of a node on a port."""
        return self.record(node_id)["output_data"].get(port)

    def took(self, node_id: str) -> Any:
        """The input of a node on its port."""
        return self.record(node_id)["input_data"].get("result")

    def of_type(self, event_type: str) -> list[Any]:
        return [ev.payload_of(event) for event in self.events if event.type == event_type]


def perform(
    written: dict[str, Any],
    input: JSON = None,
    *,
    world: World | None = None,
    kinds: Mapping[str, Answering] | None = None,
    breakpoints: Sequence[str] = (),
    commands: Sequence[tuple[str, dict[str, Any]]] = (),
    script: dict[str, Any] | None = None,
    always_replay: bool = False,
    park_linger_s: float = 0.0,
    **options: Any,
) -> Performance:
    """Run a graph in virtual time to its end, and check its log and that it replays.

    ``commands`` (verb and body) arrive once the run has parked for the first time, one after the other.
    """
    performances: list[Performance] = []

    async def body() -> None:
        harness = GraphTheatre(
            kinds=kinds, script=script or {}, always_replay=always_replay, park_linger_s=park_linger_s
        )
        ref = await harness.begin(written, input, breakpoints=breakpoints, **options)
        if commands:
            assert await harness.perform(ref) == "parked"
            await harness.perform(ref, *(harness.command(verb, **body) for verb, body in commands))
        events = await finish(harness, ref, world or World())
        check_log(events)
        check_replay(harness.language, ref, events)
        check_view(events)
        performances.append(Performance(harness, ref, events))

    simulate(body)
    [performance] = performances
    return performance


def perform_node(own: dict[str, Any], input: JSON = None, *others: dict[str, Any], **names: Any) -> Performance:
    """Run a graph that starts from a node, which gets this input."""
    return perform(graph([own, *others], triggers=[]), input, start_from_node=own["id"], **names)


def check_view(events: Sequence[Event]) -> None:
    """Check that the projection of a run says what its end says."""
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    view = msgspec.to_builtins(fold(GraphExecution(), events))
    if isinstance(end.results, dict):
        told = {name: value for name, value in end.results.items() if name != "run_data"}
        assert timeless({name: view[name] for name in told}) == timeless(told)


def check_deaths(
    written: dict[str, Any],
    input: JSON = None,
    *,
    world: World | None = None,
    kinds: Mapping[str, Answering] | None = None,
    script: dict[str, Any] | None = None,
    **options: Any,
) -> Performance:
    """Perform a graph undisturbed, always in replay, and with a death after every event: the ends are the same."""
    undisturbed = perform(written, input, world=world, kinds=kinds, script=script, **options)
    expected = timeless(undisturbed.end.results)
    replaying = perform(written, input, world=world, kinds=kinds, script=script, always_replay=True, **options)
    assert timeless(replaying.end.results) == expected

    async def body() -> None:
        recorded = await read_run(undisturbed.harness.log, undisturbed.ref)
        for boundary in select_deaths([item.event for item in recorded])[:-1]:
            other = GraphTheatre(kinds=kinds, script=script or {})
            await copied(recorded[:boundary], cast("CrashingLog", other.log))
            cast("VirtualClock", other.clock).set(recorded[boundary - 1].event.time)
            events = await finish(other, undisturbed.ref, world or World())
            check_log(events)
            check_replay(other.language, undisturbed.ref, events)
            end = ev.payload_of(events[-1])
            assert isinstance(end, ev.RunEnd)
            assert timeless(end.results) == expected, f"after {boundary} events"
            before = {item.event.key for item in recorded[:boundary] if ev.TYPES[item.event.type].kind == "outcome"}
            assert not before & set(other.executed), f"executed again after {boundary} events"

    simulate(body)
    return undisturbed


_TIMES = frozenset(
    {
        "start_time",
        "end_time",
        "duration_ms",
        "timestamp",
        "wait_start_time",
        "wait_end_time",
        "wait_duration_seconds",
        "waiting_since",
        "delay_start_time",
        "delay_end_time",
        "actual_delay_seconds",
    }
)


def timeless(value: Any, others: Collection[str] = ()) -> Any:
    """A value without the times in it, which a death moves, and without these other members."""
    match value:
        case dict():
            kept = {name: member for name, member in value.items() if name not in _TIMES and name not in others}
            return {name: timeless(member, others) for name, member in kept.items()}
        case list():
            return [timeless(item, others) for item in value]
        case _:
            return value


def fails(code: str = "http.down") -> Answering:
    """An effect that fails."""

    async def carry(_job: Job, _request: Any) -> JSON:
        raise EffectFailed(Failure(code, f"{code}!"))

    return carry


def answers(*values: JSON) -> Answering:
    """An effect that is answered with these values, one after the other; the last one repeats."""
    left = list(values)

    async def carry(_job: Job, _request: Any) -> JSON:
        return left.pop(0) if len(left) > 1 else left[0]

    return carry


STARTED_MS = int(BEGINNING.timestamp() * 1000)
