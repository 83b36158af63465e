"""Running a conformance corpus through the real runtime: server, worker and a run per scenario, all at once."""

import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import anyio
import click
from msgspec import Struct

from callboard.bus.events import Problem, RunEnd, payload_of
from callboard.bus.log.port import whole
from callboard.languages.authoring import Conformance
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.bootstrap import open_worker
from callboard.service.api.client import NoVerdict
from callboard.service.api.connection import Connection, open_connection
from callboard.service.operations.results import compact
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.corpus import TEMPORAL, Case, Scenario, read_corpus
from callboard.surfaces.cli.language_choice import chosen_language
from callboard.surfaces.cli.output import say, style
from callboard.surfaces.cli.settings import Settings, configured

STARTS_MAX = 16
"""Scenarios that wait for the verdict of their start at the same time."""

RESULT_WAIT_S = 60.0
"""How long a scenario may take from its start to its Result."""

Verdict = Literal["passed", "failed", "skipped", "out-of-scope"]


class Outcome(Struct, frozen=True, omit_defaults=True):
    """What became of a scenario; ``differences`` are empty if it passed. ``run`` is the id of its run."""

    name: str
    run: str
    differences: list[str] = []

    @property
    def passed(self) -> bool:
        return not self.differences


class Report(Struct, frozen=True, omit_defaults=True):
    """What became of a case. ``missing`` names the profiles that put it out of scope."""

    case: str
    description: str
    verdict: Verdict
    scenarios: list[Outcome] = []
    missing: list[str] = []


class Claimed(Struct, frozen=True):
    """The language whose cases are run, and what it claims of itself."""

    language: str
    conformance: Conformance

    @property
    def profiles(self) -> Sequence[str]:
        return self.conformance.claim


def claimed(language: str | None = None) -> Claimed:
    """Return what a language claims; None represents the only one that claims anything.

    :raises click.BadParameter: if the language does not exist, or several claim something
    """
    return Claimed(*chosen_language(lambda offered: offered.conformance, "a conformance corpus", language))


def conform(
    corpus: str | None, pattern: str | None, language: str | None, *, skip_temporal: bool, settings: Settings
) -> int:
    """Print the claim, and run a corpus if there is one; return the exit code.

    :raises CorpusUnreadable: if the folder holds no corpus
    :raises click.BadParameter: if no case matches the pattern, or no language is the one
    :raises CallboardError: whatever keeps server or worker from working
    """
    claim = claimed(language)
    if corpus is None:
        say(compact({"claim": claim.profiles}) if settings.as_json else "\n".join(claim.profiles))
        return exits.OK
    cases = chosen(read_corpus(Path(corpus)), pattern)
    skipped = {case.name for case in cases if skip_temporal and TEMPORAL in case.marks}
    run = [case for case in cases if case.name not in skipped and not missing(case, claim)]
    kept = bool({"data_dir", "nats_url"} & settings.flags.keys())
    found = anyio.run(_perform, run, claim, configured(settings, level="error"), kept) if run else {}
    reports = [_report(case, missing(case, claim), found, skipped=case.name in skipped) for case in cases]
    say(_json(claim, reports) if settings.as_json else _text(claim, reports, kept))
    return exits.FAILED if any(report.verdict == "failed" for report in reports) else exits.OK


def chosen(cases: Sequence[Case], pattern: str | None) -> list[Case]:
    """Return the cases, with those of their scenarios, that match a pattern of CASE or CASE/SCENARIO.

    :raises click.BadParameter: if none exists
    """
    if pattern is None:
        return list(cases)
    found: list[Case] = []
    for case in cases:
        every = fnmatchcase(case.name, pattern)
        wanted = tuple(one for one in case.scenarios if every or fnmatchcase(f"{case.name}/{one.name}", pattern))
        if wanted:
            found.append(Case(case.name, case.description, case.profiles, case.marks, case.source, wanted))
    if not found:
        raise click.BadParameter(f"no case matches {pattern!r}", param_hint="--case")
    return found


def missing(case: Case, claim: Claimed) -> list[str]:
    """Return the profiles that a case requires and the claim does not have; one without any is out of no scope."""
    return [profile for profile in case.profiles if profile not in claim.profiles]


# -- running ----------------------------------------------------------------------------------------------------------


async def _perform(cases: Sequence[Case], claim: Claimed, config: Config, kept: bool) -> dict[str, Outcome]:
    """Run every scenario; return what became of each by ``case/scenario``."""
    async with AsyncExitStack() as stack:
        if not kept:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="callboard-"))
            config = config.model_copy(update={"data_dir": Path(folder), "nats_url": None})
        connection = await stack.enter_async_context(open_connection(config, "callboard conformance"))
        await stack.enter_async_context(open_worker(connection))
        return await run_cases(connection, claim, cases)


async def run_cases(
    connection: Connection, claim: Claimed, cases: Sequence[Case], *, wait_s: float = RESULT_WAIT_S
) -> dict[str, Outcome]:
    """Start every scenario where a worker stands, and compare what comes of it; by ``case/scenario``."""
    batch = uuid4().hex[:8]
    found: dict[str, Outcome] = {}
    starts = anyio.CapacityLimiter(STARTS_MAX)

    async def perform(case: Case, scenario: Scenario) -> None:
        name = f"{case.name}/{scenario.name}"
        run = f"{case.name}-{scenario.name}-{batch}"
        message = {
            "definition": {"language": claim.language, "source": case.source},
            "input": scenario.input,
            "arguments": scenario.arguments,
            "run_id": run,
        }
        async with starts:
            refused = await _publish_start(connection, message)
        if refused:
            wrong = [f"refused: {problem}" for problem in refused]
        else:
            result = await _result(connection, run, wait_s)
            wrong = (
                [f"no Result within {wait_s:g} s"]
                if result is None
                else claim.conformance.differences(scenario.expected, result)
            )
        found[name] = Outcome(scenario.name, run, wrong)

    async with anyio.create_task_group() as tasks:
        for case in cases:
            for scenario in case.scenarios:
                tasks.start_soon(perform, case, scenario)
    return found


async def _publish_start(connection: Connection, message: dict[str, Any]) -> list[Problem]:
    """Publish a start; return what is wrong with it."""
    try:
        verdict = await connection.client.start(message)
    except NoVerdict:
        # Stored it is; whoever takes it on in the end, its Result will tell.
        return []
    return verdict.problems if verdict.status == "rejected" else []


async def _result(connection: Connection, run: str, wait_s: float) -> dict[str, Any] | None:
    """Return the Result of a run's root frame; None if none exists in time."""
    with anyio.move_on_after(wait_s):
        async with connection.client.follow(run, event_type=RunEnd.type) as feed:
            async for recorded in feed:
                end = payload_of(await whole(connection.log, recorded))
                assert isinstance(end, RunEnd)
                return end.results
    return None


# -- telling ----------------------------------------------------------------------------------------------------------


def _report(case: Case, lacking: list[str], found: dict[str, Outcome], *, skipped: bool) -> Report:
    if lacking:
        return Report(case.name, case.description, "out-of-scope", missing=lacking)
    if skipped:
        return Report(case.name, case.description, "skipped")
    outcomes = [found[f"{case.name}/{scenario.name}"] for scenario in case.scenarios]
    verdict = "passed" if all(outcome.passed for outcome in outcomes) else "failed"
    return Report(case.name, case.description, verdict, outcomes)


def _json(claim: Claimed, reports: Sequence[Report]) -> str:
    return compact({"claim": claim.profiles, "counts": _counts(reports), "cases": reports})


def _counts(reports: Sequence[Report]) -> dict[str, int]:
    verdicts = [report.verdict for report in reports]
    names: tuple[Verdict, ...] = ("passed", "failed", "skipped", "out-of-scope")
    scenarios = sum(len(report.scenarios) for report in reports)
    return {**{name: verdicts.count(name) for name in names}, "scenarios": scenarios}


_MARKS: dict[Verdict, tuple[str, str | None]] = {
    "passed": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", None),
    "out-of-scope": ("–", None),
}


def _text(claim: Claimed, reports: Sequence[Report], kept: bool) -> str:
    lines = ["Claim:", *(f"  {profile}" for profile in claim.profiles), ""]
    for report in reports:
        lines += _lines(report, kept)
    counts = _counts(reports)
    others = [f"{counts[name]} {word}" for name, word in (("skipped", "skipped"), ("out-of-scope", "out of scope"))]
    told = [f"{counts['passed']} passed", f"{counts['failed']} failed", *(one for one in others if one[0] != "0")]
    return "\n".join([*lines, "", f"{', '.join(told)}; {counts['scenarios']} scenarios"])


def _lines(report: Report, kept: bool) -> list[str]:
    mark, colour = _MARKS[report.verdict]
    aside = {
        "skipped": "takes real time",
        "out-of-scope": f"not claimed: {', '.join(report.missing)}",
    }.get(report.verdict) or ", ".join(outcome.name for outcome in report.scenarios)
    lines = [f"{style(mark, fg=colour)} {report.case}  {aside}"]
    for outcome in report.scenarios:
        lines += [f"    {outcome.name}: {line}" for line in outcome.differences]
        if kept and not outcome.passed:
            lines.append(f"    {outcome.name}: see run {outcome.run}")
    return lines
