"""Registered definitions: a list of them, and one with its versions and all that travels with its runs."""

import msgspec

from callboard.bus.commands import Registration
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.languages.registry import about
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN, parse, registered_names, to_registered
from callboard.runtime.admission.versions import UnknownDefinition, Version, find_registration, rollback, versions
from callboard.runtime.settings.config import Config
from callboard.service.api.bodies import OneVersion
from callboard.service.api.version_lists import list_versions
from callboard.service.operations.narration import local
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.service.operations.run_listing import listings
from callboard.surfaces.cli.output import document, say
from callboard.surfaces.cli.settings import Settings


async def list_definitions(config: Config, settings: Settings) -> None:
    """Print the registered definitions of the tenant, by name, each with the version in force."""
    async with reach(config, reads=True, name="callboard definitions") as connection:
        log, tenant = connection.log, config.tenant
        counts = await registered_names(log, tenant)
        kept = {name: await log.definition(tenant, name) for name in counts}
    found = [(one, counts[name]) for name, one in kept.items() if one is not None]
    if settings.as_json:
        told = [
            {"name": one.name, "language": one.language, "hash": one.hash, "version": number, "title": _title(one)}
            for one, number in found
        ]
        say(compact(told))
        return
    width = max((len(one.name or "") for one, _ in found), default=0)
    for one, number in found:
        hash = (one.hash or "")[:HASH_DIGITS_SHOWN]
        say(f"{(one.name or '').ljust(width)}  {one.language}  {hash}  v{number}  {_title(one)}".rstrip())
    if not found:
        say("No definitions. `callboard push FILE --name NAME` registers one.")


async def show_definition(config: Config, settings: Settings, name: str) -> None:
    """Print a registered definition: of a name with its versions, of a version or a hash with its text.

    :raises UnknownDefinition: if nothing is registered under this name or hash
    """
    async with reach(config, reads=True, name="callboard definitions") as connection:
        kept = await _meant(connection.log, config.tenant, name)
        found: list[Version] = []
        if kept.name == name:
            found = await versions(connection.log, config.tenant, name)
        told: list[OneVersion] = []
        if found:
            async with listings(connection) as runs:
                told = list_versions(found, await runs.versions(config.tenant))
    if settings.as_json:
        more = {"versions": msgspec.to_builtins(told)} if told else {}
        say(compact({**msgspec.to_builtins(to_registered(kept)), **more}))
        return
    for fact, value in _facts(kept).items():
        if value:
            say(f"{fact.ljust(9)} {value}")
    if told:
        say("versions")
        for line in _table(told):
            say(f"  {line}")
    else:
        say(f"\n{kept.source or ''}".rstrip())


async def print_source(config: Config, name: str) -> None:
    """Print the text of a registered definition as it was registered.

    :raises UnknownDefinition: if nothing is registered under this name or hash
    """
    async with reach(config, reads=True, name="callboard definitions") as connection:
        kept = await _meant(connection.log, config.tenant, name)
    source = kept.source or ""
    document(source, nl=not source.endswith("\n"))


async def roll_back(config: Config, settings: Settings, name: str, version: str | None, by: str | None) -> None:
    """Have a name mean an earlier version again, and print what it means now. Raises as `rollback`."""
    async with reach(config, reads=True, name="callboard rollback") as connection:
        kept = await rollback(connection.log, config.tenant, name, version, by)
    if settings.as_json:
        told = {"name": kept.name, "language": kept.language, "hash": kept.hash, "unchanged": kept.unchanged}
        say(compact(told))
        return
    state = "unchanged" if kept.unchanged else "rolled back"
    say(f"{state} {kept.name} ({kept.language}) {kept.hash[:HASH_DIGITS_SHOWN]}")


async def _meant(log: JetStreamLog, tenant: str, name: str) -> Registration:
    kept = await find_registration(log, tenant, name)
    if kept is None:
        raise UnknownDefinition(name)
    return kept


def _facts(kept: Registration) -> dict[str, str]:
    skills = [str(skill.get("id", "")) for skill in kept.skills if isinstance(skill, dict)]
    return {
        "name": kept.name or "",
        "language": kept.language or "",
        "hash": kept.hash or "",
        "by": kept.by or "",
        "title": _title(kept),
        "files": ", ".join(sorted(kept.files)),
        "skills": ", ".join(skills),
        "children": ", ".join(sorted(kept.children)),
    }


def _table(told: list[OneVersion]) -> list[str]:
    """A line for each version: number, hash, when, and what else there is to say of it."""
    width = len(str(told[0].number))
    lines: list[str] = []
    for one in told:
        notes = [
            "in force" if one.in_force else "",
            "withdrawn" if not one.hash else "",
            f"v{one.restores} again" if one.restores else "",
            f"by {one.by}" if one.by else "",
            f"{one.runs} run{'s' if one.runs != 1 else ''}" if one.runs else "",
        ]
        told_of = ", ".join(note for note in notes if note)
        hash, at = one.hash[:HASH_DIGITS_SHOWN], local(one.registered_at)
        lines.append(f"v{str(one.number).ljust(width)}  {hash}  {at}  {told_of}".rstrip())
    return lines


def _title(kept: Registration) -> str:
    definition = parse(Definitions(), kept.source or "", kept.language)
    return "" if isinstance(definition, list) else about(definition).title
