"""Files that `callboard run` writes after a run: its output as an artifact, and a summary in markdown.

The summary has the form of the summary that PLAYBOOK.md's native runner appends to a job: the artifact, a table of
steps, the warnings.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from callboard.bus.errors import CallboardError
from callboard.bus.events import Event, NodeWarning, Problem
from callboard.projections.projection import known_payload
from callboard.projections.results import view_of
from callboard.projections.results.view import StepRow, View
from callboard.projections.run.run_result import Results, RunResult
from callboard.service.operations.results import pretty

_INNER = re.compile(r"[/\[:]")
"""Characters that occur only in paths of inner nodes."""

_STATUS = {"completed": "executed", "ok": "executed"}


def write_artifact(result: RunResult, path: Path) -> None:
    """Write a run's output: a text as it is, anything else as JSON.

    :raises CallboardError: ``file.unwritable``
    """
    text = result.output if isinstance(result.output, str) else pretty(result.output) + "\n"
    _write_file(path, text, append=False)


def append_summary(
    path: Path, result: RunResult, events: Sequence[Event], warnings: Sequence[Problem], artifact: str
) -> None:
    """Append the summary of a run to a file.

    :raises CallboardError: ``file.unwritable``
    """
    reasons = [warning.message for warning in warnings]
    reasons += [payload.reason for event in events if isinstance(payload := known_payload(event), NodeWarning)]
    _write_file(path, summary_text(result, events, reasons, artifact), append=True)


def summary_text(result: RunResult, events: Sequence[Event], warnings: Sequence[str], artifact: str) -> str:
    """Return the summary of a run in markdown."""
    view = view_of(result.language) or View(Results)
    lines = [f"## {view.summary_title}", ""]
    if artifact and result.status == "completed":
        lines += [f"**Artifact:** `{artifact}`", ""]
    if result.status != "completed":
        because = f": {_cell_text(result.error.message or result.error.code)}" if result.error else ""
        lines += [f"**Status:** {result.status}{because}", ""]
    lines += ["| # | Title | Status | Input tokens | Output tokens |"]
    lines += ["|---|-------|--------|--------------|---------------|"]
    for row in view.steps(events) if view.steps else _step_rows(result):
        tokens = [str(count) if count else "-" for count in (row.input_tokens, row.output_tokens)]
        status = _STATUS.get(row.status, row.status)
        lines.append(f"| {row.number} | {_cell_text(row.title)} | {status} | {tokens[0]} | {tokens[1]} |")
    if warnings:
        lines += ["", "### Warnings", *(f"- {_cell_text(warning)}" for warning in warnings)]
    return "\n".join([*lines, ""]) + "\n"


def _step_rows(result: RunResult) -> list[StepRow]:
    rows: list[StepRow] = []
    for number, node in enumerate((one for one in result.nodes.values() if not _INNER.search(one.path)), 1):
        usage = result.usage_by_path.get(node.path)
        tokens = (usage.input_tokens, usage.output_tokens) if usage else (0, 0)
        rows.append(StepRow(str(number), node.path, node.outcome or "running", *tokens))
    return rows


def _cell_text(text: str) -> str:
    """Return a text in a form that a table cell or a list item can hold."""
    return re.sub(r"\s+", " ", text.replace("|", "\\|")).strip()


def _write_file(path: Path, text: str, *, append: bool) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CallboardError("file.unwritable", f"the file cannot be written: {error.strerror}", str(path)) from error
