"""Showing events as they come: whole, up to a run's end, as lines, as JSON or not at all."""

import datetime as dt
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from callboard.bus.events import AT_REST, EffectResult, Event, NodeEnter, NodeExit, Payload, RunEnd, ToolResult
from callboard.bus.log.port import Recorded, whole
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.lib.control_characters import visible_line
from callboard.projections.projection import known_payload
from callboard.projections.run.fork_parting import PartingFold
from callboard.projections.trace.node_tree import above
from callboard.service.operations.narration import item_of, name_of, narrate
from callboard.service.operations.results import compact, event_object
from callboard.surfaces.cli.evidence import evidence_of
from callboard.surfaces.cli.output import say


class Shower(Protocol):
    """Shows what happens. ``listens`` says whether it wants to hear what models are saying, piece by piece."""

    listens: bool

    def event(self, sequence: int, event: Event) -> None:
        """Show an event and its sequence in the stream."""
        ...

    def delta(self, n: int, k: int, text: str) -> None:
        """Take the ``k``-th piece of what a model is saying in answer to the call that is event ``n``."""
        ...

    def notice(self, text: str) -> None:
        """Say something that is not an event."""
        ...

    def hold(self) -> None:
        """Leave the screen to someone who is asked something."""
        ...

    def release(self) -> None:
        """Take the screen again."""
        ...

    def close(self) -> None:
        """Leave the screen in order."""
        ...


class Quietly:
    """Shows no events; notices go to stderr."""

    listens = False

    def event(self, sequence: int, event: Event) -> None:
        pass

    def delta(self, n: int, k: int, text: str) -> None:
        pass

    def notice(self, text: str) -> None:
        say(text, err=True)

    def hold(self) -> None:
        pass

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


class Streaming(Quietly):
    """One JSON object per event: the event as the log has it, with its ``sequence`` in the stream."""

    def event(self, sequence: int, event: Event) -> None:
        say(compact({"sequence": sequence, **event_object(event)}))


class Lines(Quietly):
    """One line per event. ``named`` puts the run before it, for those who follow several."""

    def __init__(self, *, named: bool = False) -> None:
        self._named = named
        self._begin: dict[str, dt.datetime] = {}
        self._partings: dict[str, PartingFold] = {}
        self._open: dict[str, dict[tuple[str, int], None]] = {}

    def event(self, sequence: int, event: Event) -> None:
        payload = known_payload(event)
        if payload is None:
            return
        parting = self._partings.setdefault(event.run, PartingFold())
        parting.apply(event, payload)
        # What a fork has of its origin stands right before it.
        passed_s = parting.lasted_s(self._begin.setdefault(event.run, event.time), event.time)
        run = f"{event.run}  " if self._named else ""
        # What belongs to a node is below its enter, what belongs to an inner node further in.
        depth = event.path.count("/") + (1 if event.path and not event.type.startswith("node.e") else 0)
        indent = "  " * depth
        told = visible_line(f"{self._where(event, payload)}{narrate(event, payload)}")
        say(f"{run}{passed_s:9.3f} s  {indent}{told}")
        for line in failure_lines(payload):
            say(f"{run}{' ' * 13}{indent}  {line}")

    def _where(self, event: Event, payload: Payload) -> str:
        """Say whose an event is, where several nodes are at work: in a fan-out which item's, else which node's."""
        nodes = self._open.setdefault(event.run, {})
        match payload:
            case NodeEnter():
                nodes[event.path, event.iteration] = None
                return ""
            case NodeExit():
                nodes.pop((event.path, event.iteration), None)
                return ""
            case RunEnd():
                del self._open[event.run], self._begin[event.run], self._partings[event.run]
                return ""
            case _ if not event.path:
                return ""
            case _ if any(not _are_nested(event.path, path) for path, _ in nodes):
                return f"{name_of(event.path)}: "
            case _:
                return f"{item} " if (item := item_of(event.path)) else ""


def _are_nested(one: str, other: str) -> bool:
    """Whether one path lies within the other, or they are the same."""
    return one == other or one in above(other) or other in above(one)


def failure_lines(payload: Payload) -> list[str]:
    """What lies after the failure of a tool, or of opening tools, where it happens; it is not told again after it."""
    return evidence_of(payload.error) if isinstance(payload, ToolResult | EffectResult) else []


def _any(_event: Event) -> bool:
    return True


def _show_nothing(_event: Event) -> bool:
    return False


async def follow(
    log: JetStreamLog,
    feed: AsyncIterator[Recorded],
    shower: Shower,
    wanted: Callable[[Event], bool] = _any,
    last: Callable[[Event], bool] = _show_nothing,
) -> Event | None:
    """Show the events of a feed until a run ends or is quarantined, or the ``last`` one has come; return that one.

    ``wanted`` chooses what is shown.
    """
    async for recorded in feed:
        event = await whole(log, recorded)
        if wanted(event):
            shower.event(recorded.sequence, event)
        if event.type in AT_REST or last(event):
            return event
    return None
