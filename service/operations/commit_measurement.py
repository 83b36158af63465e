"""Measuring: how the server that stands stores what a run appends at once, which no setting says."""

import anyio
from msgspec import Struct

from callboard.bus.errors import OperatorError
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.connection import REFUSED_WAIT_S, ConnectionWatch, connected, without_secrets
from callboard.bus.nats.requests import Requests
from callboard.bus.nats.server.data_directory import running_url
from callboard.bus.nats.staging_probe import batches_are_cheap
from callboard.bus.subjects import Subjects
from callboard.runtime.settings.config import Config

PATIENCE_S = 5.0
"""How long a server may take to let itself be measured."""


class Appends(Struct, frozen=True):
    """How events get into the log of a server: whether its ``batches`` are staged in ``memory`` or in ``files``, and so
    whether what a run appends at once goes ``together`` or one event after the other, and whether the appends of
    several runs are ``merged``."""

    server: str
    batches: str
    together: bool
    merged: bool


async def measured(config: Config) -> Appends | None:
    """Measure the server that stands; None if none does, or it keeps no log of ours."""
    url = config.nats_url or running_url(config.data_dir)
    if url is None:
        return None
    watch = ConnectionWatch("callboard config", refused_wait_s=REFUSED_WAIT_S, gaps_expected=True)
    try:
        with anyio.fail_after(PATIENCE_S):
            async with connected(url, name="callboard config", credentials=config.credentials(), watch=watch) as nc:
                cheap = await batches_are_cheap(Requests(nc), Subjects(config.prefix))
    except (OperatorError, NoAnswer, TimeoutError):
        return None
    ours = config.embedded and config.sync == "always"
    merged = cheap or ours if config.group_commit == "auto" else config.group_commit == "on"
    return Appends(without_secrets(url), "memory" if cheap else "files", cheap, merged)
