"""Telling a run something, and saying what it makes of it."""

from typing import Any

from callboard.runtime.settings.config import Config
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.service.operations.tells import answered_question, reception_text, send_command, verdict_of
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings


async def tell_run(run: str, verb: str, fields: dict[str, Any], config: Config, settings: Settings) -> None:
    """Tell a run something and say what became of it.

    :raises RequestRefused: if admission refuses it, for several reasons
    :raises CallboardError: if admission, or the run, refuses it, an answer is not understood, there is no server, or no
        worker answers
    """
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
