"""Renderings of a report: lines for a terminal, a summary in markdown, and JUnit XML."""

from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

import msgspec

from callboard.features.evaluation.report import ExperimentReport, Row, Scores, Summary
from callboard.features.evaluation.scorers import Mean
from callboard.lib.control_characters import visible_line
from callboard.projections.comparison.behaviour import Change

ROWS_SHOWN_MAX = 50
"""How many cases the lines and the markdown show; JSON and JUnit have all."""

CHANGES_SHOWN_MAX = 3
VALUE_CHARS_MAX = 60

BAD = ("failed", "regressed")
"""Verdicts that are failures in JUnit."""

QUIET = ("identical", "equal")
"""Verdicts whose cases are counted and not shown."""


def lines_of(report: ExperimentReport) -> Iterator[str]:
    """Yield the lines of a report for a terminal."""
    yield f"{report.dataset}@{report.version}: {_count(len(report.rows), 'case')}, experiment {report.experiment}"
    for name, summary in report.candidates.items():
        yield ""
        yield name
        yield from (f"  {line}" for line in _summary_lines(summary))
    shown = [row for row in report.rows if row.verdict not in QUIET]
    for row in shown[:ROWS_SHOWN_MAX]:
        yield ""
        yield visible_line(f"{row.verdict}  {_name(row)}  {_runs(row)}")
        yield from (f"  {line}" for line in _row_lines(row))
    if len(shown) > ROWS_SHOWN_MAX:
        yield f"… and {len(shown) - ROWS_SHOWN_MAX} more; --json has all"
    yield from (visible_line(problem) for problem in report.problems)


def _summary_lines(summary: Summary) -> Iterator[str]:
    yield _counts(summary.verdicts) or "no cases"
    if summary.answered:
        yield f"effects: {_counts(summary.answered)}"
    before, after = summary.before, summary.after
    yield f"turns {before.turns} → {after.turns}, tokens {before.tokens} → {after.tokens}, " + (
        f"${before.usd:.4f} → ${after.usd:.4f}, {before.seconds:.1f} s → {after.seconds:.1f} s"
    )
    for name, scores in summary.scores.items():
        yield f"{name}: {_mean(scores.before)} → {_mean(scores.after)}"


def _row_lines(row: Row) -> Iterator[str]:
    if row.error:
        yield visible_line(f"{row.error['code']}: {row.error['message']}")
    for change in row.changes[:CHANGES_SHOWN_MAX]:
        yield visible_line(f"{change.kind}  {_change(change)}")
    if row.noise:
        yield f"{_count(row.noise, 'difference')} left out, which the unchanged definition shows too"
    if len(row.changes) > CHANGES_SHOWN_MAX:
        yield f"… and {len(row.changes) - CHANGES_SHOWN_MAX} more differences"


def _change(change: Change) -> str:
    if change.places:
        first = change.places[0]
        where = f"{change.where} {first.pointer}".rstrip()
        more = f" (and {len(change.places) - 1} more)" if len(change.places) > 1 else ""
        left = None if first.left is msgspec.UNSET else first.left
        right = None if first.right is msgspec.UNSET else first.right
        return f"{where}: {_value(left)} → {_value(right)}{more}"
    return f"{change.where}: {_value(change.left)} → {_value(change.right)}"


def _value(value: Any) -> str:
    text = "nothing" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"


def _name(row: Row) -> str:
    return f"{row.case} ({row.candidate})" + (f" #{row.repeat}" if row.repeat > 1 else "")


def _runs(row: Row) -> str:
    return " → ".join(run for run in (row.origin, row.run) if run)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _mean(mean: Mean | None) -> str:
    return "none" if mean is None else f"{mean.mean:.3f} [{mean.low:.3f}, {mean.high:.3f}]"


def markdown_of(report: ExperimentReport, failed: Sequence[str]) -> str:
    """Return a summary for a pull request; ``failed`` are the conditions of the gate that do not hold."""
    verdict = f"**failed**: {'; '.join(failed)}" if failed else "passed"
    lines = [f"### Evaluation of {_cell(report.dataset)}@{report.version}: {verdict}", ""]
    lines += ["| candidate | cases | effects | tokens | cost | scores |", "| --- | --- | --- | --- | --- | --- |"]
    for name, one in report.candidates.items():
        tokens, usd = f"{one.before.tokens} → {one.after.tokens}", f"${one.before.usd:.4f} → ${one.after.usd:.4f}"
        cells = (name, _counts(one.verdicts), _counts(one.answered), tokens, usd, _scores(one.scores))
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    shown = [row for row in report.rows if row.verdict not in QUIET]
    if shown:
        lines += ["", "| case | verdict | difference | runs |", "| --- | --- | --- | --- |"]
    for row in shown[:ROWS_SHOWN_MAX]:
        cells = (_name(row), row.verdict, next(_row_lines(row), ""), _runs(row))
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    if len(shown) > ROWS_SHOWN_MAX:
        lines += ["", f"… and {len(shown) - ROWS_SHOWN_MAX} more cases."]
    return "\n".join([*lines, ""])


def _scores(scores: dict[str, Scores]) -> str:
    return "; ".join(f"{name} {_mean(one.before)} → {_mean(one.after)}" for name, one in scores.items())


def _cell(text: str) -> str:
    return visible_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def junit_of(report: ExperimentReport) -> str:
    """Return the report as JUnit XML: a suite for each candidate, a test for each case."""
    root = ElementTree.Element("testsuites", name=f"{report.dataset}@{report.version}")
    for name in report.candidates:
        rows = [row for row in report.rows if row.candidate == name]
        bad, skipped = sum(row.verdict in BAD for row in rows), sum(row.verdict == "skipped" for row in rows)
        counts = {"tests": str(len(rows)), "failures": str(bad), "skipped": str(skipped)}
        suite = ElementTree.SubElement(root, "testsuite", {"name": visible_line(name), **counts})
        for row in rows:
            attributes = {"classname": visible_line(name), "name": visible_line(_name(row))}
            attributes["time"] = f"{row.effort.seconds:.3f}"
            test = ElementTree.SubElement(suite, "testcase", attributes)
            if row.verdict in BAD or row.verdict == "skipped":
                kind = "skipped" if row.verdict == "skipped" else "failure"
                told = [*_row_lines(row), _runs(row)]
                result = ElementTree.SubElement(test, kind, message=visible_line(told[0]))
                result.text = visible_line("; ".join(told))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)
