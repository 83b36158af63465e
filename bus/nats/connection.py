"""The connection to NATS: nats-py with the defaults we need, clear errors, and a check of the server's features.

nats-py's reader and pinger are asyncio tasks outside any task group, so a connection must be closed: use
`open_nats_connection`, or `disconnect` in a ``finally``.
"""

import contextlib
import re
import socket
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Callable
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import msgspec
import structlog
from nats.aio.client import Client
from nats.errors import AuthorizationError, NoRespondersError
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError

from callboard.bus.errors import (
    CallboardError,
    CredentialsRefused,
    JetStreamDisabled,
    JetStreamSilent,
    PermissionDenied,
    ServerTooOld,
    ServerUnreachable,
)
from callboard.bus.nats.client import NO_LEADER, ReconnectingClient, TlsMissing
from callboard.bus.nats.credentials import CredentialsUnusable, ServerCredentials, without_secrets

log = structlog.get_logger(__name__)

SERVER_VERSION_MIN = (2, 12, 1)
"""First version with message schedules, atomic batches and a guard for each message of a batch (ADR-50, ADR-51) that
also accepts a schedule inside a batch. Version 2.12.0 refuses that (error 10111)."""

CONNECT_WAIT_S = 5.0
REFUSED_WAIT_S = 1.0
"""How long an interactive client keeps trying to connect if no server listens at the address."""

RECONNECT_PAUSE_S = 0.1
PING_INTERVAL_S = 5
"""A dead server is noticed within three of these intervals."""

TRY_WAIT_S = 5
"""How long to wait for one of several servers before trying the next."""

DRAIN_WAIT_S = 10
CLOSE_WAIT_S = 1.0
PROBE_WAIT_S = 5.0
LEADER_WAIT_S = 30.0
"""How long to wait for a cluster to elect its JetStream leader."""

PROBE_TRY_S = 1.0
PROBE_PAUSE_S = 0.2
DENIED_MAX = 100
SEEN_MAX = 100
"""Number of different errors to remember per outage. A repeated error is logged at level debug."""

_INFO = "INFO"
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)
_REFUSED = re.compile(r"authorization|authentication|maximum.*connections.*exceeded", re.IGNORECASE)


class ConnectionWatch:
    """Logs the events of a connection, and keeps the subjects that the server denied (the newest `DENIED_MAX`).

    ``gaps_expected`` means that disconnects are normal: they are logged at level info instead of warning.

    To the code that publishes, a denied publish looks like a success or a timeout. Only this class receives the denial.
    """

    def __init__(
        self,
        name: str,
        on_denied: Callable[[PermissionDenied], None] | None = None,
        *,
        refused_wait_s: float | None = None,
        gaps_expected: bool = False,
    ) -> None:
        self.denied: deque[PermissionDenied] = deque(maxlen=DENIED_MAX)
        self.refusal: str | None = None
        self.last_error: str = ""
        self._seen: set[str] = set()
        self.client: ReconnectingClient | None = None
        self.while_waiting: anyio.CancelScope | None = None
        self._refused_wait_s = refused_wait_s
        self._since = anyio.current_time() if refused_wait_s is not None else 0.0
        self._on_denied = on_denied
        self._log = log.bind(connection=name)
        self._warn = self._log.info if gaps_expected else self._log.warning

    async def error(self, error: Exception) -> None:
        """nats-py's ``error_cb``."""
        text = str(error) or type(error).__name__
        found = _DENIED.search(text)
        if found:
            self._deny(PermissionDenied(found[1].lower(), found[2]))
        elif isinstance(error, AuthorizationError | TlsMissing | ssl.SSLError) or (
            isinstance(error, NatsError) and _REFUSED.search(text)
        ):
            self.refusal = text
            self._log.error("nats refused us", error=text)
            self._stop_waiting()
            # Leave `ReconnectingClient.connect` here, inside this callback. If it were cancelled later, its socket
            # would stay open.
            await anyio.lowlevel.checkpoint()
        elif isinstance(error, ConnectionRefusedError | socket.gaierror) and self._has_waited_for_a_listener():
            self._stop_waiting()
            await anyio.lowlevel.checkpoint()
        elif text in self._seen:
            self._log.debug("nats error again", error=text)
        else:
            self._warn("nats error", error=text)
            if len(self._seen) < SEEN_MAX:
                self._seen.add(text)
        self.last_error = text

    def _has_waited_for_a_listener(self) -> bool:
        waits_s = self._refused_wait_s
        return self.while_waiting is not None and waits_s is not None and anyio.current_time() - self._since >= waits_s

    async def on_disconnected(self) -> None:
        """nats-py's ``disconnected_cb``, called also when we close the connection ourselves."""
        if self.client is None or not self.client.is_closed:
            self._warn("nats connection lost")
        if self.client is not None:
            self.client.say_lost()

    async def on_reconnected(self) -> None:
        """nats-py's ``reconnected_cb``."""
        self.last_error = ""
        self._seen.clear()
        self._log.info("nats connection is back")
        if self.client is not None:
            self.client.say_back()

    def _deny(self, denial: PermissionDenied) -> None:
        self.denied.append(denial)
        self._log.error("nats permission denied", operation=denial.operation, subject=denial.subject)
        if self._is_about_us(denial):
            self._stop_waiting()
        if self._on_denied is not None:
            try:
                self._on_denied(denial)
            except Exception:
                self._log.exception("on_denied failed")

    def _is_about_us(self, denial: PermissionDenied) -> bool:
        return self.client is not None and denial.subject == self.client.js(_INFO)

    def info_denied(self) -> PermissionDenied | None:
        """Return the denial of the request for JetStream's account info, if there was one."""
        return next((denial for denial in self.denied if self._is_about_us(denial)), None)

    def _stop_waiting(self) -> None:
        if self.while_waiting is not None:
            self.while_waiting.cancel()


async def connect(
    url: str,
    *,
    name: str,
    credentials: ServerCredentials | None = None,
    watch: ConnectionWatch | None = None,
    inbox_prefix: str = "_INBOX",
    connect_wait_s: float = CONNECT_WAIT_S,
    probe: bool = True,
    domain: str = "",
) -> ReconnectingClient:
    """Connect, and check that the server has the features that the runtime needs.

    A connection that is lost later is restored automatically, without a time limit. ``url`` may name several servers of
    a cluster, separated by commas. ``domain`` is the JetStream domain to use if the server is a leaf node. ``probe``
    False skips the check, for clients that lack the permission (for example clients that may only publish starts).

    :raises ServerUnreachable: if no server answered within ``connect_wait_s``
    :raises CredentialsRefused: if the server does not accept the credentials, or its certificate is not trusted
    :raises ServerTooOld: if the server is older than `SERVER_VERSION_MIN`
    :raises JetStreamDisabled: if JetStream is not available to this account
    :raises JetStreamSilent: if JetStream does not answer, or its cluster has no leader
    :raises PermissionDenied: if the account may not request JetStream's info
    """
    credentials = credentials or ServerCredentials()
    watch = watch or ConnectionWatch(name)
    shown = without_secrets(url)
    client = watch.client = ReconnectingClient(domain)
    try:
        with anyio.CancelScope(deadline=anyio.current_time() + connect_wait_s) as waiting:
            watch.while_waiting = waiting
            await _open(client, url, name, credentials, watch, inbox_prefix)
        if watch.refusal:
            raise _refusal(shown, watch.refusal, credentials)
        if waiting.cancelled_caught:
            raise ServerUnreachable(shown, watch.last_error or f"no answer within {connect_wait_s:g} s")
        if (credentials.ca_file or credentials.cert_file) and not client.encrypted:
            log.warning("the connection is not encrypted: nats_ca or nats_cert is set, and the server has no TLS")
        if probe:
            await _probe(client, shown, watch)
    except BaseException:
        await abandon(client)
        raise
    finally:
        watch.while_waiting = None
    return client


@contextlib.asynccontextmanager
async def open_nats_connection(
    url: str,
    *,
    name: str,
    credentials: ServerCredentials | None = None,
    watch: ConnectionWatch | None = None,
    inbox_prefix: str = "_INBOX",
    domain: str = "",
) -> AsyncGenerator[ReconnectingClient]:
    """Connect as `connect`, and disconnect at the end of the block."""
    client = await connect(
        url, name=name, credentials=credentials, watch=watch, inbox_prefix=inbox_prefix, domain=domain
    )
    try:
        yield client
    finally:
        await disconnect(client)


async def disconnect(client: ReconnectingClient) -> None:
    """Send pending messages and close, within `DRAIN_WAIT_S`. This also closes a connection that is currently down."""
    draining = anyio.CancelScope(shield=True, deadline=anyio.current_time() + DRAIN_WAIT_S)
    # Once the connection is lost, waiting has no purpose: messages in flight will not be acknowledged.
    with draining, client.lost(draining.cancel):
        try:
            await client.wait_settled()
            if client.is_connected and not client.is_draining:
                await client.drain()
        except (NatsError, OSError) as error:
            log.warning("nats connection could not be drained", error=str(error))
    await _close(client)


async def abandon(client: Client) -> None:
    """Close a client whose connection may have failed: nats-py leaves its socket open after a refusal."""
    with contextlib.suppress(AssertionError):  # raised if it never began to connect
        await _close(client)


async def _close(client: Client) -> None:
    # Bounded, because after a failed TLS handshake nats-py waits without end for its socket to close.
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSE_WAIT_S):
        await client.close()


async def _open(
    client: ReconnectingClient,
    url: str,
    name: str,
    credentials: ServerCredentials,
    watch: ConnectionWatch,
    inbox_prefix: str,
) -> None:
    shown = without_secrets(url)
    servers = [server.strip() for server in url.split(",")]
    for server in servers:
        if "://" in server and urlsplit(server).scheme not in ("nats", "tls", "ws", "wss"):
            raise ServerUnreachable(shown, "not a NATS URL; it looks like nats://host:4222 or tls://host:4222")
    try:
        credentials.check()
        await client.connect(
            servers,
            name=name,
            error_cb=watch.error,
            disconnected_cb=watch.on_disconnected,
            reconnected_cb=watch.on_reconnected,
            max_reconnect_attempts=-1,
            # nats-py takes fractions of a second here, whatever its annotation says.
            reconnect_time_wait=RECONNECT_PAUSE_S,  # pyright: ignore[reportArgumentType]
            connect_timeout=TRY_WAIT_S,
            ping_interval=PING_INTERVAL_S,
            drain_timeout=DRAIN_WAIT_S,
            inbox_prefix=inbox_prefix,
            user=credentials.user,
            password=credentials.password,
            token=credentials.token,
            nkeys_seed_str=credentials.nkey_seed,
            user_credentials=credentials.creds_file,
            tls=credentials.tls(),  # pyright: ignore[reportArgumentType]  None is its default
            tls_hostname=credentials.tls_hostname,
        )
    except CredentialsUnusable as error:
        raise CredentialsRefused(
            shown, str(error), "Correct the setting or the file.", "the credentials cannot be used"
        ) from error
    except (NatsError, ValueError) as error:
        raise ServerUnreachable(shown, str(error)) from error


def _refusal(shown: str, reason: str, credentials: ServerCredentials) -> CredentialsRefused:
    """Make the error of a refusal; where it is about TLS, it names the setting, and the file that is in it."""
    said = reason.lower()
    what = "TLS to the NATS server failed"
    if "not valid for" in said:
        return CredentialsRefused(shown, reason, "Have nats_url name the server as its certificate does.", what)
    if "verify failed" in said:
        remedy = f"Check that the file of nats_ca ({credentials.ca_file}) has the authority that signed it."
        if credentials.ca_file is None:
            remedy = "Name the file of the authority that signed it in nats_ca (CALLBOARD_NATS_CA)."
        return CredentialsRefused(shown, reason, remedy, what)
    if "alert" in said:
        own = f"nats_cert ({credentials.cert_file or 'not set'}) and nats_key ({credentials.key_file or 'not set'})"
        return CredentialsRefused(shown, reason, f"Set {own} to a certificate that the server accepts.", what)
    if "tls" in said:
        return CredentialsRefused(shown, reason, "Enable `tls` at the server, or write nats:// in nats_url.", what)
    return CredentialsRefused(shown, reason)


async def _probe(client: ReconnectingClient, shown: str, watch: ConnectionWatch) -> None:
    version = client.connected_server_version
    found = (version.major, version.minor, version.patch)
    if found < SERVER_VERSION_MIN:
        raise ServerTooOld(shown, ".".join(map(str, found)), ".".join(map(str, SERVER_VERSION_MIN)))
    # Whether its leader is being elected, only a cluster can say, and only once that is over.
    patience_s = LEADER_WAIT_S if client.in_cluster else PROBE_WAIT_S
    problem: CallboardError = JetStreamSilent(shown, patience_s, in_cluster=client.in_cluster)
    with anyio.CancelScope(deadline=anyio.current_time() + patience_s) as waiting:
        watch.while_waiting = waiting
        while True:
            try:
                answer = await client.request(client.js(_INFO), timeout=PROBE_TRY_S)
            except NoRespondersError:
                reason = "no server answers in this domain" if client.domain else "the server runs without it"
                raise _jetstream_disabled(client, shown, reason) from None
            except NatsTimeoutError:
                # The request was lost with the connection, or the cluster is electing its leader.
                log.warning("waiting for JetStream to answer", url=shown, at_most_s=patience_s)
                continue
            error = msgspec.json.decode(answer.data).get("error")
            if error is None:
                return
            if error.get("err_code") not in NO_LEADER:
                problem = _jetstream_disabled(client, shown, error.get("description", "unknown"))
                break
            await anyio.sleep(PROBE_PAUSE_S)
    denial = watch.info_denied()
    raise PermissionDenied(denial.operation, denial.subject, shown) if denial else problem


def _jetstream_disabled(client: ReconnectingClient, shown: str, reason: str) -> JetStreamDisabled:
    return JetStreamDisabled(shown, reason, client.domain)
