"""Telling: sends notices if the configuration has rules for them. Without rules, no module that sends is imported."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from callboard.runtime.cluster.leader import holding
from callboard.runtime.settings.notify_settings import NotifyRule

if TYPE_CHECKING:
    from callboard.runtime.client.connection import Connection

LEADERSHIP = "notify"


@asynccontextmanager
async def send_notices(
    connection: "Connection", rules: Mapping[str, NotifyRule], env: Mapping[str, str]
) -> AsyncGenerator[Callable[[], Counter[tuple[str, str]]]]:
    """Send notices for the length of the block, if there are rules; open it before any run can start.

    The block gets a function that returns the counts of this process's notices, as `NoticeSender.sending_results`.
    """
    whole = {name: rule for name, rule in rules.items() if rule.complete}
    if not whole:
        yield Counter
        return

    from callboard.features.notify.notice_sender import NoticeSender

    sender = NoticeSender(connection, whole, env)
    await sender.prepare()
    holders = {f"{connection.log.subjects.prefix}.office.{LEADERSHIP}": sender}
    async with holding(connection.nc, holders, connection.log.store):
        yield lambda: sender.sending_results
        await sender.finish()
