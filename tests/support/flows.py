"""Flows on the real run actor: a harness that speaks the flow language, in virtual time, and the conformance corpus."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.actors.carrier import Carrier, Job
from callboard.actors.providers.catalog import Providers
from callboard.actors.tools.tool import Keep, ToolEnvironment
from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.events import Environment, Event
from callboard.bus.subjects import RunRef
from callboard.languages.flow.language import LANGUAGE
from callboard.languages.language import Language
from callboard.languages.plan import Definition
from callboard.lib.json_types import JSON
from callboard.runtime.admission.definitions import Remembering
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.run.log import RunLog
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import VirtualClock, simulate
from tests.support.conformance import CORPUS
from tests.support.run_harness import RunHarness
from tests.support.simulation import World, finish

SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"
MOCK = "mwl:provider.call/mwl/mock/v1"
RETRY = "mwl:provider.middleware/mwl/retry/v1"
TIMEOUT = "mwl:provider.middleware/mwl/timeout/v1"
LOOP = "mwl:provider.middleware/mwl/loop/v1"
FINALLY = "mwl:provider.middleware/mwl/finally/v1"

REMEMBERING = Remembering(LANGUAGE)
"""As workers have it: a definition that was parsed is not parsed again."""


class FlowTheatre(RunHarness):
    """A harness whose plays are flows."""

    def __init__(self, log: CrashingLog | None = None, **names: Any) -> None:
        super().__init__({}, log=log or CrashingLog(), clock=VirtualClock(), **names)
        self.providers: dict[str, Any] = {}
        self.contracts: dict[str, Any] = {}
        self.script: dict[str, Any] = names.get("script", {})

    def language(self, name: str) -> Language[Any]:
        assert name == LANGUAGE.name
        return REMEMBERING

    def environment(self, admission: Admitted) -> Environment:
        return Environment(default_model="scripted", providers=self.contracts)

    def carrier(self, ref: RunRef, admission: Admitted, keep: Keep) -> Carrier:
        carrier = super().carrier(ref, admission, keep)
        providers = Providers(self.providers)
        harness = self

        class Counting(Carrier):
            async def carry(self, job: Job, sessions: Any, reporter: Any) -> ev.Payload:
                harness.executed.append(job.key)
                return await super().carry(job, sessions, reporter)

        return Counting(
            models=carrier._models,  # pyright: ignore[reportPrivateUsage] - the same models, other effects
            tools=ToolEnvironment(env={}, script=self.script),
            kinds={"provider": providers.carry},
            on_delta=lambda _job, _k, _text: None,
            model_timeout_s=10,
        )

    async def begin(
        self,
        flow: dict[str, Any],
        input: JSON = None,
        arguments: dict[str, Any] | None = None,
        run: str = "r1",
        breakpoints: Sequence[str] = (),
    ) -> RunRef:
        """Admit a run of a flow, as the intake does."""
        definition = REMEMBERING.parse(json.dumps(flow))
        assert isinstance(definition, Definition), definition
        start = StartRun(
            DefinitionSource("flow"),
            input=input,
            arguments=arguments or {},
            run_id=run,
            script=self.script,
            breakpoints=list(breakpoints),
        )
        plan = LANGUAGE.admit(definition, start)
        assert not isinstance(plan, list), plan
        ref = RunRef("acme", run)
        runlog = RunLog(self.log, ref, writer="admission", clock=self.clock)
        runlog.definition = definition.hash[:12]
        accepted = ev.RunAccepted(
            definition=ev.DefinitionRef("flow", definition.hash, definition.source, ""),
            start=msgspec.to_builtins(start),
            outline=plan.outline,
            breakpoints=start.breakpoints,
            seed="seed",
        )
        runlog.state(accepted)
        await runlog.append_queued()
        return ref


# -- the corpus -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """One scenario of a conformance case."""

    name: str
    definition: dict[str, Any]
    input: JSON
    arguments: dict[str, Any]
    expected: dict[str, Any]


def scenarios() -> list[Any]:
    """Every scenario of the public corpus as a test parameter."""
    return [
        pytest.param(_scenario(case, folder), id=f"{case.name}/{folder.name}")
        for case in sorted(path.parent for path in CORPUS.glob("*/case.json"))
        for folder in sorted((case / "scenarios").iterdir())
    ]


def _scenario(case: Path, folder: Path) -> Scenario:
    arguments = folder / "arguments.json"
    return Scenario(
        f"{case.name}/{folder.name}",
        json.loads((case / "definition.json").read_text()),
        json.loads((folder / "input.json").read_text()),
        json.loads(arguments.read_text()) if arguments.exists() else {},
        json.loads((folder / "expected-result.json").read_text()),
    )


def result_of(events: list[Event]) -> dict[str, Any]:
    """The root frame's Result."""
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd), events[-1]
    assert isinstance(end.results, dict), end
    return end.results


# -- writing flows ----------------------------------------------------------------------------------------------------


def flow(steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A root flow that begins with the first of its steps."""
    return {"$schema": SCHEMA, **subflow(steps, **fields)}


def subflow(steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"entrypoint": next(iter(steps)), "steps": steps, **fields}


def mock(**arguments: Any) -> dict[str, Any]:
    """A call of the mock provider."""
    return {"provider": MOCK, **({"with": arguments} if arguments else {})}


def failing(code: str, **more: Any) -> dict[str, Any]:
    """A call that fails with a code."""
    return mock(failure={"code": code, **more})


def call(target: dict[str, Any], next: str = "done", **fields: Any) -> dict[str, Any]:
    """A Call step."""
    return {"action": "Call", "call": target, "next": next, **fields}


def returned(value: JSON = None, **fields: Any) -> dict[str, Any]:
    """A Return step; without a value it returns what it receives."""
    return {"action": "Return", **({"value": value} if value is not None else {}), **fields}


def caught(next: str, *codes: str, **fields: Any) -> dict[str, Any]:
    """A catch clause; without codes it catches everything."""
    return {"match": {"codes": list(codes or ["*"])}, "next": next, **fields}


def entry(provider: str, **phases: Any) -> dict[str, Any]:
    """A middleware entry."""
    return {"provider": provider, **phases}


def retry(attempts: int, *codes: str, **phases: Any) -> dict[str, Any]:
    policy = {"match": {"codes": list(codes or ["*"])}, "attempts": attempts}
    return entry(RETRY, onEntry={"with": {"policies": [policy]}}, **phases)


def timeout(duration: str, **phases: Any) -> dict[str, Any]:
    return entry(TIMEOUT, onEntry={"with": {"duration": duration}}, **phases)


def cleanup(target: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A Finally that dispatches a call."""
    return entry(FINALLY, onAlways={"with": {"call": target, **more}})


@dataclass
class Performance:
    """A flow that has been run to its end."""

    harness: FlowTheatre
    ref: RunRef
    events: list[Event]

    @property
    def result(self) -> dict[str, Any]:
        return result_of(self.events)

    @property
    def value(self) -> JSON:
        """The value of its success."""
        assert self.result["type"] == "success", self.result
        return self.result["value"]

    @property
    def chain(self) -> list[str]:
        """The codes of its failure, from the head down."""
        found: list[str] = []
        link: Any = self.result
        while link is not None:
            found.append(link["code"])
            link = link.get("previous")
        return found

    def keys(self, event_type: str) -> list[str]:
        """Keys, or paths, of the events of a type."""
        return [event.key or event.path for event in self.events if event.type == event_type]


def perform(
    definition: dict[str, Any],
    input: JSON = None,
    arguments: dict[str, Any] | None = None,
    *,
    commands: Sequence[tuple[str, dict[str, Any]]] = (),
    breakpoints: Sequence[str] = (),
    world: World | None = None,
    **names: Any,
) -> Performance:
    """Run a flow in virtual time to its end, and check its log and that it replays.

    ``commands`` (verb and body) arrive once the run has parked for the first time, one after the other.
    """
    performances: list[Performance] = []

    async def body() -> None:
        harness = FlowTheatre(**names)
        ref = await harness.begin(definition, input, arguments, breakpoints=breakpoints)
        if commands:
            assert await harness.perform(ref) == "parked"
            await harness.perform(ref, *(harness.command(verb, **body) for verb, body in commands))
        events = await finish(harness, ref, world or World())
        check_log(events)
        check_replay(harness.language, ref, events)
        performances.append(Performance(harness, ref, events))

    simulate(body)
    [performance] = performances
    return performance


PAYMENT = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}


def build_question(**question: Any) -> dict[str, Any]:
    """The start of a run that asks and returns the answer."""
    human = {"provider": "mwl:provider.call/callboard/human/v1", "with": question}
    steps = {"ask": call(human), "done": returned()}
    return {"definition": {"source": json.dumps(flow(steps))}}


def build_payment() -> dict[str, Any]:
    """The start of a run that calls a tool after a person's approval, and returns its output."""
    source = {"type": "scripted", "tools": [{"name": "pay", "input_schema": PAYMENT}]}
    given = {"source": source, "tool": "pay", "arguments": {"cents": 900}, "approve": "always"}
    steps = {"pay": call({"provider": "mwl:provider.call/callboard/tool/v1", "with": given}), "done": returned()}
    return {"definition": {"source": json.dumps(flow(steps))}, "script": {"tools": {"pay": [{"output": "paid"}]}}}
