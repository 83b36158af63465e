"""``callboard conformance``: what a language claims to satisfy, and whether a corpus of cases bears it out."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("corpus", required=False, type=click.Path(exists=True, file_okay=False))
@click.option("--case", "pattern", metavar="GLOB", help="Only cases, or CASE/SCENARIO, that match.")
@click.option("--skip-temporal", is_flag=True, help="Leave out the cases that take real time.")
@click.option("--language", metavar="LANGUAGE", help="Whose cases they are; default: the only one that has any.")
@settings_options
@click.pass_context
def conformance(
    ctx: click.Context,
    settings: Settings,
    corpus: str | None,
    pattern: str | None,
    language: str | None,
    skip_temporal: bool,
) -> None:
    """Print the conformance claim of a language; with CORPUS, run its cases too.

    CORPUS is a folder in the layout of the specification's tests/conformance, or one case of it. Each scenario is a
    separate run; all run at once, on a server and a worker of this process. With --data-dir or --nats the runs are kept
    for other commands; otherwise nothing is kept.
    """
    from callboard.surfaces.cli.conformance_action import conform

    ctx.exit(conform(corpus, pattern, language, skip_temporal=skip_temporal, settings=settings))
