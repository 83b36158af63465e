"""``callboard push, rollback, definitions``: registered definitions, their versions, files, skills and children."""

import shlex
from typing import TYPE_CHECKING, Any

import click

from callboard.runtime.hosting.names import split_code_name
from callboard.service.files.start_request import StartRequest
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import attribute_option, pairs
from callboard.surfaces.cli.output import print_document, problem_text, say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options
from callboard.surfaces.cli.start_options import DefinitionFile, skill_options

if TYPE_CHECKING:
    from callboard.bus.commands import Registration
    from callboard.bus.nats.jetstream import JetStreamLog
    from callboard.languages.language import Definition
    from callboard.runtime.settings.config import Config
    from callboard.service.files.start_messages import PreparedStart
    from callboard.service.operations.requests import OneVersion


@click.command(epilog=exits.EXIT_CODES)
@click.argument("file", metavar="FILE|FILE.py[:NAME]", type=DefinitionFile())
@click.option("--name", "-n", metavar="NAME", help="The name to register it under; default: its own name.")
@click.option("--by", metavar="NAME", help="The name of the person who registers it; stored with it.")
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
    """Register a definition under a name, with everything that its runs need.

    Files that it names are read from its folder, with the lists of skills and skill files that it needs and the
    definitions of its child runs. If the name is registered already, new starts use the new version; `callboard
    rollback` restores an earlier one. Needs no running server: the definition is written to the store.

    Of a workflow in Python, only its entry point is registered. The code is not sent: its runs need a worker that has
    it (`callboard worker --code`), and may have any version of it.

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
    """Register the definition in a file, and print its name and hash.

    :raises UsageInvalid: if the name is empty
    :raises RequestRefused: with every problem of the definition
    :raises CallboardError: if the store cannot be used
    """
    import msgspec

    from callboard.bus.events import Problem
    from callboard.runtime.admission.definitions import Definitions
    from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN, register
    from callboard.runtime.client.errors import RequestRefused, UsageInvalid
    from callboard.service.files.start_messages import prepare
    from callboard.service.files.validation import errors, examine_definition
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact
    from callboard.surfaces.cli.views import program

    if name is not None and not name.strip():
        raise UsageInvalid("the name is empty; expected a name that starts can use", "--name")
    made = prepare(request)
    _language, found = examine_definition(made.definition.source, request)
    if wrong := errors(found):
        raise RequestRefused("definition", wrong, request.file, made.definition.source)
    code = split_code_name(request.file)
    source = made.definition.source if code is None else _name_any_version(made.definition)
    wanted = _make_registration(made, source, name or made.definition.name, by)
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
    if code is not None:
        say(f"The code was not sent. Runs need a worker that has it: {program()} worker --code {shlex.quote(code[0])}")


def _name_any_version(definition: "Definition[Any]") -> str:
    """Return the text of the definition of a workflow's code that accepts every version of the code."""
    from callboard.languages.registry import hosting

    entry, _digest = hosting().code_named(definition.document)
    return hosting().name_code(entry)


def _make_registration(made: "PreparedStart", source: str, name: str, by: str | None) -> "Registration":
    import msgspec

    from callboard.bus.commands import Bundle, Registration

    message = made.message
    return Registration(
        language=made.definition.language,
        source=source,
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
@click.option("--by", metavar="NAME", help="The name of the person who does it; stored with it.")
@settings_options
def rollback(settings: Settings, name: str, version: str | None, by: str | None) -> None:
    """Restore an earlier version of the registered definition NAME: VERSION, or else the previous one.

    VERSION is a number such as v2, or a hash or its first digits; `callboard definitions NAME` lists them. The version
    is registered again, so no version is lost. Runs in progress keep their version.
    """
    import anyio

    anyio.run(restore_version, load_config(settings), settings, name, version, by)


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name", required=False)
@click.option("--source", is_flag=True, help="Print only the text of the definition.")
@settings_options
def definitions(settings: Settings, name: str | None, source: bool) -> None:
    """List the registered definitions. With NAME, show one and its versions; with NAME@VERSION or a hash, one version.

    `callboard push` registers definitions, `callboard rollback` restores an earlier version.
    """
    import anyio

    config = load_config(settings)
    if name is None and source:
        raise click.UsageError("--source prints one definition; give its NAME")
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
    """Print a registered definition: with its versions for a name, with its text for a version or a hash.

    :raises UnknownDefinition: if nothing is registered under this name or hash
    """
    import msgspec

    from callboard.runtime.admission.registration import to_registered
    from callboard.runtime.admission.versions import Version, versions
    from callboard.service.operations.reach import reach
    from callboard.service.operations.requests import OneVersion
    from callboard.service.operations.results import compact
    from callboard.service.operations.run_listing import listings
    from callboard.service.operations.version_lists import list_versions

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
    """Print the text of a registered definition unchanged.

    :raises UnknownDefinition: if nothing is registered under this name or hash
    """
    from callboard.service.operations.reach import reach

    async with reach(config, reads=True, name="callboard definitions") as connection:
        kept = await _find_meant(connection.log, config.tenant, name)
    source = kept.source or ""
    print_document(source, nl=not source.endswith("\n"))


async def restore_version(config: "Config", settings: Settings, name: str, version: str | None, by: str | None) -> None:
    """Restore an earlier version of a definition, and print it. Raises as `rollback`."""
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
    """Return a line for each version: number, hash, date and remarks."""
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
