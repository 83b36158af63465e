"""Serving a file of events: its own store for as long as it lasts, and the page over it, for reading only."""

from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from callboard.bus.nats.archive import Archive
from callboard.features.access.subject import READER
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.settings.config import Config
from callboard.service.api.connection import open_connection
from callboard.service.api.run_lists import Listings
from callboard.service.api.verbs import Verbs
from callboard.service.operations.archives import import_for_display
from callboard.service.operations.event_files import read_runs, store
from callboard.service.operations.results import compact
from callboard.service.operations.run_files import ARCHIVE
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.process import stop_signals
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.http.access import Access
from callboard.surfaces.http.address import LOOPBACK, AddressUnusable, listening, url_of
from callboard.surfaces.http.app import http_app
from callboard.surfaces.http.catalogue import Catalogue
from callboard.surfaces.http.http_server import serve_app
from callboard.surfaces.http.readings import Readings

NAME = "callboard page"


async def serve(config: Config, settings: Settings, file: str, host: str, port: int) -> int:
    """Serve until a signal comes; return the exit code.

    :raises OperatorError: if the file has no events, or the address cannot be served
    """
    if host not in LOOPBACK:
        message = "a file is looked at from the loopback alone"
        raise AddressUnusable("http.address", message, f"{host}:{port}", "Listen on 127.0.0.1.")
    path = Path(file)
    kept = Archive(path) if path.suffix == ARCHIVE else read_runs(path)
    runs = [one.run for one in kept.runs] if isinstance(kept, Archive) else list(kept)
    with (
        TemporaryDirectory(prefix="callboard-page-") as folder,
        anyio.open_signal_receiver(*stop_signals()) as signals,
        listening(host, port, "http") as bound,
    ):
        alone = config.model_copy(update={"data_dir": Path(folder), "nats_url": None, "sync": "1s"})
        async with open_connection(alone, NAME) as connection, anyio.create_task_group() as tasks:
            if isinstance(kept, Archive):
                await import_for_display(connection.log, config.tenant, kept)
            else:
                await store(connection.log, config.tenant, kept)
            verbs = Verbs(
                connection.log,
                Definitions(),
                Listings(connection.log, tasks, prices=connection.config.price_table()),
            ).all()
            verbs = {**verbs, **Readings(connection).all(), **Catalogue(connection).all()}
            app = http_app(connection.log, config.tenant, verbs, access=Access(open=True, nobody=READER))
            tasks.start_soon(serve_app, app, bound)
            one = f"runs/{runs[0]}" if len(runs) == 1 else "runs"
            url = f"{url_of(bound)}/t/{config.tenant}/{one}"
            say(compact({"url": url}) if settings.as_json else f"Look at {url}")
            async for _first in signals:
                break
            tasks.cancel_scope.cancel()
    return exits.OK
