"""The demonstration: ``make demo`` runs the incident triage and prints commands that show the run.

The run uses a scripted model. With ``ANTHROPIC_API_KEY`` in the environment, it uses Claude, and the script only
answers for the team's channel. The run is stored in ``.callboard/demo``, an embedded store.
"""

import os
import shlex
import sys
from pathlib import Path
from uuid import uuid4

from callboard.surfaces.cli.main import cli
from callboard.surfaces.cli.settings import Settings

EXAMPLE = Path(__file__).parent / "incident-triage"
DATA_DIR = Path(".callboard/demo")


def main() -> int:
    """Run the example; return the exit code of `callboard run`."""
    run = f"demo-{uuid4().hex[:8]}"
    command = run_command(run, claude=bool(os.environ.get("ANTHROPIC_API_KEY")))
    print(f"$ callboard {shlex.join(command)}\n", flush=True)
    code = cli.main(command, prog_name="callboard", standalone_mode=False)
    for line in [*further_commands(run), *ways_to_see(run)]:
        print(line)
    return code if isinstance(code, int) else 0


def run_command(run: str, *, claude: bool) -> list[str]:
    """Return the arguments of `callboard` that run the example with a run id."""
    example = EXAMPLE.relative_to(Path.cwd()) if EXAMPLE.is_relative_to(Path.cwd()) else EXAMPLE
    return [
        "run",
        str(example / "workflow.yaml"),
        *("--input", f"@{example / 'input.json'}"),
        *("--skills", str(example / "skills.yaml")),
        *("--script", str(example / "script.yaml")),
        *(("--model", "anthropic") if claude else ()),
        *("--set", f"ISSUES_FILE={DATA_DIR.absolute() / 'issues.json'}"),
        *("--data-dir", str(DATA_DIR)),
        *("--run-id", run),
    ]


def ways_to_see(run: str) -> list[str]:
    """Return the lines that explain how to view a run in the browser."""
    from callboard.surfaces.cli.views import program, where_options

    ours, here = program(), where_options(Settings({"data_dir": str(DATA_DIR)}))
    return [
        "",
        "View it in a browser, while the first of these commands runs in another terminal:",
        f"  {ours} up{here}",
        f"  {ours} show{here} {run} --open",
    ]


def further_commands(run: str) -> list[str]:
    """Return further commands that show a run. They read the log and need no server."""
    from callboard.surfaces.cli.views import program, where_options

    ours, here = program(), where_options(Settings({"data_dir": str(DATA_DIR)}))
    return [
        f"  {ours} trace{here} {run} --format mermaid",
        f"  {ours} trace{here} {run} --format events",
        f"  {ours} replay{here} {run} --at 20",
        f"  {ours} rebuild{here} {run}",
        f"  {ours} runs{here}",
    ]


if __name__ == "__main__":
    sys.exit(main())
