"""Failed steps: where the failure arose that ended a run, and how many steps of a run failed.

A step is the execution of a node, or an effect outside of nodes, as those of a Python workflow: a step, a model turn,
a child run. A step that is tried again counts once, by its last try, and not at all if that one succeeds. A failure
that leaves nested nodes counts in the innermost one.
"""

import re

from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.events import Event, Payload
from callboard.projections.run.causes import failure_key, gathered_failures, is_below
from callboard.projections.run.effects import outcome_with_answer

ORIGINS_MAX = 1_000
"""Maximum number of different failures whose origins are remembered. The oldest is forgotten first."""

CHAIN_MAX = 16
"""Maximum number of failures that are followed from a run's error to those that led to it."""

_TRY = re.compile(r"step(\.\d+)?")
"""The slots of the tries of a step in Python."""

_ASPECT = re.compile(r":mw\d+$")
"""The end of the path of a middleware, which repeats what is below the path before it."""


class FailedSteps(Struct, frozen=True, omit_defaults=True):
    """The number of steps that failed, and of the first one its path and the event ``n`` in which its failure arose."""

    count: int
    path: str
    n: int


class RunFailures(Struct, frozen=True, omit_defaults=True):
    """Where the failure arose that ended a run: ``ended_at`` is the number of the event, 0 if none has ended it. And
    the steps that failed, None if none did; in a run that has completed, these are the ones that were caught."""

    ended_at: int = 0
    steps: FailedSteps | None = None


class _Origin(Struct, frozen=True):
    """Where a failure arose: the event, and the path of the node or effect."""

    n: int
    path: str


class _Node:
    """An open execution of a node, or the run itself: when it was entered, the failures that left what is directly
    inside, and where the effect failed that ended last inside, if it did."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.failed: dict[bytes, _Origin] = {}
        self.last: _Origin | None = None


class FailureFold:
    """Folds one run into its `RunFailures`."""

    def __init__(self) -> None:
        self._run = _Node(0)
        self._open: dict[str, _Node] = {}
        self._steps: dict[tuple[str, int, str], _Origin] = {}
        self._counted: set[int] = set()
        """The events of failures that a step has already."""
        self._ended_at = 0

    def apply(self, event: Event, payload: Payload) -> None:
        match payload:
            case ev.NodeEnter():
                self._open[event.path] = _Node(event.n)
            case ev.NodeRetry():
                self._forget_below(_ASPECT.sub("", event.path))
            case ev.NodeExit(outcome="failed", error=Failure() as error):
                self._leave(event, error)
            case ev.NodeExit():
                self._open.pop(event.path, None)
            case ev.RunFailed(error=error):
                self._ended_at = self._find(error) or event.n
            case ev.RunEnd(error=Failure() as error, status="failed" | "expired"):
                self._ended_at = self._ended_at or self._find(error) or event.n
            case _ if payload.kind == "outcome" and event.key:
                self._close(event, payload)
            case _:
                pass

    def view(self) -> RunFailures:
        first = min(self._steps.values(), key=lambda one: one.n, default=None)
        found = FailedSteps(len(self._steps), first.path, first.n) if first is not None else None
        return RunFailures(self._ended_at, found)

    def _close(self, event: Event, payload: Payload) -> None:
        """Take the outcome of an effect."""
        outcome, error = outcome_with_answer(payload)
        origin = _Origin(event.n, event.path) if error is not None and outcome != "cancelled" else None
        node = self._node_around(event.path)
        node.last = origin
        if origin is not None and error is not None:
            _remember(node, error, origin)
        if node is not self._run:
            # The step is the node, and fails as it ends.
            return
        slot = event.key.rpartition("!")[2]
        step = _TRY.fullmatch(slot) is not None
        if isinstance(payload, ev.ToolResult) and not step:
            # The model that called the tool gets its failure as the result.
            return
        key = event.path, event.iteration, "step" if step else slot.partition(".")[0]
        self._steps.pop(key, None)
        if origin is not None:
            self._counted.add(origin.n)
            self._steps[key] = origin

    def _leave(self, event: Event, error: Failure) -> None:
        """Take the end of a node by a failure, which arose here unless it has come from inside."""
        node = self._open.pop(event.path, None) or _Node(event.n)
        origin = _find(node, error) or node.last or _Origin(event.n, event.path)
        _remember(self._node_around(event.path), error, origin)
        if origin.n not in self._counted:
            self._counted.add(origin.n)
            self._steps[event.path, event.iteration, ""] = _Origin(origin.n, event.path)

    def _find(self, error: Failure) -> int:
        """Return the event in which the failure arose that a run ended with; 0 if it is not known."""
        found = _find(self._run, error)
        return found.n if found is not None else 0

    def _node_around(self, path: str) -> _Node:
        """Return the innermost open node that something at a path is in, or the run."""
        while path:
            if path in self._open:
                return self._open[path]
            path = path[: max(path.rfind(mark) for mark in "/[:.")] if any(mark in path for mark in "/[:.") else ""
        return self._run

    def _forget_below(self, path: str) -> None:
        """Forget the steps below a path that failed since it was entered, because they are repeated."""
        since = self._open[path].n if path in self._open else 0
        for key, origin in list(self._steps.items()):
            if origin.n > since and is_below(key[0], path):
                del self._steps[key]


def _remember(node: _Node, error: Failure, origin: _Origin) -> None:
    key = failure_key(error)
    node.failed.pop(key, None)
    node.failed[key] = origin
    while len(node.failed) > ORIGINS_MAX:
        del node.failed[next(iter(node.failed))]


def _find(node: _Node, error: Failure) -> _Origin | None:
    """Return where a failure, or else one that led to it, arose inside a node."""
    for link in _chain(error):
        if (found := node.failed.get(failure_key(link))) is not None:
            return found
    return None


def _chain(error: Failure) -> list[Failure]:
    """Return a failure and those that led to it: of a Gather the first one of its dispatches, then its previous."""
    found: list[Failure] = []
    left = [error]
    while left and len(found) < CHAIN_MAX:
        link = left.pop(0)
        found.append(link)
        left += [failure for _, failure in gathered_failures(link)[:1]]
        left += [link.previous] if link.previous is not None else []
    return found
