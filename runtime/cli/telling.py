"""Telling a run something, and saying what it makes of it."""

import shlex
from typing import Any
from uuid import uuid4

import click

from callboard.bus import events as ev
from callboard.bus.commands import TELLS
from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem, payload_of
from callboard.runtime.cli.errors import Refused
from callboard.runtime.cli.narrate import narrated
from callboard.runtime.cli.options import Settings
from callboard.runtime.cli.reach import reach
from callboard.runtime.cli.views import compact
from callboard.runtime.client import Client
from callboard.runtime.config import Config
from callboard.runtime.settling import Reception, told


async def tell_run(run: str, verb: str, fields: dict[str, Any], config: Config, settings: Settings) -> None:
    """Tell a run something and say what became of it.

    :raises Refused: if admission refuses it, for several reasons
    :raises CallboardError: if admission, or the run, refuses it, an answer is not understood, there is no server, or no
        worker answers
    """
    async with reach(config, reads=False, name=f"callboard {verb}") as house:
        reception = await received(house.client, run, verb, fields)
    if settings.as_json:
        recorded = reception.recorded.n if reception.recorded else None
        click.echo(compact({"run_id": run, "verb": verb, "recorded": recorded, "verdict": verdict_of(reception)}))
    else:
        click.echo(reception_text(reception, verb))


async def received(client: Client, run: str, verb: str, fields: dict[str, Any]) -> Reception:
    """Tell a run something; return what became of it.

    :raises Refused: if admission refuses it, for several reasons
    :raises CallboardError: if admission, or the run, refuses it, or an answer is not understood
    """
    reception = await told(client, run, verb, TELLS[verb](id=uuid4().hex, **fields))
    if reception.verdict.status == "rejected":
        raise _refused(verb, run, reception.verdict.problems)
    return reception


def _refused(verb: str, run: str, problems: list[Problem]) -> CallboardError:
    if len(problems) == 1:
        known = problems[0].code != "run.unknown"
        remedy = f"See `callboard show {shlex.quote(run)}`." if known else "List the runs with `callboard runs`."
        return CallboardError(problems[0].code, problems[0].message, run, remedy)
    return Refused(verb, problems, run)


def verdict_of(reception: Reception) -> str:
    """The run's verdict in one word, for machines; what it does not take is an error."""
    return "accepted" if reception.settled else "pending"


def reception_text(reception: Reception, verb: str) -> str:
    """Say in one line what a run has made of what it was told."""
    event = reception.recorded
    if event is None:
        return f"{verb}: on its way; the run has not recorded it yet"
    payload = payload_of(event)
    line = narrated(event, payload)
    if isinstance(payload, ev.HumanAnswered):
        line += ": accepted" if reception.settled else ": recorded; whether it is understood is not known yet"
    return f"{line}  (event {event.n})"
