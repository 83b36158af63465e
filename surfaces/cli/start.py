"""``callboard start, fork, retry, rerun``: start a run, or continue from where another one was."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from callboard.service.files.start_request import StartRequest
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import NAME_ONE, Many, many, pairs
from callboard.surfaces.cli.output import problem_text, say
from callboard.surfaces.cli.start_options import is_file, start_options

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from callboard.bus.events import Problem
    from callboard.runtime.admission.verdicts import Verdict


@click.command()
@partial(start_options, names=True)
@operation
def start(call: OperationCall, request: StartRequest) -> "Awaitable[None]":
    """Start a run on a running server, such as `callboard up`, and print its id.

    FILE may also be the name of a registered definition (`callboard push`). When the command returns, the run is
    stored.
    """
    from callboard.bus.errors import JetStreamDisabled, PermissionDenied
    from callboard.bus.tracecontext import read, within
    from callboard.runtime.client.start_by_request import start_by_request
    from callboard.service.files.start_messages import prepare, prepare_by_name

    prepared = prepare(request) if is_file(request.file) else prepare_by_name(request)

    async def send() -> None:
        with within(read(os.environ)):
            try:
                async with call.connect(reads=False) as connection:
                    verdict = await connection.client.start(prepared.message)
            except (PermissionDenied, JetStreamDisabled):
                if call.config.nats_url is None:
                    raise
                # The user may only send requests to workers (see `deploy/README.md`), or is a tenant's account.
                verdict = await start_by_request(prepared.message, call.config, call.name)
        _print_started(call, verdict, prepared.warnings, request.file, prepared.source)

    return send()


def _print_started(
    call: OperationCall, verdict: "Verdict", warnings: "Sequence[Problem]", file: str, source: str = ""
) -> None:
    """Print the id of a started run, and the warnings about it, which are in ``file``.

    :raises RequestRefused: if the start is refused
    """
    from callboard.runtime.client.errors import RequestRefused

    if verdict.status == "rejected" or verdict.run_id is None:
        raise RequestRefused("start", verdict.problems, file)
    told = [*warnings, *verdict.warnings]
    if not call.settings.as_json:
        for warning in told:
            say(problem_text(warning, file, source), err=True)
        if verdict.duplicate:
            say("the run was started before", err=True)
    call.answer({"run_id": verdict.run_id, "duplicate": verdict.duplicate, "warnings": told}, verdict.run_id)


_READABLE = click.Path(exists=True, dir_okay=False)

_Command = Callable[..., None]

_run_id = click.option("--run-id", metavar="ID", help="The id of the new run.")
_model = click.option("--model", "-m", metavar="MODEL", help="Use another model from there, as provider:model.")
_script = click.option("--script", type=_READABLE, help="Use other answers of a scripted model and scripted tools.")
_input = click.option("--input", "-i", "input_text", metavar="JSON|@FILE|-", help="Use another input.")
_definition = click.option("--definition", metavar="FILE", type=_READABLE, help="Use another definition.")
_options = click.option(
    "--option", "options", metavar="NAME=VALUE", multiple=True, help="Set an option of the definition."
)
_by = click.option("--by", metavar="NAME", help="The name of the person who does it; recorded with the run.")


def _override_options(command: _Command) -> _Command:
    """Add the options that override parts of the original start."""
    for option in (_by, _run_id, _options, _script, _model, _definition):
        command = option(command)
    return command


@click.command()
@click.argument("run")
@click.option("--at", type=click.IntRange(min=1), metavar="N", help="After event N of the run.")
@click.option("--from", "node", metavar="NODE", help="Where NODE (an id, a path, or PATH#2) was last entered.")
@click.option("--outcome", metavar="JSON", help="With --at: replace the outcome in event N.")
@click.option(
    "--set", "variables", metavar="VAR=JSON", multiple=True, help="Set a variable there, if the language has variables."
)
@click.option(
    "--break", "breakpoints", metavar="NODE", multiple=True, help="Pause at this node from there on; may be repeated."
)
@_input
@_override_options
@operation
def fork(
    call: OperationCall,
    run: str,
    at: int | None,
    node: str | None,
    outcome: str | None,
    variables: tuple[str, ...],
    **given: Any,
) -> "Awaitable[int | None]":
    """Start a new run that continues RUN from an earlier point, and print its id. RUN is not changed.

    The events up to that point are shared; the log has them once. An input, an option or a definition that would change
    them is refused, and the first difference is shown. `callboard trace RUN --format events` shows the numbers of
    events.
    """
    from callboard.service.files.option_values import option_values

    place: dict[str, Any] = {"at": at, "from": node}
    if outcome is not None:
        place["outcome"] = read_outcome(outcome)
    if variables:
        place["variables"] = option_values(pairs(variables, "--set"))
    return _start_fork(call, run, place, make_start(**given))


@click.command()
@click.argument("run", required=False)
@_override_options
@many
@operation
def retry(call: OperationCall, whom: Many | str | None, **given: Any) -> "Awaitable[int | None]":
    """Retry a failed RUN: start a new run that continues from before the failure, and print its id.

    A cancelled or killed run continues from before the cancellation, also if it was paused; an expired run waits again.
    Child runs continue from where they were, without repeating their work.
    """
    return _fork_each(call, whom, "retry", {"failure": True}, given)


@click.command()
@click.argument("run", required=False)
@_input
@_override_options
@many
@operation
def rerun(call: OperationCall, whom: Many | str | None, **given: Any) -> "Awaitable[int | None]":
    """Start a new run with the same start as RUN, and print its id."""
    return _fork_each(call, whom, "rerun", {"again": True}, given)


def _fork_each(
    call: OperationCall, whom: Many | str | None, verb: str, place: dict[str, Any], given: dict[str, Any]
) -> "Awaitable[int | None]":
    """Start a run from another run, or from each run that matches a question; it results in the exit code."""
    if whom is None:
        raise click.UsageError(NAME_ONE)
    if isinstance(whom, str):
        return _start_fork(call, whom, place, make_start(**given))
    if given["run_id"] is not None:
        raise click.UsageError("--run-id needs one RUN")
    from callboard.surfaces.cli.bulk import begin_many

    return begin_many(call, whom, verb, make_start(**given))


async def _start_fork(call: OperationCall, run: str, place: dict[str, Any], start: dict[str, Any]) -> None:
    """Start the fork and print its id.

    :raises UnknownRun: if the run does not exist
    :raises NowhereToFork: if the run has no such place
    :raises RequestRefused: if the start is refused
    """
    import msgspec

    from callboard.service.operations.fork_starts import ForkRun, begin_fork

    request = msgspec.convert({"run_id": run, **place, "start": start}, ForkRun)
    async with call.connect(reads=False) as connection:
        # A number of an event needs no lookup in the events.
        events = [] if request.at is not None else await connection.client.events(run)
        verdict = await begin_fork(connection.client, request, events)
    _print_started(call, verdict, [], run)


def make_start(
    *,
    options: Sequence[str],
    run_id: str | None,
    by: str | None,
    model: str | None,
    script: str | None,
    definition: str | None,
    input_text: str | None = None,
    breakpoints: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the given members of a start message.

    :raises UsageInvalid: if an input or an option cannot be read
    :raises RequestRefused: with every problem of the definition or the script
    """
    from callboard.service.files.local_files import document_of
    from callboard.service.files.option_values import option_values
    from callboard.service.files.start_messages import input_of, prepare

    start: dict[str, Any] = {"run_id": run_id, "by": by, "model": model}
    if script is not None:
        start |= {"script": document_of(Path(script), "script", dict), "model": model or "scripted"}
    if input_text is not None:
        start["input"] = input_of(input_text)
    if definition is not None:
        whole = prepare(StartRequest(definition, input_text="null")).message
        start |= {name: value for name, value in whole.items() if name in ("definition", "name", "files", "children")}
    if options:
        start["options"] = option_values(pairs(tuple(options), "--option"))
    if breakpoints:
        start["breakpoints"] = list(breakpoints)
    return {name: value for name, value in start.items() if value is not None or name == "input"}


def read_outcome(text: str) -> dict[str, Any]:
    """Read the outcome that replaces a recorded one.

    :raises UsageInvalid: if it is not an object
    """
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.service.files.start_messages import input_of

    members = input_of(text, "--outcome")
    if not isinstance(members, dict):
        raise UsageInvalid('expected an object such as {"output": 7}', "--outcome")
    return members
