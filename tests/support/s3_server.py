"""An S3 server in a thread: objects in memory, with the requests that the library obstore sends, without signatures.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations.html: PutObject, GetObject with a range, HeadObject,
DeleteObject, DeleteObjects and ListObjectsV2, whose pages are small.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import time
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

BUCKET = "segments"

ENV = {"AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
"""The environment of clients."""

PAGE = 2
"""Objects in one page of a list."""


class Stored(NamedTuple):
    data: bytes
    at: float

    @property
    def tag(self) -> str:
        return f'"{md5(self.data).hexdigest()}"'


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, Stored] = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: object) -> None:
        pass

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").removeprefix("/")

    @property
    def _query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_PUT(self) -> None:
        stored = self.server.objects[self._key] = Stored(self._body(), time())
        self._answer(200, headers={"ETag": stored.tag})

    def do_DELETE(self) -> None:
        self.server.objects.pop(self._key, None)
        self._answer(204)

    def do_POST(self) -> None:
        """DeleteObjects."""
        keys = [element.text or "" for element in ET.fromstring(self._body()).iterfind(".//{*}Key")]
        for key in keys:
            self.server.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if "list-type" in self._query:
            return self._list()
        stored = self.server.objects.get(self._key)
        if stored is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        size = len(stored.data)
        headers = {"ETag": stored.tag, "Last-Modified": formatdate(stored.at, usegmt=True)}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            return self._answer(200, stored.data, headers)
        first, last = wanted.groups()
        start = int(first) if first else max(0, size - int(last))
        end = min(int(last), size - 1) if first and last else size - 1
        if start >= size:
            return self._answer(416, b"<Error><Code>InvalidRange</Code></Error>")
        headers["Content-Range"] = f"bytes {start}-{end}/{size}"
        return self._answer(206, stored.data[start : end + 1], headers)

    def _list(self) -> None:
        prefix, after = self._query.get("prefix", ""), self._query.get("continuation-token", "")
        keys = sorted(key for key in self.server.objects if key.startswith(prefix) and key > after)
        page = [
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(stored.tag)}</ETag><Size>{len(stored.data)}</Size></Contents>"
            for key, stored in ((key, self.server.objects[key]) for key in keys[:PAGE])
        ]
        more = f"<NextContinuationToken>{escape(keys[PAGE - 1])}</NextContinuationToken>" if keys[PAGE:] else ""
        truncated = "true" if more else "false"
        body = f"<IsTruncated>{truncated}</IsTruncated>{more}{''.join(page)}"
        self._answer(200, f"<ListBucketResult><Name>{BUCKET}</Name>{body}</ListBucketResult>".encode())

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def s3_server() -> Generator[str]:
    """Run a server with a bucket; yield its address."""
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="S3 server")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
