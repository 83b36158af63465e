"""``callboard run``: perform one definition here and now."""

import click

from callboard.service.files.start_request import StartRequest
from callboard.surfaces.cli.options import plain_option
from callboard.surfaces.cli.settings import Settings, settings_options
from callboard.surfaces.cli.start_options import start_options


@click.command()
@start_options
@click.option("--stream", is_flag=True, help="Print every event as one JSON object per line.")
@click.option(
    "--workdir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="The working directory of tools; default: the folder of FILE.",
)
@click.option(
    "--no-ask", "asks", flag_value=False, default=True, help="Do not prompt for answers; they come from elsewhere."
)
@click.option("--artifact", metavar="FILE", type=click.Path(dir_okay=False), help="Write the output to FILE.")
@click.option(
    "--summary", metavar="FILE", type=click.Path(dir_okay=False), help="Append a table of the steps to FILE (markdown)."
)
@plain_option
@settings_options
@click.pass_context
def run(
    ctx: click.Context,
    request: StartRequest,
    settings: Settings,
    stream: bool,
    workdir: str | None,
    plain: bool,
    asks: bool,
    artifact: str | None,
    summary: str | None,
) -> None:
    """Run a definition: server, worker and run in one process, with live output. If a server is running, it is used.

    Files that the definition names (./rules.md) are read from its folder and stored with the run; its tools are found
    and run there. Ctrl-C cancels the run; a second Ctrl-C exits without waiting, and the next worker ends the run. If
    the reader of the output exits (`| head`), the run continues to its end. With --data-dir temp nothing is kept.

    At a terminal, the command prompts for missing inputs and for answers; from a pipe, each line is an answer.

    \b
    callboard run triage.yaml --input '{"service": "checkout"}' --script script.yaml
    callboard run triage.yaml --input @input.json --model anthropic
    callboard run triage.py:triage --input @incident.json
    callboard run shop.orders:ship
    """
    from pathlib import Path

    import anyio

    from callboard.runtime.hosting.names import split_code_name
    from callboard.service.files.start_messages import prepare
    from callboard.surfaces.cli.asking import ask_inputs, is_somebody_there
    from callboard.surfaces.cli.settings import load_config
    from callboard.surfaces.cli.streams import ignore_lost_output

    code = split_code_name(request.file)
    with ignore_lost_output():
        config = load_config(
            settings,
            allow_scripts=True if request.script else None,
            offline=request.offline or None,
            # Replay every turn, so that nondeterministic code is found in the first run.
            always_replay=True if code else None,
        )

        # After the log has been set up, which imports structlog without rich.
        from callboard.surfaces.cli.local_run import LocalRun, run_here

        silent = stream or settings.as_json
        what = prepare(request, ask=ask_inputs if asks and not silent and is_somebody_there() else None)
        where = Path(workdir).absolute() if workdir else what.folder
        files = {name: Path(file) for name, file in (("artifact", artifact), ("summary", summary)) if file}
        local = LocalRun(what, config, settings, where, stream, plain, asks, **files, code=code[0] if code else "")
        ctx.exit(anyio.run(run_here, local))
