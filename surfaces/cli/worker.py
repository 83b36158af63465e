"""The supervisor of workers: keeps child processes until they are stopped and drained, and prints the addresses.

The supervisor also runs the embedded server, answers requests and exports. It performs no runs, and executes no code of
workflows: if such code crashes its process, the other workers and the server continue.
"""

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
from callboard.lib.background_imports import import_beside
from callboard.lib.threads import quick_turns
from callboard.runtime.client.connection import Connection, group_commits
from callboard.runtime.cluster.membership import name_worker, report_end
from callboard.runtime.settings.config import FILE_NAME, Config
from callboard.runtime.worker.collector import settled_collector
from callboard.service.operations.reach import join, reach
from callboard.service.operations.results import compact
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.child_processes import (
    ChildProcess,
    ChildProcesses,
    ProcessOptions,
    SupervisedChild,
    open_child_processes,
)
from callboard.surfaces.cli.child_roles import run_cold_child, run_http_child, run_retention_child, run_worker_child
from callboard.surfaces.cli.launching import ForkServer
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.page import note_page
from callboard.surfaces.cli.process import stop_signals
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import program
from callboard.surfaces.http.address import LOOPBACK, listening_nearby, url_of

SERVICE = "callboard.surfaces.nats.micro_service"
"""What answers requests. It is imported while the first worker starts, which may have runs to continue."""


async def run_workers(
    process_options: ProcessOptions, settings: Settings, fork_server: ForkServer, server: EmbeddedServer | None = None
) -> int:
    """Run workers until a signal arrives and all of them are drained; return the exit code.

    ``fork_server`` starts the processes of workers, and ``server`` is the embedded server over the data directory, if
    this process runs it already.

    :raises OperatorError: if the server cannot work
    """
    config, is_stopped = process_options.config, False
    async with AsyncExitStack() as stack:
        signals = stack.enter_context(anyio.open_signal_receiver(*stop_signals()))
        name = "callboard worker" if process_options.joins else "callboard up"
        opening = (
            reach(config, reads=False, name=name, refused_wait_s=None)
            if process_options.joins
            else join(config, name=name, say=partial(say, err=True), server=server)
        )
        connection = await stack.enter_async_context(opening)
        await stack.enter_async_context(open_exporters(connection))
        children = await stack.enter_async_context(
            open_child_processes(fork_server, partial(_report_death, connection))
        )
        if process_options.reloads:
            from callboard.surfaces.cli.reloading import reloading

            await stack.enter_async_context(
                reloading(process_options.code, partial(children.restart, run_worker_child))
            )
        options = _child_options(connection, process_options)
        first = children.keep(ChildProcess("worker-1", run_worker_child, replace(options, registers=True)))
        with quick_turns():
            await import_beside(SERVICE)
        from callboard.surfaces.nats.micro_service import open_service

        await stack.enter_async_context(open_service(connection))
        is_stopped = await _is_stopped_before(first, signals)
        if first.refused is not None:
            return first.refused
        for number in range(2, config.worker_processes() + 1):
            children.keep(ChildProcess(f"worker-{number}", run_worker_child, options))
        if config.retention:
            children.keep(ChildProcess("retention", run_retention_child, options))
        if config.cold is not None:
            children.keep(ChildProcess("cold", run_cold_child, options))
        page = None if process_options.joins else await _serve_http(stack, children, connection, process_options)
        stack.enter_context(settled_collector())
        if not is_stopped:
            _print_addresses(connection, settings, page, process_options)
            await anext(signals)
        drained = await _drain_all(children, process_options, settings, signals)
    if settings.as_json:
        say(compact({"stopped": True, "drained": drained}))
    else:
        say("Stopped." if drained else "Stopped without waiting.", err=True)
    return exits.OK if drained else exits.INTERRUPTED


async def _report_death(connection: Connection, child: ChildProcess, pid: int) -> None:
    """Tell all workers that a worker has died, so that they continue its runs at once."""
    if child.perform is run_worker_child:
        name = name_worker(pid, child.process_options.mark)
        await report_end(connection.nc, connection.log.subjects.beat(), name, connection.log.store)


async def _is_stopped_before(first: SupervisedChild, signals: AsyncIterator[signal.Signals]) -> bool:
    """Wait until a child has started; return whether a signal has arrived before that."""
    is_stopped = False
    async with anyio.create_task_group() as tasks:

        async def wait_started() -> None:
            await first.started.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(wait_started)
        await anext(signals)
        is_stopped = True
        tasks.cancel_scope.cancel()
    return is_stopped


def _child_options(connection: Connection, process_options: ProcessOptions) -> ProcessOptions:
    """Return the options of a child process: it connects to the same server."""
    config, server = connection.config.absolute(), connection.server
    if server is None:
        return replace(process_options, config=config)
    config = config.at(server.url)
    if group_commits(connection.config, server):
        config = config.model_copy(update={"group_commit": "on"})
    return replace(process_options, config=config, server_up_at=server.up_at)


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


async def _drain_all(
    children: ChildProcesses,
    process_options: ProcessOptions,
    settings: Settings,
    signals: AsyncIterator[signal.Signals],
) -> bool:
    """Drain the child processes, unless a second signal arrives; return whether they were drained."""
    if not settings.as_json:
        say(f"Stopping: at most {process_options.drain_wait_s:g} s; interrupt again to stop at once.", err=True)
    drained = False

    async def drain(scope: anyio.CancelScope) -> None:
        nonlocal drained
        await children.stop(process_options.drain_wait_s)
        drained = True
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drain, tasks.cancel_scope)
        await anext(signals)
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
