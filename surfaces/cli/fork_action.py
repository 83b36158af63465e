"""Forking at the command line: what is given otherwise, as members of a start message, and the new run's id."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from callboard.runtime.settings.config import Config
from callboard.service.api.fork_starts import ForkRun, begin_fork
from callboard.service.operations.errors import RequestRefused, UsageInvalid
from callboard.service.operations.files import document_of
from callboard.service.operations.option_values import option_values
from callboard.service.operations.reach import reach
from callboard.service.operations.start_messages import input_of, prepare
from callboard.service.operations.start_request import StartRequest
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.start_action import tell_started


def start_of(
    *,
    options: Mapping[str, str],
    run_id: str | None,
    by: str | None,
    model: str | None,
    script: str | None,
    definition: str | None,
    input_text: str | None = None,
) -> dict[str, Any]:
    """Return the members of a start message that are given.

    :raises UsageInvalid: if an input or an option cannot be read
    :raises RequestRefused: with every problem of the definition or the script
    """
    start: dict[str, Any] = {"run_id": run_id, "by": by, "model": model}
    if script is not None:
        start |= {"script": document_of(Path(script), "script", dict), "model": model or "scripted"}
    if input_text is not None:
        start["input"] = input_of(input_text)
    if definition is not None:
        whole = prepare(StartRequest(definition, input_text="null")).message
        start |= {name: value for name, value in whole.items() if name in ("definition", "name", "files", "children")}
    if options:
        start["options"] = option_values(options)
    return {name: value for name, value in start.items() if value is not None or name == "input"}


def read_outcome(text: str) -> dict[str, Any]:
    """Read what an outcome is to say instead.

    :raises UsageInvalid: if it is not an object
    """
    members = input_of(text, "--outcome")
    if not isinstance(members, dict):
        raise UsageInvalid('expected an object such as {"output": 7}', "--outcome")
    return members


async def begin(asked: dict[str, Any], config: Config, settings: Settings) -> None:
    """Start what is asked for and print its id.

    :raises UnknownRun: if the run does not exist
    :raises NowhereToFork: if it has no such place
    :raises RequestRefused: if the start is refused
    """
    request = msgspec.convert(asked, ForkRun)
    async with reach(config, reads=False, name="callboard fork") as connection:
        # An event's number needs no look at them.
        events = [] if request.at is not None else await connection.client.events(request.run_id)
        verdict = await begin_fork(connection.client, request, events)
    if verdict.status == "rejected" or verdict.run_id is None:
        raise RequestRefused("start", verdict.problems, request.run_id)
    tell_started(verdict, verdict.warnings, settings, request.run_id)
