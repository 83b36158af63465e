"""Short workflows for tests: documents from a few words, runs of them in a scenario, and the contents of their logs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict, TypeVar, Unpack

import anyio
from msgspec import Struct
from msgspec.structs import replace

from callboard.actors.models.model import ModelTurn
from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.effects import Failure, Text, ToolOutput
from callboard.bus.events import Environment, Event, Problem
from callboard.bus.log.memory import MemoryLog
from callboard.bus.subjects import RunRef
from callboard.languages.plan import Definition, Plan
from callboard.languages.registry import language
from callboard.languages.workflow.document import Workflow
from callboard.lib.canonical_json import digest
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.interpreter.replay import LanguageOf
from callboard.runtime.run.actor import RunActor
from callboard.runtime.run.log import RunLog, read_run
from callboard.testing import Answers, Listing, Scenario
from callboard.testing.checks import check_log, check_replay
from callboard.testing.door import NamedDefinitions
from callboard.testing.family import Family
from callboard.testing.services import ScriptedServices

WORKFLOW = language("workflow")


def document(nodes: dict[str, dict[str, Any]], edges: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Make a document: nodes get a name and an instruction, edges may be ``(from, to)`` or ``(from, to, when)``."""
    return {
        "id": "w",
        "name": "W",
        "entry": next(iter(nodes)),
        "nodes": {name: {"name": name, "instruction": f"Do {name}.", **node} for name, node in nodes.items()},
        "edges": [_edge(edge) for edge in edges or []],
        **fields,
    }


def _edge(edge: Any) -> dict[str, Any]:
    if isinstance(edge, dict):
        return edge
    source, target, *when = edge
    return {"from": source, "to": target, **({"when": when[0]} if when else {})}


def parsed(raw: dict[str, Any] | str) -> Definition[Workflow]:
    source = raw if isinstance(raw, str) else json.dumps(raw)
    definition = WORKFLOW.parse(source)
    assert isinstance(definition, Definition), [str(problem) for problem in definition]
    return definition


def problems_of(raw: dict[str, Any] | str) -> list[Problem]:
    source = raw if isinstance(raw, str) else json.dumps(raw)
    problems = WORKFLOW.parse(source)
    return [] if isinstance(problems, Definition) else problems


def codes_of(raw: dict[str, Any] | str) -> list[str]:
    return [problem.code for problem in problems_of(raw) if problem.severity == "error"]


def start(**fields: Any) -> StartRun:
    return StartRun(DefinitionSource("workflow", "…"), **fields)


def admitted(raw: dict[str, Any] | str, **fields: Any) -> Plan[Workflow]:
    plan = WORKFLOW.admit(parsed(raw), start(**fields))
    assert isinstance(plan, Plan), [str(problem) for problem in plan]
    return plan


def refused(raw: dict[str, Any] | str, **fields: Any) -> list[Problem]:
    problems = WORKFLOW.admit(parsed(raw), start(**fields))
    assert isinstance(problems, list)
    return problems


P = TypeVar("P", bound=Struct)


@dataclass
class Ran:
    """A finished run: its log, and what its models were asked, by effect key."""

    events: list[Event]
    turns: dict[str, ModelTurn] = field(default_factory=dict[str, ModelTurn])

    def check(self, language_of: LanguageOf = language) -> Self:
        """Check what holds of every finished log, and its replay."""
        check_log(self.events)
        check_replay(language_of, RunRef("default", self.events[0].run), self.events)
        return self

    def of(self, kind: type[P]) -> list[P]:
        """The payloads of all events of a type, in order."""
        found = [ev.payload_of(event) for event in self.events]
        return [payload for payload in found if isinstance(payload, kind)]

    def keys(self, kind: type[ev.Payload]) -> list[str]:
        """Where all events of a type happened, in order: effect keys, or ``path#iteration``."""
        return [_where(event) for event in self.events if event.type == kind.type]

    @property
    def end(self) -> ev.RunEnd:
        return self.of(ev.RunEnd)[0]

    @property
    def error(self) -> Failure:
        """The error of a run that has failed."""
        assert self.end.error is not None, self.end
        return self.end.error

    @property
    def calls(self) -> dict[str, ev.ModelCall]:
        """The calls of models in the log, by effect key."""
        return dict(zip(self.keys(ev.ModelCall), self.of(ev.ModelCall), strict=True))

    def types(self) -> list[str]:
        """The types of the interpreter's events and effects, in order."""
        return [event.type for event in self._stated()]

    def fingerprint(self) -> list[tuple[str, str]]:
        """The interpreter's events and effects, for comparison with another run."""
        return [(_where(event), digest(event.type, ev.payload_of(event))) for event in self._stated()]

    def _stated(self) -> list[Event]:
        aside = {event.n for event in self.events if event.type == ev.NodeProgress.type and event.key}
        kinds = [(event, ev.TYPES[event.type].kind) for event in self.events if event.n not in aside]
        return [event for event, kind in kinds if kind != "outcome" and not event.type.startswith("run.")]

    def text(self, key: str) -> str:
        """The words of a model call, as its model saw them."""
        return "\n".join(
            "".join(part.text for part in message.parts if isinstance(part, Text))
            for message in self.turns[key].messages
        )

    def told(self, key: str) -> list[Any]:
        """The results of tools in a model call: each one's output, or the code of its failure."""
        parts = [part for part in self.turns[key].messages[-1].parts if isinstance(part, ToolOutput)]
        return [part.error.code if part.error else part.output for part in parts]

    def data(self, node: str) -> dict[str, Any]:
        return self.end.results[node]["data"]

    def status(self, node: str) -> str:
        return self.end.results[node]["status"]

    def routes(self) -> list[tuple[str, str, str]]:
        return [(route.source, route.target, route.reason) for route in self.of(ev.Route)]

    def warnings(self) -> list[str]:
        return [warning.code for warning in self.of(ev.NodeWarning)]

    def tools(self, key: str = "a#1.1!turn.1") -> list[str]:
        """The names of the tools that a model call offers."""
        return [tool.name for tool in self.calls[key].tools]

    def toolboxes(self) -> list[Any]:
        """The sources of each toolbox that was opened."""
        return [call.request for call in self.of(ev.EffectCall) if call.kind_ == "toolbox"]


def _where(event: Event) -> str:
    return event.key or f"{event.path}#{event.iteration}"


class Kit(TypedDict, total=False):
    """The arguments of a `Scenario`."""

    effects: Mapping[str, Answers]
    servers: Mapping[str, Listing]
    env: Mapping[str, str]
    newest_first: bool


def run(
    raw: dict[str, Any] | str,
    script: dict[str, Any] | None = None,
    *,
    input: Any = None,
    options: dict[str, Any] | None = None,
    files: dict[str, str] | None = None,
    cancel_at: str = "",
    **kit: Unpack[Kit],
) -> Ran:
    """Run a workflow to its end, and check its log. Without a script every node answers ``ok``."""
    with Scenario(**kit) as scenario:
        if cancel_at:
            scenario.cancel("told to", at=cancel_at)
        scenario.start(
            source=raw if isinstance(raw, str) else json.dumps(raw),
            language="workflow",
            script=script if script is not None else {"default": {"text": "ok"}},
            input=input,
            options=options or {},
            files=files or {},
        )
        return Ran(scenario.events, scenario.turns).check()


def run_elsewhere(ran: Ran, environment: Environment, effects: Mapping[str, Answers] | None = None) -> Ran:
    """Run a workflow again as it was admitted, by a worker that records another environment."""
    return _run_from(ran, replace(ran.of(ev.RunStart)[0], environment=environment), effects or {})


def _run_from(ran: Ran, start: ev.RunStart, effects: Mapping[str, Answers]) -> Ran:
    async def body() -> Ran:
        log, ref = MemoryLog(), RunRef("default", ran.events[0].run)
        runlog = RunLog(log, ref, writer="another")
        runlog.definition = ran.events[0].definition
        runlog.state(ran.of(ev.RunAccepted)[0])
        runlog.state(start)
        await runlog.append_queued()
        services = ScriptedServices(Definitions(), effects)
        services.children = Family(services, log, NamedDefinitions({}))
        await RunActor(ref, log, services).run()
        return Ran(
            [item.event for item in await read_run(log, ref)], {key: turn for (_, key), turn in services.turns.items()}
        ).check()

    return anyio.run(body)


def by_value(sources: dict[str, Any]) -> Callable[[Any], Any]:
    """Answer for sources by their value: with a record, or with a failure."""

    def answer(request: Any) -> Any:
        source = sources[request["value"]]
        return source(request) if callable(source) else source

    return answer


def look(q: str = "") -> str:
    """Look somewhere: a tool for skills of tests."""
    return f"nothing at {q}"


LOOK = f"{__name__}:look"


def scripted_skill(skill_id: str, *names: str, **fields: Any) -> dict[str, Any]:
    """Make a skill; its tools are those named, which the script answers for, or the ``tools`` among the fields."""
    return {
        "id": skill_id,
        "name": skill_id.title(),
        "description": "for tests",
        "category": "general",
        "config": {},
        "tools": [{"name": tool, "description": tool, "input_schema": {"type": "object"}} for tool in names],
        **fields,
    }
