"""``callboard validate``: everything that is wrong with a definition."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import json_option


@click.command(epilog=exits.EXIT_CODES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.option("--input", "-i", "input_text", metavar="JSON|@FILE|-", help="Check a start with this input too.")
@click.option("--arguments", "arguments_text", metavar="JSON|@FILE|-", help="Check a start with these arguments too.")
@click.option("--strict", is_flag=True, help="Take warnings for errors.")
@json_option
@click.pass_context
def validate(
    ctx: click.Context, file: str, input_text: str | None, arguments_text: str | None, strict: bool, as_json: bool
) -> None:
    """Report every problem of a definition, with its line and column. Needs no server.

    Files that it names are looked up beside it. Warnings alone leave the exit code at 0; `--strict` treats them as
    errors.
    """
    from callboard.surfaces.cli.validate_action import validate_file

    ctx.exit(validate_file(file, input_text, arguments_text, strict=strict, as_json=as_json))
