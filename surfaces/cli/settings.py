"""Settings in force: reads the configuration for a command and sets its log up; puts the log back afterwards."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from callboard.surfaces.cli.options import Settings

if TYPE_CHECKING:
    from callboard.runtime.settings.config import Config
    from callboard.runtime.settings.logs import Level


def configured(settings: Settings, level: "Level" = "warning", **flags: Any) -> "Config":
    """Return the configuration in force and send the log to stderr.

    ``level`` is logged unless someone said otherwise; ``flags`` count like those of the command line.

    :raises ConfigInvalid: with every problem of every source at once
    """
    _import_structlog()
    from callboard.runtime.settings import logs
    from callboard.runtime.settings.config import load

    logs.configure(level)
    config = load({**settings.flags, **flags}, file=settings.file)
    said_by = {name: source for name, _value, source in config.explain()}["log_level"]
    logs.configure(level if said_by == "default" else config.log_level, config.log_format)
    logs.keep_out(config.secrets())
    return config


def _import_structlog() -> None:
    """Import structlog without rich, for tracebacks in colour: ours are plain, and each start is 50 ms shorter."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    without: dict[str, Any] = {"rich": None}
    sys.modules.update(without)
    try:
        import_module("structlog")
    finally:
        del sys.modules["rich"]


def quiet() -> None:
    """Take the log down again, if it was set up: stderr may be someone else's from now on."""
    logs = sys.modules.get("callboard.runtime.settings.logs")
    if logs is not None:
        logs.unconfigure()
