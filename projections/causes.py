"""Causes: why a run failed, told as a failure with those that led to it and the place of each.

A failure's record does not know its places, and not all that it links is its cause: a flow's ``previous`` may be one
that was caught before and has nothing to do with it, and what made a Gather fail stands among its details. The log
knows which node each failure left, and where it was caught.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.bus.events import Event, NodeExit, Payload, Route
from callboard.projections.effects import failure_of

FAILURES_MAX = 1_000
"""Different failures whose places are remembered; the oldest is forgotten first."""

DEPTH_MAX = 16
"""How many failures below each other are told."""

DISPATCHES_MAX = 3
"""Kinds of failures that are told of a Gather's dispatches."""

UNMET = "System.GatherCompletionUnmet"
STOPPED = frozenset({"System.GatherDispatchCancelled", "System.GatherDispatchSkipped"})
"""Codes of dispatches that others had stopped."""


class Cause(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A failure: ``place`` is the path of the node that it arose in, ``expression`` what it is about, if anything;
    ``traceback`` and ``printed`` are what a tool left behind that raised it.

    ``causes`` are those that it came of. One that has ``caught`` is no cause: it came before, and the step of that path
    took it on. One of dispatches has their indices; ``more`` counts the dispatches whose failures are left out.
    """

    code: str
    message: str = ""
    type: str = "error"
    place: str = ""
    expression: str = ""
    traceback: str = ""
    printed: str = ""
    caught: str = ""
    dispatches: list[int] = []
    more: int = 0
    causes: list["Cause"] = []


class _Known(Struct):
    """Where a failure arose, and the step that has caught it since."""

    place: str
    caught: str = ""


class Causes:
    """Folds one run into what is known of its failures."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}
        self._left: dict[str, bytes] = {}

    def apply(self, event: Event, payload: Payload) -> None:
        match payload:
            case NodeExit(outcome="failed", error=Failure() as error):
                self._leaves(event.path, _key(error))
            case Route(edge=str(edge)) if edge.startswith("catch.") and event.path in self._left:
                known = self._known.get(self._left.pop(event.path))
                if known is not None:
                    known.caught = event.path
            case _:
                pass

    def _leaves(self, path: str, failure: bytes) -> None:
        """A failure leaves a node: the innermost is where it arose, unless it was caught and is now raised again."""
        self._left[path] = failure
        known = self._known.get(failure)
        if known is not None and (known.caught or _is_below(known.place, path)):
            known.caught = ""
            return
        self._known[failure] = _Known(path)
        while len(self._known) > FAILURES_MAX:
            del self._known[next(iter(self._known))]

    def of(self, error: Failure) -> Cause:
        """Return a failure with what is known of it."""
        return self._told(error, DEPTH_MAX)

    def _told(self, error: Failure, levels: int, within: str = "") -> Cause:
        """Tell a failure; one that arose ``within`` a dispatch has its place there, even if others had a like one."""
        known = self._known.get(_key(error), _Known(""))
        place = error.path or known.place
        if within and not _is_below(place, within):
            place = within
        causes: list[Cause] = []
        more = 0
        if levels > 1:
            causes, more = self._dispatches(error, place, levels - 1)
            causes += [self._told(error.previous, levels - 1)] if error.previous else []
        return Cause(
            code=error.code,
            message=error.message,
            type=error.type,
            place=place,
            expression=" ".join(_detail(error, "expression").split()),
            traceback=_detail(error, "traceback"),
            printed=_detail(error, "printed"),
            caught=known.caught,
            more=more,
            causes=causes,
        )

    def _dispatches(self, error: Failure, place: str, levels: int) -> tuple[list[Cause], int]:
        """The failures of a Gather's dispatches, like ones together, and how many are left out."""
        alike: dict[tuple[str, str, str], list[tuple[int, Failure]]] = {}
        for index, failure in gathered(error):
            alike.setdefault((failure.code, failure.type, failure.message), []).append((index, failure))
        groups = list(alike.values())
        told: list[Cause] = []
        for group in groups[:DISPATCHES_MAX]:
            known = self._known.get(_key(group[0][1]), _Known("")).place
            ways = [f"{place}[{index}]" for index, _ in group] if place else [""]
            within = next((way for way in ways if _is_below(known, way)), ways[0])
            cause = self._told(group[0][1], levels, within)
            told.append(msgspec.structs.replace(cause, caught="", dispatches=[index for index, _ in group]))
        return told, sum(len(group) for group in groups[DISPATCHES_MAX:])


def gathered(error: Failure) -> list[tuple[int, Failure]]:
    """Return the failures of the dispatches that a Gather failed of, with their indices; stopped ones come last."""
    found = list(_evidence(error)) if error.code == UNMET else []
    return sorted(found, key=lambda one: one[1].code in STOPPED)


def brief(error: Failure, line: Callable[[str], str] = lambda text: " ".join(text.split())) -> str:
    """Say in one line why something failed; of a Gather with the first failure that it failed of.

    ``line`` makes a line of a message.
    """
    told = f"{error.code}: {line(error.message)}".removesuffix(": ")
    for index, failure in gathered(error)[:1]:
        told += f"; [{index}] {brief(failure, line)}"
    return told


def _key(error: Failure) -> bytes:
    """What makes a failure the same one, wherever it is recorded."""
    chain: list[Any] = []
    link: Failure | None = error
    while link is not None:
        chain.append((link.code, link.type, link.message, link.details, link.retryable))
        link = link.previous
    return msgspec.json.encode(chain)


def _evidence(error: Failure) -> Iterator[tuple[int, Failure]]:
    failures: Any = error.details.get("failures") if isinstance(error.details, dict) else None
    for one in failures if isinstance(failures, list) else []:
        match one:
            case {"index": int(index), "result": dict(result)} if (failure := failure_of(result)) is not None:
                yield index, failure
            case _:
                continue


def _detail(error: Failure, name: str) -> str:
    """A text among a failure's details, where what it says alone leads nowhere."""
    text = error.details.get(name) if isinstance(error.details, dict) else None
    return text if isinstance(text, str) else ""


def _is_below(path: str, above: str) -> bool:
    """Whether a path is that of something inside of what has the other one, or the same."""
    return bool(above) and path.startswith(above) and path[len(above) : len(above) + 1] in ("", "/", "[", ":", ".")
