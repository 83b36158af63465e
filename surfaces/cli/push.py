"""``callboard push``: register a definition, so that starts and child runs can name it."""

import click

from callboard.service.operations.start_request import StartRequest
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import attribute_option, pairs
from callboard.surfaces.cli.settings import Settings, settings_options
from callboard.surfaces.cli.start_options import skill_options


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

    from callboard.surfaces.cli.push_action import push_file
    from callboard.surfaces.cli.settings import configured

    request = StartRequest(
        file,
        skills=skills,
        project_skills=project_skills,
        skill_commands=skill_commands,
        attributes=pairs(attributes, "--attribute"),
    )
    anyio.run(push_file, request, name, by, configured(settings), settings)
