"""``callboard skills``: which skills there are for workflows, and what each lacks."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import json_option


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name", required=False)
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    help="Where skill files lie, below .sweny, .claude, .agents or .gemini; default: the working directory.",
)
@json_option
def skills(name: str | None, folder: str, as_json: bool) -> None:
    """List the skills that workflows can use: those that are shipped, and skill files (SKILL.md).

    With NAME, show one: its configuration, its tools and their schemas. Whether one is available is said of the
    environment of this command; a running worker has its own. Needs no server.
    """
    from pathlib import Path

    from callboard.surfaces.cli.skillset import list_skills, show_skill

    if name is None:
        list_skills(Path(folder), as_json=as_json)
    else:
        show_skill(name, Path(folder), as_json=as_json)
