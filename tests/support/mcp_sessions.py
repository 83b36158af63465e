"""An MCP server over HTTP that has sessions, as in protocol 2025-06-18, and can forget its session."""

import json
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.http_server import http_server

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("session", "forget", "endless")]


class Forgetful(BaseHTTPRequestHandler):
    """Tool ``session`` returns the session of the call; ``forget`` ends it before it has answered; the answer of
    ``endless`` has no end."""

    protocol_version = "HTTP/1.1"
    begun = 0
    """How many sessions there have been; the newest is the only one that is known, if any is."""
    forgotten = False
    refuses = 0
    """The status with which it refuses everything, if it does."""
    unknown: tuple[int, bytes] = 404, b"no such session"
    """The status and the text with which it refuses a session that it does not know."""
    forgets = ""
    """The method at which it forgets its session, once."""
    called = 0
    """How many calls of tools it has executed."""

    def do_POST(self) -> None:
        server, session = type(self), self.headers["mcp-session-id"]
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if server.refuses:
            return self._answer(server.refuses, b"who are you?")
        method, tool = asked.get("method"), asked.get("params", {}).get("name")
        if tool == "forget":
            server.forgotten = True
        if method == server.forgets:
            server.forgotten, server.forgets = True, ""
        if tool == "endless":
            return self._talk()
        if session and (server.forgotten or session != str(server.begun)):
            return self._answer(*server.unknown, "application/json" if server.unknown[1][:1] == b"{" else "text/plain")
        if "id" not in asked:
            return self._answer(202, b"")
        match method:
            case "initialize":
                server.begun, server.forgotten = server.begun + 1, False
                info = {
                    "serverInfo": {"name": "forgetful", "version": "1"},
                    "capabilities": {"tools": {}, "prompts": {}},
                }
                result: dict[str, Any] = {"protocolVersion": "2025-06-18", **info}
            case "tools/list":
                result = {"tools": TOOLS}
            case "prompts/get":
                result = {"messages": [{"role": "user", "content": {"type": "text", "text": f"session {session}"}}]}
            case "tools/call":
                server.called += 1
                result = {"content": [{"type": "text", "text": session}]}
            case _:
                error = {"code": -32601, "message": "unknown"}
                return self._say({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        return self._say({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    def do_GET(self) -> None:
        self._answer(405, b"")

    def do_DELETE(self) -> None:
        self._answer(200, b"")

    def _talk(self) -> None:
        """Answer without end, until the client disconnects."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(b" " * 65536)

    def _say(self, message: Any) -> None:
        self._answer(200, json.dumps(message).encode(), "application/json")

    def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("mcp-session-id", str(type(self).begun))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def forgetful_server(**attributes: Any) -> Generator[tuple[type[Forgetful], str]]:
    """Serve a new subclass, so that no test sees the state of another; yields it and the URL."""
    server = type("Server", (Forgetful,), attributes)
    with http_server(server) as url:
        yield server, url
