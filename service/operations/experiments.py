"""Experiments: makes the start message of an experiment, and reads its report from the log."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event
from callboard.features.evaluation.datasets import Dataset
from callboard.features.evaluation.report import ExperimentReport, report_of, rows_of
from callboard.features.evaluation.scorers import Scorer

BASELINE = "baseline"
"""The candidate that changes nothing."""


def experiment_start(
    found: Dataset,
    changes: Mapping[str, Mapping[str, Any]],
    tools: Mapping[str, str],
    repeat: int,
    *,
    fresh: bool,
    prompts: Mapping[str, str],
) -> dict[str, Any]:
    """Return the start message of an experiment over all cases of a dataset.

    ``changes`` are the candidates by name: the members of start messages that each changes; all have the ``prompts``.
    Without any the candidate is the baseline. If cases are to be performed several times, or ``fresh``, every
    model turn is asked again; so are those of the baseline, whose differences are the noise. With another script, too:
    requests do not show what a script answers.
    """
    candidates: dict[str, Any] = {}
    if not changes or fresh or repeat > 1:
        candidates[BASELINE] = {"fresh": fresh or repeat > 1, "tools": dict(tools)}
    for name, one in changes.items():
        anew = fresh or repeat > 1 or "script" in one
        candidates[name] = {"start": dict(one), "prompts": dict(prompts), "tools": dict(tools), "fresh": anew}
    document = {
        "dataset": found.name,
        "version": found.version,
        "cases": [case.id for case in found.cases],
        "candidates": candidates,
        "repeat": repeat,
    }
    tags = {"dataset": found.name}
    return {"definition": {"source": msgspec.json.encode(document).decode()}, "input": None, "tags": tags}


def read_report(events: Sequence[Event], scorers: Sequence[Scorer]) -> ExperimentReport:
    """Return the report about an experiment, from its events.

    :raises CallboardError: if the run is not an experiment
    """
    accepted = ev.payload_of(events[0])
    document: Any = None
    if isinstance(accepted, ev.RunAccepted):
        try:
            document = msgspec.json.decode(accepted.definition.source)
        except msgspec.DecodeError:
            document = None
    if not isinstance(document, dict) or not {"dataset", "version", "candidates"} <= document.keys():
        run = events[0].run
        raise CallboardError(
            "experiment.unknown", "the run is not an experiment", run, "Name a run of `callboard eval`."
        )
    end = ev.payload_of(events[-1])
    status = end.status if isinstance(end, ev.RunEnd) else "running"
    noise = BASELINE if document["candidates"].get(BASELINE, {}).get("fresh") else ""
    named = events[0].run, document["dataset"], document["version"]
    return report_of(*named, status, rows_of(events), scorers, noise)
