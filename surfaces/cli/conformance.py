"""``callboard conformance``: what a language claims to satisfy, and whether a corpus of cases bears it out."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import print_answer, style
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.surfaces.cli.corpus import Case, CaseReport, Claim, ScenarioOutcome, Verdict


@click.command()
@click.argument("corpus", required=False, type=click.Path(exists=True, file_okay=False))
@click.option("--case", "pattern", metavar="GLOB", help="Only cases, or CASE/SCENARIO, that match.")
@click.option("--skip-temporal", is_flag=True, help="Skip cases that take real time.")
@click.option(
    "--language", metavar="LANGUAGE", help="The language of the cases; default: the only one that has a corpus."
)
@settings_options
@click.pass_context
def conformance(
    ctx: click.Context,
    settings: Settings,
    corpus: str | None,
    pattern: str | None,
    language: str | None,
    skip_temporal: bool,
) -> None:
    """Print the conformance claim of a language; with CORPUS, run its cases too.

    CORPUS is a folder in the layout of the specification's tests/conformance, or one case of it. Each scenario is a
    separate run; all run at once, on a server and a worker of this process. With --data-dir or --nats the runs are kept
    for other commands; otherwise nothing is kept.
    """
    import anyio

    from callboard.surfaces.cli.corpus import TEMPORAL, claim_of, perform_cases, read_corpus

    claim = claim_of(language)
    if corpus is None:
        print_answer({"claim": claim.profiles}, claim.profiles, as_json=settings.as_json)
        return
    cases = choose_cases(read_corpus(Path(corpus)), pattern)
    skipped = {case.name for case in cases if skip_temporal and TEMPORAL in case.marks}
    run = [case for case in cases if case.name not in skipped and not missing_profiles(case, claim)]
    kept = bool({"data_dir", "nats_url"} & settings.flags.keys())
    found = anyio.run(perform_cases, run, claim, load_config(settings, level="error"), kept) if run else {}
    reports = [_report_case(case, missing_profiles(case, claim), found, skipped=case.name in skipped) for case in cases]
    told = {"claim": claim.profiles, "counts": _count_verdicts(reports), "cases": reports}
    print_answer(told, _report_text(claim, reports, kept), as_json=settings.as_json)
    ctx.exit(exits.FAILED if any(report.verdict == "failed" for report in reports) else exits.OK)


def choose_cases(cases: "Sequence[Case]", pattern: str | None) -> "list[Case]":
    """Return the cases, with those of their scenarios, that match a pattern of CASE or CASE/SCENARIO.

    :raises click.BadParameter: if none exists
    """
    from callboard.surfaces.cli.corpus import Case

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


def missing_profiles(case: "Case", claim: "Claim") -> list[str]:
    """Return the profiles that a case requires and the claim does not have; if there are none, the case is in scope."""
    return [profile for profile in case.profiles if profile not in claim.profiles]


def _report_case(
    case: "Case", lacking: list[str], found: "dict[str, ScenarioOutcome]", *, skipped: bool
) -> "CaseReport":
    from callboard.surfaces.cli.corpus import CaseReport

    if lacking:
        return CaseReport(case.name, case.description, "out-of-scope", missing=lacking)
    if skipped:
        return CaseReport(case.name, case.description, "skipped")
    outcomes = [found[f"{case.name}/{scenario.name}"] for scenario in case.scenarios]
    verdict = "passed" if all(outcome.passed for outcome in outcomes) else "failed"
    return CaseReport(case.name, case.description, verdict, outcomes)


def _count_verdicts(reports: "Sequence[CaseReport]") -> dict[str, int]:
    from callboard.surfaces.cli.corpus import Verdict

    verdicts = [report.verdict for report in reports]
    names: tuple[Verdict, ...] = ("passed", "failed", "skipped", "out-of-scope")
    scenarios = sum(len(report.scenarios) for report in reports)
    return {**{name: verdicts.count(name) for name in names}, "scenarios": scenarios}


_MARKS: "dict[Verdict, tuple[str, str | None]]" = {
    "passed": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", None),
    "out-of-scope": ("–", None),
}


def _report_text(claim: "Claim", reports: "Sequence[CaseReport]", kept: bool) -> str:
    lines = ["Claim:", *(f"  {profile}" for profile in claim.profiles), ""]
    for report in reports:
        lines += _case_lines(report, kept)
    counts = _count_verdicts(reports)
    others = [f"{counts[name]} {word}" for name, word in (("skipped", "skipped"), ("out-of-scope", "out of scope"))]
    told = [f"{counts['passed']} passed", f"{counts['failed']} failed", *(one for one in others if one[0] != "0")]
    return "\n".join([*lines, "", f"{', '.join(told)}; {counts['scenarios']} scenarios"])


def _case_lines(report: "CaseReport", kept: bool) -> list[str]:
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
