"""``callboard run``: perform one definition here and now."""

import click

from callboard.runtime.cli import exits
from callboard.runtime.cli.options import Order, Settings, plain_option, settings_options, start_options


@click.command(epilog=exits.EXIT_CODES)
@start_options
@click.option("--stream", is_flag=True, help="Print every event as one JSON object per line.")
@click.option(
    "--workdir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="Where tools work; default: the folder of FILE.",
)
@plain_option
@settings_options
@click.pass_context
def run(ctx: click.Context, order: Order, settings: Settings, stream: bool, workdir: str | None, plain: bool) -> None:
    """Run a definition: server, worker and run in this one process, shown as it goes. A server that stands is joined.

    Files that the definition names (./rules.md) are read beside it and travel with the run; its tools are found there
    and work there. Ctrl-C cancels the run; a second one does not wait for its end, to which the next worker brings it.
    If whoever reads the output leaves (`| head`), the run goes on to its end. With --data-dir temp nothing is kept.

    \b
    callboard run triage.yaml --input '{"service": "checkout"}' --script script.yaml
    callboard run triage.yaml --input @input.json --model anthropic
    """
    from pathlib import Path

    import anyio

    from callboard.runtime.cli.ordering import ordered
    from callboard.runtime.cli.perform import Performance, perform
    from callboard.runtime.cli.settings import configured
    from callboard.runtime.cli.unheard import unheard

    with unheard():
        config = configured(settings, allow_scripts=True if order.script else None, offline=order.offline or None)
        what = ordered(order)
        where = Path(workdir).absolute() if workdir else what.folder
        ctx.exit(anyio.run(perform, Performance(what, config, settings, where, stream, plain)))
