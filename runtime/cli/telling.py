"""Telling a run something, and waiting until the run has recorded it or refused."""

import shlex
from typing import Any
from uuid import uuid4

import anyio
import click

from callboard.bus import events as ev
from callboard.bus.commands import TELLS
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event, Payload, Problem, payload_of
from callboard.runtime.cli.errors import Refused
from callboard.runtime.cli.narrate import narrated
from callboard.runtime.cli.options import Settings
from callboard.runtime.cli.reach import reach
from callboard.runtime.cli.views import compact
from callboard.runtime.client import Client
from callboard.runtime.config import Config

RECORDED_WAIT_S = 5.0
"""How long we wait to see the command recorded; it is durable already."""

RECORDED_AS: dict[str, tuple[type[Payload], ...]] = {
    "cancel": (ev.CancelRequested,),
    "kill": (ev.CancelRequested,),
    "pause": (ev.RunPaused,),
    "resume": (ev.RunResumed,),
    "answer": (ev.HumanAnswered, ev.ToolResult),
    "signal": (ev.SignalReceived,),
}
"""What a verb becomes in the log of a run that follows it."""


async def tell_run(run: str, verb: str, fields: dict[str, Any], config: Config, settings: Settings) -> None:
    """Tell a run something and say what became of it.

    :raises Refused: if admission, or the run, refuses it
    :raises CallboardError: if there is no server, or no worker that answers
    """
    async with reach(config, reads=False, name=f"callboard {verb}") as house:
        found = await told(house.client, run, verb, fields)
    _say(found, run, verb, settings)


async def told(client: Client, run: str, verb: str, fields: dict[str, Any]) -> Event | None:
    """Tell a run something; return the event that it became, None if the run has not recorded it in time.

    :raises Refused: if admission refuses it
    :raises CallboardError: if admission, or the run, refuses it, or no worker answers
    """
    mark = uuid4().hex
    message = TELLS[verb](id=mark, **fields)
    found: Event | None = None
    async with client.follow(run, after=None) as feed:
        verdict = await client.tell(run, verb, message)
        if verdict.status == "rejected":
            raise _refused(verb, run, verdict.problems)
        with anyio.move_on_after(RECORDED_WAIT_S):
            async for recorded in feed:
                if _concerns(recorded.event, verb, mark):
                    found = recorded.event
                    break
    payload = payload_of(found) if found is not None else None
    if isinstance(payload, ev.CommandRefused):
        raise CallboardError(payload.code, payload.message, run)
    return found


def _refused(verb: str, run: str, problems: list[Problem]) -> CallboardError:
    if len(problems) == 1:
        known = problems[0].code != "run.unknown"
        remedy = f"See `callboard show {shlex.quote(run)}`." if known else "List the runs with `callboard runs`."
        return CallboardError(problems[0].code, problems[0].message, run, remedy)
    return Refused(verb, problems, run)


def _concerns(event: Event, verb: str, mark: str) -> bool:
    payload = payload_of(event) if event.type in ev.TYPES else None
    if isinstance(payload, ev.CommandRefused):
        return payload.id == mark
    # Only what comes from a command has a cause.
    return isinstance(payload, RECORDED_AS[verb]) and event.cause > 0


def _say(event: Event | None, run: str, verb: str, settings: Settings) -> None:
    payload = payload_of(event) if event is not None else None
    if settings.as_json:
        click.echo(compact({"run_id": run, "verb": verb, "recorded": event.n if event else None}))
    elif event is None or payload is None:
        click.echo(f"{verb}: accepted; the run has not recorded it yet")
    else:
        click.echo(f"{narrated(event, payload)}  (event {event.n})")
