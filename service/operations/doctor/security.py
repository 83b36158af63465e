"""The checks of a deployment against the threat model (`docs/security/threat-model.md`).

Each check is about one row of the threat model's table of protections.
"""

import os
import stat
from collections.abc import AsyncGenerator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import Error as NatsError

from callboard.bus.nats.connection import abandon
from callboard.runtime.client.connection import Connection
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.lent_environment import Lender
from callboard.service.operations.doctor.findings import Finding, ok

AREA = "security"

CONNECT_WAIT_S = 2
"""How long the connection attempt without credentials may take."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


async def check_security(connection: Connection, tenants: list[str]) -> AsyncGenerator[Finding]:
    """Check a deployment; ``tenants`` are the tenants with runs in the store."""
    config = connection.config
    yield await _anonymous(connection)
    yield _transport(connection)
    yield _separation(config, connection, tenants)
    for finding in _check_sharing(config, tenants):
        yield finding
    yield _http(config)
    yield _files(config, connection)
    yield _user()


async def _anonymous(connection: Connection) -> Finding:
    """Any client of a server without authentication can start runs, and read and purge all of them."""
    url = _bare(connection)
    if not await _admits_anyone(url):
        return ok(AREA, "server-authentication", "the server refuses clients without credentials")
    message = f"the server at {url} accepts clients without credentials: they can read and purge every run"
    remedy = "Give the server users, or an account per tenant (`callboard tenant add`)."
    return Finding(AREA, "server-authentication", "error", message, remedy)


async def _admits_anyone(url: str) -> bool:
    """Whether the server at an address accepts a client without credentials."""
    client = Client()
    try:
        await client.connect(
            url, connect_timeout=CONNECT_WAIT_S, allow_reconnect=False, max_reconnect_attempts=0, error_cb=_ignore
        )
    except (NatsError, OSError, TimeoutError):
        return False
    finally:
        # nats-py keeps the socket of a refused client open until the client is closed.
        await abandon(client)
    return True


async def _ignore(_error: Exception) -> None:
    """Ignore the refusal, which is the desired result of the check; nats-py would log it."""


def _transport(connection: Connection) -> Finding:
    """Without TLS, the network to a server on another machine can read credentials and runs."""
    parts = urlsplit(_bare(connection))
    if parts.scheme == "tls" or connection.config.nats_ca is not None or _is_loopback(parts.hostname or ""):
        return ok(AREA, "server-transport", "the connection to the server is encrypted, or stays on this machine")
    message = f"the connection to {parts.hostname} is not encrypted"
    remedy = "Use a `tls://` URL, and set `nats_ca` if the certificate is issued by a private authority."
    return Finding(AREA, "server-transport", "warning", message, remedy)


def _separation(config: Config, connection: Connection, tenants: list[str]) -> Finding:
    """Tenants that share an account can read, cancel and purge each other's runs."""
    if len(tenants) < 2:
        return ok(AREA, "tenants-accounts", "there is one tenant")
    if config.nats_nkey_seed is not None or config.nats_creds is not None:
        return ok(AREA, "tenants-accounts", f"{len(tenants)} tenants, and the worker has a separate account")
    where = "embedded server" if connection.server is not None else "account"
    message = f"{len(tenants)} tenants share one {where}, so their users can reach each other's runs"
    remedy = "If they do not trust each other, give each an account (`callboard tenant add`) or a server."
    return Finding(AREA, "tenants-accounts", "warning", message, remedy)


def _check_sharing(config: Config, tenants: list[str]) -> list[Finding]:
    """On a server for several tenants, definitions must not use the worker's environment."""
    lender = Lender(config, {})
    alone = [tenant for tenant in tenants if not lender.is_shared(tenant)]
    if len(alone) > 1:
        message = f"runs of {len(alone)} tenants may use the environment of this worker, because `shared` is off"
        remedy = "Set `shared` to `auto` or `on`, and name in `tenants` what each tenant may use."
        return [Finding(AREA, "tenants-shared", "error", message, remedy)]
    if len(tenants) < 2 and alone:
        return [ok(AREA, "tenants-shared", "one tenant uses this worker, so its runs may use its environment")]
    found = [ok(AREA, "tenants-shared", "runs of other tenants get the variables that `tenants` names, and no others")]
    if config.allow_scripts:
        message = "starts may bring scripts that answer in place of a model"
        remedy = "Set `allow_scripts = false` unless it is meant for tests."
        found.append(Finding(AREA, "tools-scripts", "warning", message, remedy))
    if config.code == "bounded":
        message = "code of definitions runs with bounds, but without isolation by the kernel"
        remedy = "Set `code` to `isolated`, or to `off` if the kernel cannot isolate it."
        found.append(Finding(AREA, "tools-code", "error", message, remedy))
    return found


def _http(config: Config) -> Finding:
    """Each HTTP request contains the operator's token or a user's key, so it must be encrypted."""
    host = config.http_listen.rpartition(":")[0].strip("[]")
    if config.http_listen == "off" or _is_loopback(host):
        return ok(AREA, "http-transport", "HTTP is served on this machine alone, or not at all")
    if config.http_url is not None and config.http_url.startswith("https://"):
        return ok(AREA, "http-transport", f"people reach HTTP by {config.http_url}, which is encrypted")
    message = f"HTTP is served at {config.http_listen} without encryption"
    remedy = "Put a proxy with TLS before it, set `http_url` to its https address, and listen on loopback."
    return Finding(AREA, "http-transport", "warning", message, remedy)


def _files(config: Config, connection: Connection) -> Finding:
    """Other users of the machine must not read the store, its token, or keys."""
    paths = [Path(config.data_dir) / "nats"] if connection.server is not None else []
    paths += [Path(path) for path in (config.nats_creds, config.nats_key, config.credentials_key_file) if path]
    open_to_others = [str(path) for path in paths if path.exists() and path.stat().st_mode & _OTHERS]
    if not open_to_others:
        return ok(AREA, "files-permissions", "files with keys and the store are for their owner alone")
    message = f"others on this machine may use {', '.join(open_to_others)}"
    remedy = f"Run `chmod go= {' '.join(open_to_others)}`."
    return Finding(AREA, "files-permissions", "error", message, remedy)


def _user() -> Finding:
    """Permitted tools and programs run as the worker's user, so that should not be root."""
    if os.geteuid() != 0:
        return ok(AREA, "worker-user", "this user is not root")
    message = "the worker's user is root, and so are the tools that it runs"
    return Finding(AREA, "worker-user", "warning", message, "Run workers as a user with few permissions.")


def _bare(connection: Connection) -> str:
    """The first URL of the server, without credentials."""
    url = connection.server.url if connection.server is not None else (connection.config.nats_url or "")
    parts = urlsplit(url.split(",")[0].strip())
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme or 'nats'}://{host}:{parts.port or 4222}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
