"""``callboard watch``: see events as they come."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import plain_option
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@click.option("--definition", "-d", metavar="NAME", help="Only runs of this definition.")
@click.option("--type", "-t", "event_type", metavar="TYPE", default=">", help="Only these events: node.exit, run.*, …")
@click.option("--after", metavar="SEQ", type=click.IntRange(0), help="Begin behind this sequence of the stream.")
@click.option("--until", metavar="TYPE", help="End behind the first of these events: human.asked, run.parked, …")
@click.option("--stream", is_flag=True, help="What models say as it comes, and how steps end, as JSON (playbooks).")
@click.option("--behind", metavar="ID", help="With --stream: go on behind this id.")
@plain_option
@settings_options
@click.pass_context
def watch(
    ctx: click.Context,
    settings: Settings,
    run: str | None,
    definition: str | None,
    event_type: str,
    after: int | None,
    until: str | None,
    stream: bool,
    behind: str | None,
    plain: bool,
) -> None:
    """Show events as they come, of one RUN or of all.

    One run is shown from its beginning to its end, on a terminal as its tree with what is in progress, and the exit
    code says how it ended. All runs are shown from now on, a line per event, until Ctrl-C. With --until the end may
    come sooner: a script waits like that for a question before it answers. With --json each line is an event and has
    its sequence, to continue from with --after. With --stream each line is content, done or error of a playbook, in
    order and whole, and has an id.
    """
    import anyio

    from callboard.surfaces.cli.settings import configured

    if stream or behind is not None:
        from callboard.surfaces.cli.watch_action import stream_run

        if run is None or not stream:
            raise click.UsageError("--stream is of one RUN, and --behind of --stream")
        anyio.run(stream_run, run, behind, configured(settings))
        return
    from callboard.surfaces.cli.watch_action import Watched, watch_events

    wanted = Watched(run, definition, event_type, after, until, plain)
    ctx.exit(anyio.run(watch_events, wanted, configured(settings), settings))
