"""``callboard archive, import``: runs into one file, and from there into a store."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("runs", nargs=-1, metavar="RUN…")
@click.option("--all", "everything", is_flag=True, help="All runs of the tenant.")
@click.option("--where", "-w", "question", metavar="QUESTION", help="All runs for which this holds.")
@click.option("--output", "-o", type=click.Path(dir_okay=False), required=True, metavar="FILE", help="The file.")
@click.option("--children", is_flag=True, help="The runs that they have started, too.")
@settings_options
def archive(
    settings: Settings, runs: tuple[str, ...], everything: bool, question: str | None, output: str, children: bool
) -> None:
    """Write runs to one FILE: their events, large values and definitions, compressed, with digests.

    Its name ends in .callboard. Every command that reads a run takes FILE, or FILE#RUN, instead of one.
    """
    import anyio

    from callboard.surfaces.cli.archive_action import Chosen, write
    from callboard.surfaces.cli.run_selection import wanted
    from callboard.surfaces.cli.settings import configured

    if sum((bool(runs), everything, question is not None)) != 1:
        raise click.UsageError("name runs, or say --all or --where")
    if not output.endswith(".callboard"):
        raise click.BadParameter("the name of an archive ends in .callboard", param_hint="--output")
    anyio.run(write, Chosen(runs, wanted(question), output, children), configured(settings), settings)


@click.command("import", epilog=exits.EXIT_CODES)
@click.argument("file", metavar="FILE[#RUN]")
@click.option("--as", "id", metavar="ID", help="Import the run under this id.")
@settings_options
def import_runs(settings: Settings, file: str, id: str | None) -> None:
    """Put the runs of an archive, or one of them, into the store.

    An id that another run has is refused; a run that is there already stays as it is, so that an import that was
    broken off can be done again. Only runs that had ended are taken.
    """
    import anyio

    from callboard.surfaces.cli.archive_action import bring_in
    from callboard.surfaces.cli.settings import configured

    anyio.run(bring_in, file, id, configured(settings), settings)
