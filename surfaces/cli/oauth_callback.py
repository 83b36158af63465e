"""The address of this machine to which a provider's page redirects the browser, once."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Self

from callboard.service.client.errors import UsageInvalid

WAIT_S = 300.0
"""How long the person may take at the provider's page."""

PATH = "/callback"
PAGE = b"<!doctype html><title>Callboard</title><p>You can close this page."


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if not self.path.startswith(f"{PATH}?"):
            self.send_error(404)
            return
        assert isinstance(self.server, _Server)
        self.server.came_back = self.path
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Security-Policy", "default-src 'none'")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the path contains a code."""


class _Server(HTTPServer):
    came_back = ""
    timed_out = False

    def handle_timeout(self) -> None:
        self.timed_out = True


class Returning:
    """Listens at the address for the length of a block."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{PATH}"

    def wait(self) -> str:
        """Wait for the browser; return the path that it requests.

        :raises UsageInvalid: if the browser does not return within `WAIT_S`
        """
        self._server.timeout = WAIT_S
        while not self._server.came_back:
            self._server.handle_request()
            if self._server.timed_out:
                raise UsageInvalid(f"the browser did not return within {WAIT_S:g} s", "PROVIDER")
        return self._server.came_back
