"""A mail server of this process: it speaks as much SMTP as a client needs, and keeps what it is given."""

import socketserver
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast


@dataclass
class MailServer:
    """The mails that were sent; ``refuses`` are recipients that it does not take; ``knows_nobody`` refuses each login.

    ``encrypted`` says of each mail whether it came so, ``distrust`` why clients did not want to talk in private.
    """

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list[EmailMessage])
    logins: list[str] = field(default_factory=list[str])
    distrust: list[str] = field(default_factory=list[str])
    encrypted: list[bool] = field(default_factory=list[bool])
    recipients: list[str] = field(default_factory=list[str])
    refuses: set[str] = field(default_factory=set[str])
    knows_nobody: bool = False


@contextmanager
def mail_server(tls: ssl.SSLContext | None = None, *, from_the_start: bool = False) -> Generator[MailServer]:
    """Serve on a free port of this machine for the length of the block; with ``tls`` as soon as the client wants it."""
    kept = MailServer()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                self._talk()
            except ssl.SSLError as error:
                kept.distrust.append(str(error))

        def finish(self) -> None:
            super().finish()
            self.connection.close()

        def _talk(self) -> None:
            if from_the_start:
                self._encrypt()
            self._say("220 here")
            while line := self.rfile.readline().decode().strip():
                verb, _, rest = line.partition(" ")
                match verb.upper():
                    case "EHLO" if tls is not None and not self._is_encrypted():
                        self._say("250-here\r\n250 STARTTLS")
                    case "STARTTLS":
                        self._say("220 go on")
                        self._encrypt()
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

        def _is_encrypted(self) -> bool:
            return isinstance(self.connection, ssl.SSLSocket)

        def _encrypt(self) -> None:
            assert tls is not None
            self.connection = tls.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", 0)

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def _take(self) -> None:
            lines: list[bytes] = []
            while (line := self.rfile.readline()) != b".\r\n":
                lines.append(line.removeprefix(b"."))
            message: Any = message_from_bytes(b"".join(lines), policy=policy.default)
            kept.encrypted.append(self._is_encrypted())
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
