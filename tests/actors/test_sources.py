"""Sources: files of the start message, files below a folder, URLs of a real HTTP server, and the guard around them."""

import datetime as dt
import hashlib
import ipaddress
import os
import re
import socket
import ssl
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from callboard.actors.fetch import REDIRECTS_MAX, FetchRules
from callboard.actors.lending import addresses
from callboard.actors.lending.addresses import is_public
from callboard.actors.sources import SourceFailed, SourceRules, resolve
from callboard.bus.effects import Failure


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def failure(request: Any, base_dir: Path | None = None, rules: SourceRules | None = None) -> Failure:
    with pytest.raises(SourceFailed) as caught:
        await resolve(request, {}, base_dir, rules)
    return caught.value.failure


# -- forms --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "content", "origin"),
    [
        ("Be kind. ", "Be kind.", "Be kind. "),
        ({"inline": " as it is "}, " as it is ", {"inline": " as it is "}),
        ({"inline": "./not/a/path"}, "./not/a/path", {"inline": "./not/a/path"}),
        ({"kind": "inline", "value": "x"}, "x", "x"),
    ],
)
async def test_inline_text(request_: Any, content: str, origin: Any) -> None:
    assert await resolve(request_, {}, None) == {
        "content": content,
        "kind": "inline",
        "origin": origin,
        "resolver": "inline",
        "hash": hashed(content),
    }


@pytest.mark.parametrize(
    "request_",
    [7, None, [], {}, {"file": 1}, {"file": "a", "url": "b"}, {"inline": "a", "more": 1}, "  ", {"file": " "}],
)
async def test_other_shapes_are_refused(request_: Any) -> None:
    found = await failure(request_)
    assert found.code == "SOURCE_INVALID_SHAPE"
    assert "expected" in found.message


async def test_an_unknown_type_of_url_is_refused() -> None:
    found = await failure({"url": "https://example.org", "type": "git"})
    assert (found.code, "'git'" in found.message) == ("SOURCE_INVALID_TYPE", True)


# -- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_", ["./rules/a.md", {"file": "rules/a.md"}, {"kind": "file", "value": "rules/./a.md"}]
)
async def test_a_file_of_the_start_message_comes_first(tmp_path: Path, request_: Any) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.md").write_text("on disk")
    found = await resolve(request_, {"./rules/a.md": "\ufeffbrought"}, tmp_path)
    assert (found["content"], found["sourcePath"], found["resolver"]) == ("brought", "/rules/a.md", "file")


async def test_a_file_below_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"\xef\xbb\xbfGr\xc3\xbc\xc3\x9fe")
    assert await resolve("./a.md", {"b.md": "other"}, tmp_path) == {
        "content": "Grüße",
        "kind": "file",
        "origin": "./a.md",
        "resolver": "file",
        "hash": hashed("Grüße"),
        "sourcePath": str(path.resolve()),
    }
    assert (await resolve(str(path), {}, tmp_path))["content"] == "Grüße"


async def test_a_missing_file_says_what_there_was(tmp_path: Path) -> None:
    assert (await failure("./a.md", tmp_path)).code == "SOURCE_FILE_NOT_FOUND"
    with pytest.raises(SourceFailed) as caught:
        await resolve("./a.md", {"b.md": ""}, None)
    assert caught.value.failure.code == "SOURCE_FILE_NOT_FOUND"
    assert "the start message brought b.md" in caught.value.failure.message


@pytest.mark.parametrize("value", ["./rules", "rules/", "."])
async def test_a_folder_is_not_a_missing_file(tmp_path: Path, value: str) -> None:
    (tmp_path / "rules").mkdir()
    for files, folder in (({"rules/b.md": "B", "./rules/a.md": "A"}, None), ({}, tmp_path)):
        with pytest.raises(SourceFailed) as caught:
            await resolve({"kind": "file", "value": value}, files, folder)
        assert caught.value.failure.code == "SOURCE_FILE_READ_FAILED"
        assert "is a folder; a source is one of its files" in caught.value.failure.message


async def test_the_folder_may_not_be_left(tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.write_text("secret")
    base = tmp_path / "base"
    base.mkdir()
    (base / "link").symlink_to(outside)
    for way in ("../secret", "./link", str(outside), "/etc/hostname"):
        assert (await failure(way, base)).code == "SOURCE_FILE_OUTSIDE_ROOT", way


async def test_a_source_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"Gr\xfc\xdfe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    for name in ("latin", "folder", "pipe", "loop", "nul\0l"):
        assert (await failure({"file": name}, tmp_path)).code == "SOURCE_FILE_READ_FAILED", name


async def test_the_size_of_a_file_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 101)
    assert (await failure("./a", tmp_path, SourceRules(bytes_max=100))).code == "SOURCE_TOO_LARGE"
    assert len((await resolve("./a", {}, tmp_path, SourceRules(bytes_max=101)))["content"]) == 101


# -- URLs ---------------------------------------------------------------------------------------------------------


class Site(ThreadingHTTPServer):
    """A server that remembers its requests: path, Host and Authorization."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.seen: list[tuple[str, str | None, str | None]] = []
        self.port: int = self.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"
        self.leave = threading.Event()

    def times(self, path: str) -> int:
        return [seen[0] for seen in self.seen].count(path)


class Page(BaseHTTPRequestHandler):
    @property
    def site(self) -> Site:
        assert isinstance(self.server, Site)
        return self.server

    def do_GET(self) -> None:
        self.site.seen.append((self.path, self.headers["Host"], self.headers["Authorization"]))
        name, _, rest = self.path.strip("/").partition("/")
        match name:
            case "text":
                self.answer(200, "\ufeffHello".encode())
            case "latin":
                self.answer(200, b"Gr\xfc\xdfe", ("Content-Type", "text/plain; charset=latin-1"))
            case "status":
                self.answer(int(rest))
            case "flaky":
                self.answer(200 if self.site.times(self.path) == int(rest) else 503, b"at last")
            case "to":
                self.answer(302, b"", ("Location", rest.replace("PORT", str(self.site.port))))
            case "hops":
                self.answer(302, b"", ("Location", f"/hops/{int(rest) - 1}" if int(rest) > 1 else "/text"))
            case "slow":
                self.site.leave.wait(60)
            case _:
                self.close_connection = True

    def answer(self, status: int, body: bytes = b"", *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for header, value in headers:
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def site() -> Generator[Site]:
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.leave.set()
        server.shutdown()
        thread.join()


def allowing(site: Site, **more: Any) -> SourceRules:
    return SourceRules(fetch=FetchRules(allow_hosts={site.host, f"localhost:{site.port}"}, **more))


async def test_a_url_is_fetched(site: Site) -> None:
    url = f"{site.url}/text"
    found = await resolve({"url": url, "type": "fetch"}, {}, None, allowing(site))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("fetchedAt"))
    assert found == {
        "content": "Hello",
        "kind": "url",
        "origin": {"url": url, "type": "fetch"},
        "resolver": "fetch",
        "hash": hashed("Hello"),
    }
    assert site.seen == [("/text", site.host, None)]
    assert (await resolve(f"{site.url}/latin", {}, None, allowing(site)))["content"] == "Grüße"


async def test_offline_refuses_urls_only(site: Site) -> None:
    found = await failure(f"{site.url}/text", rules=SourceRules(offline=True))
    assert (found.code, site.seen) == ("SOURCE_OFFLINE_REQUIRES_FETCH", [])
    assert (await resolve("text", {}, None, SourceRules(offline=True)))["content"] == "text"


@pytest.mark.parametrize(
    ("status", "code", "tries"),
    [
        (401, "SOURCE_URL_AUTH_REQUIRED", 1),
        (403, "SOURCE_URL_AUTH_REQUIRED", 1),
        (404, "SOURCE_URL_HTTP_ERROR", 1),
        (304, "SOURCE_URL_HTTP_ERROR", 1),
        (500, "SOURCE_URL_HTTP_ERROR", 3),
    ],
)
async def test_answers_that_are_none(site: Site, status: int, code: str, tries: int) -> None:
    found = await failure(f"{site.url}/status/{status}", rules=allowing(site))
    assert (found.code, str(status) in found.message, len(site.seen)) == (code, True, tries)
    assert found.retryable is (status == 500)


async def test_a_second_and_third_try_may_succeed(site: Site) -> None:
    assert (await resolve(f"{site.url}/flaky/3", {}, None, allowing(site)))["content"] == "at last"
    assert len(site.seen) == 3


async def test_a_broken_connection_is_tried_three_times(site: Site) -> None:
    found = await failure(f"{site.url}/hangup", rules=allowing(site))
    assert (found.code, found.retryable, len(site.seen)) == ("SOURCE_URL_UNREACHABLE", True, 3)


async def test_a_server_that_does_not_answer_is_given_up(site: Site) -> None:
    found = await failure(f"{site.url}/slow", rules=allowing(site, timeout_s=0.3))
    assert (found.code, "within 0.3 s" in found.message) == ("SOURCE_URL_UNREACHABLE", True)


async def test_a_name_that_does_not_resolve_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nowhere(*_arguments: Any, **_more: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(addresses.anyio, "getaddrinfo", nowhere)
    assert (await failure("https://nowhere.invalid/x")).code == "SOURCE_URL_UNREACHABLE"


async def test_the_size_of_an_answer_is_bounded(site: Site) -> None:
    assert (await failure(f"{site.url}/text", rules=allowing(site, bytes_max=7))).code == "SOURCE_TOO_LARGE"
    assert (await resolve(f"{site.url}/text", {}, None, allowing(site, bytes_max=8)))["content"] == "Hello"


async def test_redirects_are_followed_to_a_limit(site: Site) -> None:
    assert (await resolve(f"{site.url}/hops/{REDIRECTS_MAX}", {}, None, allowing(site)))["content"] == "Hello"
    found = await failure(f"{site.url}/hops/{REDIRECTS_MAX + 1}", rules=allowing(site))
    assert (found.code, "more than 5 times" in found.message) == ("SOURCE_URL_HTTP_ERROR", True)


async def test_a_token_goes_only_to_its_host(site: Site) -> None:
    rules = allowing(site, tokens={site.host: "t0ken"})
    await resolve(f"{site.url}/to/http://localhost:PORT/text", {}, None, rules)
    assert [(host, token) for _path, host, token in site.seen] == [
        (site.host, "Bearer t0ken"),
        (f"localhost:{site.port}", None),
    ]
    assert "t0ken" not in repr(rules)


# -- the guard ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "[fe80::1]",
        "[fd00::1]",
        "224.0.0.1",
    ],
)
async def test_addresses_that_are_not_public_are_refused_without_a_connection(host: str, site: Site) -> None:
    found = await failure(f"http://{host}:{site.port}/text")
    assert (found.code, site.seen) == ("SOURCE_URL_BLOCKED", [])


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::5db8:d822", True),
        ("2002:7f00:1::", False),
        ("ff02::1", False),
        ("240.0.0.1", False),
    ],
)
def test_addresses_in_disguise(address: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is public


@pytest.mark.parametrize(
    "place", ["http://127.1:PORT/text", "http://169.254.169.254/latest", "ftp://localhost:PORT/x", "file:///etc/passwd"]
)
async def test_a_redirect_is_checked_like_the_url_itself(site: Site, place: str) -> None:
    found = await failure(f"{site.url}/to/{place}", rules=allowing(site))
    assert (found.code, site.times("/text")) == ("SOURCE_URL_BLOCKED", 0)


async def test_one_address_that_is_not_public_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(socket.AF_INET, 1, 6, "", (ip, 80)) for ip in ("93.184.216.34", "127.0.0.1")]

    async def both(*_arguments: Any, **_more: Any) -> Any:
        return answers

    monkeypatch.setattr(addresses.anyio, "getaddrinfo", both)
    found = await failure("http://two.example/x")
    assert (found.code, "127.0.0.1" in found.message) == ("SOURCE_URL_BLOCKED", True)


async def test_addresses_are_tried_in_turn(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        (socket.AF_INET, 1, 6, "", (ip, site.port)) for ip in ("127.0.0.2", "127.0.0.1")
    ]  # no server listens at .2

    async def both(*_arguments: Any, **_more: Any) -> Any:
        return answers

    monkeypatch.setattr(addresses.anyio, "getaddrinfo", both)
    rules = SourceRules(fetch=FetchRules(allow_hosts={"name.invalid"}))
    assert (await resolve(f"http://name.invalid:{site.port}/text", {}, None, rules))["content"] == "Hello"


async def test_the_connection_goes_to_the_address_that_was_checked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    real = anyio.getaddrinfo

    async def once(host: Any, port: Any, **more: Any) -> Any:
        asked.append(host)
        return await real("127.0.0.1", port, **more)

    monkeypatch.setattr(addresses.anyio, "getaddrinfo", once)
    rules = SourceRules(fetch=FetchRules(allow_hosts={"name.invalid"}))
    found = await resolve(f"http://name.invalid:{site.port}/text", {}, None, rules)
    assert found["content"] == "Hello"
    # no resolver but ours knows the name, and it was asked once
    assert asked.count("name.invalid") == 1
    assert site.seen == [("/text", f"name.invalid:{site.port}", None)]


async def test_a_certificate_is_checked_against_the_name(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate = self_signed("name.invalid", tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    site.socket = context.wrap_socket(site.socket, server_side=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    real = anyio.getaddrinfo

    async def here(_host: Any, port: Any, **more: Any) -> Any:
        return await real("127.0.0.1", port, **more)

    monkeypatch.setattr(addresses.anyio, "getaddrinfo", here)
    rules = SourceRules(fetch=FetchRules(allow_hosts={"name.invalid", "other.invalid"}))
    assert (await resolve(f"https://name.invalid:{site.port}/text", {}, None, rules))["content"] == "Hello"
    found = await failure(f"https://other.invalid:{site.port}/text", rules=rules)
    assert (found.code, "CERTIFICATE_VERIFY_FAILED" in found.message) == ("SOURCE_URL_UNREACHABLE", True)
    assert [host for _path, host, _token in site.seen] == [f"name.invalid:{site.port}"]


def self_signed(name: str, folder: Path) -> Path:
    """Write a certificate for a name, with its key, that is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "certificate.pem"
    path.write_bytes(secret + certificate.public_bytes(pem))
    return path
