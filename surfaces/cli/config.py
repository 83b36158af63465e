"""``callboard config``: what is in force, and where it came from."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@settings_options
def config(settings: Settings) -> None:
    """Show every setting, its value, and where the value comes from; secrets are masked.

    A flag overrides the environment (CALLBOARD_NATS_URL), which overrides callboard.toml, which overrides the default.
    If a server is running, the last line shows how it stores appends, as measured.
    """
    import anyio

    from callboard.runtime.settings.config import UNKNOWN
    from callboard.service.operations.commit_measurement import measure_appends
    from callboard.service.operations.results import compact
    from callboard.surfaces.cli.output import problem_text
    from callboard.surfaces.cli.settings import configured

    found = configured(settings)
    rows = found.explain()
    appends = anyio.run(measure_appends, found)
    if settings.as_json:
        typed = found.values()
        values = {name: {"value": typed[name], "source": source} for name, _value, source in rows}
        say(compact({"settings": values, "warnings": found.warnings, "appends": appends}))
        return
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, source in rows:
        say(f"{name.ljust(widths[0])}  {value.ljust(widths[1])}  {source}".rstrip())
    if appends is not None:
        events = "one batch" if appends.together else "one event after the other"
        runs = "those of several runs merged" if appends.merged else "each run for itself"
        say(f"\nAt {appends.server} batches are staged in {appends.batches}: a turn is {events}, {runs}.")
    for warning in found.warnings:
        if warning.code != UNKNOWN:  # Every command reports these.
            say(problem_text(warning), err=True)
