"""Verdicts: what admission says of a start or a tell, in a form that one message can take."""

from typing import Literal, TypeVar

import msgspec

from callboard.bus.events import Problem

T = TypeVar("T", str, str | None)

VERDICT_BYTES_MAX = 256 * 1024
PROBLEM_CHARS_MAX = 200
"""In a verdict larger than this every text is cut: it must fit a message, or the start would come back for ever."""

PROBLEMS_MAX = 200
"""Problems that one refusal names, or warnings that one admission records; with texts of usual length they stay below
the server's 1 MiB."""


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a start or a tell. ``duplicate`` says that a run of this id, or a tell of this id, had been
    admitted before: the verdict is that of the first.

    ``cause`` is what the event that records a tell will name as its cause. ``waiting`` says that there is no room to
    admit it, as ``problems`` tell; another verdict follows when there is.
    """

    status: Literal["accepted", "rejected", "waiting"]
    run_id: str | None = None
    duplicate: bool = False
    cause: int = 0
    problems: list[Problem] = []
    warnings: list[Problem] = []


def presentable(verdict: Verdict) -> Verdict:
    """Leave out of a verdict what would make it too large for a message."""
    problems, warnings = listed(verdict.problems), listed(verdict.warnings)
    return _fitting(msgspec.structs.replace(verdict, problems=problems, warnings=warnings))


def listed(problems: list[Problem]) -> list[Problem]:
    """Return the first `PROBLEMS_MAX` problems, and how many more there are."""
    if len(problems) <= PROBLEMS_MAX + 1:
        return problems
    rest = Problem(
        code="problems.more",
        message=f"and {len(problems) - PROBLEMS_MAX} more problems",
        severity=problems[0].severity,
    )
    return [*problems[:PROBLEMS_MAX], rest]


def shortened(problems: list[Problem]) -> list[Problem]:
    """Cut the texts of problems."""
    return [
        msgspec.structs.replace(
            problem, message=_cut(problem.message), where=_cut(problem.where), expected=_cut(problem.expected)
        )
        for problem in problems
    ]


def _fitting(verdict: Verdict) -> Verdict:
    """Cut the texts of a verdict that one message could not take."""
    if len(msgspec.json.encode(verdict)) <= VERDICT_BYTES_MAX:
        return verdict
    return msgspec.structs.replace(
        verdict,
        run_id=_cut(verdict.run_id),
        problems=shortened(verdict.problems),
        warnings=shortened(verdict.warnings),
    )


def _cut(text: T) -> T | str:
    return text[:PROBLEM_CHARS_MAX] + "…" if text is not None and len(text) > PROBLEM_CHARS_MAX else text
