"""``callboard diagram``: a definition as a Mermaid flowchart."""

import click

from callboard.runtime.cli import exits
from callboard.runtime.cli.options import json_option


@click.command(epilog=exits.EXIT_CODES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.option("--direction", type=click.Choice(("TB", "LR")), default="TB", show_default=True, help="Down, or right.")
@json_option
def diagram(file: str, direction: str, as_json: bool) -> None:
    """Print a definition as a Mermaid flowchart. Needs no server.

    `callboard trace RUN --format mermaid` prints the same, coloured by what happened.
    """
    from callboard.runtime.cli.drawing import draw

    draw(file, "LR" if direction == "LR" else "TB", as_json=as_json)
