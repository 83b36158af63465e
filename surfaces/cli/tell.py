"""``callboard cancel, kill, pause, resume, step, answer, signal``: send a command to a run."""

from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import NAME_ONE, many, pairs
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.runtime.settings.config import Config
    from callboard.surfaces.cli.bulk import Many


_by = click.option("--by", metavar="NAME", help="The name of the person who sends it; recorded with it.")
_id = click.option(
    "--id", metavar="KEY", help="A key of your choice: a command sent twice with the same KEY acts once."
)
_set = click.option(
    "--set", "variables", metavar="VAR=JSON", multiple=True, help="Set a variable, if the language has variables."
)
_reason = click.option("--reason", metavar="TEXT", default="", help="The reason; recorded with it.")


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@_reason
@_by
@_id
@many
@settings_options
def cancel(settings: Settings, whom: "Many | str | None", reason: str, by: str | None, id: str | None) -> None:
    """Cancel RUN: stop its effects and nodes, innermost first, run its clean-up, and end it as cancelled."""
    _send(settings, whom, "cancel", reason=reason, by=by, id=id)


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@_reason
@_by
@_id
@many
@settings_options
def kill(settings: Settings, whom: "Many | str | None", reason: str, by: str | None, id: str | None) -> None:
    """End RUN at once, without clean-up."""
    _send(settings, whom, "kill", reason=reason, by=by, id=id)


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@_reason
@_by
@_id
@many
@settings_options
def pause(settings: Settings, whom: "Many | str | None", reason: str, by: str | None, id: str | None) -> None:
    """Pause RUN before its next node, or its next effect in Python."""
    _send(settings, whom, "pause", reason=reason, by=by, id=id)


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@_set
@_by
@_id
@many
@settings_options
def resume(
    settings: Settings, whom: "Many | str | None", variables: tuple[str, ...], by: str | None, id: str | None
) -> None:
    """Let a paused RUN continue."""
    _send(settings, whom, "resume", variables=_parse_values(variables), by=by, id=id)


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run")
@_set
@_by
@_id
@settings_options
def step(settings: Settings, run: str, variables: tuple[str, ...], by: str | None, id: str | None) -> None:
    """Let a paused RUN perform one node, and pause it again."""
    _send(settings, run, "resume", variables=_parse_values(variables), by=by, id=id, step=True)


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run")
@click.argument("words", nargs=-1, required=True, metavar="[INTERACTION] RESPONSE")
@click.option("--data", metavar="JSON", help="Additional data of the answer.")
@click.option("--arguments", metavar="JSON", help="Approve a tool's call with these arguments instead of its own.")
@click.option("--reason", metavar="TEXT", help="The reason of a decision about a tool's call.")
@_by
@_id
@settings_options
def answer(
    settings: Settings,
    run: str,
    words: tuple[str, ...],
    data: str | None,
    arguments: str | None,
    reason: str | None,
    by: str | None,
    id: str | None,
) -> None:
    """Answer the open question INTERACTION of RUN; `callboard show RUN` lists what is open.

    INTERACTION may be omitted if only one question is open. RESPONSE is JSON, or else a text. To the question whether a
    tool may be called, it is approve, reject, approve-always or stop. The command fails if the answer comes too late,
    or does not fit the question, which then stays open.
    """
    extra = None if data is None else _parse_value(data)
    if len(words) > 2:
        raise click.UsageError(
            f"{len(words)} words given for INTERACTION and RESPONSE; quote a RESPONSE of several words"
        )
    response = _parse_value(words[len(words) - 1])
    interaction = "".join(words[: len(words) - 1])
    decided = {} if arguments is None else {"arguments": _parse_value(arguments)}
    decided |= {} if reason is None else {"reason": reason}
    if decided:
        response = {"decision": response, **decided}
    _send(
        settings,
        run,
        "answer",
        interaction=interaction,
        user_response=response,
        response_data=extra,
        by=by,
        id=id,
    )


@click.command(epilog=exits.EXIT_CODES)
@click.argument("words", nargs=-1, required=True, metavar="[RUN] NAME [DATA]")
@_by
@_id
@many
@settings_options
def signal(settings: Settings, words: tuple[str, ...], whom: "Many | None", by: str | None, id: str | None) -> None:
    """Send RUN the signal NAME. DATA is JSON, or else a text. With --where or --all, omit RUN."""
    rest = words[0 if whom is not None else 1 :]
    if not 1 <= len(rest) <= 2:
        raise click.UsageError(
            f"{len(words)} words given; expected {'' if whom is not None else 'RUN, '}NAME and, optionally, DATA"
        )
    data = _parse_value(rest[1]) if len(rest) == 2 else None
    _send(settings, whom or words[0], "signal", name=rest[0], data=data, by=by, id=id)


def _parse_values(variables: tuple[str, ...]) -> dict[str, Any]:
    return {name: _parse_value(text) for name, text in pairs(variables, "--set").items()}


def _parse_value(text: str) -> Any:
    """Read a word of the command line as JSON, or else as a text.

    :raises click.BadParameter: if the value is nested too deeply, or is not UTF-8
    """
    from callboard.lib.text_bytes import NotText, argument_text
    from callboard.service.files.json_values import NotJson, TooDeep, json_of

    try:
        text = argument_text(text)
        return json_of(text)
    except NotText as error:
        raise click.BadParameter(str(error)) from error
    except TooDeep as error:
        raise click.BadParameter(f"the value {error}") from error
    except NotJson:
        return text


def _send(settings: Settings, whom: "Many | str | None", verb: str, **fields: Any) -> None:
    import anyio

    if whom is None:
        raise click.UsageError(NAME_ONE)
    id = fields.pop("id")
    if isinstance(whom, str):
        anyio.run(tell_run, whom, verb, {**fields, "id": id}, load_config(settings), settings)
        return
    if id is not None:
        raise click.UsageError("--id needs one RUN; for many runs, use --operation")
    from callboard.surfaces.cli.bulk import tell_many

    code = anyio.run(tell_many, whom, verb, fields, load_config(settings), settings)
    click.get_current_context().exit(code)


async def tell_run(run: str, verb: str, fields: dict[str, Any], config: "Config", settings: Settings) -> None:
    """Send a command to a run and print the result.

    :raises RequestRefused: if admission rejects it, with every problem
    :raises CallboardError: if admission or the run rejects it, an answer is not understood, or no server or no worker
        answers
    """
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact
    from callboard.service.operations.tells import answered_question, reception_text, send_command, verdict_of

    async with reach(config, reads=False, name=f"callboard {verb}") as connection:
        reception = await send_command(connection.client, run, verb, fields)
        question = await answered_question(connection.client, run, reception)
    if settings.as_json:
        recorded = reception.recorded.n if reception.recorded else None
        told = {"run_id": run, "verb": verb, "recorded": recorded, "verdict": verdict_of(reception)}
        told |= {"question": question} if question else {}
        told |= {"duplicate": True} if reception.verdict.duplicate else {}
        say(compact(told))
    else:
        say(reception_text(reception, verb, question))
