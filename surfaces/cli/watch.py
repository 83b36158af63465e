"""``callboard watch``: follow events as they are recorded."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import plain_option
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings

if TYPE_CHECKING:
    from callboard.bus.events import Event
    from callboard.bus.log.recorded import Recorded
    from callboard.bus.nats.jetstream import JetStreamLog
    from callboard.runtime.client.connection import Connection
    from callboard.surfaces.cli.event_output import Shower


@click.command()
@click.argument("run", required=False)
@click.option("--definition", "-d", metavar="NAME", help="Only runs of this definition.")
@click.option("--type", "-t", "event_type", metavar="TYPE", default=">", help="Only these events: node.exit, run.*, …")
@click.option("--after", metavar="SEQ", type=click.IntRange(0), help="Begin after this sequence of the stream.")
@click.option("--until", metavar="TYPE", help="End after the first of these events: human.asked, run.parked, …")
@click.option(
    "--stream", is_flag=True, help="Print models' answers as they arrive, and ends of steps, as JSON (playbooks)."
)
@click.option("--behind", metavar="ID", help="With --stream: continue after this id.")
@plain_option
@operation
async def watch(
    call: OperationCall,
    run: str | None,
    definition: str | None,
    event_type: str,
    after: int | None,
    until: str | None,
    stream: bool,
    behind: str | None,
    plain: bool,
) -> int:
    """Show events as they are recorded, of one RUN or of all.

    One run is shown from its beginning to its end, on a terminal as a live tree; the exit code shows how it ended. All
    runs are shown from now on, one line per event, until Ctrl-C. --until ends the command earlier, so that a script can
    wait for a question before it answers. With --json each line is an event with its sequence, from which --after
    continues. With --stream each line is a content, done or error message of a playbook, in order, with an id.
    """
    if stream or behind is not None:
        if run is None or not stream:
            raise click.UsageError("--stream needs one RUN, and --behind needs --stream")
        await _stream_run(call, run, behind)
        return exits.OK
    return await _watch_events(call, Watched(run, definition, event_type, after, until, plain))


class Watched(NamedTuple):
    """Which events to show: of a run, a definition and a type (with NATS wildcards), after a sequence of the stream.

    The last one is the first event of the type ``until``, if given."""

    run: str | None
    definition: str | None
    event_type: str
    after: int | None
    until: str | None = None
    plain: bool = False
    """One line per event, also on a terminal."""

    @property
    def whole_run(self) -> bool:
        """Whether all events of one run are selected, so that they can be shown as a tree."""
        return self.run is not None and self.definition is None and self.event_type == ">" and not self.after

    def wants(self, event: "Event") -> bool:
        """Whether an event is selected."""
        from callboard.service.operations.event_filter import matches

        return self._of_definition(event) and matches(self.event_type, event.type)

    def ends_at(self, event: "Event") -> bool:
        """Whether an event is the last one to show."""
        from callboard.service.operations.event_filter import matches

        return self.until is not None and self._of_definition(event) and matches(self.until, event.type)

    def _of_definition(self, event: "Event") -> bool:
        return self.definition is None or event.definition == self.definition


async def _watch_events(call: OperationCall, watched: Watched) -> int:
    """Show events until the run ends or ``until`` matches, or forever; return the exit code.

    :raises UnknownRun: if the run does not exist
    """
    from callboard.bus.errors import CallboardError
    from callboard.bus.events import TYPES, RunEnd, payload_of
    from callboard.service.files.run_files import in_file
    from callboard.service.operations.event_filter import matches
    from callboard.surfaces.cli.event_output import Lines, Streaming

    for given in (watched.event_type, ">" if watched.until is None else watched.until):
        if not any(matches(given, known) for known in TYPES):
            raise CallboardError(
                "watch.type", f"unknown event type {given!r}", remedy="Use a type such as node.exit or run.*."
            )
    if watched.run is not None and in_file(watched.run) is not None:
        return await _show_file(call, watched, watched.run)
    async with call.connect(reads=False) as connection:
        if watched.run is None:
            await _watch_all(connection, watched, Streaming() if call.settings.as_json else Lines(named=True))
            return exits.OK
        end = await _watch_one(connection, watched.run, watched, call.settings)
    payload = payload_of(end) if end is not None else None
    if not isinstance(payload, RunEnd) or (end is not None and watched.ends_at(end)):
        return exits.OK
    if watched.until is not None:
        say(f"{watched.run} ended without {watched.until}.", err=True)
        return exits.of_status(payload.status) or exits.FAILED
    return exits.of_status(payload.status)


async def _show_file(call: OperationCall, watched: Watched, run: str) -> int:
    """Show the events of a run in a file; the command ends after them even if the run had not ended."""
    from callboard.bus.events import RunEnd, payload_of
    from callboard.service.files.run_files import source
    from callboard.surfaces.cli.event_output import Lines, Streaming

    async with source(call.config, run, name=call.name) as runs:
        events = await runs.events(run)
    shower = Streaming() if call.settings.as_json else Lines()
    for event in events:
        if watched.wants(event):
            shower.event(event.n, event)
        if watched.ends_at(event):
            return exits.OK
    end = payload_of(events[-1])
    return exits.of_status(end.status) if isinstance(end, RunEnd) else exits.OK


async def _stream_run(call: OperationCall, run: str, behind: str | None) -> None:
    """Print the stream of a run in the format of its language, one JSON object per line, until its end.

    :raises UnknownRun: if the run does not exist
    :raises click.BadParameter: if ``behind`` is not an id
    """
    from callboard.runtime.client.run_stream import stream
    from callboard.service.operations.results import compact

    try:
        async with (
            call.connect(reads=False) as connection,
            stream(connection.client, run, behind) as feed,
        ):
            async for told in feed:
                say(compact(told))
    except ValueError as error:
        raise click.BadParameter(f"{behind!r} is not an id of the stream", param_hint="--behind") from error


async def _watch_all(connection: "Connection", watched: Watched, shower: "Shower") -> None:
    """Show events of all runs, from now on or after a sequence."""
    from callboard.bus.log.port import whole

    event_type = watched.event_type if watched.until is None else ">"
    async with connection.client.follow(
        definition=watched.definition, event_type=event_type, after=watched.after
    ) as feed:
        async for recorded in feed:
            event = await whole(connection.log, recorded)
            if watched.wants(event):
                shower.event(recorded.sequence, event)
            if watched.ends_at(event):
                break


async def _with_origin(log: "JetStreamLog", feed: "AsyncIterator[Recorded]", after: int) -> "AsyncIterator[Recorded]":
    """Yield the events of one followed run; of a fork, with the events that it shares with its origin."""
    from callboard.bus.log.forks import origin_of, prefix, with_origin
    from callboard.bus.log.port import whole

    async for recorded in feed:
        forked = origin_of(await whole(log, recorded)) if recorded.event.n == 1 else None
        if forked is None:
            yield recorded
            continue
        if not after:
            told = await with_origin(log, recorded.ref, [recorded], 0, None)
        else:
            # A reader of the last shared event, or of an earlier one, already has the first event.
            told = await prefix(log, recorded.ref, forked, after) or [recorded]
        for item in told:
            yield item


async def _watch_one(connection: "Connection", run: str, watched: Watched, settings: Settings) -> "Event | None":
    """Show one run's events; return the last one.

    :raises UnknownRun: if the run does not exist
    """
    from callboard.bus.events import RunEnd
    from callboard.runtime.client.client import unknown_run
    from callboard.surfaces.cli.event_output import Guiding, Streaming, follow, hear_models
    from callboard.surfaces.cli.live_tree import open_view

    last = await connection.log.last(connection.client.ref(run))
    if last is None:
        raise await unknown_run(connection.log, connection.client.ref(run))
    after = watched.after or 0
    if last.event.type == RunEnd.type and last.sequence <= after:
        return last.event
    shower = Streaming() if settings.as_json else open_view(plain=watched.plain or not watched.whole_run)
    shown = Guiding(shower, run, settings, last.sequence) if shower.listens else shower
    try:
        # The whole run is followed, whatever is shown, so that its end is noticed.
        async with (
            hear_models(connection, run, shower) as through,
            connection.client.follow(run, after=after) as feed,
        ):
            whole_run = through(_with_origin(connection.log, feed, after))
            return await follow(connection.log, whole_run, shown, watched.wants, watched.ends_at)
    finally:
        shower.close()
