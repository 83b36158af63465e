"""``callboard diagram``: a definition, or a run of one, as a Mermaid flowchart or as an SVG drawing."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options

FORMS = ("mermaid", "svg")


@click.command(epilog=exits.EXIT_CODES)
@click.argument("what", metavar="FILE|RUN")
@click.option("--format", "-f", "form", type=click.Choice(FORMS), default="mermaid", help="The form; default: mermaid.")
@click.option("--output", "-o", type=click.Path(dir_okay=False), metavar="FILE", help="Write it there, not to stdout.")
@click.option("--direction", type=click.Choice(("TB", "LR")), default="TB", show_default=True, help="Down, or right.")
@click.option("--title", metavar="TEXT", help="The title of an SVG drawing; default: the name of the definition.")
@settings_options
def diagram(settings: Settings, what: str, form: str, output: str | None, direction: str, title: str | None) -> None:
    """Draw a definition, or what a run of it did.

    A definition needs no server. In a run, each node has the colour of its outcome, and the edges taken are
    highlighted.
    """
    from callboard.surfaces.cli.diagram_action import Wanted, draw

    draw(what, Wanted("svg" if form == "svg" else "mermaid", direction == "LR", title, output), settings)
