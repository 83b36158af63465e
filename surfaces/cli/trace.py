"""``callboard trace``: what a run did."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options

FORMATS = ("tree", "waterfall", "table", "mermaid", "svg", "result", "json", "jaeger", "events")


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run")
@click.option("--format", "-f", "form", type=click.Choice(FORMATS), help="The form; default: tree, with --json: json.")
@settings_options
def trace(settings: Settings, run: str, form: str | None) -> None:
    """Show what RUN did, folded from its log.

    \b
    tree       nodes and effects, with outcomes and durations
    waterfall  the same over time
    table      one line per node execution
    mermaid    the definition's diagram, coloured by what happened
    svg        the same as a drawing
    result     the execution result of the language's specification (JSON)
    json       the whole trace (JSON)
    jaeger     a file that the Jaeger UI loads (JSON)
    events     the log itself, one event per line (JSON)
    """
    import anyio

    from callboard.surfaces.cli.settings import configured
    from callboard.surfaces.cli.show_action import trace_run

    chosen = form or ("json" if settings.as_json else "tree")
    anyio.run(trace_run, run, chosen, configured(settings), settings)
