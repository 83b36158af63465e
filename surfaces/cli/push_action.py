"""Pushing a definition: what lies on this disk, validated and bundled, becomes a registered definition."""

import msgspec

from callboard.bus.commands import Bundle, Registration
from callboard.bus.events import Problem
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN, register
from callboard.runtime.settings.config import Config
from callboard.service.operations.errors import RequestRefused, UsageInvalid
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.service.operations.start_messages import PreparedStart, prepare
from callboard.service.operations.start_request import StartRequest
from callboard.service.operations.validation import errors, examine_definition
from callboard.surfaces.cli.output import problem_text, say
from callboard.surfaces.cli.settings import Settings


async def push_file(
    request: StartRequest, name: str | None, by: str | None, config: Config, settings: Settings
) -> None:
    """Register the definition in a file, and print what it is registered as.

    :raises UsageInvalid: if the name is empty
    :raises RequestRefused: with all that is wrong with it
    :raises CallboardError: whatever keeps the store from being used
    """
    if name is not None and not name.strip():
        raise UsageInvalid("a name is not empty; expected the one that starts are to say", "--name")
    made = prepare(request)
    _language, found = examine_definition(made.definition.source, request)
    if wrong := errors(found):
        raise RequestRefused("definition", wrong, request.file, made.definition.source)
    wanted = _registration(made, name or made.definition.name, by)
    async with reach(config, reads=True, founds=True, name="callboard push") as connection:
        kept = await register(connection.log, Definitions(), config.tenant, wanted)
    if isinstance(kept, list):
        raise RequestRefused("definition", kept, request.file, made.definition.source)
    warnings: list[Problem] = [*made.warnings, *found]
    if settings.as_json:
        more = {"files": sorted(wanted.files), "children": sorted(wanted.children)}
        told = {"name": kept.name, "language": kept.language, "hash": kept.hash, "unchanged": kept.unchanged, **more}
        say(compact({**told, "warnings": msgspec.to_builtins(warnings)}))
        return
    for warning in warnings:
        say(problem_text(warning, request.file, made.definition.source), err=True)
    state = "unchanged" if kept.unchanged else "registered"
    say(f"{state} {kept.name} ({kept.language}) {kept.hash[:HASH_DIGITS_SHOWN]}")
    for path in (*sorted(wanted.files), *sorted(wanted.children)):
        say(f"  with {path}")


def _registration(made: PreparedStart, name: str, by: str | None) -> Registration:
    message = made.message
    return Registration(
        language=made.definition.language,
        source=made.definition.source,
        name=name,
        files=message.get("files", {}),
        skills=message.get("options", {}).get("skills", []),
        children=msgspec.convert(message.get("children", {}), type=dict[str, Bundle]),
        attributes=message.get("attributes", {}),
        by=by,
    )
