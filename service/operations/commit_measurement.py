"""Measures how the running server stores the events that a run appends at once; no setting says that."""

import anyio
from msgspec import Struct

from callboard.bus.errors import OperatorError
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.connection import REFUSED_WAIT_S, ConnectionWatch, open_nats_connection, without_secrets
from callboard.bus.nats.requests import Requests
from callboard.bus.nats.server.data_directory import running_url
from callboard.bus.nats.staging_probe import batches_are_cheap
from callboard.bus.subjects import Subjects
from callboard.runtime.settings.config import Config

PATIENCE_S = 5.0
"""How long measuring a server may take."""


class Appends(Struct, frozen=True):
    """How a server stores events. ``batches`` is where it stages batches, in ``memory`` or in ``files``. ``together``
    is true if the events that a run appends at once are one batch, and false if they are appended one by one.
    ``merged`` is true if the appends of several runs are merged."""

    server: str
    batches: str
    together: bool
    merged: bool


async def measure_appends(config: Config) -> Appends | None:
    """Measure the running server. Return None if no server runs, or it has no log of Callboard."""
    url = config.nats_url or running_url(config.data_dir)
    if url is None:
        return None
    watch = ConnectionWatch("callboard config", refused_wait_s=REFUSED_WAIT_S, gaps_expected=True)
    try:
        with anyio.fail_after(PATIENCE_S):
            async with open_nats_connection(
                url, name="callboard config", credentials=config.credentials(), watch=watch
            ) as nc:
                cheap = await batches_are_cheap(Requests(nc), Subjects(config.prefix))
    except (OperatorError, NoAnswer, TimeoutError):
        return None
    ours = config.embedded and config.sync == "always"
    merged = cheap or ours if config.group_commit == "auto" else config.group_commit == "on"
    return Appends(without_secrets(url), "memory" if cheap else "files", cheap, merged)
