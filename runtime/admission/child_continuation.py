"""Continuation: a child run of a retried run continues its predecessor or, if it cannot, starts from the beginning."""

from collections.abc import Iterator, Sequence
from typing import Any

from callboard.bus.events import Problem

_TRAVELS = ("source",)
"""Members of a definition that came along with the parent. A definition without them is taken from the predecessor,
even if a newer one is registered."""


def start_attempts(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the start messages to try for a child: first as a fork, if it is one, then without the fork."""
    plain = {name: value for name, value in document.items() if name != "fork"}
    if document.get("fork") is not None:
        definition = plain.get("definition")
        travels = isinstance(definition, dict) and any(definition.get(name) is not None for name in _TRAVELS)
        left_out = () if travels else ("definition",)
        yield {name: value for name, value in document.items() if name not in left_out}
    yield plain


def concerns_only_fork(problems: Sequence[Problem]) -> bool:
    """Whether a start would be admitted if it were not a fork."""
    return all(problem.where.partition(".")[0] == "fork" or problem.code.startswith("fork.") for problem in problems)


def restart_warning(problem: Problem) -> Problem:
    """Return the warning of a child that starts from the beginning."""
    message = f"the run starts from the beginning and not from its predecessor: {problem.code}: {problem.message}"
    return Problem("fork.begun_anew", message, expected=problem.expected, severity="warning")
