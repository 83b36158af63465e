"""``callboard cancel, kill, pause, resume, step, answer, signal``: send a command to a run."""

from typing import Any

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import NAME_ONE, Many, many, pairs

_by = click.option("--by", metavar="NAME", help="The name of the person who sends it; recorded with it.")
_id = click.option(
    "--id", metavar="KEY", help="A key of your choice: a command sent twice with the same KEY acts once."
)
_set = click.option(
    "--set", "variables", metavar="VAR=JSON", multiple=True, help="Set a variable, if the language has variables."
)
_reason = click.option("--reason", metavar="TEXT", default="", help="The reason; recorded with it.")


def _stopping(verb: str, help: str) -> click.Command:
    """Return a command that stops a run, or many runs, for a reason."""

    @click.command(verb, help=help)
    @click.argument("run", required=False)
    @_reason
    @_by
    @_id
    @many
    @operation
    async def stop(call: OperationCall, whom: Many | str | None, **fields: Any) -> int:
        return await _send(call, whom, verb, **fields)

    return stop


cancel = _stopping(
    "cancel", "Cancel RUN: stop its effects and nodes, innermost first, run its clean-up, and end it as cancelled."
)
kill = _stopping("kill", "End RUN at once, without clean-up.")
pause = _stopping("pause", "Pause RUN before its next node, or its next effect in Python.")


@click.command()
@click.argument("run", required=False)
@_set
@_by
@_id
@many
@operation
async def resume(call: OperationCall, whom: Many | str | None, variables: tuple[str, ...], **sender: str | None) -> int:
    """Let a paused RUN continue."""
    return await _send(call, whom, "resume", variables=_parse_values(variables), **sender)


@click.command()
@click.argument("run")
@_set
@_by
@_id
@operation
async def step(call: OperationCall, run: str, variables: tuple[str, ...], **sender: str | None) -> int:
    """Let a paused RUN perform one node, and pause it again."""
    return await _send(call, run, "resume", variables=_parse_values(variables), step=True, **sender)


@click.command()
@click.argument("run")
@click.argument("words", nargs=-1, required=True, metavar="[INTERACTION] RESPONSE")
@click.option("--data", metavar="JSON", help="Additional data of the answer.")
@click.option("--arguments", metavar="JSON", help="Approve a tool's call with these arguments instead of its own.")
@click.option("--reason", metavar="TEXT", help="The reason of a decision about a tool's call.")
@_by
@_id
@operation
async def answer(
    call: OperationCall,
    run: str,
    words: tuple[str, ...],
    data: str | None,
    arguments: str | None,
    reason: str | None,
    **sender: str | None,
) -> int:
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
    told = {"interaction": interaction, "user_response": response, "response_data": extra}
    return await _send(call, run, "answer", **told, **sender)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[RUN] NAME [DATA]")
@_by
@_id
@many
@operation
async def signal(call: OperationCall, words: tuple[str, ...], whom: Many | None, **sender: str | None) -> int:
    """Send RUN the signal NAME. DATA is JSON, or else a text. With --where or --all, omit RUN."""
    rest = words[0 if whom is not None else 1 :]
    if not 1 <= len(rest) <= 2:
        raise click.UsageError(
            f"{len(words)} words given; expected {'' if whom is not None else 'RUN, '}NAME and, optionally, DATA"
        )
    data = _parse_value(rest[1]) if len(rest) == 2 else None
    return await _send(call, whom or words[0], "signal", name=rest[0], data=data, **sender)


def _parse_values(variables: tuple[str, ...]) -> dict[str, Any]:
    return {name: _parse_value(text) for name, text in pairs(variables, "--set").items()}


def _parse_value(text: str) -> Any:
    """Read a word of the command line as JSON, or else as a text.

    :raises click.BadParameter: if the value is nested too deeply, or is not UTF-8
    """
    from callboard.lib.text_bytes import NotText, argument_text
    from callboard.service.files.json_values import JsonTooDeep, NotJson, json_of

    try:
        text = argument_text(text)
        return json_of(text)
    except NotText as error:
        raise click.BadParameter(str(error)) from error
    except JsonTooDeep as error:
        raise click.BadParameter(f"the value {error}") from error
    except NotJson:
        return text


async def _send(call: OperationCall, whom: Many | str | None, verb: str, *, id: str | None, **fields: Any) -> int:
    """Send a command to a run, or to many, and print the result; return the exit code.

    :raises RequestRefused: if admission rejects it, with every problem
    :raises CallboardError: if admission or the run rejects it, an answer is not understood, or no server or no worker
        answers
    """
    from callboard.service.operations.tells import answered_question, reception_text, send_command, verdict_of

    if whom is None:
        raise click.UsageError(NAME_ONE)
    if not isinstance(whom, str):
        from callboard.surfaces.cli.bulk import tell_many

        if id is not None:
            raise click.UsageError("--id needs one RUN; for many runs, use --operation")
        return await tell_many(call, whom, verb, fields)
    async with call.connect(reads=False) as connection:
        reception = await send_command(connection.client, whom, verb, {**fields, "id": id})
        question = await answered_question(connection.client, whom, reception)
    recorded = reception.recorded.n if reception.recorded else None
    told = {"run_id": whom, "verb": verb, "recorded": recorded, "verdict": verdict_of(reception)}
    told |= {"question": question} if question else {}
    told |= {"duplicate": True} if reception.verdict.duplicate else {}
    call.answer(told, reception_text(reception, verb, question))
    return exits.OK
