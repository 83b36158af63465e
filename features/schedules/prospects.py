"""Prospects: whether a running worker can start the runs of a schedule.

The rejection of a scheduled start has no caller to go to, so the caller that adds the schedule is warned beforehand.
Running workers publish heartbeats on a plain subject (`callboard.runtime.cluster.membership`).
"""

from collections.abc import Iterable
from contextlib import suppress

import anyio
import msgspec
from nats.aio.msg import Msg

from callboard.bus.events import Problem
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.requests import NO_RESPONDERS
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.cluster.membership import BEAT_S, Beat

HEARING_S = BEAT_S + 0.5
"""Every running worker publishes a heartbeat within this time."""


async def prospects(log: JetStreamLog, *, needs_model: bool) -> list[Problem]:
    """Return warnings about starts that no running worker can perform; with ``needs_model``, they need a default model.

    It returns as soon as a suitable worker has been heard.
    """
    heard: dict[str, Beat] = {}
    enough = anyio.Event()

    async def take(message: Msg) -> None:
        if message.headers is not None and message.headers.get("Status") == NO_RESPONDERS:
            enough.set()
            return
        with suppress(*JSON_ERRORS):
            beat = msgspec.json.decode(message.data, type=Beat)
            heard[beat.worker] = beat
            if not warnings_of([beat], needs_model=needs_model):
                enough.set()

    inbox = log.nc.new_inbox()
    answers = await log.nc.subscribe(inbox, cb=take)
    try:
        # The server reports if no worker is subscribed. A "bye" of an unknown worker has no effect.
        await log.nc.publish(log.subjects.beat(), msgspec.json.encode(Beat("", "bye")), reply=inbox)
        # Subscribed only now: otherwise this subscription would hide that no worker is subscribed.
        beats = await log.nc.subscribe(log.subjects.beat(), cb=take)
        try:
            with anyio.move_on_after(HEARING_S):
                await enough.wait()
        finally:
            await beats.unsubscribe()
    finally:
        await answers.unsubscribe()
    return warnings_of(heard.values(), needs_model=needs_model)


def warnings_of(heard: Iterable[Beat], *, needs_model: bool) -> list[Problem]:
    """Return the warnings that follow from the heartbeats of workers."""
    # A guest performs no schedules.
    loads = [one.load for one in heard if one.load is not None and not one.guest and one.word in ("hello", "here")]
    if not loads:
        message = "no worker is running: no run starts until one is"
        expected = "a running worker (`callboard up` or `callboard worker`)"
        return [Problem("schedule.no_worker", message, expected=expected, severity="warning")]
    # A worker of an older version does not say whether it has a model.
    if needs_model and all(load.has_model is False for load in loads):
        message = "the start names no model, and no running worker has a default: each start will be rejected"
        expected = "--model with the schedule, or CALLBOARD_MODEL or ANTHROPIC_API_KEY in the workers' environment"
        return [Problem("schedule.no_model", message, "model", expected=expected, severity="warning")]
    return []
