"""Settings in force: reads the configuration for a command and sets its log up; puts the log back afterwards."""

import sys
from typing import TYPE_CHECKING, Any

from callboard.runtime.cli.options import Settings

if TYPE_CHECKING:
    from callboard.runtime.settings.config import Config
    from callboard.runtime.settings.logs import Level


def configured(settings: Settings, level: "Level" = "warning", **flags: Any) -> "Config":
    """Return the configuration in force and send the log to stderr.

    ``level`` is logged unless somebody said otherwise; ``flags`` count like those of the command line.

    :raises ConfigInvalid: with every problem of every source at once
    """
    from callboard.runtime.settings import logs
    from callboard.runtime.settings.config import load

    logs.configure(level)
    config = load({**settings.flags, **flags}, file=settings.file)
    said_by = {name: source for name, _value, source in config.explain()}["log_level"]
    logs.configure(level if said_by == "default" else config.log_level, config.log_format)
    return config


def quiet() -> None:
    """Take the log down again, if it was set up: stderr may be somebody else's from now on."""
    logs = sys.modules.get("callboard.runtime.settings.logs")
    if logs is not None:
        logs.unconfigure()
