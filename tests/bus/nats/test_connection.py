"""The connection: its errors name what is wrong, it outlives the server, and denied subjects do not vanish."""

import json
import re
import ssl
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from nats.errors import TimeoutError as NatsTimeoutError

from callboard.bus.errors import (
    CredentialsRefused,
    JetStreamDisabled,
    JetStreamSilent,
    PermissionDenied,
    ServerTooOld,
    ServerUnreachable,
)
from callboard.bus.nats import connection
from callboard.bus.nats.client import ReconnectingClient
from callboard.bus.nats.connection import (
    SERVER_VERSION_MIN,
    ConnectionWatch,
    abandon,
    connect,
    disconnect,
    open_nats_connection,
)
from callboard.bus.nats.credentials import ServerCredentials, with_placeholders, without_secrets
from callboard.bus.nats.nkeys import JWT_BEGIN, SEED_BEGIN
from callboard.bus.nats.server.program import find_server
from tests.support.cluster import tied
from tests.support.ports import free_ports

PATIENCE_S = 20.0
ADA = ServerCredentials(user="ada", password="pw")


@asynccontextmanager
async def nats_server(
    home: Path, config: str = "", *, jetstream: bool = True, port: int | None = None
) -> AsyncGenerator[str]:
    """Run a real server with the given configuration; yields its URL."""
    port = port or free_ports(1)[0]
    store = f"jetstream {{ store_dir: {json.dumps(str(home / 'store'))} }}" if jetstream else ""
    path = home / "server.conf"
    path.write_text(f'host: "127.0.0.1"\nport: {port}\n{store}\n{config}\n')
    process = await anyio.open_process(
        tied([find_server(), "-c", str(path)]), stdin=None, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with anyio.fail_after(PATIENCE_S):
            while True:
                try:
                    await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    await anyio.sleep(0.01)
        yield f"nats://127.0.0.1:{port}"
    finally:
        with anyio.CancelScope(shield=True):
            process.kill()
            await process.aclose()


async def test_connects_to_a_server_that_has_what_is_needed(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as url:
        async with open_nats_connection(url, name="probe-me") as client:
            assert client.is_connected
            version = client.connected_server_version
            assert (version.major, version.minor, version.patch) >= SERVER_VERSION_MIN
        assert client.is_closed


async def test_an_address_without_a_listener_is_unreachable() -> None:
    port = free_ports(1)[0]
    with pytest.raises(ServerUnreachable, match=r"Connect call failed.*Check the URL") as caught:
        await connect(f"nats://u:secret@127.0.0.1:{port}", name="t", connect_wait_s=0.3)
    assert caught.value.url == f"nats://127.0.0.1:{port}"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "nobody.invalid"])
async def test_a_connection_attempt_without_a_listener_fails_quickly(host: str) -> None:
    watch = ConnectionWatch("t", refused_wait_s=0.05)
    with pytest.raises(ServerUnreachable):
        await connect(f"nats://{host}:{free_ports(1)[0]}", name="t", watch=watch, connect_wait_s=100 * PATIENCE_S)


async def test_a_connection_waits_for_a_server_that_is_starting(tmp_path: Path) -> None:
    """The first attempt is refused, and the second one succeeds."""
    port = free_ports(1)[0]
    refused, connected_to = anyio.Event(), anyio.Event()

    class Watch(ConnectionWatch):
        async def error(self, error: Exception) -> None:
            await super().error(error)
            refused.set()

    async def come() -> None:
        watch = Watch("t", refused_wait_s=PATIENCE_S)
        async with open_nats_connection(f"nats://127.0.0.1:{port}", name="t", watch=watch):
            connected_to.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(come)
        with anyio.fail_after(PATIENCE_S):
            await refused.wait()
            async with nats_server(tmp_path, port=port):
                await connected_to.wait()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nats://127.0.0.1:port"])
async def test_an_invalid_server_url_is_refused(url: str) -> None:
    with pytest.raises(ServerUnreachable):
        await connect(url, name="t", connect_wait_s=0.3)


async def test_a_silent_listener_times_out() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(ServerUnreachable, match=r"no answer within 0\.3 s"):
            await connect(f"nats://127.0.0.1:{port}", name="t", connect_wait_s=0.3)


async def test_one_server_of_several_is_enough(tmp_path: Path) -> None:
    nobody = free_ports(3)[-1]
    async with (
        nats_server(tmp_path) as url,
        open_nats_connection(f"nats://127.0.0.1:{nobody}, {url}", name="t") as client,
    ):
        assert client.is_connected


@pytest.mark.parametrize(("version", "accepted"), [("2.11.9", False), ("2.12.0", False), ("2.12.1", True)])
async def test_an_old_server_is_refused_by_its_version(version: str, accepted: bool) -> None:
    async with old_server(version) as url:
        if accepted:
            await disconnect(await connect(url, name="t"))
            return
        with pytest.raises(ServerTooOld, match=r"Upgrade") as caught:
            await connect(url, name="t")
        assert (caught.value.found, caught.value.needed) == (version, ".".join(map(str, SERVER_VERSION_MIN)))


async def test_a_server_without_jetstream_is_refused(tmp_path: Path) -> None:
    async with nats_server(tmp_path, jetstream=False) as url:
        with pytest.raises(JetStreamDisabled, match="the server runs without it"):
            await connect(url, name="t")
        await disconnect(await connect(url, name="t", probe=False))


async def test_an_account_without_jetstream_is_refused(tmp_path: Path) -> None:
    async with nats_server(tmp_path, "accounts { A { users: [{user: ada, password: pw}] } }") as url:
        with pytest.raises(JetStreamDisabled, match="not enabled for account"):
            await connect(url, name="t", credentials=ADA)


@pytest.mark.parametrize("in_cluster", [False, True])
async def test_a_jetstream_that_hangs_is_not_called_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_cluster: bool
) -> None:
    """The server answers everything but requests to JetStream."""

    async def hang(*_args: object, **_names: object) -> None:
        await anyio.sleep(0.01)
        raise NatsTimeoutError

    for wait in ("PROBE_WAIT_S", "LEADER_WAIT_S"):
        monkeypatch.setattr(connection, wait, 0.05)
    monkeypatch.setattr(ReconnectingClient, "in_cluster", property(lambda _: in_cluster))
    monkeypatch.setattr(ReconnectingClient, "request", hang)
    async with nats_server(tmp_path) as url:
        with pytest.raises(JetStreamSilent, match="has not answered") as caught:
            await connect(url, name="t")
    assert ("its leader hangs" in str(caught.value)) == in_cluster
    assert "restart" in caught.value.remedy


async def test_a_wrong_password_is_refused_at_once(tmp_path: Path) -> None:
    async with nats_server(tmp_path, "authorization { user: ada, password: other }") as url:
        with anyio.fail_after(PATIENCE_S):
            with pytest.raises(CredentialsRefused, match="Authorization Violation") as caught:
                await connect(url, name="t", credentials=ADA, connect_wait_s=10 * PATIENCE_S)
        assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "credentials"),
    [
        ("authorization { user: ada, password: pw }", ADA),
        ("authorization { token: t0ken }", ServerCredentials(token="t0ken")),
    ],
)
async def test_correct_credentials_are_accepted(tmp_path: Path, config: str, credentials: ServerCredentials) -> None:
    async with (
        nats_server(tmp_path, config) as url,
        open_nats_connection(url, name="t", credentials=credentials) as client,
    ):
        assert client.is_connected
    assert "pw" not in repr(credentials)
    assert "t0ken" not in repr(credentials)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate and its key."""
    cert, key = certificate(tmp_path_factory.mktemp("pair"))
    return str(cert), str(key)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"creds_file": "NONE"}, r"nats_creds \(NONE\) cannot be read: No such file"),
        ({"creds_file": "CERT"}, r"nats_creds \(CERT\) has no line with 'BEGIN NATS USER JWT'"),
        ({"creds_file": "CREDS"}, r"nats_creds \(CREDS\) is not the seed of an nkey"),
        ({"nkey_seed": "SUMMER"}, "nats_nkey_seed is not the seed of an nkey"),
        ({"ca_file": "NONE"}, r"nats_ca \(NONE\) cannot be read: No such file"),
        ({"ca_file": "FOLDER"}, r"nats_ca \(FOLDER\) cannot be read: Is a directory"),
        ({"ca_file": "KEY"}, r"nats_ca \(KEY\) has no line with 'CERTIFICATE'"),
        ({"ca_file": "BROKEN"}, r"nats_ca \(BROKEN\) cannot be used: "),
        ({"cert_file": "NONE", "key_file": "KEY"}, r"nats_cert \(NONE\) cannot be read"),
        ({"cert_file": "CERT", "key_file": "NONE"}, r"nats_key \(NONE\) cannot be read"),
        ({"cert_file": "KEY", "key_file": "KEY"}, r"nats_cert \(KEY\) has no line with 'CERTIFICATE'"),
        ({"cert_file": "CERT", "key_file": "CERT"}, r"nats_key \(CERT\) has no line with 'PRIVATE KEY'"),
        ({"cert_file": "CERT"}, r"nats_cert \(CERT\) has no line with 'PRIVATE KEY'"),
        ({"key_file": "KEY"}, r"nats_key \(KEY\) is set, and nats_cert is not"),
    ],
)
async def test_the_error_names_unusable_credentials(
    pair: tuple[str, str], tmp_path: Path, given: dict[str, str], told: str
) -> None:
    (tmp_path / "broken").write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    (tmp_path / "creds").write_text(f"{JWT_BEGIN}\nx\n{SEED_BEGIN}\n")
    named = {"CERT": pair[0], "KEY": pair[1], "NONE": "/no/such", "FOLDER": "/"}
    named |= {name: str(tmp_path / name.lower()) for name in ("BROKEN", "CREDS")}
    credentials = ServerCredentials(**{setting: named.get(value, value) for setting, value in given.items()})
    with pytest.raises(CredentialsRefused, match="cannot be used") as caught:
        await connect("nats://127.0.0.1:1", name="t", credentials=credentials)
    for name, file in named.items():
        told = told.replace(name + r"\)", re.escape(file) + r"\)")
    assert re.search(told, str(caught.value)), str(caught.value)
    assert "SUMMER" not in str(caught.value)


async def test_tls_uses_the_configured_certificate_authority(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cert, key = certificate(tmp_path)
    tls = f"tls {{ cert_file: {json.dumps(str(cert))}, key_file: {json.dumps(str(key))} }}"
    async with nats_server(tmp_path, tls) as url:
        async with open_nats_connection(url, name="t", credentials=ServerCredentials(ca_file=str(cert))) as client:
            assert client.is_connected
        with pytest.raises(CredentialsRefused, match=r"certificate verify failed.*in nats_ca \(CALLBOARD_NATS_CA\)"):
            await connect(url, name="t", connect_wait_s=PATIENCE_S)
        local, ours = url.replace("127.0.0.1", "localhost"), ServerCredentials(ca_file=str(cert))
        with pytest.raises(CredentialsRefused, match=r"not valid for 'localhost'.*Have nats_url name the server"):
            await connect(local, name="t", credentials=ours, connect_wait_s=PATIENCE_S)
    # asyncio would log what the library has done to its protocol.
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_a_client_certificate_is_sent_to_a_server_that_requires_it(tmp_path: Path) -> None:
    cert, key = (str(file) for file in certificate(tmp_path))
    files = {"cert_file": cert, "key_file": key, "ca_file": cert}
    tls = ", ".join(f"{name}: {json.dumps(file)}" for name, file in files.items())
    async with nats_server(tmp_path, f"tls {{ {tls}, verify: true }}") as url:
        async with open_nats_connection(url, name="t", credentials=ServerCredentials(**files)) as client:
            assert client.is_connected
        with pytest.raises(CredentialsRefused, match=r"certificate required.*Set nats_cert \(not set\)"):
            await connect(url, name="t", credentials=ServerCredentials(ca_file=cert), connect_wait_s=PATIENCE_S)


async def test_a_tls_url_never_falls_back_to_plain_text(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as url:
        with pytest.raises(CredentialsRefused, match=r"begins with tls://.*Enable `tls` at the server"):
            await connect(url.replace("nats://", "tls://"), name="t", credentials=ADA, connect_wait_s=PATIENCE_S)


async def test_the_error_names_an_unknown_domain(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as url:
        with pytest.raises(JetStreamDisabled, match=r"no server answers in this domain \(nats_domain is 'leaf'\)"):
            await connect(url, name="t", domain="leaf")


async def test_denied_subjects_are_recorded(tmp_path: Path) -> None:
    allowed = 'permissions: { publish: ["ok", "$JS.API.>"], subscribe: ["_INBOX.>"] }'
    config = f"authorization {{ users: [{{ user: ada, password: pw, {allowed} }}] }}"
    told: list[PermissionDenied] = []
    arrived = anyio.Event()

    def on_denied(denial: PermissionDenied) -> None:
        told.append(denial)
        if len(told) == 2:
            arrived.set()
        raise ValueError("an observer's own fault")

    watch = ConnectionWatch("t", on_denied)
    async with (
        nats_server(tmp_path, config) as url,
        open_nats_connection(url, name="t", credentials=ADA, watch=watch) as client,
    ):
        await client.publish("ok", b"")
        await client.publish("cb.run.Acme", b"")
        await client.subscribe("cb.start.Acme")
        with anyio.fail_after(PATIENCE_S):
            await arrived.wait()
        assert client.is_connected
    assert [(denial.operation, denial.subject) for denial in watch.denied] == [
        ("publish", "cb.run.Acme"),
        ("subscription", "cb.start.Acme"),
    ]
    assert told == list(watch.denied)
    assert told[0].code == "auth.denied"


async def test_an_account_without_permission_for_the_jetstream_api_is_refused(tmp_path: Path) -> None:
    config = "authorization { users: [{ user: ada, password: pw, permissions: { publish: [ok] } }] }"
    async with nats_server(tmp_path, config) as url:
        with pytest.raises(PermissionDenied, match=r"publish to '\$JS\.API\.INFO'"):
            await connect(url, name="t", credentials=ADA)


class Lost(ConnectionWatch):
    """Tells when the connection is lost."""

    def __init__(self) -> None:
        super().__init__("t")
        self.event = anyio.Event()

    async def on_disconnected(self) -> None:
        await super().on_disconnected()
        self.event.set()


async def test_a_client_reconnects_without_limit_and_closes_while_the_server_is_down(tmp_path: Path) -> None:
    watch = Lost()
    async with nats_server(tmp_path) as url:
        client = await connect(url, name="t", watch=watch)
        assert client.options["max_reconnect_attempts"] == -1
    with anyio.fail_after(PATIENCE_S):
        await watch.event.wait()
        assert client.is_reconnecting
        await client.publish("what.waits", b"to be sent")
        await disconnect(client)
    assert client.is_closed


class BreaksOff:
    """A transport whose connection breaks at the first write."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def drain(self) -> None:
        raise ConnectionResetError("Connection lost")


async def test_a_client_closes_if_the_connection_breaks_during_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leave_it() -> None: ...

    async with nats_server(tmp_path) as url:
        client: Any = await connect(url, name="t")
        transport, client._transport = client._transport, BreaksOff(client._transport)
        monkeypatch.setattr(client, "_flush_pending", leave_it)
        await client.publish("what.waits", b"to be sent")
        await abandon(client)
        assert client.is_closed
        assert transport._io_writer.is_closing()


def test_urls_are_shown_without_secrets() -> None:
    assert without_secrets("nats://u:p@a:1, tls://tok@b:2,c:3") == "nats://a:1,tls://b:2,c:3"
    assert without_secrets("u:p@a:1") == "a:1"
    assert with_placeholders("nats://u:p@a:1, tls://tok@b:2,c:3") == "nats://USER:PASSWORD@a:1,tls://TOKEN@b:2,c:3"


@asynccontextmanager
async def old_server(version: str) -> AsyncGenerator[str]:
    """Speak as much of the protocol as a connect and its probe need, as a server of this version with JetStream."""

    async def serve(stream: anyio.abc.SocketStream) -> None:
        info = {"server_id": "x", "version": version, "max_payload": 1_048_576, "headers": True}
        async with stream:
            await stream.send(f"INFO {json.dumps(info)}\r\n".encode())
            pending = b""
            inbox_sid = b""
            while True:
                try:
                    pending += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
                *lines, pending = pending.split(b"\r\n")
                for line in lines:
                    words = line.split()
                    match words[:1]:
                        case [b"PING"]:
                            await stream.send(b"PONG\r\n")
                        case [b"SUB"]:
                            inbox_sid = words[-1]
                        case [b"PUB"] if words[1] == b"$JS.API.INFO":
                            await stream.send(b"MSG %s %s 2\r\n{}\r\n" % (words[2], inbox_sid))
                        case _:
                            pass

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield f"nats://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


def certificate(home: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for 127.0.0.1."""
    import datetime as dt
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "callboard test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = home / "cert.pem", home / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    assert ssl.create_default_context(cafile=str(cert_file)).get_ca_certs()
    return cert_file, key_file
