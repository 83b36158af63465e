"""Opening a run in the browser: where `callboard up` serves the page, as it notes in the data directory in the
meantime.

The address has the token of the page, and the command line of a browser can be read by everybody on the machine; so the
browser is given a file that leads there, which only its owner can read.
"""

import html
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import click

from callboard.bus.errors import OperatorError
from callboard.lib.private_files import write_own
from callboard.runtime.settings.config import Config
from callboard.surfaces.cli.output import say

LOOK_S = 1.0
"""How long a page may take to take a connection."""


class NoPage(OperatorError):
    """No page is served over the data directory."""

    def __init__(self, data_dir: Path) -> None:
        remedy = "Start `callboard up` over it (in another terminal), unless `http_listen` is off."
        super().__init__("page.none", "no page is served over the data directory", str(data_dir), remedy)


@contextmanager
def noted(data_dir: Path, page: str) -> Generator[None]:
    """Note where the page is served, for the length of the block."""
    file = _note(data_dir)
    write_own(file, page)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            file.unlink()


def page_over(data_dir: Path) -> str:
    """Return the address of the page that is served over a data directory, with its token.

    :raises NoPage: if none is
    """
    try:
        page = _note(data_dir).read_text(encoding="utf-8")
        parts = urlsplit(page)
        socket.create_connection((parts.hostname or "", parts.port or 80), LOOK_S).close()
    except OSError:
        # There is no note, or whoever left it was killed.
        raise NoPage(data_dir) from None
    return page


def open_run(config: Config, run: str) -> None:
    """Open a run in the browser, and say where it is.

    :raises NoPage: if no page is served over the data directory
    """
    base, _hash, token = page_over(config.data_dir).partition("#")
    address = f"{base}t/{quote(config.tenant, safe='')}/runs/{quote(run, safe='')}"
    leading = config.data_dir / "open.html"
    target = html.escape(f"{address}#{token}" if token else address)
    write_own(
        leading, f'<!doctype html><meta http-equiv="refresh" content="0; url={target}"><title>Callboard</title>\n'
    )
    say(f"Opening {address}", err=True)
    click.launch(str(leading.absolute()))


def _note(data_dir: Path) -> Path:
    return data_dir / "page"
