"""Evidence: what a tool left behind when it failed, as lines for people: its traceback, and what it had printed."""

from callboard.bus.effects import Failure

TRACEBACK_LINES_MAX = 30
"""How many lines of a traceback are shown: its last ones."""

PRINTED_LINES_MAX = 10
"""How many lines of what was printed are shown: the last ones."""


def evidence_of(error: Failure | None) -> list[str]:
    """Return the lines of what is in a failure's details; none if there is nothing."""
    details = error.details if error is not None else None
    return evidence_lines(details.get("traceback"), details.get("printed")) if isinstance(details, dict) else []


def evidence_lines(traceback: object, printed: object) -> list[str]:
    """Return the lines of a traceback and of what was printed before it, if they are texts."""
    lines = _last(traceback, TRACEBACK_LINES_MAX)
    if said := _last(printed, PRINTED_LINES_MAX):
        lines += ["It had printed:", *(f"  {line}" for line in said)]
    return lines


def _last(text: object, lines_max: int) -> list[str]:
    if not isinstance(text, str):
        return []
    lines = text.splitlines()
    return lines if len(lines) <= lines_max else [f"… {len(lines) - lines_max} lines before", *lines[-lines_max:]]
