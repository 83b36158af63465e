"""Reads runs from files (archives, or exported events), in the same way as runs in the log."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec import Struct

from callboard.bus.events import Event
from callboard.bus.log.recorded import Recorded, readable
from callboard.bus.nats.archive import Archive, ArchivedLog, ArchiveLacks
from callboard.bus.subjects import RunRef
from callboard.runtime.client.client import unknown_run
from callboard.runtime.client.connection import Connection
from callboard.runtime.run.log import events_of, read_for_view, read_run
from callboard.runtime.settings.config import Config
from callboard.service.files.event_files import read_runs
from callboard.service.operations.reach import reach

ARCHIVE = ".callboard"
"""File name extension of archives."""

_NAMED = re.compile(r"(.*(?:\.callboard|\.jsonl))(?:#(.+))?")


class InFile(Struct, frozen=True):
    """A run in a file: ``FILE``, or ``FILE#RUN`` if the file has several runs."""

    path: Path
    run: str | None

    @property
    def is_archive(self) -> bool:
        return self.path.suffix == ARCHIVE


def in_file(named: str) -> InFile | None:
    """Return the file and run that a name refers to; None if it does not have the extension of a file with runs."""
    found = _NAMED.fullmatch(named)
    return InFile(Path(found[1]), found[2]) if found else None


class RunSource:
    """Reads runs from the log and from files."""

    def __init__(self, config: Config, connection: Connection | None) -> None:
        self._config = config
        self._connection = connection
        self._archives: dict[Path, Archive] = {}

    async def events(self, named: str) -> list[Event]:
        """Return a run's events, as `Client.events`.

        :raises UnknownRun: if the run does not exist
        :raises OperatorError: if the file does not contain runs
        :raises ArchiveLacks: if the file does not contain the run
        """
        return events_of([item for item in (await self._read(named))[1] if item.event.n])

    async def run(self, named: str) -> tuple[RunRef, list[Event]]:
        """Return a run and its events. Raises as `events`.

        :raises LogUnreadable: if a message of the run is not an event
        """
        ref, items = await self._read(named)
        return ref, events_of(readable(items))

    async def _read(self, named: str) -> tuple[RunRef, Sequence[Recorded]]:
        file = in_file(named)
        if file is not None:
            return await self._of_file(file)
        assert self._connection is not None, "a run in the log needs a connection"
        ref = RunRef(self._config.tenant, named)
        items = await read_for_view(self._connection.log, ref)
        if not items:
            raise await unknown_run(self._connection.log, ref)
        return ref, items

    def _archive(self, path: Path) -> Archive:
        if path not in self._archives:
            self._archives[path] = Archive(path)
        return self._archives[path]

    async def _of_file(self, file: InFile) -> tuple[RunRef, Sequence[Recorded]]:
        if file.is_archive:
            archive = self._archive(file.path)
            ref = archive.run(file.run).ref
            return ref, await read_run(ArchivedLog(archive), ref)
        runs = read_runs(file.path)
        if file.run not in (None, *runs) or (file.run is None and len(runs) > 1):
            raise ArchiveLacks(file.path, f"it has the runs {', '.join(runs)}", f"Name one of them: {file.path}#RUN.")
        name, events = next(one for one in runs.items() if file.run in (None, one[0]))
        ref = RunRef(self._config.tenant, name)
        return ref, [Recorded(event.n, ref, "", b"", event) for event in events]


@asynccontextmanager
async def source(config: Config, *named: str, name: str) -> AsyncGenerator[RunSource]:
    """Open the sources of the named runs. The server is not needed if all of them are in files.

    :raises OperatorError: if the server cannot be used
    """
    async with AsyncExitStack() as stack:
        connection: Connection | None = None
        if any(in_file(one) is None for one in named):
            connection = await stack.enter_async_context(reach(config, reads=True, name=name))
        yield RunSource(config, connection)
