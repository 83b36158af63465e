"""``callboard page``, and the page of a running server in the browser."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import AddressType
from callboard.surfaces.cli.output import say

if TYPE_CHECKING:
    from callboard.runtime.settings.config import Config


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--listen",
    "address",
    type=AddressType(),
    default="127.0.0.1:0",
    show_default=True,
    help="The address to serve, on the loopback; port 0 takes a free port.",
)
@operation
async def page(call: OperationCall, file: str, address: tuple[str, int]) -> None:
    """Show the runs of a file of events in a browser.

    FILE is an archive, or has one event per line, as exported by the page or printed by `callboard trace RUN --format
    events`. The runs are read-only, and the server stops with the command. For runs in progress, open the page at the
    address of `callboard up` or `callboard http`.
    """
    import anyio

    from callboard.bus.nats.archive import Archive
    from callboard.features.access.subject import READER
    from callboard.lib.temporary_folders import temporary_folder
    from callboard.runtime.client.connection import open_connection
    from callboard.service.files.event_files import read_runs, store
    from callboard.service.files.run_files import ARCHIVE
    from callboard.service.operations.archives import import_for_display
    from callboard.service.operations.run_lists import Listings
    from callboard.surfaces.cli.process import stop_signals
    from callboard.surfaces.http.access import Access
    from callboard.surfaces.http.address import LOOPBACK, AddressUnusable, listening, url_of
    from callboard.surfaces.http.app import http_app
    from callboard.surfaces.http.http_server import serve_app
    from callboard.surfaces.http.routes import offered_operations

    (host, port), tenant = address, call.config.tenant
    if host not in LOOPBACK:
        message = "a file is served only on the loopback"
        raise AddressUnusable("http.address", message, f"{host}:{port}", "Listen on 127.0.0.1.")
    path = Path(file)
    kept = Archive(path) if path.suffix == ARCHIVE else read_runs(path)
    runs = [one.run for one in kept.runs] if isinstance(kept, Archive) else list(kept)
    with (
        temporary_folder() as folder,
        anyio.open_signal_receiver(*stop_signals()) as signals,
        listening(host, port, "http") as bound,
    ):
        alone = call.config.model_copy(update={"data_dir": folder, "nats_url": None, "sync": "1s"})
        async with open_connection(alone, call.name) as connection, anyio.create_task_group() as tasks:
            if isinstance(kept, Archive):
                await import_for_display(connection.log, tenant, kept)
            else:
                await store(connection.log, tenant, kept)
            listings = Listings(connection.log, tasks, prices=connection.config.price_table())
            app = http_app(
                connection.log,
                tenant,
                offered_operations(connection, listings),
                access=Access(open=True, nobody=READER),
            )
            tasks.start_soon(serve_app, app, bound)
            one = f"runs/{runs[0]}" if len(runs) == 1 else "runs"
            url = f"{url_of(bound)}/t/{tenant}/{one}"
            call.answer({"url": url}, f"Open {url}")
            async for _first in signals:
                break
            tasks.cancel_scope.cancel()


LOOK_S = 1.0
"""How long a page may take to accept a connection."""


@contextmanager
def note_page(data_dir: Path, page: str) -> Generator[None]:
    """Write the page's address to the data directory for the length of the block."""
    from callboard.lib.private_files import write_own

    file = _note_path(data_dir)
    write_own(file, page)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            file.unlink()


def find_page(data_dir: Path) -> str:
    """Return the address of the page that is served over a data directory, with its token.

    :raises OperatorError: ``page.none`` if none is
    """
    import socket
    from urllib.parse import urlsplit

    try:
        page = _note_path(data_dir).read_text(encoding="utf-8")
        parts = urlsplit(page)
        socket.create_connection((parts.hostname or "", parts.port or 80), LOOK_S).close()
    except OSError:
        # There is no note, or the process that wrote it was killed.
        from callboard.bus.errors import OperatorError

        remedy = "Start `callboard up` over it (in another terminal), unless `http_listen` is off."
        message = "no page is served over the data directory"
        raise OperatorError("page.none", message, str(data_dir), remedy) from None
    return page


def open_run(config: "Config", run: str) -> None:
    """Open a run in the browser, and print its address without the token.

    Other users of the machine can read the command line of a browser. So the browser opens a file that only its owner
    can read, and that redirects to the address with the token.

    :raises OperatorError: ``page.none`` if no page is served over the data directory
    """
    import html
    from urllib.parse import quote

    from callboard.lib.private_files import write_own

    base, _hash, token = find_page(config.data_dir).partition("#")
    address = f"{base}t/{quote(config.tenant, safe='')}/runs/{quote(run, safe='')}"
    leading = config.data_dir / "open.html"
    target = html.escape(f"{address}#{token}" if token else address)
    write_own(
        leading, f'<!doctype html><meta http-equiv="refresh" content="0; url={target}"><title>Callboard</title>\n'
    )
    say(f"Opening {address}", err=True)
    click.launch(str(leading.absolute()))


def _note_path(data_dir: Path) -> Path:
    return data_dir / "page"
