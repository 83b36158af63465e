"""The store watch: says in a worker's log how the store stands, before it is full and when it is."""

import structlog

from callboard.bus.log import Full

logger = structlog.get_logger(__name__)


def say_room(full: Full | None) -> None:
    """Log that the stream takes nothing in, or that it does again."""
    if full is None:
        logger.warning("the store takes in again what it is given")
        return
    told = full.told()
    logger.error("the store takes nothing in", code=told.code, reason=full.reason, remedy=told.remedy)
