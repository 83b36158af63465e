"""``callboard rebuild``: fold every view again from the log."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("run", required=False)
@click.option("--spans", is_flag=True, help="Send the spans again to the OpenTelemetry backend (OTEL_EXPORTER_OTLP_*).")
@settings_options
@click.pass_context
def rebuild(ctx: click.Context, settings: Settings, run: str | None, spans: bool) -> None:
    """Fold every view of RUN, or of all runs, again from the log, and compare.

    Each view is folded from the log as it is read, and event by event as a follower gets it; both must be the same,
    byte for byte, and so must the digest shown here on any other machine. Spans keep their ids: sent again, they
    replace themselves.
    """
    import anyio

    from callboard.surfaces.cli.rebuild_action import rebuild_runs
    from callboard.surfaces.cli.settings import configured

    ctx.exit(anyio.run(rebuild_runs, run, spans, configured(settings), settings))
