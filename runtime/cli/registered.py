"""Registered definitions: a list of them, and one with all that travels with its runs."""

import click
import msgspec

from callboard.bus.commands import Registration
from callboard.bus.errors import CallboardError
from callboard.languages.registry import about
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN, names, parse, registered
from callboard.runtime.cli.options import Settings
from callboard.runtime.operations.reach import reach
from callboard.runtime.operations.results import compact
from callboard.runtime.settings.config import Config


class UnknownDefinition(CallboardError):
    """Nothing is registered under a name or a hash."""

    def __init__(self, name: str) -> None:
        remedy = "`callboard definitions` lists what is; `callboard push FILE --name NAME` registers one."
        super().__init__("definition.unknown", f"no definition {name!r} is registered", remedy=remedy)


async def list_definitions(config: Config, settings: Settings) -> None:
    """Print the registered definitions of the tenant, by name."""
    async with reach(config, reads=True, name="callboard definitions") as connection:
        kept = [
            await connection.log.definition(config.tenant, name) for name in await names(connection.log, config.tenant)
        ]
    found = [one for one in kept if one is not None]
    if settings.as_json:
        told = [{"name": one.name, "language": one.language, "hash": one.hash, "title": _title(one)} for one in found]
        click.echo(compact(told))
        return
    width = max((len(one.name or "") for one in found), default=0)
    for one in found:
        row = f"{(one.name or '').ljust(width)}  {one.language}  {(one.hash or '')[:HASH_DIGITS_SHOWN]}  {_title(one)}"
        click.echo(row.rstrip())
    if not found:
        click.echo("No definitions. `callboard push FILE --name NAME` registers one.")


async def show_definition(config: Config, settings: Settings, name: str) -> None:
    """Print a registered definition.

    :raises UnknownDefinition: if nothing is registered under this name or hash
    """
    async with reach(config, reads=True, name="callboard definitions") as connection:
        try:
            kept = await connection.log.definition(config.tenant, name)
        except ValueError:
            kept = None  # a name that no subject takes was never registered
    if kept is None:
        raise UnknownDefinition(name)
    if settings.as_json:
        click.echo(compact(msgspec.to_builtins(registered(kept))))
        return
    skills = [str(skill.get("id", "")) for skill in kept.skills if isinstance(skill, dict)]
    facts = {
        "name": kept.name or "",
        "language": kept.language or "",
        "hash": kept.hash or "",
        "title": _title(kept),
        "files": ", ".join(sorted(kept.files)),
        "skills": ", ".join(skills),
        "children": ", ".join(sorted(kept.children)),
    }
    for fact, value in facts.items():
        if value:
            click.echo(f"{fact.ljust(9)} {value}")
    click.echo(f"\n{kept.source or ''}".rstrip())


def _title(kept: Registration) -> str:
    definition = parse(Definitions(), kept.source or "", kept.language)
    return "" if isinstance(definition, list) else about(definition).title
