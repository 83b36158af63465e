"""Showing events as they come: as lines, JSON or a live tree, or not at all, and the commands that move a run on."""

import datetime as dt
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from callboard.bus.events import (
    AT_REST,
    EffectResult,
    Event,
    HumanAsked,
    NodeEnter,
    NodeExit,
    Payload,
    RunEnd,
    ToolResult,
)
from callboard.bus.log.port import whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.lib.control_characters import visible_line
from callboard.projections.lists.question_data import data_lines
from callboard.projections.projection import known_payload
from callboard.projections.run.effects import OpenIntents
from callboard.projections.run.fork_point import ForkPointFold
from callboard.projections.trace.node_tree import above
from callboard.runtime.client.answers import hear_answers
from callboard.runtime.client.connection import Connection
from callboard.service.operations.narration import item_of, name_of, narrate
from callboard.service.operations.results import compact, event_object
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import evidence_of, next_command

Through = Callable[[AsyncIterator[Recorded]], AsyncIterator[Recorded]]


class Shower(Protocol):
    """Shows what happens in a run. ``listens`` says whether `delta` is to be called."""

    listens: bool

    def event(self, sequence: int, event: Event) -> None:
        """Show an event and its sequence in the stream."""
        ...

    def delta(self, n: int, k: int, text: str) -> None:
        """Take the ``k``-th piece of a model's answer to the call in event ``n``."""
        ...

    def notice(self, text: str) -> None:
        """Show a text that is not an event."""
        ...

    def hold(self) -> None:
        """Clear the screen for a prompt."""
        ...

    def release(self) -> None:
        """Draw again after a prompt."""
        ...

    def close(self) -> None:
        """Finish drawing."""
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
    """One line per event. ``named`` puts the id of the run first, to follow several runs."""

    def __init__(self, *, named: bool = False) -> None:
        self._named = named
        self._begin: dict[str, dt.datetime] = {}
        self._partings: dict[str, ForkPointFold] = {}
        self._open: dict[str, dict[tuple[str, int], None]] = {}

    def event(self, sequence: int, event: Event) -> None:
        payload = known_payload(event)
        if payload is None:
            return
        parting = self._partings.setdefault(event.run, ForkPointFold())
        parting.apply(event, payload)
        # Events that a fork shares with its origin take no time.
        passed_s = parting.lasted_s(self._begin.setdefault(event.run, event.time), event.time)
        run = f"{event.run}  " if self._named else ""
        # Events of a node are indented below its enter, those of inner nodes further.
        depth = event.path.count("/") + (1 if event.path and not event.type.startswith("node.e") else 0)
        indent = "  " * depth
        told = visible_line(f"{self._where(event, payload)}{narrate(event, payload)}")
        say(f"{run}{passed_s:9.3f} s  {indent}{told}")
        for line in failure_lines(payload):
            say(f"{run}{' ' * 13}{indent}  {line}")

    def _where(self, event: Event, payload: Payload) -> str:
        """Name the item or the node of an event, if several are in progress; otherwise the empty string."""
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
    """Return the traceback and the printed lines of a failed tool; the closing events do not repeat them."""
    return evidence_of(payload.error) if isinstance(payload, ToolResult | EffectResult) else []


async def follow(
    log: JetStreamLog,
    feed: AsyncIterator[Recorded],
    shower: Shower,
    wanted: Callable[[Event], bool] = lambda _event: True,
    last: Callable[[Event], bool] = lambda _event: False,
) -> Event | None:
    """Show the events of a feed until a run ends or is quarantined, or ``last`` holds; return that event.

    ``wanted`` chooses what is shown.
    """
    async for recorded in feed:
        event = await whole(log, recorded)
        if wanted(event):
            shower.event(recorded.sequence, event)
        if event.type in AT_REST or last(event):
            return event
    return None


class Guiding(Quietly):
    """Shows events through another shower, and after a question, an awaited signal or a pause, the command to type.

    Events up to the sequence ``past`` are history: commands are shown only for effects that are still open there.
    """

    def __init__(self, shower: Shower, run: str, settings: Settings, past: int = 0) -> None:
        self._shower, self._run, self._settings = shower, run, settings
        self._past = past
        self._open = OpenIntents()

    def event(self, sequence: int, event: Event) -> None:
        self._shower.event(sequence, event)
        if sequence > self._past:
            self.guide(event)
            return
        if (payload := known_payload(event)) is not None:
            self._open.apply(event, payload)
        if sequence == self._past and event.type not in AT_REST:
            for opened in self._open:
                self.guide(opened.event)

    def guide(self, event: Event) -> None:
        """Show the command that moves on from what an event opens, if any; for a question, also its data."""
        payload = known_payload(event)
        if isinstance(payload, HumanAsked) and (about := data_lines(payload.request_data, payload.question)):
            self._shower.notice("\n".join(f"  {line}" for line in about))
        if command := next_command(event.type, event.key, self._run, self._settings, payload):
            self._shower.notice(f"In another terminal: {command}")


@asynccontextmanager
async def hear_models(connection: Connection, run: str, shower: Shower) -> AsyncGenerator[Through]:
    """Pass the pieces of models' answers in a run to a view for the length of the block, if it listens.

    Yield the function through which the run's events have to pass, for answers that are in progress at the beginning.
    """
    if not shower.listens:
        yield lambda feed: feed
        return
    client = connection.client
    async with hear_answers(
        client, client.ref(run), lambda piece: shower.delta(piece.n, piece.k, piece.text)
    ) as answers:
        yield answers.through
