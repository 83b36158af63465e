"""A run that no worker can continue, as text: the first difference, and the commands that continue or end it."""

import shlex
from collections.abc import Sequence
from typing import Any

from callboard.bus.events import Event
from callboard.lib.text import around_difference
from callboard.projections.run.run_result import RunResult
from callboard.runtime.interpreter.code import NamedCode, code_of
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import program, where_options

DIGITS_SHOWN = 12
"""How many digits of a digest are shown; commands take them."""


def code_line(code: NamedCode | None) -> list[str]:
    """Return the line with the code that a run is performed with; none if its definition is not code."""
    return [] if code is None else [f"code        {code.entry}, {code.digest[:DIGITS_SHOWN] or 'of any version'}"]


def divergence_lines(result: RunResult, events: Sequence[Event], settings: Settings) -> list[str]:
    """Return why no worker continues a run, and what continues it; none if a worker can.

    They are at most ten lines, besides the wrapping of long ones.
    """
    if result.status not in ("diverged", "waiting:code") or result.error is None:
        return []
    details: dict[str, Any] = result.error.details if isinstance(result.error.details, dict) else {}
    difference: dict[str, str] = details.get("difference") or {}
    lines = [f"error       {result.error.code}"]
    if difference:
        recorded, requested = difference.get("recorded", ""), difference.get("requested", "") or "nothing"
        lines += [
            f"difference  event {details.get('n')} of the log",
            f"  recorded  {_request(recorded, requested, difference.get('recorded_at', ''))}",
            f"  the code  {_request(requested, recorded, difference.get('requested_at', ''))}",
        ]
    else:
        lines.append(f"            {' '.join(result.error.message.split())}")
    return [*lines, *_remedies(result, details, code_of(events), settings)]


def _request(text: str, other: str, place: str) -> str:
    return around_difference(text, other) + (f"  ({place})" if place else "")


def _remedies(result: RunResult, details: dict[str, Any], code: NamedCode | None, settings: Settings) -> list[str]:
    """Return the lines with the commands."""
    run, ours, here = shlex.quote(result.run), program(), where_options(settings)
    forks = [f"  {ours} fork{here} {run} --at {details['n'] - 1}"] if details.get("n", 0) > 1 else []
    ends = [*forks, f"  {ours} cancel{here} {run}"]
    if code is None:
        return ["To continue it, start a worker of the version that recorded it. Otherwise:", *ends]
    if code.digest and code.digest == details.get("digest"):
        told = "The code has not changed: it depends on something besides the log, or Python or a library has changed."
        return [told, "The run continues once its worker has code that follows the log. Otherwise:", *ends]
    version = shlex.quote(f"{result.definition}@{code.digest[:DIGITS_SHOWN]}")
    worker = f"  {ours} worker{here} --code {version}"
    return ["To continue it with its own code, to continue a copy, or to end it:", worker, *ends]
