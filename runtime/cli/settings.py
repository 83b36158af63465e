"""Settings in force: reads the configuration for a command and sets its log up; puts the log back afterwards."""

import sys
from typing import Any

from callboard.runtime.cli.options import Settings

QUIET = "warning"
"""What a command logs that is not there to stand for long, unless somebody said otherwise."""


def configured(settings: Settings, level: str = QUIET, **flags: Any) -> Any:
    """Return the `callboard.runtime.config.Config` in force and send the log to stderr.

    ``level`` is this command's default; ``flags`` count like flags of the command line, those that are None not at all.

    :raises ConfigInvalid: with every problem of every source at once
    """
    from callboard.runtime import logs
    from callboard.runtime.config import load

    logs.configure("warning")
    config = load({**settings.flags, **flags}, file=settings.file)
    said = {name: source for name, _, source in config.explain()}["log_level"]
    logs.configure(level if said == "default" else config.log_level, config.log_format)  # pyright: ignore
    return config


def quiet() -> None:
    """Take the log down again, if it was set up: stderr may be somebody else's from now on."""
    logs = sys.modules.get("callboard.runtime.logs")
    if logs is not None:
        logs.unconfigure()
