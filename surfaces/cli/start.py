"""``callboard start, fork, retry, rerun``: start a run, or continue from where another one was."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from callboard.service.files.start_request import StartRequest
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import NAME_ONE, many, pairs
from callboard.surfaces.cli.output import problem_text, say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options
from callboard.surfaces.cli.start_options import is_file, start_options

if TYPE_CHECKING:
    from callboard.bus.events import Problem
    from callboard.runtime.admission.verdicts import Verdict
    from callboard.runtime.settings.config import Config
    from callboard.service.files.start_messages import Message
    from callboard.surfaces.cli.bulk import Many


@click.command(epilog=exits.EXIT_CODES)
@partial(start_options, names=True)
@settings_options
def start(request: StartRequest, settings: Settings) -> None:
    """Start a run on a running server, such as `callboard up`, and print its id.

    FILE may also be the name of a registered definition (`callboard push`). When the command returns, the run is
    stored.
    """
    import anyio

    from callboard.service.files.start_messages import prepare, prepare_by_name

    what = prepare(request) if is_file(request.file) else prepare_by_name(request)
    anyio.run(publish_start, what, load_config(settings), settings, request.file)


async def publish_start(prepared: "Message", config: "Config", settings: Settings, file: str) -> None:
    """Publish a start message and print the run's id.

    :raises RequestRefused: if the start is refused
    :raises CallboardError: if no server or no worker answers
    """
    from callboard.bus.errors import JetStreamDisabled, PermissionDenied
    from callboard.bus.tracecontext import read, within
    from callboard.runtime.client.errors import RequestRefused
    from callboard.runtime.client.start_by_request import start_by_request
    from callboard.service.operations.reach import reach

    name = "callboard start"
    with within(read(os.environ)):
        try:
            async with reach(config, reads=False, name=name) as connection:
                verdict = await connection.client.start(prepared.message)
        except (PermissionDenied, JetStreamDisabled):
            if config.nats_url is None:
                raise
            # The user may only send requests to workers (see `deploy/README.md`), or is a tenant's account.
            verdict = await start_by_request(prepared.message, config, name)
    if verdict.status == "rejected" or verdict.run_id is None:
        raise RequestRefused("start", verdict.problems, file)
    print_started(verdict, [*prepared.warnings, *verdict.warnings], settings, file, prepared.source)


def print_started(
    verdict: "Verdict", warnings: "Sequence[Problem]", settings: Settings, file: str, source: str = ""
) -> None:
    """Print the id of a started run, and warnings about it, which are in ``file``."""
    import msgspec

    from callboard.service.operations.results import compact

    if settings.as_json:
        found = {"run_id": verdict.run_id, "duplicate": verdict.duplicate}
        say(compact({**found, "warnings": msgspec.to_builtins(warnings)}))
        return
    for warning in warnings:
        say(problem_text(warning, file, source), err=True)
    if verdict.duplicate:
        say("the run was started before", err=True)
    say(verdict.run_id or "")


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


@click.command(epilog=exits.EXIT_CODES)
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
@settings_options
def fork(
    settings: Settings,
    run: str,
    at: int | None,
    node: str | None,
    outcome: str | None,
    variables: tuple[str, ...],
    **given: Any,
) -> None:
    """Start a new run that continues RUN from an earlier point, and print its id. RUN is not changed.

    The events up to that point are shared; the log has them once. An input, an option or a definition that would change
    them is refused, and the first difference is shown. `callboard trace RUN --format events` shows the numbers of
    events.
    """
    _start_fork(settings, {"run_id": run, "at": at, "from": node}, given, outcome, pairs(variables, "--set"))


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@_override_options
@many
@settings_options
def retry(settings: Settings, whom: "Many | str | None", **given: Any) -> None:
    """Retry a failed RUN: start a new run that continues from before the failure, and print its id.

    A cancelled or killed run continues from before the cancellation, also if it was paused; an expired run waits again.
    Child runs continue from where they were, without repeating their work.
    """
    _fork_each(settings, whom, "retry", {"failure": True}, given)


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@_input
@_override_options
@many
@settings_options
def rerun(settings: Settings, whom: "Many | str | None", **given: Any) -> None:
    """Start a new run with the same start as RUN, and print its id."""
    _fork_each(settings, whom, "rerun", {"again": True}, given)


def _fork_each(
    settings: Settings, whom: "Many | str | None", verb: str, place: dict[str, Any], given: dict[str, Any]
) -> None:
    """Start a run from another run, or from each run that matches a question."""
    if whom is None:
        raise click.UsageError(NAME_ONE)
    if isinstance(whom, str):
        _start_fork(settings, {"run_id": whom, **place}, given)
        return
    if given["run_id"] is not None:
        raise click.UsageError("--run-id needs one RUN")
    import anyio

    from callboard.surfaces.cli.bulk import begin_many

    start = make_start(options=pairs(given.pop("options"), "--option"), **given)
    code = anyio.run(begin_many, whom, verb, start, load_config(settings), settings)
    click.get_current_context().exit(code)


def _start_fork(
    settings: Settings,
    place: dict[str, Any],
    given: dict[str, Any],
    outcome: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> None:
    import anyio

    from callboard.service.files.option_values import option_values

    options = pairs(given.pop("options"), "--option")
    asked = {**place, "start": make_start(options=options, **given)}
    if outcome is not None:
        asked["outcome"] = read_outcome(outcome)
    if variables:
        asked["variables"] = option_values(variables)
    anyio.run(start_fork, asked, load_config(settings), settings)


def make_start(
    *,
    options: Mapping[str, str],
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
        start["options"] = option_values(options)
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


async def start_fork(asked: dict[str, Any], config: "Config", settings: Settings) -> None:
    """Start the fork and print its id.

    :raises UnknownRun: if the run does not exist
    :raises NowhereToFork: if the run has no such place
    :raises RequestRefused: if the start is refused
    """
    import msgspec

    from callboard.runtime.client.errors import RequestRefused
    from callboard.service.operations.fork_starts import ForkRun, begin_fork
    from callboard.service.operations.reach import reach

    request = msgspec.convert(asked, ForkRun)
    async with reach(config, reads=False, name="callboard fork") as connection:
        # A number of an event needs no lookup in the events.
        events = [] if request.at is not None else await connection.client.events(request.run_id)
        verdict = await begin_fork(connection.client, request, events)
    if verdict.status == "rejected" or verdict.run_id is None:
        raise RequestRefused("start", verdict.problems, request.run_id)
    print_started(verdict, verdict.warnings, settings, request.run_id)
