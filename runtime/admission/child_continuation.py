"""Continuing: a child run of a retried run goes on from where its predecessor was, or begins anew where it cannot."""

from collections.abc import Iterator, Sequence
from typing import Any

from callboard.bus.events import Problem

_TRAVELS = ("source",)
"""Members of a definition by which it has come along with the parent. Any other stays as the predecessor had it,
whatever is registered by now."""


def going_on_or_anew(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the start message of a child, as it is to be tried: as a fork, if it is to be one, and then without."""
    plain = {name: value for name, value in document.items() if name != "fork"}
    if document.get("fork") is not None:
        definition = plain.get("definition")
        travels = isinstance(definition, dict) and any(definition.get(name) is not None for name in _TRAVELS)
        left_out = () if travels else ("definition",)
        yield {name: value for name, value in document.items() if name not in left_out}
    yield plain


def is_no_fork(problems: Sequence[Problem]) -> bool:
    """Whether all that stands against a start is that it goes on from another run."""
    return all(problem.where.partition(".")[0] == "fork" or problem.code.startswith("fork.") for problem in problems)


def begun_anew(problem: Problem) -> Problem:
    """Warn of a child that begins anew."""
    message = f"the run begins anew, and not where its predecessor was: {problem.code}: {problem.message}"
    return Problem("fork.begun_anew", message, expected=problem.expected, severity="warning")
