"""``callboard push, rollback, definitions``: registered definitions, their versions, files, skills and children."""

import shlex
from typing import TYPE_CHECKING, Any

import click

from callboard.runtime.hosting.names import split_code_name
from callboard.service.files.start_request import StartRequest
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import attribute_option, pairs
from callboard.surfaces.cli.output import print_document, problem_text, say, table
from callboard.surfaces.cli.start_options import DefinitionFile, skill_options

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from callboard.bus.commands import Registration
    from callboard.languages.plan import Definition
    from callboard.runtime.admission.registration import Registered
    from callboard.service.files.start_messages import PreparedStart
    from callboard.service.operations.requests import OneVersion


@click.command()
@click.argument("file", metavar="FILE|FILE.py[:NAME]", type=DefinitionFile())
@click.option("--name", "-n", metavar="NAME", help="The name to register it under; default: its own name.")
@click.option("--by", metavar="NAME", help="The name of the person who registers it; stored with it.")
@attribute_option
@skill_options
@operation
def push(
    call: OperationCall,
    file: str,
    name: str | None,
    by: str | None,
    attributes: tuple[str, ...],
    skills: str | None,
    project_skills: bool,
    skill_commands: bool,
) -> "Awaitable[None]":
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
    from callboard.runtime.admission.definitions import Definitions
    from callboard.runtime.admission.registration import register
    from callboard.runtime.client.errors import RequestRefused, UsageInvalid
    from callboard.service.files.start_messages import prepare
    from callboard.service.files.validation import errors, examine_definition
    from callboard.surfaces.cli.views import program

    request = StartRequest(
        file,
        skills=skills,
        project_skills=project_skills,
        skill_commands=skill_commands,
        attributes=pairs(attributes, "--attribute"),
    )
    if name is not None and not name.strip():
        raise UsageInvalid("the name is empty; expected a name that starts can use", "--name")
    made = prepare(request)
    _language, found = examine_definition(made.definition.source, request)
    if wrong := errors(found):
        raise RequestRefused("definition", wrong, file, made.definition.source)
    code = split_code_name(file)
    source = made.definition.source if code is None else _name_any_version(made.definition)
    wanted = _make_registration(made, source, name or made.definition.name, by)

    async def store() -> None:
        async with call.connect(founds=True) as connection:
            kept = await register(connection.log, Definitions(), call.config.tenant, wanted)
        if isinstance(kept, list):
            raise RequestRefused("definition", kept, file, made.definition.source)
        warnings = [*made.warnings, *found]
        if not call.settings.as_json:
            for warning in warnings:
                say(problem_text(warning, file, made.definition.source), err=True)
        lines = [_registered_line(kept, "registered")]
        lines += [f"  with {path}" for path in (*sorted(wanted.files), *sorted(wanted.children))]
        if code is not None:
            worker = f"{program()} worker --code {shlex.quote(code[0])}"
            lines.append(f"The code was not sent. Runs need a worker that has it: {worker}")
        more = {"files": sorted(wanted.files), "children": sorted(wanted.children), "warnings": warnings}
        call.answer({**_registered_object(kept), **more}, lines)

    return store()


def _registered_object(kept: "Registered") -> dict[str, Any]:
    return {"name": kept.name, "language": kept.language, "hash": kept.hash, "unchanged": kept.unchanged}


def _registered_line(kept: "Registered", done: str) -> str:
    from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN

    state = "unchanged" if kept.unchanged else done
    return f"{state} {kept.name} ({kept.language}) {kept.hash[:HASH_DIGITS_SHOWN]}"


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


@click.command()
@click.argument("name")
@click.argument("version", required=False)
@click.option("--by", metavar="NAME", help="The name of the person who does it; stored with it.")
@operation
async def rollback(call: OperationCall, name: str, version: str | None, by: str | None) -> None:
    """Restore an earlier version of the registered definition NAME: VERSION, or else the previous one.

    VERSION is a number such as v2, or a hash or its first digits; `callboard definitions NAME` lists them. The version
    is registered again, so no version is lost. Runs in progress keep their version.
    """
    from callboard.runtime.admission import versions

    async with call.connect() as connection:
        kept = await versions.rollback(connection.log, call.config.tenant, name, version, by)
    call.answer(_registered_object(kept), _registered_line(kept, "rolled back"))


@click.command()
@click.argument("name", required=False)
@click.option("--source", is_flag=True, help="Print only the text of the definition.")
@operation
async def definitions(call: OperationCall, name: str | None, source: bool) -> None:
    """List the registered definitions. With NAME, show one and its versions; with NAME@VERSION or a hash, one version.

    `callboard push` registers definitions, `callboard rollback` restores an earlier version.
    """
    if name is not None:
        await _show_definition(call, name, source=source)
    elif source:
        raise click.UsageError("--source prints one definition; give its NAME")
    else:
        await _list_definitions(call)


async def _list_definitions(call: OperationCall) -> None:
    """Print the registered definitions of the tenant, by name, each with the version in force."""
    from callboard.bus.nats.registrations import read_registration
    from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN, registered_names

    async with call.connect() as connection:
        counts = await registered_names(connection.log, call.config.tenant)
        kept = {name: await read_registration(connection.log, call.config.tenant, name) for name in counts}
    found = [
        (one.name or "", one.language, one.hash, counts[name], _title_of(one))
        for name, one in kept.items()
        if one is not None
    ]
    rows = [
        (name, language or "", (hash or "")[:HASH_DIGITS_SHOWN], f"v{version}", title)
        for name, language, hash, version, title in found
    ]
    call.answer(
        [dict(zip(("name", "language", "hash", "version", "title"), one, strict=True)) for one in found],
        table(rows) if rows else "No definitions. `callboard push FILE --name NAME` registers one.",
    )


async def _show_definition(call: OperationCall, name: str, *, source: bool) -> None:
    """Print a registered definition: with its versions for a name, with its text for a version or a hash. With
    ``source``, print only its text, unchanged.

    :raises UnknownDefinition: if nothing is registered under this name or hash
    """
    import msgspec

    from callboard.runtime.admission.registration import to_registered
    from callboard.runtime.admission.versions import UnknownDefinition, find_registration, versions
    from callboard.service.operations.requests import OneVersion
    from callboard.service.operations.run_lists import list_versions, listings

    tenant = call.config.tenant
    async with call.connect() as connection:
        kept = await find_registration(connection.log, tenant, name)
        if kept is None:
            raise UnknownDefinition(name)
        found = await versions(connection.log, tenant, name) if kept.name == name and not source else []
        told: list[OneVersion] = []
        if found:
            async with listings(connection) as runs:
                told = list_versions(found, await runs.versions(tenant))
    text = kept.source or ""
    if source:
        print_document(text, nl=not text.endswith("\n"))
        return
    lines = [f"{fact.ljust(9)} {value}" for fact, value in _fact_lines(kept).items() if value]
    lines += ["versions", *(f"  {line}" for line in _version_lines(told))] if told else [f"\n{text}".rstrip()]
    call.answer({**msgspec.to_builtins(to_registered(kept)), **({"versions": told} if told else {})}, lines)


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
