"""``callboard fork, retry, rerun``: continue from where a run was, as its own run."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import NAME_ONE, many, pairs
from callboard.surfaces.cli.settings import Settings, settings_options

if TYPE_CHECKING:
    from callboard.surfaces.cli.bulk import Many

_READABLE = click.Path(exists=True, dir_okay=False)

Command = Callable[..., None]

_run_id = click.option("--run-id", metavar="ID", help="What the new run is to be called.")
_model = click.option("--model", "-m", metavar="MODEL", help="Another model from there on, as provider:model.")
_script = click.option("--script", type=_READABLE, help="Other answers of a scripted model and scripted tools.")
_input = click.option("--input", "-i", "input_text", metavar="JSON|@FILE|-", help="Another input.")
_definition = click.option("--definition", metavar="FILE", type=_READABLE, help="Another definition.")
_options = click.option("--option", "options", metavar="NAME=VALUE", multiple=True, help="Another option.")
_by = click.option("--by", metavar="NAME", help="Who says so; recorded with it.")


def _otherwise(command: Command) -> Command:
    """Add the options for what every such run may be given otherwise."""
    for option in (_by, _run_id, _options, _script, _model, _definition):
        command = option(command)
    return command


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run")
@click.option("--at", type=click.IntRange(min=1), metavar="N", help="Behind the run's event N.")
@click.option("--from", "node", metavar="NODE", help="Where NODE (an id, a path, or PATH#2) was entered last.")
@click.option("--outcome", metavar="JSON", help="With --at: what event N, an outcome, is to say instead.")
@click.option(
    "--set", "variables", metavar="VAR=JSON", multiple=True, help="Set a variable there, where there are any."
)
@_input
@_otherwise
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
    """Continue from where RUN was, as its own run, and print its id. RUN stays as it is.

    What the two have in common is in the log once. What is given otherwise must not change what they share: an
    input, an option or a definition that would, is refused with the first difference. `callboard trace RUN --format
    events` numbers the events.
    """
    _ask(settings, {"run_id": run, "at": at, "from": node}, given, outcome, pairs(variables, "--set"))


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@_otherwise
@many
@settings_options
def retry(settings: Settings, whom: "Many | str | None", **given: Any) -> None:
    """Try the failure of RUN again: continue from before what made it fail, as its own run, and print its id.

    A run that was cancelled or killed continues from before that, also if it was paused then; one that has expired
    waits once more. Child runs continue from where they were: what they have done is not done again.
    """
    _begin(settings, whom, "retry", {"failure": True}, given)


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@_input
@_otherwise
@many
@settings_options
def rerun(settings: Settings, whom: "Many | str | None", **given: Any) -> None:
    """Start once more what RUN was started with, and print the new run's id."""
    _begin(settings, whom, "rerun", {"again": True}, given)


def _begin(
    settings: Settings, whom: "Many | str | None", verb: str, place: dict[str, Any], given: dict[str, Any]
) -> None:
    """Begin a run from another one, or one from each that a question finds."""
    if whom is None:
        raise click.UsageError(NAME_ONE)
    if isinstance(whom, str):
        _ask(settings, {"run_id": whom, **place}, given)
        return
    if given["run_id"] is not None:
        raise click.UsageError("--run-id is of one run")
    import anyio

    from callboard.surfaces.cli.bulk import begin_many
    from callboard.surfaces.cli.fork_action import start_of
    from callboard.surfaces.cli.settings import configured

    start = start_of(options=pairs(given.pop("options"), "--option"), **given)
    code = anyio.run(begin_many, whom, verb, start, configured(settings), settings)
    click.get_current_context().exit(code)


def _ask(
    settings: Settings,
    place: dict[str, Any],
    given: dict[str, Any],
    outcome: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> None:
    import anyio

    from callboard.service.operations.option_values import option_values
    from callboard.surfaces.cli.fork_action import begin, read_outcome, start_of
    from callboard.surfaces.cli.settings import configured

    options = pairs(given.pop("options"), "--option")
    asked = {**place, "start": start_of(options=options, **given)}
    if outcome is not None:
        asked["outcome"] = read_outcome(outcome)
    if variables:
        asked["variables"] = option_values(variables)
    anyio.run(begin, asked, configured(settings), settings)
