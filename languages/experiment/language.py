"""Experiments: each case of a dataset is replayed with each candidate, and performed again if it differs.

A case is a node of the experiment. Its effects, of the kind ``case``, are carried out by the worker: the replay in
memory, which finds the first difference; the answers to what the case asks people; the comparison. A case that differs
is performed again as a child run, a fork of the recorded run. So the log has every step of an experiment, and a worker
that dies in the middle neither repeats a case that has ended nor loses one.
"""

from collections import Counter, deque
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.commands import StartRun
from callboard.bus.effects import Failure
from callboard.bus.events import Outline, OutlineNode, Problem
from callboard.bus.paths import child, encode_id
from callboard.languages.language import Cancelled, End, Failed, Node, Stage
from callboard.languages.plan import Definition, Needs, Plan
from callboard.languages.problems import Tree
from callboard.languages.source_text import read_object
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON


class Candidate(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a candidate changes: members of the start message. With ``fresh``, no model turn is taken from the record.

    ``prompts`` replace those of nodes, by id, in the definition of each case. ``tools`` are the policies for calls that
    the record does not have (`callboard.bus.commands.Recording`).
    """

    start: dict[str, Any] = {}
    prompts: dict[str, str] = {}
    tools: dict[str, str] = {}
    fresh: bool = False


class Experiment(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The document of an experiment: a version of a dataset, its cases, and the candidates by name."""

    dataset: str
    version: int
    cases: list[str]
    candidates: dict[str, Candidate]
    repeat: int = 1
    at_once: int = 8


class Trial(Struct, frozen=True):
    """A case with a candidate, for the ``repeat``-th time, from 1."""

    candidate: str
    case: str
    repeat: int


DONE = Failure("cancelled", "the case has ended", type="cancellation")
"""Why the answering of a case's questions is stopped."""


class ExperimentLanguage:
    """Experiments, as the runtime sees them."""

    name = "experiment"
    rules = 0

    def parse(self, source: str) -> Definition[Experiment] | list[Problem]:
        tree = read_object(source, "experiment", "dataset, version, cases and candidates")
        if not isinstance(tree, Tree):
            return tree
        try:
            document = msgspec.convert(tree.value, Experiment)
        except msgspec.ValidationError as error:
            return [tree.problem("SCHEMA", str(error), expected="an experiment, as `callboard eval` makes it")]
        return Definition(self.name, f"eval-{document.dataset}", source, canonical(tree.value), document)

    def admit(self, definition: Definition[Experiment], start: StartRun) -> Plan[Experiment] | list[Problem]:
        names = [OutlineNode(one, one, self.name) for one in definition.document.candidates]
        return Plan(definition, start.input, start.arguments, start.options, Outline(names), Needs(model=False))

    async def interpret(self, plan: Plan[Experiment], stage: Stage) -> End:
        document: Experiment = plan.definition.document
        left = deque(
            Trial(candidate, case, repeat)
            for repeat in range(1, document.repeat + 1)
            for case in document.cases
            for candidate in document.candidates
        )
        verdicts: Counter[str] = Counter()

        async def work() -> None:
            while left:
                trial = left.popleft()
                verdicts[await _perform(stage, document.candidates[trial.candidate], trial)] += 1
                await stage.breathe()

        tasks = [stage.spawn(work()) for _ in range(min(document.at_once, len(left)))]
        await stage.join(*tasks)
        await stage.checkpoint()
        return End("completed", dict(sorted(verdicts.items())))


async def _perform(stage: Stage, candidate: Candidate, trial: Trial) -> str:
    """Perform a trial; return its verdict, which its node has with everything else about it."""
    again = f"[{trial.repeat - 1}]" if trial.repeat > 1 else ""
    path = child(encode_id(trial.candidate), encode_id(trial.case) + again)
    node = stage.enter(path, node=trial.case, name=trial.candidate)
    try:
        row = await _row(stage, node, candidate, trial)
    except Cancelled as cancelled:
        node.exit("cancelled", error=cancelled.cause)
        raise
    node.exit("failed" if row["verdict"] == "failed" else "ok", {**msgspec.to_builtins(trial), **row})
    return row["verdict"]


async def _row(stage: Stage, node: Node, candidate: Candidate, trial: Trial) -> dict[str, Any]:
    asked: dict[str, JSON] = {"case": trial.case, "candidate": trial.candidate}
    found = await node.call("replay", "case", {"do": "replay", **asked})
    if isinstance(found, Failed):
        return _failed(found.error)
    row: Any = found.value
    if row["verdict"] != "differs":
        return row
    start: dict[str, Any] = {**candidate.start, **row["start"]}
    definition, given = start.pop("definition", {}), start.pop("input", None)
    answering = stage.spawn(node.call("answer", "case", {"do": "answer", **asked}))
    end = await node.child("run", definition, given, **start)
    stage.cancel(answering, DONE, node)
    await stage.join(answering)
    compared = await node.call("compare", "case", {"do": "compare", **asked, "place": row["place"]})
    if isinstance(compared, Failed):
        error = end.error if compared.error.code == "run.unknown" and end.error is not None else compared.error
        return _failed(error)
    return {**row, "start": None, **_object(compared.value)}


def _object(value: JSON) -> dict[str, Any]:
    assert isinstance(value, dict)
    return value


def _failed(error: Failure) -> dict[str, Any]:
    return {"verdict": "failed", "error": {"code": error.code, "message": error.message}}


LANGUAGE = ExperimentLanguage()
