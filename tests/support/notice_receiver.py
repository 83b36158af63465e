"""A receiver of notices in this process: it keeps the requests, and answers as the test says."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.http_server import http_server


@dataclass(frozen=True)
class Posted:
    """A request: where to, its headers by their names in lower case, and its bytes."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """Keeps requests; answers the next ones with ``statuses``, then with 200; waits while ``holds`` is set."""

    url: str = ""
    posted: list[Posted] = field(default_factory=list[Posted])
    statuses: list[int] = field(default_factory=list[int])
    holds: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)

    def at(self, path: str) -> list[Posted]:
        """Return the requests to a path, in order."""
        return [one for one in self.posted if one.path == path]


@contextmanager
def receiver() -> Generator[Receiver]:
    """Serve for the length of the block."""
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            kept.posted.append(Posted(self.path, {name.lower(): text for name, text in self.headers.items()}, body))
            if kept.holds.is_set():
                kept.goes_on.wait()
            self.send_response(kept.statuses.pop(0) if kept.statuses else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    with http_server(Handler) as kept.url:
        try:
            yield kept
        finally:
            kept.goes_on.set()
