"""Causes: why a run failed, as a failure with the failures that led to it and the place of each.

The record of a failure does not say where it arose, and not every failure that it links to is its cause: ``previous``
of a flow's failure may be an unrelated one that was caught earlier, and the causes of a failed Gather are in its
details. The log shows which nodes each failure left, and where it was caught.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.bus.events import Event, NodeExit, Payload, Route
from callboard.projections.run.effects import failure_of

FAILURES_MAX = 1_000
"""Maximum number of different failures whose places are remembered. The oldest is forgotten first."""

DEPTH_MAX = 16
"""Maximum depth of a chain of causes."""

DISPATCHES_MAX = 3
"""Maximum number of different failures that are reported for the dispatches of a Gather."""

UNMET = "System.GatherCompletionUnmet"
STOPPED = frozenset({"System.GatherDispatchCancelled", "System.GatherDispatchSkipped"})
"""Failure codes of dispatches that were stopped because of other dispatches."""


class Cause(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A failure and the failures that led to it.

    ``place`` is the path of the node where it arose, and ``expression`` the expression that failed, if any.
    ``traceback`` and ``printed`` are the traceback and the output of the tool that raised it. A failure among
    ``causes`` that has ``caught`` is not a cause: it occurred earlier, and the step at that path caught it.
    ``dispatches`` are the indices of the dispatches that had this failure. ``more`` counts the dispatches whose
    failures are left out.
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
    """The place where a failure arose, and the step that has caught it since."""

    place: str
    caught: str = ""


class Causes:
    """Folds one run into the places of its failures."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}
        self._left: dict[str, bytes] = {}

    def apply(self, event: Event, payload: Payload) -> None:
        match payload:
            case NodeExit(outcome="failed", error=Failure() as error):
                self._leaves(event.path, failure_key(error))
            case Route(edge=str(edge)) if edge.startswith("catch.") and event.path in self._left:
                known = self._known.get(self._left.pop(event.path))
                if known is not None:
                    known.caught = event.path
            case _:
                pass

    def _leaves(self, path: str, failure: bytes) -> None:
        """Record that a failure leaves a node.

        It arose in the innermost node that it left, unless it was caught and is now raised again.
        """
        self._left[path] = failure
        known = self._known.get(failure)
        if known is not None and (known.caught or is_below(known.place, path)):
            known.caught = ""
            return
        self._known[failure] = _Known(path)
        while len(self._known) > FAILURES_MAX:
            del self._known[next(iter(self._known))]

    def of(self, error: Failure) -> Cause:
        """Return a failure with its place and its causes."""
        return self._describe(error, DEPTH_MAX)

    def _describe(self, error: Failure, levels: int, within: str = "") -> Cause:
        """Describe a failure with up to ``levels`` levels of causes.

        The place of a failure ``within`` a dispatch is in that dispatch, even if other dispatches had an equal failure.
        """
        known = self._known.get(failure_key(error), _Known(""))
        place = error.path or known.place
        if within and not is_below(place, within):
            place = within
        causes: list[Cause] = []
        more = 0
        if levels > 1:
            causes, more = self._dispatches(error, place, levels - 1)
            causes += [self._describe(error.previous, levels - 1)] if error.previous else []
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
        for index, failure in gathered_failures(error):
            alike.setdefault((failure.code, failure.type, failure.message), []).append((index, failure))
        groups = list(alike.values())
        told: list[Cause] = []
        for group in groups[:DISPATCHES_MAX]:
            known = self._known.get(failure_key(group[0][1]), _Known("")).place
            ways = [f"{place}[{index}]" for index, _ in group] if place else [""]
            within = next((way for way in ways if is_below(known, way)), ways[0])
            cause = self._describe(group[0][1], levels, within)
            told.append(msgspec.structs.replace(cause, caught="", dispatches=[index for index, _ in group]))
        return told, sum(len(group) for group in groups[DISPATCHES_MAX:])


def gathered_failures(error: Failure) -> list[tuple[int, Failure]]:
    """Return the dispatch failures that made a Gather fail, with their indices; stopped dispatches are last."""
    found = list(_evidence(error)) if error.code == UNMET else []
    return sorted(found, key=lambda one: one[1].code in STOPPED)


def brief(error: Failure, line: Callable[[str], str] = lambda text: " ".join(text.split())) -> str:
    """Return one line that says why something failed. A Gather's line includes the first failure that caused it.

    ``line`` turns a message into one line.
    """
    told = f"{error.code}: {line(error.message)}".removesuffix(": ")
    for index, failure in gathered_failures(error)[:1]:
        told += f"; [{index}] {brief(failure, line)}"
    return told


def failure_key(error: Failure) -> bytes:
    """Return the identity of a failure, equal in all the events that record it."""
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
    """Return a text from a failure's details, or an empty one."""
    text = error.details.get(name) if isinstance(error.details, dict) else None
    return text if isinstance(text, str) else ""


def is_below(path: str, above: str) -> bool:
    """Return whether ``path`` equals ``above`` or lies inside it."""
    return bool(above) and path.startswith(above) and path[len(above) : len(above) + 1] in ("", "/", "[", ":", ".")
