"""A mail server of this process: it speaks as much SMTP as a client needs, and keeps what it is given."""

import socketserver
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast


@dataclass
class MailServer:
    """What was sent; ``refuses`` are recipients that it does not take, and none may log in if it ``knows_nobody``."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list[EmailMessage])
    logins: list[str] = field(default_factory=list[str])
    recipients: list[str] = field(default_factory=list[str])
    refuses: set[str] = field(default_factory=set[str])
    knows_nobody: bool = False


@contextmanager
def mail_server() -> Generator[MailServer]:
    """Serve on a free port of this machine for the length of the block."""
    kept = MailServer()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 here")
            while line := self.rfile.readline().decode().strip():
                verb, _, rest = line.partition(" ")
                match verb.upper():
                    case "EHLO":
                        self._say("250-here\r\n250 AUTH PLAIN")
                    case "AUTH" if kept.knows_nobody:
                        self._say("535 5.7.8 who are you")
                    case "AUTH":
                        kept.logins.append(rest)
                        self._say("235 welcome")
                    case "RCPT" if any(name in rest for name in kept.refuses):
                        self._say("550 nobody of this name")
                    case "RCPT":
                        kept.recipients.append(rest.partition("<")[2].partition(">")[0])
                        self._say("250 fine")
                    case "DATA":
                        self._say("354 go on")
                        self._take()
                        self._say("250 kept")
                    case "QUIT":
                        self._say("221 bye")
                        return
                    case _:
                        self._say("250 fine")

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def _take(self) -> None:
            lines: list[bytes] = []
            while (line := self.rfile.readline()) != b".\r\n":
                lines.append(line.removeprefix(b"."))
            message: Any = message_from_bytes(b"".join(lines), policy=policy.default)
            kept.mails.append(cast(EmailMessage, message))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        kept.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()
