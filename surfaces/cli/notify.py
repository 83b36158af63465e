"""``callboard notify``: try the rules that notify people and programs."""

import datetime as dt
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import Duration
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.runtime.settings.config import Config
    from callboard.runtime.settings.notify_settings import NotifyRule


SINCE_S = 24 * 3600.0


@click.group(epilog=exits.EXIT_CODES)
def notify() -> None:
    """Try the rules of the table `notify` in the configuration: who is notified of which events.

    Running workers apply the rules. They send each notice once, for events after the rule was added.
    """


@notify.command(epilog=exits.EXIT_CODES)
@click.argument("rule")
@settings_options
def test(rule: str, settings: Settings) -> None:
    """Send a sample to the receiver of RULE, and report whether it was accepted."""
    import anyio

    anyio.run(send_sample, rule, load_config(settings), settings)


@notify.command(epilog=exits.EXIT_CODES)
@click.argument("rules", metavar="[RULE]...", nargs=-1)
@click.option(
    "--since",
    metavar="DURATION",
    type=Duration(),
    default=SINCE_S,
    help="How far back to look.  [default: 24h]",
)
@settings_options
def preview(rules: tuple[str, ...], since: float, settings: Settings) -> None:
    """Show the notices that all rules, or the named ones, would have sent. Nothing is sent."""
    import anyio

    anyio.run(show_preview, rules, since, load_config(settings), settings)


SAMPLE = "sample"
"""The run and the definition in a sample."""


async def send_sample(name: str, config: "Config", settings: Settings) -> None:
    """Send a sample by a rule, and report it.

    :raises UsageInvalid: if the rule does not exist
    :raises CallboardError: ``notify.failed``
    """
    import secrets

    from callboard.bus.errors import CallboardError
    from callboard.features.notify.notice import ID_CHARS, Notice
    from callboard.features.notify.notice_delivery import Receiver, ServiceFailed
    from callboard.service.operations.results import compact

    rule = _choose_rules(config, [name])[name]
    if not rule.complete:
        unset = [one.message for one in config.warnings if one.message.startswith(f"notify.{name} ")]
        remedy = "Set it where this command runs, and where workers run."
        raise CallboardError("notify.failed", "; ".join(unset), f"notify.{name}", remedy)
    notice = Notice(
        # Each sample is a new notice.
        id=secrets.token_hex(ID_CHARS // 2),
        rule=name,
        on=rule.on[0],
        tenant=config.tenant,
        run=SAMPLE,
        definition=SAMPLE,
        n=0,
        time=dt.datetime.now(dt.UTC),
        text=f"This is a sample of the rule {name}: {rule}",
    )
    try:
        await Receiver(name, rule, os.environ).tell(notice)
    except ServiceFailed as failed:
        remedy = "Correct the address or the receiver, and try again."
        raise CallboardError("notify.failed", str(failed), f"notify.{name}", remedy) from failed
    told = {"rule": name, "to": rule.to, "id": notice.id}
    say(compact(told) if settings.as_json else f"{name}: {rule.to} accepted the sample")


async def show_preview(names: Sequence[str], since_s: float, config: "Config", settings: Settings) -> None:
    """Print the notices that rules would have sent.

    :raises UsageInvalid: if a rule does not exist, or there are no rules
    :raises CallboardError: if the store cannot be used
    """
    import msgspec

    from callboard.features.notify.rule_evaluation import preview_notices
    from callboard.service.operations.narration import local
    from callboard.service.operations.reach import reach
    from callboard.service.operations.results import compact

    rules = _choose_rules(config, names)
    now = dt.datetime.now(dt.UTC)
    async with reach(config, reads=True, name="callboard notify") as connection:
        since = now - dt.timedelta(seconds=since_s)
        found = await preview_notices(connection.log, rules, since, http_url=config.http_url)
    if settings.as_json:
        say(compact(msgspec.to_builtins(found)))
        return
    for one in found:
        still = "  unless answered before" if one.at > now else ""
        say(f"{local(one.at)}  {one.notice.rule}  {one.notice.run}  {one.notice.subject}{still}")
    say(f"{len(found)} notice{'' if len(found) == 1 else 's'}")


def _choose_rules(config: "Config", names: Sequence[str]) -> "dict[str, NotifyRule]":
    """Return the rules of these names, or all if no name is given."""
    from callboard.runtime.client.errors import UsageInvalid

    if not config.notify:
        raise UsageInvalid("the configuration has no table `notify` with rules", "notify")
    unknown = [name for name in names if name not in config.notify]
    if unknown:
        raise UsageInvalid(f"unknown rule {unknown[0]!r}; expected one of {', '.join(config.notify)}", unknown[0])
    return {name: rule for name, rule in config.notify.items() if not names or name in names}
