"""``callboard notify``: try the rules by which people and programs are told of what happens."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Duration
from callboard.surfaces.cli.settings import Settings, settings_options

SINCE_S = 24 * 3600.0


@click.group(epilog=exits.EXIT_CODES)
def notify() -> None:
    """Try the rules of the table `notify` in the configuration, which say who is told of what.

    Workers that stand carry them out: each notice is sent once, from when a rule is there.
    """


@notify.command(epilog=exits.EXIT_CODES)
@click.argument("rule")
@settings_options
def test(rule: str, settings: Settings) -> None:
    """Send a sample to whom RULE names, and say whether it was taken."""
    import anyio

    from callboard.surfaces.cli.notify_action import send_sample
    from callboard.surfaces.cli.settings import configured

    anyio.run(send_sample, rule, configured(settings), settings)


@notify.command(epilog=exits.EXIT_CODES)
@click.argument("rules", metavar="[RULE]...", nargs=-1)
@click.option(
    "--since",
    metavar="DURATION",
    type=Duration(),
    default=SINCE_S,
    help="From how long ago on.  [default: 24h]",
)
@settings_options
def preview(rules: tuple[str, ...], since: float, settings: Settings) -> None:
    """Show the notices that all rules, or the named ones, would have sent about the log. Nothing is sent."""
    import anyio

    from callboard.surfaces.cli.notify_action import show_preview
    from callboard.surfaces.cli.settings import configured

    anyio.run(show_preview, rules, since, configured(settings), settings)
