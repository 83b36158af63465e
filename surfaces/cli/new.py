"""``callboard new``: a first definition, from a template."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import json_option


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name", required=False)
@click.option("--template", "-t", metavar="TEMPLATE", default="minimal", show_default=True, help="What to begin with.")
@click.option("--language", metavar="LANGUAGE", help="What to write it in; default: workflow, if it has the template.")
@click.option("--list", "listing", is_flag=True, help="List the templates of all languages, and write nothing.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@json_option
def new(name: str | None, template: str, language: str | None, listing: bool, force: bool, as_json: bool) -> None:
    """Write a first definition into the folder NAME, ready to run, and print the commands that continue from there.

    It can be performed at once: by a script, without any key, or by a model. NAME is also what the definition is
    called, if it has a name; without NAME, both are called as the template.
    """
    from callboard.surfaces.cli.template_files import found, list_templates

    if listing:
        list_templates(as_json=as_json)
    else:
        found(name, language, template, force=force, as_json=as_json)
