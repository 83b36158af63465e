"""Pushing a definition: what lies on this disk, validated and bundled, becomes a registered definition."""

import click
import msgspec

from callboard.bus.commands import Bundle, Registration
from callboard.bus.events import Problem
from callboard.runtime.cli.errors import Refused
from callboard.runtime.cli.options import Order, Settings
from callboard.runtime.cli.ordering import Ordered, ordered
from callboard.runtime.cli.problems import problem_text
from callboard.runtime.cli.reach import reach
from callboard.runtime.cli.validating import errors, examined
from callboard.runtime.cli.views import compact
from callboard.runtime.config import Config
from callboard.runtime.definitions import Definitions
from callboard.runtime.registration import HASH_DIGITS_SHOWN, register


async def push_file(order: Order, name: str | None, config: Config, settings: Settings) -> None:
    """Register the definition in a file, and print what it is registered as.

    :raises Refused: with all that is wrong with it
    :raises CallboardError: whatever keeps the store from being used
    """
    made = ordered(order)
    _language, found = examined(made.definition.source, order)
    if wrong := errors(found):
        raise Refused("definition", wrong, order.file, made.definition.source)
    wanted = _registration(made, name or made.definition.name)
    async with reach(config, reads=True, founds=True, name="callboard push") as house:
        kept = await register(house.log, Definitions(), config.tenant, wanted)
    if isinstance(kept, list):
        raise Refused("definition", kept, order.file, made.definition.source)
    warnings: list[Problem] = [*made.warnings, *found]
    if settings.as_json:
        more = {"files": sorted(wanted.files), "children": sorted(wanted.children)}
        told = {"name": kept.name, "language": kept.language, "hash": kept.hash, "unchanged": kept.unchanged, **more}
        click.echo(compact({**told, "warnings": msgspec.to_builtins(warnings)}))
        return
    for warning in warnings:
        click.echo(problem_text(warning, order.file, made.definition.source), err=True)
    state = "unchanged" if kept.unchanged else "registered"
    click.echo(f"{state} {kept.name} ({kept.language}) {kept.hash[:HASH_DIGITS_SHOWN]}")
    for path in (*sorted(wanted.files), *sorted(wanted.children)):
        click.echo(f"  with {path}")


def _registration(made: Ordered, name: str) -> Registration:
    message = made.message
    return Registration(
        language=made.definition.language,
        source=made.definition.source,
        name=name,
        files=message.get("files", {}),
        skills=message.get("options", {}).get("skills", []),
        children=msgspec.convert(message.get("children", {}), type=dict[str, Bundle]),
    )
