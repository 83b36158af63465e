"""Playbooks on the real run actor: a harness that speaks the playbook language, in virtual time."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from callboard.actors.carrier import Carrier, EffectFailed, Job
from callboard.actors.models.model import Model, ModelTurn, OnRetry, OnText, unheard
from callboard.actors.models.scripted import ScriptedModel
from callboard.actors.tools.tool import Keep, ToolEnvironment
from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.effects import Failure, ModelReply, Text
from callboard.bus.events import Event, Problem
from callboard.bus.subjects import RunRef
from callboard.languages.language import Language
from callboard.languages.plan import Definition, Plan
from callboard.languages.playbook.document import Playbook
from callboard.languages.playbook.language import LANGUAGE
from callboard.lib.json_types import JSON
from callboard.runtime.admission.definitions import Remembering
from callboard.runtime.admission.first_events import accepted_event
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.run.log import RunLog, read_run
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import VirtualClock, simulate
from tests.support.conformance import VECTORS
from tests.support.run_harness import RunHarness
from tests.support.simulation import World, copied, finish
from tests.support.sweeps import select_deaths

REMEMBERING = Remembering(LANGUAGE)
"""As workers have it: a definition that was parsed is not parsed again."""


def start_of(**fields: Any) -> StartRun:
    named: dict[str, Any] = {"run_id": "r1", **fields}
    return StartRun(DefinitionSource("playbook"), **named)


def definition_of(source: str) -> Definition[Playbook]:
    definition = REMEMBERING.parse(source)
    assert isinstance(definition, Definition), definition
    return definition


def plan_of(source: str, **fields: Any) -> Plan[Playbook]:
    plan = LANGUAGE.admit(definition_of(source), start_of(**fields))
    assert isinstance(plan, Plan), plan
    return plan


def refused(source: str, **fields: Any) -> list[Problem]:
    """Return the problems of a start."""
    problems = LANGUAGE.admit(definition_of(source), start_of(**fields))
    assert isinstance(problems, list), problems
    return problems


class PlaybookTheatre(RunHarness):
    """A harness whose plays are playbooks."""

    def __init__(self, log: CrashingLog | None = None, **names: Any) -> None:
        super().__init__({}, log=log or CrashingLog(), clock=VirtualClock(), **names)
        self.prompts: dict[str, str] = {}
        """The worker's prompts for ``@prompt``, as ``scheme:identifier``."""
        self.turns: list[ModelTurn] = []
        """The turns that models were asked for, repetitions included."""

    def language(self, name: str) -> Language[Any]:
        assert name == LANGUAGE.name
        return REMEMBERING

    def carrier(self, ref: RunRef, admission: Admitted, keep: Keep) -> Carrier:
        script = admission.start.script or {}
        harness = self

        class Listening:
            provider = "scripted"

            async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
                harness.turns.append(turn)
                return await ScriptedModel(script).turn(turn, on_text, on_retry)

        async def prompt(_job: Job, request: JSON) -> tuple[JSON, JSON]:
            text = self.prompts.get(f"{request['scheme']}:{request['identifier']}")
            if text is None:
                raise EffectFailed(Failure("prompt.unknown", "there is no such prompt"))
            return text, None

        class Counting(Carrier):
            async def carry(self, job: Job, sessions: Any, reporter: Any) -> ev.Payload:
                harness.executed.append(job.key)
                return await super().carry(job, sessions, reporter)

        async def models(_spec: str) -> tuple[Model, str]:
            return Listening(), "scripted"

        return Counting(
            models=models,
            tools=ToolEnvironment(env={}, script=script),
            kinds={"prompt": prompt},
            on_delta=lambda _job, _k, _text: None,
            model_timeout_s=10,
        )

    async def begin(self, source: str, **fields: Any) -> RunRef:
        """Admit a run of a playbook, as the intake does."""
        start = start_of(**fields)
        definition = definition_of(source)
        plan = LANGUAGE.admit(definition, start)
        assert isinstance(plan, Plan), plan
        ref = RunRef("acme", start.run_id or "")
        runlog = RunLog(self.log, ref, writer="admission", clock=self.clock)
        runlog.definition = definition.hash[:12]
        runlog.state(accepted_event(start, plan, ref))
        await runlog.append_queued()
        return ref


@dataclass
class Performance:
    """A playbook that has been run to its end."""

    harness: PlaybookTheatre
    ref: RunRef
    events: list[Event]

    @property
    def end(self) -> ev.RunEnd:
        payload = ev.payload_of(self.events[-1])
        assert isinstance(payload, ev.RunEnd), payload
        return payload

    @property
    def error(self) -> Failure:
        """The error of a run that has failed."""
        assert self.end.error is not None, self.end
        return self.end.error

    @property
    def results(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.end.results)

    @property
    def named(self) -> dict[str, str]:
        return self.results["named_outputs"]

    @property
    def statuses(self) -> dict[str, str]:
        return {step["label"]: step["status"] for step in self.results["steps"]}

    @property
    def prompts(self) -> list[str]:
        """The prompts of the model, step by step, without the context."""
        return [_texts(turn)[-1] for turn in self.harness.turns]

    @property
    def contexts(self) -> list[str]:
        """The contexts of the prompts, step by step."""
        return ["".join(_texts(turn)[:-1]) for turn in self.harness.turns]

    @property
    def warnings(self) -> list[str]:
        return [warning.code for warning in payloads(self.events, ev.NodeWarning)]

    def keys(self, event_type: str) -> list[str]:
        """Keys, or paths, of the events of a type."""
        return [event.key or event.path for event in self.events if event.type == event_type]


def _texts(turn: ModelTurn) -> list[str]:
    [message] = turn.messages
    return [part.text for part in message.parts if isinstance(part, Text)]


def payloads(events: Sequence[Event], kind: type[ev.Payload]) -> list[Any]:
    return [ev.payload_of(event) for event in events if event.type == kind.type]


@dataclass
class Play:
    """A playbook, its input, and the answers: by effect key, and by step the overrides of a resume."""

    source: str
    input: JSON = None
    turns: dict[str, list[Any]] = field(default_factory=dict[str, Any])
    tools: dict[str, list[Any]] = field(default_factory=dict[str, Any])
    answers: dict[str, list[JSON]] = field(default_factory=dict[str, Any])
    variables: dict[str, dict[str, Any]] = field(default_factory=dict[str, Any])
    prompts: dict[str, str] = field(default_factory=dict[str, str])
    start: dict[str, Any] = field(default_factory=dict[str, Any])
    step: bool = False
    """Whether a pause is ended by a step."""

    @property
    def script(self) -> dict[str, Any]:
        turns = {path: [_entry(entry) for entry in entries] for path, entries in self.turns.items()}
        return {"turns": turns, "tools": self.tools}

    @property
    def world(self) -> World:
        return World(answers=self.answers, variables=self.variables, step=self.step)

    async def begun(self, **names: Any) -> tuple[PlaybookTheatre, RunRef]:
        harness = PlaybookTheatre(**names)
        harness.prompts = self.prompts
        ref = await harness.begin(self.source, **{"input": self.input, "script": self.script, **self.start})
        return harness, ref


def _entry(entry: Any) -> Any:
    return {"text": entry} if isinstance(entry, str) else entry


async def performed(play: Play, **names: Any) -> Performance:
    """Run a playbook to its end, and check its log and that it replays."""
    harness, ref = await play.begun(**names)
    events = await finish(harness, ref, play.world)
    check_log(events)
    check_replay(harness.language, ref, events)
    return Performance(harness, ref, events)


def perform(play: Play, **names: Any) -> Performance:
    """Run a playbook in virtual time to its end."""
    found: list[Performance] = []

    async def body() -> None:
        found.append(await performed(play, **names))

    simulate(body)
    return found[0]


async def die_everywhere(play: Play) -> Performance:
    """Have the worker die after every event of a run: another one finishes it, to the same end. Return the run in which
    none has died."""
    done = await performed(play)
    recorded = await read_run(done.harness.log, done.ref)
    for boundary in select_deaths([item.event for item in recorded])[:-1]:
        other = PlaybookTheatre()
        other.prompts = play.prompts
        await copied(recorded[:boundary], cast("CrashingLog", other.log))
        cast("VirtualClock", other.clock).set(recorded[boundary - 1].event.time)
        events = await finish(other, done.ref, play.world)
        check_log(events)
        check_replay(other.language, done.ref, events)
        again = Performance(other, done.ref, events)
        assert essence(again) == essence(done), f"after {boundary} events"
    return done


def essence(done: Performance) -> Any:
    """The part of a run that must not depend on the deaths of workers."""
    return done.end.status, done.end.output, done.end.results, sorted(done.keys("node.exit"))


def live(body: Callable[[], Awaitable[Any]]) -> None:
    simulate(body)


# -- the public vectors -----------------------------------------------------------------------------------------------


def vectors() -> list[Any]:
    """Every public vector as a test parameter."""
    found = sorted(VECTORS.glob("*/*.playbook.md"))
    return [pytest.param(path, id=f"{path.parent.name}/{path.name.removesuffix('.playbook.md')}") for path in found]


def expected_of(path: Path) -> dict[str, Any]:
    """The expected end of a vector."""
    stem = path.name.removesuffix(".playbook.md")
    beside = [path.with_name(f"{stem}.{kind}.json") for kind in ("expected", "errors")]
    return json.loads(next(one for one in beside if one.exists()).read_text())


def compared(one: Any, other: Any) -> bool:
    """Compare as the vectors demand: absent is equal to empty, lines count where both have them."""
    match one, other:
        case dict(), dict():
            names = {*one, *other} - ({"line"} if not (one.get("line") and other.get("line")) else set())
            return all(compared(one.get(name), other.get(name)) for name in names)
        case list(), list() if len(one) == len(other):
            return all(compared(a, b) for a, b in zip(one, other, strict=True))
        case _:
            return one == other or (not one and not other)


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
