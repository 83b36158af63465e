"""``callboard push, rollback, definitions``: registered definitions, their versions and what travels with them."""

from typing import TYPE_CHECKING

import click

from callboard.service.operations.start_request import StartRequest
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import attribute_option, pairs
from callboard.surfaces.cli.output import print_document, problem_text, say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options
from callboard.surfaces.cli.start_options import skill_options

if TYPE_CHECKING:
    from callboard.bus.commands import Registration
    from callboard.bus.nats.jetstream import JetStreamLog
    from callboard.runtime.settings.config import Config
    from callboard.service.api.bodies import OneVersion
    from callboard.service.operations.start_messages import PreparedStart


@click.command(epilog=exits.EXIT_CODES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.option("--name", "-n", metavar="NAME", help="What it is registered as; default: its own name.")
@click.option("--by", metavar="NAME", help="Who registers it; kept with it.")
@attribute_option
@skill_options
@settings_options
def push(
    settings: Settings,
    file: str,
    name: str | None,
    by: str | None,
    attributes: tuple[str, ...],
    skills: str | None,
    project_skills: bool,
    skill_commands: bool,
) -> None:
    """Register a definition under a name, with all that is to travel with its runs.

    Files that it names are read beside it, and so are the lists of skills and skill files that it needs, and the
    definitions that it has run as children. A name may be registered again: starts that name it take the newest, and
    `callboard rollback` goes back. Needs no server: it is kept in the store.

    \b
    callboard push triage.yaml --name triage
    callboard start triage --input '{"service": "checkout"}'
    """
    import anyio

    request = StartRequest(
        file,
        skills=skills,
        project_skills=project_skills,
        skill_commands=skill_commands,
        attributes=pairs(attributes, "--attribute"),
    )
    anyio.run(push_file, request, name, by, load_config(settings), settings)


async def push_file(
    request: StartRequest, name: str | None, by: str | None, config: "Config", settings: Settings
) -> None:
    """Register the definition in a file, and print what it is registered as.

    :raises UsageInvalid: if the name is empty
    :raises RequestRefused: with all that is wrong with it
    :raises CallboardError: whatever keeps the store from being used
    """
    import msgspec

    from callboard.bus.events import Problem
    from callboard.runtime.admission.definitions import Definitions
    from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN, register
    from callboard.service.operations.errors import RequestRefused, UsageInvalid
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact
    from callboard.service.operations.start_messages import prepare
    from callboard.service.operations.validation import errors, examine_definition

    if name is not None and not name.strip():
        raise UsageInvalid("a name is not empty; expected the one that starts are to say", "--name")
    made = prepare(request)
    _language, found = examine_definition(made.definition.source, request)
    if wrong := errors(found):
        raise RequestRefused("definition", wrong, request.file, made.definition.source)
    wanted = _make_registration(made, name or made.definition.name, by)
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


def _make_registration(made: "PreparedStart", name: str, by: str | None) -> "Registration":
    import msgspec

    from callboard.bus.commands import Bundle, Registration

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


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name")
@click.argument("version", required=False)
@click.option("--by", metavar="NAME", help="Who does so; kept with it.")
@settings_options
def rollback(settings: Settings, name: str, version: str | None, by: str | None) -> None:
    """Have the registered NAME mean an earlier version again: VERSION, or else the one before.

    VERSION is a number, as v2, or a hash or how one begins; `callboard definitions NAME` lists them. It is registered
    once more, so nothing is lost; runs that are under way stay as they are.
    """
    import anyio

    anyio.run(restore_version, load_config(settings), settings, name, version, by)


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name", required=False)
@click.option("--source", is_flag=True, help="Print its text, and nothing else.")
@settings_options
def definitions(settings: Settings, name: str | None, source: bool) -> None:
    """List the registered definitions; with NAME show one with all its versions, by NAME@VERSION or hash one version.

    `callboard push` registers them, `callboard rollback` goes back to an earlier version.
    """
    import anyio

    config = load_config(settings)
    if name is None and source:
        raise click.UsageError("--source is of one definition: say which")
    if name is None:
        anyio.run(list_definitions, config, settings)
    elif source:
        anyio.run(print_source, config, name)
    else:
        anyio.run(show_definition, config, settings, name)


async def list_definitions(config: "Config", settings: Settings) -> None:
    """Print the registered definitions of the tenant, by name, each with the version in force."""
    from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN, registered_names
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    async with reach(config, reads=True, name="callboard definitions") as connection:
        log, tenant = connection.log, config.tenant
        counts = await registered_names(log, tenant)
        kept = {name: await log.definition(tenant, name) for name in counts}
    found = [(one, counts[name]) for name, one in kept.items() if one is not None]
    if settings.as_json:
        told = [
            {"name": one.name, "language": one.language, "hash": one.hash, "version": number, "title": _title_of(one)}
            for one, number in found
        ]
        say(compact(told))
        return
    width = max((len(one.name or "") for one, _ in found), default=0)
    for one, number in found:
        hash = (one.hash or "")[:HASH_DIGITS_SHOWN]
        say(f"{(one.name or '').ljust(width)}  {one.language}  {hash}  v{number}  {_title_of(one)}".rstrip())
    if not found:
        say("No definitions. `callboard push FILE --name NAME` registers one.")


async def show_definition(config: "Config", settings: Settings, name: str) -> None:
    """Print a registered definition: of a name with its versions, of a version or a hash with its text.

    :raises UnknownDefinition: if nothing is registered under this name or hash
    """
    import msgspec

    from callboard.runtime.admission.registration import to_registered
    from callboard.runtime.admission.versions import Version, versions
    from callboard.service.api.bodies import OneVersion
    from callboard.service.api.version_lists import list_versions
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact
    from callboard.service.operations.run_listing import listings

    async with reach(config, reads=True, name="callboard definitions") as connection:
        kept = await _find_meant(connection.log, config.tenant, name)
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
    for fact, value in _fact_lines(kept).items():
        if value:
            say(f"{fact.ljust(9)} {value}")
    if told:
        say("versions")
        for line in _version_lines(told):
            say(f"  {line}")
    else:
        say(f"\n{kept.source or ''}".rstrip())


async def print_source(config: "Config", name: str) -> None:
    """Print the text of a registered definition as it was registered.

    :raises UnknownDefinition: if nothing is registered under this name or hash
    """
    from callboard.service.operations.reach import reach

    async with reach(config, reads=True, name="callboard definitions") as connection:
        kept = await _find_meant(connection.log, config.tenant, name)
    source = kept.source or ""
    print_document(source, nl=not source.endswith("\n"))


async def restore_version(config: "Config", settings: Settings, name: str, version: str | None, by: str | None) -> None:
    """Have a name mean an earlier version again, and print what it means now. Raises as `rollback`."""
    from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN
    from callboard.runtime.admission.versions import rollback
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    async with reach(config, reads=True, name="callboard rollback") as connection:
        kept = await rollback(connection.log, config.tenant, name, version, by)
    if settings.as_json:
        told = {"name": kept.name, "language": kept.language, "hash": kept.hash, "unchanged": kept.unchanged}
        say(compact(told))
        return
    state = "unchanged" if kept.unchanged else "rolled back"
    say(f"{state} {kept.name} ({kept.language}) {kept.hash[:HASH_DIGITS_SHOWN]}")


async def _find_meant(log: "JetStreamLog", tenant: str, name: str) -> "Registration":
    from callboard.runtime.admission.versions import UnknownDefinition, find_registration

    kept = await find_registration(log, tenant, name)
    if kept is None:
        raise UnknownDefinition(name)
    return kept


def _fact_lines(kept: "Registration") -> dict[str, str]:
    skills = [str(skill.get("id", "")) for skill in kept.skills if isinstance(skill, dict)]
    return {
        "name": kept.name or "",
        "language": kept.language or "",
        "hash": kept.hash or "",
        "by": kept.by or "",
        "title": _title_of(kept),
        "files": ", ".join(sorted(kept.files)),
        "skills": ", ".join(skills),
        "children": ", ".join(sorted(kept.children)),
    }


def _version_lines(told: "list[OneVersion]") -> list[str]:
    """A line for each version: number, hash, when, and what else there is to say of it."""
    from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN
    from callboard.service.operations.narration import local

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


def _title_of(kept: "Registration") -> str:
    from callboard.languages.registry import about
    from callboard.runtime.admission.definitions import Definitions
    from callboard.runtime.admission.registration import parse

    definition = parse(Definitions(), kept.source or "", kept.language)
    return "" if isinstance(definition, list) else about(definition).title
