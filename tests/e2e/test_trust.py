"""The certificate authorities of the machine are read once in a process, and again when they change."""

import os
import ssl
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import anyio
import pytest

from callboard.actors.fetch import FetchRules, fetch_text
from callboard.actors.trust import trusted_context
from tests.support.http_server import http_server
from tests.support.places import TESTS

NOBODY = (TESTS / "fixtures" / "tls" / "nobody.pem").read_bytes()


class Text(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"tea")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def test_fetches_read_certificate_authorities_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_bytes(NOBODY)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    read: list[ssl.SSLContext] = []
    create = ssl.create_default_context

    def counted() -> ssl.SSLContext:
        read.append(create())
        return read[-1]

    monkeypatch.setattr(ssl, "create_default_context", counted)
    with http_server(Text) as url:
        rules = FetchRules(allow_hosts={"127.0.0.1"})
        assert [anyio.run(fetch_text, url, rules) for _ in range(3)] == ["tea"] * 3
    assert len(read) == 1
    assert read[0].verify_mode == ssl.CERT_REQUIRED
    assert read[0].check_hostname


def test_changed_certificate_authorities_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "one.pem", tmp_path / "other.pem"
    for file in (one, other):
        file.write_bytes(NOBODY)
    monkeypatch.setenv("SSL_CERT_FILE", str(one))
    first = trusted_context()
    assert trusted_context() is first
    os.utime(one, ns=(0, 0))
    second = trusted_context()
    assert second is not first
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    assert trusted_context() not in (first, second)
    other.unlink()
    assert trusted_context() is trusted_context()
