"""``callboard convert``: a definition in another form."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import json_option

FORMS = ("json", "markdown")


@click.command(epilog=exits.EXIT_CODES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.option("--to", "form", type=click.Choice(FORMS), help="The form; default: the other one than FILE has.")
@click.option("--language", metavar="LANGUAGE", help="Of a FILE in JSON; default: the only one that has such files.")
@click.option("--output", "-o", metavar="FILE", type=click.Path(dir_okay=False), help="Write there instead of stdout.")
@json_option
@click.pass_context
def convert(
    ctx: click.Context, file: str, form: str | None, language: str | None, output: str | None, as_json: bool
) -> None:
    """Write a playbook as JSON, or one in JSON as markdown; nothing gets lost. Needs no server.

    The JSON is the `definition` of `callboard validate --json`, without line numbers.
    """
    from callboard.surfaces.cli.convert_action import converted_file

    ctx.exit(converted_file(file, form, language, output, as_json=as_json))
