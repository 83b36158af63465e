"""Workers that run until they are stopped and drained, their child processes, and the addresses that they print."""

import shlex
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from msgspec.structs import replace
from pydantic import SecretStr

from callboard.bus.nats.connection import without_secrets
from callboard.bus.nats.credentials import with_placeholders
from callboard.bus.nats.server.data_directory import running_url
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.features.telemetry.exporters import open_exporters
from callboard.features.telemetry.log_exporter import exporting_logs
from callboard.runtime.hosting.code_loader import load
from callboard.runtime.hosting.code_registration import register_bundle
from callboard.runtime.settings.config import FILE_NAME, Config
from callboard.runtime.worker.bootstrap import open_worker
from callboard.runtime.worker.collector import settled_collector
from callboard.runtime.worker.worker import Worker
from callboard.service.client.connection import Connection, open_connection
from callboard.service.operations.reach import join, reach
from callboard.service.operations.results import compact
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.child_processes import (
    ChildProcess,
    ChildProcesses,
    ProcessOptions,
    open_child_processes,
    watch_parent,
)
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.page import note_page
from callboard.surfaces.cli.process import stop_signals, worker_environment
from callboard.surfaces.cli.reloading import host_kept, load_or_wait, register_code, reloading
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import program
from callboard.surfaces.http.address import LOOPBACK, listening_nearby, url_of
from callboard.surfaces.nats.micro_service import open_service


async def run_workers(process_options: ProcessOptions, settings: Settings, server: EmbeddedServer | None = None) -> int:
    """Run workers until a signal arrives and all of them are drained; return the exit code.

    ``server`` is the embedded server over the data directory, if this process runs it already.

    :raises OperatorError: if the server or a worker cannot work
    """
    async with AsyncExitStack() as stack:
        env = stack.enter_context(worker_environment(None, *process_options.folders))
        bundles = [] if process_options.reloads else [load(one) for one in process_options.code]
        if not process_options.reloads:
            host_kept(process_options)
        signals = stack.enter_context(anyio.open_signal_receiver(*stop_signals()))
        name = "callboard worker" if process_options.joins else "callboard up"
        opening = (
            reach(process_options.config, reads=False, name=name, refused_wait_s=None)
            if process_options.joins
            else join(process_options.config, name=name, say=partial(say, err=True), server=server)
        )
        connection = await stack.enter_async_context(opening)
        await stack.enter_async_context(open_exporters(connection))
        worker = None if process_options.reloads else await stack.enter_async_context(open_worker(connection, env))
        for bundle in bundles:
            await register_bundle(connection, bundle)
        await stack.enter_async_context(open_service(connection))
        children = await stack.enter_async_context(open_child_processes())
        for number in range(2 if worker is not None else 1, process_options.config.worker_processes() + 1):
            options = replace(_child_options(connection, process_options), registers=number == 1)
            children.keep(ChildProcess(f"worker-{number}", run_worker_child, options))
        if process_options.reloads:
            await stack.enter_async_context(
                reloading(process_options.code, partial(children.restart, run_worker_child))
            )
        if process_options.config.retention:
            children.keep(ChildProcess("retention", run_retention_child, _child_options(connection, process_options)))
        if process_options.config.cold is not None:
            children.keep(ChildProcess("cold", run_cold_child, _child_options(connection, process_options)))
        page = None if process_options.joins else await _serve_http(stack, children, connection, process_options)
        stack.enter_context(settled_collector())
        _print_addresses(connection, settings, page, process_options)
        async for _first in signals:
            break
        drained = await _drain_all(worker, children, process_options, settings, signals)
    if settings.as_json:
        say(compact({"stopped": True, "drained": drained}))
    else:
        say("Stopped." if drained else "Stopped without waiting.", err=True)
    return exits.OK if drained else exits.INTERRUPTED


def _child_options(connection: Connection, process_options: ProcessOptions) -> ProcessOptions:
    """Return the options of a child process: it connects to the same server."""
    config = connection.config.absolute()
    return replace(
        process_options, config=config.at(connection.server.url) if connection.server is not None else config
    )


async def _serve_http(
    stack: AsyncExitStack, children: ChildProcesses, connection: Connection, process_options: ProcessOptions
) -> str | None:
    """Start the child process that serves HTTP, unless that is off; return the URL of the page.

    :raises AddressUnusable: if the address cannot be served, or not without a token
    """
    config = process_options.config
    if config.http_listen == "off":
        return None
    host, _colon, port = config.http_listen.rpartition(":")
    host = host.strip("[]")
    if host not in LOOPBACK:
        from callboard.surfaces.cli.http import access_of

        await access_of(config, connection, host, int(port))
    bound = stack.enter_context(listening_nearby(host, int(port), "http"))
    child = _child_options(connection, process_options)
    # HTTP requires the same token as the server, so that it does not open a way around it.
    token = config.http_token or _token_of(child.config)
    config = child.config.model_copy(update={"http_token": token})
    children.keep(ChildProcess("http", run_http_child, replace(child, config=config, listener=bound.fileno())))
    page = f"{url_of(bound)}/#token={token.get_secret_value()}" if token else f"{url_of(bound)}/"
    if process_options.config.embedded:
        stack.enter_context(note_page(config.data_dir, page))
    return page


def _token_of(config: Config) -> SecretStr | None:
    """Return the token that the server of the data directory requires; None for any other server."""
    url = running_url(config.data_dir)
    token = urlsplit(url).username if url is not None and url == config.nats_url else None
    return SecretStr(token) if token else None


async def run_http_child(process_options: ProcessOptions) -> None:
    """Run as the child process that serves HTTP."""
    from callboard.surfaces.cli.http import serve_http_child

    await serve_http_child(process_options)


async def run_cold_child(process_options: ProcessOptions) -> None:
    """Run as the child process that moves runs to cold storage."""
    from callboard.surfaces.cli.cold import attend_cold

    await attend_cold(process_options)


async def run_retention_child(process_options: ProcessOptions) -> None:
    """Run as the child process that applies the retention rules."""
    from callboard.surfaces.cli.removal import attend_retention

    await attend_retention(process_options)


async def run_worker_child(process_options: ProcessOptions) -> None:
    """Run as a child process that is a worker, until SIGTERM, and drain; or until the parent exits."""
    async with AsyncExitStack() as stack:
        env = stack.enter_context(worker_environment(None, *process_options.folders))
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGTERM))
        await stack.enter_async_context(watch_parent())
        bundles = await load_or_wait(process_options, signals)
        if bundles is None:
            return
        connection = await stack.enter_async_context(
            open_connection(process_options.config, "callboard worker", gaps_expected=True)
        )
        stack.enter_context(exporting_logs(process_options.config.otel))
        worker = await stack.enter_async_context(open_worker(connection, env))
        if process_options.registers:
            await register_code(connection, process_options.code, bundles)
        stack.enter_context(settled_collector())
        async for _first in signals:
            break
        await worker.drain(process_options.drain_wait_s)


async def _drain_all(
    worker: Worker | None,
    children: ChildProcesses,
    process_options: ProcessOptions,
    settings: Settings,
    signals: AsyncIterator[signal.Signals],
) -> bool:
    """Drain this worker and the child processes, unless a second signal arrives; return whether they were drained."""
    if not settings.as_json:
        runs = "" if worker is None else f"{worker.active} run{'s' if worker.active != 1 else ''} here, "
        say(f"Stopping: {runs}at most {process_options.drain_wait_s:g} s; interrupt again to stop at once.", err=True)
    drained = False

    async def drain(scope: anyio.CancelScope) -> None:
        nonlocal drained
        async with anyio.create_task_group() as both:
            both.start_soon(children.stop)
            if worker is not None:
                both.start_soon(worker.drain, process_options.drain_wait_s)
        drained = True
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drain, tasks.cancel_scope)
        async for _second in signals:
            break
        tasks.cancel_scope.cancel()
    return drained


def _print_addresses(
    connection: Connection, settings: Settings, page: str | None, process_options: ProcessOptions
) -> None:
    config, given = connection.config, process_options.config
    url = without_secrets(connection.server.url if connection.server else config.nats_url or "")
    directory = str(Path(config.data_dir).absolute()) if given.embedded and not process_options.joins else None
    if settings.as_json:
        found = {"url": url, "data_dir": directory, "tenant": config.tenant, "prefix": config.prefix, "page": page}
        say(compact(found))
        return
    store = f"\nThe log is kept in {directory}." if directory else ""
    seen = f"\nSee it at {page}" if page else ""
    further = "".join(f"  # {about}\n  {command}\n" for about, command in commands_elsewhere(given, settings))
    say(
        f"Up at {url}, tenant {config.tenant!r}.{store}{seen}\n\n"
        f"In another terminal:\n{further}\n"
        "Ctrl-C stops it in order."
    )


def commands_elsewhere(config: Config, settings: Settings) -> list[tuple[str, str]]:
    """Return commands that work in another terminal and from any folder, each after its description.

    FILE is a placeholder.

    ``config`` is as loaded: its ``nats_url`` names an external server, or is None for the embedded one.
    """
    ours, here = program(anywhere=True), "".join(f" {option}" for option in _locating_options(config, settings))
    return [
        ("start a run of a definition; `callboard new` writes one", f"{ours} start{here} FILE"),
        ("see what happens", f"{ours} watch{here}"),
        (
            "the same with any NATS client",
            f"nats {' '.join(_nats_options(config))} sub {shlex.quote(f'{config.prefix}.>')}",
        ),
    ]


def _locating_options(config: Config, settings: Settings) -> list[str]:
    """Return the options that name server, tenant and configuration file; paths are absolute."""
    where = f"--data-dir {_quoted_path(config.data_dir)}"
    if config.nats_url is not None:
        where = f"--nats {shlex.quote(with_placeholders(config.nats_url))}"
    found = [where]
    if config.tenant != Config.model_fields["tenant"].default:
        found.append(f"--tenant {shlex.quote(config.tenant)}")
    file = Path(settings.file or FILE_NAME)
    return [*found, f"--config {_quoted_path(file)}"] if file.is_file() else found


def _nats_options(config: Config) -> list[str]:
    """Return the options of the tool `nats`. Words in capitals are placeholders for secrets."""
    if config.nats_url is None:
        return [f'--server "$(cat {_quoted_path(config.data_dir / "nats" / "url")})"']
    given = {
        "--server": with_placeholders(config.nats_url),
        "--user": config.nats_user or ("TOKEN" if config.nats_token else None),
        "--password": "PASSWORD" if config.nats_password else None,
        "--creds": config.nats_creds and _quoted_path(config.nats_creds),
        "--nkey": "NKEY_FILE" if config.nats_nkey_seed else None,
        "--tlsca": config.nats_ca and _quoted_path(config.nats_ca),
        "--tlscert": config.nats_cert and _quoted_path(config.nats_cert),
        "--tlskey": config.nats_key and _quoted_path(config.nats_key),
    }
    return [f"{option} {value}" for option, value in given.items() if value]


def _quoted_path(path: Path) -> str:
    return shlex.quote(str(path.absolute()))
