"""The doctor's report at the command line."""

import msgspec

from callboard.runtime.settings.config import Config
from callboard.service.operations.doctor.examination import examine
from callboard.service.operations.doctor.findings import Finding
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say, style
from callboard.surfaces.cli.settings import Settings

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}


async def report(config: Config, settings: Settings) -> int:
    """Examine the deployment, print the findings, and return the exit code.

    :raises OperatorError: if the server cannot be used
    :raises NoAnswer: if the log does not answer
    """
    async with reach(config, reads=True, name="callboard doctor") as connection:
        findings = await examine(connection)
    if settings.as_json:
        say(compact(msgspec.to_builtins(findings)))
    else:
        say("\n".join(line for area in dict.fromkeys(one.area for one in findings) for line in _area(area, findings)))
    return exits.FAILED if any(one.level == "error" for one in findings) else exits.OK


def _area(area: str, findings: list[Finding]) -> list[str]:
    lines = [style(area.capitalize(), bold=True)]
    for one in findings:
        if one.area == area:
            mark, colour = _MARKS[one.level]
            lines.append(f"  {style(mark, fg=colour)} {one.check}: {one.message}")
            lines += [f"      {one.remedy}"] if one.remedy else []
    return lines
