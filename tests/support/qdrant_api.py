"""A local HTTP server with the part of Qdrant's API that is used here: collections, points, filters, errors.

It refuses invalid requests as Qdrant does. A test may replace answers by a `Reply`.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from operator import mul
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from tests.support.http_server import http_server

KEY = "q-s3cr3t"


@dataclass(frozen=True)
class Reply:
    """An answer. ``body`` is sent as JSON unless it is bytes."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Asked:
    """A request, decoded."""

    method: str
    path: str
    body: Any
    headers: Mapping[str, str]


@dataclass
class Collection:
    """Points by their ids, all with vectors of one size."""

    size: int
    points: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])


@dataclass
class QdrantApi:
    """The collections of the server, its requests, and the replies that replace its answers."""

    url: str = ""
    collections: dict[str, Collection] = field(default_factory=dict[str, Collection])
    asked: list[Asked] = field(default_factory=list[Asked])
    instead: list[Reply] = field(default_factory=list[Reply])
    taken: int = 409
    """The status of a collection that is there already: older servers have another."""
    before: Callable[[Asked], object] = lambda _asked: None
    """What happens before a request is answered."""

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if self.instead:
            return self.instead.pop(0)
        if asked.headers.get("api-key") != KEY:
            return Reply(401, b"Must provide an API key or an Authorization bearer token")
        self.before(asked)
        match asked.method, asked.path.strip("/").split("/"):
            case "PUT", ["collections", name]:
                if name in self.collections:
                    return _error(self.taken, f"Wrong input: Collection `{name}` already exists!")
                assert asked.body["vectors"]["distance"] == "Dot"
                self.collections[name] = Collection(asked.body["vectors"]["size"])
                return _told(True)
            case "DELETE", ["collections", name]:
                return _told(self.collections.pop(name, None) is not None)
            case method, ["collections", name, *rest] if name in self.collections:
                return _within(self.collections[name], method, rest, asked.body)
            case _, ["collections", name, *_]:
                return _error(404, f"Not found: Collection `{name}` doesn't exist!")
            case _:
                return Reply(404, b"")


def _within(collection: Collection, method: str, rest: list[str], body: Any) -> Reply:
    match method, rest:
        case "GET", []:
            vectors = {"size": collection.size, "distance": "Dot"}
            return _told({"status": "green", "config": {"params": {"vectors": vectors}}})
        case "PUT", ["points"]:
            for point in body["points"]:
                if len(point["vector"]) != collection.size:
                    return _wrong_size(collection, point["vector"])
            for point in body["points"]:
                collection.points[str(UUID(point["id"]))] = point
            return _told({"operation_id": 1, "status": "completed"})
        case "POST", ["points"]:
            found = [collection.points[id] for id in body["ids"] if id in collection.points]
            return _told([{"id": one["id"], "payload": _payload(one, body["with_payload"])} for one in reversed(found)])
        case "POST", ["points", "query"]:
            if len(body["query"]) != collection.size:
                return _wrong_size(collection, body["query"])
            fitting = [one for one in collection.points.values() if _fits(one["payload"], body["filter"])]
            scored = [(sum(map(mul, body["query"], one["vector"])), one) for one in fitting]
            best = sorted(scored, key=lambda pair: -pair[0])[: body["limit"]]
            return _told(
                {
                    "points": [
                        {"id": one["id"], "version": 1, "score": at, "payload": _payload(one, body["with_payload"])}
                        for at, one in best
                    ]
                }
            )
        case "POST", ["points", "count"]:
            return _told({"count": sum(_fits(one["payload"], body["filter"]) for one in collection.points.values())})
        case "POST", ["points", "delete"]:
            for id in body["points"]:
                collection.points.pop(id, None)
            return _told({"operation_id": 2, "status": "completed"})
        case _:
            return Reply(404, b"")


def _fits(payload: Mapping[str, Any], filter: Mapping[str, Any]) -> bool:
    must = all(_matches(payload, one) for one in filter.get("must", []))
    return must and not any(_matches(payload, one) for one in filter.get("must_not", []))


def _matches(payload: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """Whether a member is, or is a list that has, a value."""
    there, value = payload[condition["key"]], condition["match"]["value"]
    return value in there if isinstance(there, list) else value == there


def _payload(point: Mapping[str, Any], members: list[str]) -> dict[str, Any]:
    return {name: value for name, value in point["payload"].items() if name in members}


def _told(result: Any) -> Reply:
    return Reply(200, {"result": result, "status": "ok", "time": 0.001})


def _error(status: int, message: str) -> Reply:
    return Reply(status, {"status": {"error": message}, "time": 0.001})


def _wrong_size(collection: Collection, vector: list[float]) -> Reply:
    words = f"Wrong input: Vector dimension error: expected dim: {collection.size}, got {len(vector)}"
    return _error(400, words)


@contextmanager
def qdrant_api() -> Generator[QdrantApi]:
    """Serve on a free port of this machine for the length of the block."""
    api = QdrantApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            path = urlsplit(self.path).path
            assert re.fullmatch(r"/[\w/.-]*", path), path
            reply = api.answer(Asked(self.command, path, json.loads(sent) if sent else None, headers))
            body: bytes = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - as http.server calls them

        def log_message(self, format: str, *args: Any) -> None:
            """Stay silent."""

    with http_server(Handler) as api.url:
        yield api
