"""Results of runs in formats for machines, folded from a run's events."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.bus.events import Event, NodeEnter
from callboard.bus.paths import last_id
from callboard.lib.json_decoder import decode_json

if TYPE_CHECKING:
    from callboard.bus.prices import Prices
    from callboard.projections.run.run_result import RunResult

_INNER = re.compile(r"[/\[:]")


def pretty(value: Any) -> str:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def compact(value: Any) -> str:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def result_of(events: Sequence[Event], prices: "Prices | None" = None) -> "RunResult":
    """Fold a run's events into its result, with costs by ``prices`` (default: the list prices)."""
    # Most commands need only `compact`.
    from callboard.projections.projection import fold
    from callboard.projections.run.run_result import Results

    return fold(Results(prices), events)


def path_of(events: Sequence[Event]) -> list[str]:
    """Return the outer nodes in the order in which they were entered, repeated ones as ``node#2``.

    If there is only one outer node, and it has inner nodes, as the frame of a flow has steps, return those instead.
    """
    entered = [event for event in events if event.type == NodeEnter.type]
    outer = {event.path for event in entered if not _INNER.search(event.path)}
    within = f"{next(iter(outer))}/" if len(outer) == 1 and any("/" in event.path for event in entered) else ""
    taken: list[str] = []
    for event in entered:
        name = event.path.removeprefix(within)
        if event.path.startswith(within) and not _INNER.search(name):
            name = last_id(event.path)
            taken.append(name if event.iteration <= 1 else f"{name}#{event.iteration}")
    return taken


def result_object(result: "RunResult") -> dict[str, Any]:
    """Return all that is known of a run, for machines, always with its status, even if that is the default."""
    return {**msgspec.to_builtins(result), "status": result.status}


def summary_object(result: "RunResult", events: Sequence[Event]) -> dict[str, Any]:
    """Return a summary of a run and its result, for machines."""
    return {
        "run_id": result.run,
        **({"origin": result.origin, "parted_at": result.parted_at} if result.origin else {}),
        **({"continues": result.continues} if result.continues else {}),
        **({"continued_as": result.continued_as} if result.continued_as else {}),
        "status": result.status,
        "output": result.output,
        "results": result.results,
        "error": msgspec.to_builtins(result.error),
        **({"cause": msgspec.to_builtins(result.cause)} if result.cause else {}),
        **({"warnings": msgspec.to_builtins(result.warnings)} if result.warnings else {}),
        "usage": msgspec.to_builtins(result.usage),
        **({"cost": msgspec.to_builtins(result.cost)} if result.cost else {}),
        "path": path_of(events),
    }


def event_object(event: Event) -> dict[str, Any]:
    """Return an event as the JSON object that the log stores."""
    return decode_json(msgspec.json.encode(event))
