"""The report about an experiment: folded from its log, with scores, the worst cases first."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from callboard.bus.events import Event, NodeExit
from callboard.features.evaluation.scorers import JudgedAnswer, Mean, Scorer, mean_of
from callboard.features.evaluation.verdicts import WORST_FIRST, Verdict, place_of, verdict_of_changes
from callboard.lib.json_types import JSON
from callboard.projections.comparison.behaviour import WORST_FIRST as KINDS
from callboard.projections.comparison.behaviour import Change, Effort
from callboard.projections.projection import known_payload


class Before(Struct, frozen=True):
    """The recorded run of a case."""

    output: JSON = None
    status: str = ""
    effort: Effort = Effort()


class Row(Struct, omit_defaults=True):
    """A case with a candidate. ``origin`` is the recorded run, and ``run`` the one that has performed it again.

    ``noise`` counts the changes that are left out because the unchanged definition shows them too.
    """

    candidate: str
    case: str
    verdict: Verdict
    repeat: int = 1
    origin: str = ""
    run: str = ""
    input: JSON = None
    expected: JSON | UnsetType = UNSET
    output: JSON = None
    status: str = ""
    changes: list[Change] = []
    noise: int = 0
    answered: dict[str, int] = {}
    effort: Effort = Effort()
    before: Before | None = None
    first: dict[str, Any] = {}
    error: dict[str, str] = {}
    scores: dict[str, float] = {}
    scores_before: dict[str, float] = {}


class Scores(Struct, frozen=True):
    """The mean of a scorer over the cases: of the recorded runs, and of the candidate."""

    before: Mean | None
    after: Mean | None


class Summary(Struct, frozen=True):
    """The sums over the cases of a candidate. Efforts are pairs: of the recorded runs, and of the candidate."""

    verdicts: dict[str, int]
    answered: dict[str, int]
    before: Effort
    after: Effort
    scores: dict[str, Scores]


class ExperimentReport(Struct, frozen=True, kw_only=True):
    """The report: rows are in the order worst first. ``problems`` are of scorers."""

    experiment: str
    dataset: str
    version: int
    status: str
    candidates: dict[str, Summary]
    rows: list[Row]
    problems: list[str] = field(default_factory=list[str])


def rows_of(events: Sequence[Event]) -> list[Row]:
    """Return the rows of an experiment so far, from its log."""
    found: list[Row] = []
    for event in events:
        payload = known_payload(event) if event.type == NodeExit.type else None
        if isinstance(payload, NodeExit) and isinstance(payload.result, dict):
            found.append(msgspec.convert(payload.result, Row))
    return found


def report_of(
    experiment: str,
    dataset: str,
    version: int,
    status: str,
    rows: Sequence[Row],
    scorers: Sequence[Scorer],
    noise: str = "",
) -> ExperimentReport:
    """Return the report about some rows; ``noise`` is the candidate without a change whose turns were asked again."""
    _leave_out_noise(rows, noise)
    problems = [problem for row in rows for problem in _score(row, scorers)]
    names = list(dict.fromkeys(row.candidate for row in rows))
    return ExperimentReport(
        experiment=experiment,
        dataset=dataset,
        version=version,
        status=status,
        candidates={name: _summary([row for row in rows if row.candidate == name], scorers) for name in names},
        rows=sorted(rows, key=_badness),
        problems=problems,
    )


def _leave_out_noise(rows: Sequence[Row], noise: str) -> None:
    """Leave out the changes of each case that the unchanged definition shows as well, in any repetition."""
    known: dict[str, set[tuple[str, ...]]] = {}
    for row in rows:
        if row.candidate == noise:
            known.setdefault(row.case, set()).update(map(place_of, row.changes))
            row.verdict = "noisy" if row.changes else row.verdict
    for row in rows:
        left = [one for one in row.changes if place_of(one) not in known.get(row.case, ())]
        if row.candidate != noise and len(left) < len(row.changes):
            row.noise, row.changes = len(row.changes) - len(left), left
            if row.verdict in ("regressed", "changed"):
                row.verdict = verdict_of_changes(left)


def _badness(row: Row) -> tuple[Any, ...]:
    kind = KINDS.index(row.changes[0].kind) if row.changes else len(KINDS)
    return WORST_FIRST.index(row.verdict), kind, -len(row.changes), row.case, row.candidate, row.repeat


def _score(row: Row, scorers: Sequence[Scorer]) -> list[str]:
    """Score a row and its record; return the errors of scorers."""
    problems: list[str] = []
    if row.verdict in ("skipped", "failed"):
        return problems
    before = row.before or (Before(row.output, row.status) if row.verdict == "identical" else None)
    for one in scorers:
        for side, kept in ((Before(row.output, row.status), row.scores), (before, row.scores_before)):
            if side is None:
                continue
            try:
                score = one.score(JudgedAnswer(row.input, side.output, row.expected, side.status))
            except Exception as error:
                problems.append(f"scorer {one.name}, case {row.case}: {type(error).__name__}: {error}")
                break
            if score is not None:
                kept[one.name] = score
    return problems


def _summary(rows: Sequence[Row], scorers: Sequence[Scorer]) -> Summary:
    counts = Counter(row.verdict for row in rows)
    answered: Counter[str] = Counter()
    for row in rows:
        answered.update(row.answered)
    compared = [row for row in rows if row.verdict not in ("skipped", "failed")]
    return Summary(
        verdicts={verdict: counts[verdict] for verdict in WORST_FIRST if counts[verdict]},
        answered=dict(sorted(answered.items())),
        before=_sum([row.before.effort if row.before is not None else row.effort for row in compared]),
        after=_sum([row.effort for row in compared]),
        scores={
            one.name: Scores(
                mean_of([row.scores_before[one.name] for row in rows if one.name in row.scores_before]),
                mean_of([row.scores[one.name] for row in rows if one.name in row.scores]),
            )
            for one in scorers
        },
    )


def _sum(measures: Sequence[Effort]) -> Effort:
    return Effort(
        sum(one.turns for one in measures),
        sum(one.tokens for one in measures),
        round(sum(one.usd for one in measures), 6),
        round(sum(one.seconds for one in measures), 3),
    )


def figures_of(report: ExperimentReport) -> dict[str, JSON]:
    """Return the figures that a gate may test: sums over all candidates."""
    verdicts: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for summary in report.candidates.values():
        verdicts.update(summary.verdicts)
        answered.update(summary.answered)
    found: dict[str, int] = {name: verdicts[name] for name in WORST_FIRST if name != "regressed"}
    found |= {"regressions": verdicts["regressed"], "cases": len(report.rows)}
    found |= {name: answered[name] for name in ("recorded", "live", "script")}
    found["refused"] = answered["refuse"]
    return cast("dict[str, JSON]", found)
