"""``callboard config, completion, doctor, verify``: set up an installation, and check it and its store."""

from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.output import print_document, problem_text, say, style, table

if TYPE_CHECKING:
    from callboard.service.operations.doctor.findings import Finding
    from callboard.service.operations.verification import StoreReport


@click.command()
@operation
async def config(call: OperationCall) -> None:
    """Show every setting, its value, and where the value comes from; secrets are masked.

    A flag overrides the environment (CALLBOARD_NATS_URL), which overrides callboard.toml, which overrides the default.
    If a server is running, the last line shows how it stores appends, as measured.
    """
    from callboard.runtime.settings.config import UNKNOWN
    from callboard.service.operations.commit_measurement import measure_appends

    rows, typed = call.config.explain(), call.config.values()
    appends = await measure_appends(call.config)
    lines = [table(rows)]
    if appends is not None:
        events = "one batch" if appends.together else "one event after another"
        runs = "runs are merged" if appends.merged else "each run separately"
        lines.append(f"\nAt {appends.server} batches are staged in {appends.batches}: a turn is {events}, {runs}.")
    values = {name: {"value": typed[name], "source": source} for name, _value, source in rows}
    call.answer({"settings": values, "warnings": call.config.warnings, "appends": appends}, lines)
    for warning in () if call.settings.as_json else call.config.warnings:
        if warning.code != UNKNOWN:  # Every command reports these.
            say(problem_text(warning), err=True)


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes `callboard` in a shell.

    \b
    bash  eval "$(callboard completion bash)"        in ~/.bashrc
    zsh   eval "$(callboard completion zsh)"         in ~/.zshrc
    fish  callboard completion fish | source         in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "click knows the shells that the argument allows"
    print_document(found(ctx.find_root().command, {}, "callboard", "_CALLBOARD_COMPLETE").source())


@click.command()
@operation
async def doctor(call: OperationCall) -> int:
    """Check the store and the security of this deployment, and show a remedy for each finding.

    Run it with the configuration of the workers. The exit code is 1 if there is an error; warnings do not count.
    """
    from callboard.service.operations.doctor.examination import examine

    async with call.connect() as connection:
        findings = await examine(connection)
    areas = dict.fromkeys(one.area for one in findings)
    call.answer(findings, [line for area in areas for line in _area_lines(area, findings)])
    return exits.FAILED if any(one.level == "error" for one in findings) else exits.OK


_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}


def _area_lines(area: str, findings: "list[Finding]") -> list[str]:
    lines = [style(area.capitalize(), bold=True)]
    for one in findings:
        if one.area == area:
            mark, colour = _MARKS[one.level]
            lines.append(f"  {style(mark, fg=colour)} {one.check}: {one.message}")
            lines += [f"      {one.remedy}"] if one.remedy else []
    return lines


@click.command()
@click.option("--no-values", is_flag=True, help="Do not read large values, which takes most of the time.")
@operation
async def verify(call: OperationCall, no_values: bool) -> int:
    """Read every event of all runs, and every large value, and report what is missing or damaged.

    Nothing is written. The exit code is 1 if something is damaged. `callboard replay --all` checks in addition that
    this version requests what the log holds.
    """
    from callboard.service.operations.verification import verify_store

    async with call.connect() as connection:
        report = await verify_store(connection.log, call.config.tenant, values=not no_values)
    call.answer(report, _store_text(report))
    return exits.OK if report.sound else exits.FAILED


def _store_text(report: "StoreReport") -> str:
    from callboard.bus.log.damage import REMEDY

    runs = f"{report.runs} run{'s' if report.runs != 1 else ''}, {report.messages} events"
    if report.sound:
        return f"{style('✓', fg='green')} {runs}: nothing is missing or damaged"
    lines = [f"{style('✗', fg='red')} {runs}: {len(report.damaged)} damaged"]
    if report.lost_bytes:
        lines.append(
            f"  The server dropped {report.lost_bytes} bytes of a damaged file when it started. Their events are "
            "lost. Import the affected runs from an archive."
        )
    for damage in report.damaged:
        state = "ended" if damage.ended else "open"
        lines.append(f"  {style(damage.run, bold=True)}  {damage.definition} ({state})")
        lines += [f"    {text}" for text in damage.found]
    if report.damaged:
        lines.append(f"  {REMEDY}")
    return "\n".join(lines)
