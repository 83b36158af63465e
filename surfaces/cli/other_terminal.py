"""Commands that `callboard up` prints: they work as printed, in another terminal and from any folder."""

import shlex
from pathlib import Path

from callboard.bus.nats.credentials import with_placeholders
from callboard.runtime.settings.config import FILE_NAME, Config
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import program


def commands(config: Config, settings: Settings) -> list[tuple[str, str]]:
    """Return commands for the server of a configuration, each with what it does. FILE is the reader's to fill in.

    ``config`` is as it was read: its ``nats_url`` names a server of the operator, None is the embedded one.
    """
    ours, here = program(anywhere=True), "".join(f" {option}" for option in _options(config, settings))
    return [
        ("start a run of a definition; `callboard new` writes one", f"{ours} start{here} FILE"),
        ("see what happens", f"{ours} watch{here}"),
        ("the same with any NATS client", f"nats {' '.join(_server(config))} sub {shlex.quote(f'{config.prefix}.>')}"),
    ]


def _options(config: Config, settings: Settings) -> list[str]:
    """Name the server, the tenant and the configuration file outright: another shell may stand elsewhere."""
    where = f"--data-dir {_path(config.data_dir)}"
    if config.nats_url is not None:
        where = f"--nats {shlex.quote(with_placeholders(config.nats_url))}"
    found = [where]
    if config.tenant != Config.model_fields["tenant"].default:
        found.append(f"--tenant {shlex.quote(config.tenant)}")
    file = Path(settings.file or FILE_NAME)
    return [*found, f"--config {_path(file)}"] if file.is_file() else found


def _server(config: Config) -> list[str]:
    """Return the options of the tool `nats`. Words in capitals stand in place of secrets."""
    if config.nats_url is None:
        return [f'--server "$(cat {_path(config.data_dir / "nats" / "url")})"']
    given = {
        "--server": with_placeholders(config.nats_url),
        "--user": config.nats_user or ("TOKEN" if config.nats_token else None),
        "--password": "PASSWORD" if config.nats_password else None,
        "--creds": config.nats_creds and _path(config.nats_creds),
        "--nkey": "NKEY_FILE" if config.nats_nkey_seed else None,
        "--tlsca": config.nats_ca and _path(config.nats_ca),
        "--tlscert": config.nats_cert and _path(config.nats_cert),
        "--tlskey": config.nats_key and _path(config.nats_key),
    }
    return [f"{option} {value}" for option, value in given.items() if value]


def _path(path: Path) -> str:
    return shlex.quote(str(path.absolute()))
