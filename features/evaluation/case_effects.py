"""The effects of an experiment: replay a case in memory, answer its questions, compare its behaviour.

Each may be carried out again after a crash: a replay and a comparison write nothing, and answers have ids.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from callboard.actors.carrier import EffectFailed, Job
from callboard.bus import events as ev
from callboard.bus.commands import Recording
from callboard.bus.effects import Failure
from callboard.bus.errors import CallboardError, KeyMissing, LogUnreadable
from callboard.bus.events import Event
from callboard.bus.log.recorded import readable
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import purge_mark
from callboard.bus.paths import effect_key, parse_key
from callboard.bus.prices import Prices
from callboard.bus.run_ids import child_id
from callboard.bus.subjects import RunRef
from callboard.features.evaluation.case_answers import answer_case
from callboard.features.evaluation.datasets import Dataset, DatasetCase, Datasets
from callboard.features.evaluation.parting import as_candidate, find_parting
from callboard.features.evaluation.verdicts import verdict_of
from callboard.languages.hosting import BLOCKING
from callboard.languages.registry import authoring
from callboard.lib.json_types import JSON
from callboard.projections.comparison.behaviour import behaviour_of, compare_behaviour
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.start_decision import AdmissibleRun, StartRefused
from callboard.runtime.admission.start_plans import CodeElsewhere
from callboard.runtime.admission.starts import Starts
from callboard.runtime.client.client import Client
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.run.log import events_of, read_run

CHILD = "run"
"""The slot of the effect that performs a case."""

CASE_S_MAX = 3_600
"""How long a case may take if its recorded run has no limit of seconds. A timer or a question may wait longer."""


class CandidateOf(Protocol):
    """A candidate as an experiment describes it (`callboard.languages.experiment`)."""

    start: dict[str, Any]
    prompts: dict[str, str]
    tools: dict[str, str]
    fresh: bool


class ExperimentOf(Protocol):
    """The document of an experiment."""

    dataset: str
    version: int
    candidates: dict[str, Any]


class CaseEffects:
    """Carries out the effects of the kind ``case`` of one worker."""

    def __init__(
        self,
        log: JetStreamLog,
        starts: Starts,
        definitions: Definitions,
        secrets: Callable[[Admitted], dict[str, str]],
        prices: Prices,
        replicas: int,
    ) -> None:
        self._log = log
        self._starts = starts
        self._definitions = definitions
        self._secrets = secrets
        self._prices = prices
        self._replicas = replicas
        self._datasets: dict[tuple[str, str, int], dict[str, DatasetCase]] = {}

    async def carry(self, experiment: ExperimentOf, key: str, job: Job, request: JSON) -> tuple[JSON, JSON]:
        """Carry out one effect of an experiment, whose log is encrypted with ``key``, if that is not empty.

        :raises EffectFailed: if the case cannot be replayed, performed or compared
        """
        asked: Any = request
        try:
            case = await self._case(job.ref.tenant, experiment, asked["case"])
            candidate: CandidateOf = experiment.candidates[asked["candidate"]]
            match asked["do"]:
                case "replay":
                    row = await self._replay(job, case, candidate, asked["candidate"], key)
                case "answer":
                    row = await answer_case(Client(self._log, job.ref.tenant), case.run, self._child(job).run)
                case _:
                    row = await self._compare(job, case, asked["place"])
        except CallboardError as error:
            raise EffectFailed(Failure(error.code, error.message, retryable=False)) from error
        return row, None

    async def _case(self, tenant: str, experiment: ExperimentOf, id: str) -> DatasetCase:
        key = (tenant, experiment.dataset, experiment.version)
        if key not in self._datasets:
            found: Dataset = await Datasets(self._log, tenant, self._replicas).get(*key[1:])
            self._datasets = {key: {case.id: case for case in found.cases}}
        if id not in self._datasets[key]:
            raise CallboardError("dataset.case", f"the dataset {key[1]}@{key[2]} has no case {id!r}", id)
        return self._datasets[key][id]

    # -- replay -------------------------------------------------------------------------------------------------------

    async def _replay(
        self, job: Job, case: DatasetCase, candidate: CandidateOf, named: str, key: str
    ) -> dict[str, JSON]:
        tags = {"experiment": job.ref.run, "case": case.id[:256], "candidate": named}
        about: dict[str, JSON] = {"expected": case.expected} if case.expected is not UNSET else {}
        if not case.run:
            if "definition" not in candidate.start:
                message = "the case has an input and no run; name the definition to perform with --definition"
                raise CallboardError("case.definition", message, case.id)
            given = case.input if case.input is not UNSET else None
            return {**about, "verdict": "differs", "place": 0, "start": {"input": given, "tags": tags}, "input": given}
        origin = RunRef(job.ref.tenant, case.run)
        try:
            events = await self._read(origin)
        except (KeyMissing, LogUnreadable) as error:
            return {**about, "verdict": "skipped", "error": {"code": error.code, "message": error.message}}
        accepted = _accepted(events)
        if accepted.encryption_key not in ("", key):
            # The log of the experiment has inputs and outputs of its cases.
            message = f"run {case.run} is encrypted; pass --encryption-key {accepted.encryption_key}"
            return {"verdict": "skipped", "origin": case.run, "error": {"code": "case.encrypted", "message": message}}
        about |= {"origin": case.run, "input": accepted.start.get("input")}
        if events[-1].type != ev.RunEnd.type:
            message = f"run {case.run} has not ended"
            return {**about, "verdict": "skipped", "error": {"code": "case.open", "message": message}}
        end = ev.payload_of(events[-1])
        if isinstance(end, ev.RunEnd) and end.error is not None and end.error.code == BLOCKING:
            message = f"the code of run {case.run} has blocked its worker, and would again"
            return {**about, "verdict": "skipped", "error": {"code": BLOCKING, "message": message}}
        started = next((event for event in events if event.type == ev.RunStart.type), None)
        if started is None:
            message = f"run {case.run} ended before it began"
            return {**about, "verdict": "skipped", "error": {"code": "replay.not_started", "message": message}}
        start = {**_start_of_case(case, accepted, candidate), **_with_prompts(accepted, candidate)}
        run, parting = await self._rehearse(
            origin, {**candidate.start, **start, "fork": {"run": case.run, "at": started.n}}
        )
        admission = _admission(accepted, run, self._definitions)
        members = parting.forked_from.replaced.get(started.n, {})
        other = candidate.start.get("model", accepted.start.get("model")) != accepted.start.get("model")
        model = parting.forked_from.default_model if other else ""
        begun = as_candidate(started, members, model, parting.forked_from.stand_in)
        record = [begun if event is started else event for event in events]
        size = sum(len(event.payload) for event in events)
        work = partial(find_parting, origin, record, admission, self._secrets(admission), fresh=candidate.fresh)
        place = await self._definitions.offload(work, size=size, source=run.plan.definition.source)
        behaviour = behaviour_of(events, prices=self._prices)
        known: dict[str, JSON] = {
            **about,
            "output": behaviour.output,
            "status": behaviour.status,
            "effort": msgspec.to_builtins(behaviour.effort),
        }
        if place is None:
            return {**known, "verdict": "identical", "answered": {"recorded": sum(behaviour.answered.values())}}
        fork = {"run": case.run, "at": place.at}
        first = {"recorded": place.recorded, "requested": place.requested, "after": place.at}
        return {
            **known,
            "verdict": "differs",
            "place": place.at,
            "first": msgspec.to_builtins(first),
            "start": {**start, "fork": fork, "tags": tags},
        }

    async def _rehearse(self, origin: RunRef, document: dict[str, Any]) -> tuple[AdmissibleRun, Any]:
        """:raises CallboardError: if the candidate cannot be started with the case's input"""
        named = RunRef(origin.tenant, "rehearsal")
        try:
            return await self._starts.rehearse(named, document)
        except (StartRefused, CodeElsewhere) as refused:
            reasons = "; ".join(f"{one.code}: {one.message}" for one in refused.problems[:3])
            raise CallboardError(
                "case.refused", f"the start of the case is refused: {reasons}", origin.run
            ) from refused

    async def _read(self, ref: RunRef) -> list[Event]:
        events = events_of(readable(await read_run(self._log, ref)))
        if not events:
            gone = await purge_mark(self._log, ref)
            message = f"run {ref.run} was purged" if gone is not None else f"run {ref.run} does not exist"
            raise CallboardError("run.unknown", message, ref.run)
        return events

    # -- comparison ---------------------------------------------------------------------------------------------------

    def _child(self, job: Job) -> RunRef:
        """Return the run that performs a case, from another effect of its node."""
        key = parse_key(job.key)
        return RunRef(job.ref.tenant, child_id(job.ref.run, effect_key(key.path, key.iteration, key.attempt, CHILD)))

    async def _compare(self, job: Job, case: DatasetCase, place: int) -> dict[str, JSON]:
        child = self._child(job)
        performed = await self._read(child)
        record = await self._read(RunRef(job.ref.tenant, case.run)) if case.run else []
        again = behaviour_of(performed, record, self._prices)
        row: dict[str, JSON] = {
            "run": child.run,
            "output": again.output,
            "status": again.status,
            "answered": msgspec.to_builtins(again.answered),
            "effort": msgspec.to_builtins(again.effort),
        }
        if not record:
            return {**row, "verdict": "performed" if again.status == "completed" else "failed", "changes": []}
        before = behaviour_of(record, prices=self._prices)
        changes = compare_behaviour(before, again)
        verdict, changes = verdict_of(before, again, changes, case.expected)
        return {
            **row,
            "verdict": verdict,
            "changes": msgspec.to_builtins(changes),
            "before": {
                "output": before.output,
                "status": before.status,
                "effort": msgspec.to_builtins(before.effort),
            },
        }


def _accepted(events: Sequence[Event]) -> ev.RunAccepted:
    accepted = ev.payload_of(events[0])
    assert isinstance(accepted, ev.RunAccepted)
    return accepted


def _start_of_case(case: DatasetCase, accepted: ev.RunAccepted, candidate: CandidateOf) -> dict[str, Any]:
    """Return the members of a case's start that do not depend on the place where it parts from the record."""
    recording = Recording(case.run, msgspec.convert(candidate.tools, dict), candidate.fresh)
    start: dict[str, Any] = {
        "input": accepted.start.get("input"),
        "model": candidate.start.get("model", accepted.start.get("model")),
        "recording": msgspec.to_builtins(recording),
        "breakpoints": [],
        "limits": {"seconds": CASE_S_MAX, **accepted.start.get("limits", {}), "then": "cancel"},
    }
    return start | {"encryption_key": accepted.encryption_key or None}


def _with_prompts(accepted: ev.RunAccepted, candidate: CandidateOf) -> dict[str, Any]:
    """Return the members of the start that give a case its definition with other prompts.

    :raises CallboardError: if a node has no prompt that can be replaced
    """
    if not candidate.prompts:
        return {}
    known, given = accepted.definition, candidate.start.get("definition", {})
    source = given.get("source") or known.source
    write = authoring(known.language).with_prompt
    for node, prompt in candidate.prompts.items():
        written = write(source, node, prompt) if write is not None else None
        if written is None:
            message = f"the definition has no node {node!r} whose prompt can be replaced; change it with --definition"
            raise CallboardError("case.prompt", message, node)
        source = written
    kept = {} if given else {name: accepted.start[name] for name in ("files", "children") if name in accepted.start}
    named = {"name": known.name} if known.name and "name" not in candidate.start else {}
    return {**kept, **named, "definition": {"language": known.language, "source": source}}


def _admission(accepted: ev.RunAccepted, run: AdmissibleRun, definitions: Definitions) -> Admitted:
    """Return the candidate as if it had been started in place of the recorded run."""
    forked = accepted.forked_from
    plan = run.plan
    as_before = msgspec.structs.replace(
        run.accepted,
        seed=accepted.seed,
        forked_from=forked,
        continues=accepted.continues,
        breakpoints=accepted.breakpoints,
        start={},
    )
    return Admitted(as_before, run.start, definitions.language(plan.definition.language), plan)
