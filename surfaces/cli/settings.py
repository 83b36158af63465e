"""Options for configuration, server and output, and loading the configuration.

Light: nothing is read before a command calls `load_config`.
"""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from callboard.runtime.settings.config import Config
    from callboard.runtime.settings.logs import Level

Command = Callable[..., Any]

_JSON = "callboard.json"
_SETTINGS = "callboard.settings"

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of the command line: flags that override the configuration, its file, and whether output is JSON."""

    flags: dict[str, Any] = field(default_factory=dict[str, Any])
    file: str | None = None
    as_json: bool = False


def wants_json(ctx: click.Context) -> bool:
    """Whether the current command writes JSON."""
    return bool(ctx.meta.get(_JSON))


def settings_of(ctx: click.Context) -> Settings:
    """Return the settings of the current command; the defaults if it has no such options."""
    return ctx.meta.get(_SETTINGS, Settings())


def disable_json(ctx: click.Context) -> None:
    """Report errors as text on stderr, even with --json."""
    ctx.meta[_JSON] = False


def _note_json(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    ctx.meta[_JSON] = value
    return value


json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    callback=_note_json,
    # Parsed before all others, so that an error in one of them is reported as JSON too.
    is_eager=True,
    help="Write JSON to stdout; logs go to stderr.",
)


def settings_options(command: Command) -> Command:
    """Add the options for configuration and server; the command gets them as its argument ``settings``."""

    @functools.wraps(command)
    def gather(
        *args: Any,
        nats: str | None,
        data_dir: str | None,
        tenant: str | None,
        config_file: str | None,
        log_level: str | None,
        as_json: bool,
        **others: Any,
    ) -> Any:
        if data_dir is not None and not data_dir.strip():
            # An empty path would be the working directory.
            raise click.BadParameter("the name is empty; expected the name of a folder", param_hint="--data-dir")
        flags = {"nats_url": nats, "data_dir": data_dir, "tenant": tenant, "log_level": log_level}
        given = {name: value for name, value in flags.items() if value is not None}
        settings = Settings(given, config_file, as_json)
        click.get_current_context().meta[_SETTINGS] = settings
        return command(*args, settings=settings, **others)

    for option in reversed(
        [
            click.option("--nats", metavar="URL", help="The NATS server; default: the server of the data directory."),
            click.option("--data-dir", metavar="DIR", help="The directory of the embedded server's store."),
            click.option("--tenant", metavar="NAME", help="The tenant."),
            click.option(
                "--config", "config_file", metavar="FILE", help="The configuration file; default: callboard.toml."
            ),
            click.option(
                "--log-level", type=click.Choice(LOG_LEVELS), help="The lowest level that is logged to stderr."
            ),
            json_option,
        ]
    ):
        gather = option(gather)
    return gather


def load_config(settings: Settings, level: "Level" = "warning", **flags: Any) -> "Config":
    """Return the configuration in force and send the log to stderr.

    ``level`` is the log level unless one is configured; ``flags`` count like options of the command line.

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
    """Import structlog without rich, which it needs only for coloured tracebacks: this saves 50 ms at each start."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    without: dict[str, Any] = {"rich": None}
    sys.modules.update(without)
    try:
        import_module("structlog")
    finally:
        del sys.modules["rich"]


def reset_log() -> None:
    """Undo the configuration of the log, if any: stderr may belong to another program afterwards."""
    logs = sys.modules.get("callboard.runtime.settings.logs")
    if logs is not None:
        logs.unconfigure()
