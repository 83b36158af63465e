"""The check of a store at the command line, and its report."""

import msgspec

from callboard.bus.log.damage import REMEDY
from callboard.runtime.settings.config import Config
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.service.operations.verification import Damage, StoreReport, verify_store
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say, style
from callboard.surfaces.cli.settings import Settings


async def check_store(config: Config, settings: Settings, values: bool) -> int:
    """Verify the store, print the report, and return the exit code.

    :raises OperatorError: if the server cannot be used
    :raises NoAnswer: if the log does not answer
    """
    async with reach(config, reads=True, name="callboard verify") as connection:
        report = await verify_store(connection.log, config.tenant, values=values)
    say(compact(msgspec.to_builtins(report)) if settings.as_json else _text(report))
    return exits.OK if report.sound else exits.FAILED


def _text(report: StoreReport) -> str:
    runs = f"{report.runs} run{'s' if report.runs != 1 else ''}, {report.messages} events"
    if report.sound:
        return f"{style('✓', fg='green')} {runs}: nothing is missing or damaged"
    lines = [f"{style('✗', fg='red')} {runs}: {len(report.damaged)} damaged"]
    if report.lost_bytes:
        lines.append(
            f"  The server dropped {report.lost_bytes} bytes of a damaged file when it started. All events in them are "
            "lost, of whichever run. Import their runs from an archive."
        )
    for damage in report.damaged:
        lines += _damage_lines(damage)
    if report.damaged:
        lines.append(f"  {REMEDY}")
    return "\n".join(lines)


def _damage_lines(damage: Damage) -> list[str]:
    state = "ended" if damage.ended else "open"
    head = f"  {style(damage.run, bold=True)}  {damage.definition} ({state})"
    return [head, *(f"    {text}" for text in damage.found)]
