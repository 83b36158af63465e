"""``callboard notify``: try the rules that notify people and programs."""

import datetime as dt
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import DurationType

if TYPE_CHECKING:
    from callboard.runtime.settings.config import Config
    from callboard.runtime.settings.notify_settings import NotifyRule


SINCE_S = 24 * 3600.0

SAMPLE = "sample"
"""The run and the definition in a sample."""


@click.group()
def notify() -> None:
    """Try the rules of the table `notify` in the configuration: who is notified of which events.

    Running workers apply the rules. They send each notice once, for events after the rule was added.
    """


@notify.command()
@click.argument("rule")
@operation
async def test(call: OperationCall, rule: str) -> None:
    """Send a sample to the receiver of RULE, and report whether it was accepted."""
    import secrets

    from callboard.bus.errors import CallboardError
    from callboard.features.notify.notice import ID_CHARS, Notice
    from callboard.features.notify.notice_delivery import Receiver, ServiceFailed

    chosen = _choose_rules(call.config, [rule])[rule]
    if not chosen.complete:
        unset = [one.message for one in call.config.warnings if one.message.startswith(f"notify.{rule} ")]
        remedy = "Set it where this command runs, and where workers run."
        raise CallboardError("notify.failed", "; ".join(unset), f"notify.{rule}", remedy)
    notice = Notice(
        # Each sample is a new notice.
        id=secrets.token_hex(ID_CHARS // 2),
        rule=rule,
        on=chosen.on[0],
        tenant=call.config.tenant,
        run=SAMPLE,
        definition=SAMPLE,
        n=0,
        time=dt.datetime.now(dt.UTC),
        text=f"This is a sample of the rule {rule}: {chosen}",
    )
    try:
        await Receiver(rule, chosen, os.environ).tell(notice)
    except ServiceFailed as failed:
        remedy = "Correct the address or the receiver, and try again."
        raise CallboardError("notify.failed", str(failed), f"notify.{rule}", remedy) from failed
    call.answer({"rule": rule, "to": chosen.to, "id": notice.id}, f"{rule}: {chosen.to} accepted the sample")


@notify.command()
@click.argument("rules", metavar="[RULE]...", nargs=-1)
@click.option(
    "--since",
    metavar="DURATION",
    type=DurationType(),
    default=SINCE_S,
    help="How far back to look.  [default: 24h]",
)
@operation
async def preview(call: OperationCall, rules: tuple[str, ...], since: float) -> None:
    """Show the notices that all rules, or the named ones, would have sent. Nothing is sent."""
    from callboard.features.notify.rule_evaluation import preview_notices
    from callboard.service.operations.narration import local

    chosen = _choose_rules(call.config, rules)
    now = dt.datetime.now(dt.UTC)
    async with call.connect() as connection:
        begin = now - dt.timedelta(seconds=since)
        found = await preview_notices(connection.log, chosen, begin, http_url=call.config.http_url)
    lines = [
        f"{local(one.at)}  {one.notice.rule}  {one.notice.run}  {one.notice.subject}"
        + ("  unless answered before" if one.at > now else "")
        for one in found
    ]
    call.answer(found, [*lines, f"{len(found)} notice{'' if len(found) == 1 else 's'}"])


def _choose_rules(config: "Config", names: Sequence[str]) -> "dict[str, NotifyRule]":
    """Return the rules of these names, or all if no name is given."""
    from callboard.runtime.client.errors import UsageInvalid

    if not config.notify:
        raise UsageInvalid("the configuration has no table `notify` with rules", "notify")
    unknown = [name for name in names if name not in config.notify]
    if unknown:
        raise UsageInvalid(f"unknown rule {unknown[0]!r}; expected one of {', '.join(config.notify)}", unknown[0])
    return {name: rule for name, rule in config.notify.items() if not names or name in names}
