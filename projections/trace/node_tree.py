"""The tree of a run's node executions, derived from their paths and the order of their enters.

The parent of ``main/fan-out[3]/fetch`` is the execution of the nearest path above it that was entered
(``main/fan-out[3]``, else ``main/fan-out``, else ``main``), else the run. If that path was entered several times, the
parent is the open iteration, and the latest one if several are open.
"""

from collections.abc import Iterator
from typing import NamedTuple


class NodeExecution(NamedTuple):
    """A node execution: its path and iteration. The run itself is ``NodeExecution("", 0)``."""

    path: str
    iteration: int

    def __str__(self) -> str:
        return f"{self.path}#{self.iteration}"


RUN = NodeExecution("", 0)


def above(path: str) -> Iterator[str]:
    """Yield the paths above a path, the nearest first, without the run itself.

    Each step removes an aspect's last word, else the whole aspect, else the index, else the segment.
    """
    while path:
        head, slash, segment = path.rpartition("/")
        plain, colon, aspect = segment.partition(":")
        if colon and "." in aspect:
            segment = f"{plain}:{aspect.rpartition('.')[0]}"
        elif colon:
            segment = plain
        elif segment.endswith("]"):
            segment = segment.partition("[")[0]
        else:
            path = head
            if path:
                yield path
            continue
        path = f"{head}{slash}{segment}"
        yield path


class NodeExecutions:
    """The node executions entered so far, and those of them that are open."""

    def __init__(self) -> None:
        self._open: dict[str, list[int]] = {}
        self._entered: dict[str, int] = {}

    def enter(self, place: NodeExecution) -> None:
        """Record that a node execution begins."""
        self._open.setdefault(place.path, []).append(place.iteration)
        self._entered[place.path] = place.iteration

    def exit(self, place: NodeExecution) -> None:
        """Record that a node execution has ended."""
        still = self._open.get(place.path)
        if still and place.iteration in still:
            still.remove(place.iteration)
            if not still:
                del self._open[place.path]

    def parent(self, path: str, *, only_open: bool = False) -> NodeExecution:
        """Return the execution that contains ``path``."""
        for candidate in above(path):
            if candidate in self._open:
                return NodeExecution(candidate, self._open[candidate][-1])
            if not only_open and candidate in self._entered:
                return NodeExecution(candidate, self._entered[candidate])
        return RUN

    def owner(self, path: str, iteration: int, *, only_open: bool = False) -> NodeExecution:
        """Return the execution that an event with this path and iteration belongs to, itself or the nearest above.

        With ``only_open``, events after a node's exit, such as the routing question, belong to the execution that
        contains the node.
        """
        if iteration in self._open.get(path, ()):
            return NodeExecution(path, iteration)
        if not only_open and path in self._entered and iteration <= self._entered[path]:
            return NodeExecution(path, iteration)
        return self.parent(path, only_open=only_open)
