"""Verdicts: the answers of admission to starts and commands, small enough for one message."""

from typing import Literal, TypeVar

import msgspec

from callboard.bus.events import Problem

T = TypeVar("T", str, str | None)

VERDICT_BYTES_MAX = 256 * 1024
PROBLEM_CHARS_MAX = 200
"""All texts of a larger verdict are cut. If a verdict did not fit a message, its start would be redelivered endlessly.
"""

PROBLEMS_MAX = 200
"""Maximum number of problems in one refusal and of warnings in one admission; with texts of usual length they stay
below the server's limit of 1 MiB."""


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The decision about a start or a command to a run.

    ``duplicate`` means that a run or command with this id was admitted before; the verdict is that of the first one.
    ``cause`` is the cause that the event recording the command will have. ``waiting`` means that the store is full, as
    ``problems`` explain; another verdict follows when there is space.
    """

    status: Literal["accepted", "rejected", "waiting"]
    run_id: str | None = None
    duplicate: bool = False
    cause: int = 0
    problems: list[Problem] = []
    warnings: list[Problem] = []


def fit_message(verdict: Verdict) -> Verdict:
    """Shorten a verdict so that it fits into a message."""
    problems, warnings = limit_problems(verdict.problems), limit_problems(verdict.warnings)
    return _cut_if_too_large(msgspec.structs.replace(verdict, problems=problems, warnings=warnings))


def limit_problems(problems: list[Problem]) -> list[Problem]:
    """Return the first `PROBLEMS_MAX` problems, and one that states the number of the others."""
    if len(problems) <= PROBLEMS_MAX + 1:
        return problems
    rest = Problem(
        code="problems.more",
        message=f"and {len(problems) - PROBLEMS_MAX} more problems",
        severity=problems[0].severity,
    )
    return [*problems[:PROBLEMS_MAX], rest]


def cut_texts(problems: list[Problem]) -> list[Problem]:
    """Cut the texts of problems."""
    return [
        msgspec.structs.replace(
            problem, message=_cut(problem.message), where=_cut(problem.where), expected=_cut(problem.expected)
        )
        for problem in problems
    ]


def _cut_if_too_large(verdict: Verdict) -> Verdict:
    """Cut the texts of a verdict that is too large for one message."""
    if len(msgspec.json.encode(verdict)) <= VERDICT_BYTES_MAX:
        return verdict
    return msgspec.structs.replace(
        verdict,
        run_id=_cut(verdict.run_id),
        problems=cut_texts(verdict.problems),
        warnings=cut_texts(verdict.warnings),
    )


def _cut(text: T) -> T | str:
    return text[:PROBLEM_CHARS_MAX] + "…" if text is not None and len(text) > PROBLEM_CHARS_MAX else text
