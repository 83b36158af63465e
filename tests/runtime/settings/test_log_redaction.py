"""The log contains no secrets, at any level and from any library."""

import io
import logging
from collections.abc import Iterator

import pytest
import structlog

from callboard.runtime.settings import logs
from callboard.runtime.settings.log_redaction import HIDDEN, LogRedaction

LEAKS = {
    "nats://s3cr3tt0ken@127.0.0.1:4222": "s3cr3tt0ken",
    "nats://ada:pass-word@host:4222": "pass-word",
    'HTTP Request: POST https://api.telegram.org/bot123456:AAE-x_y/sendMessage "HTTP/1.1 200"': "AAE-x_y",
    "POST https://hooks.slack.com/services/T0/B0/xyzzyxyzzy": "xyzzyxyzzy",
    "POST https://discord.com/api/webhooks/99/plughplugh": "plughplugh",
    "headers=[(b'Authorization', b'Bearer abcdefgh')]": "abcdefgh",
    "{'authorization': 'Basic YWRhOnB3'}": "YWRhOnB3",
}


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("debug", "console", stream)
    yield stream
    logs.unconfigure()


@pytest.mark.parametrize("line", LEAKS)
def test_secrets_in_known_places_are_hidden(stream: io.StringIO, line: str) -> None:
    logging.getLogger("httpx").info(line)
    logging.getLogger("httpcore").debug("request.started %s", line)
    structlog.get_logger("ours").warning("said", text=line)
    try:
        raise ValueError(line)
    except ValueError:
        structlog.get_logger("ours").exception("failed")
    written = stream.getvalue()
    assert written.count(HIDDEN) >= 4
    assert LEAKS[line] not in written


def test_configured_secrets_are_hidden_and_ordinary_words_are_not() -> None:
    redaction = LogRedaction()
    redaction.keep_out(["configured-secret", "short"], {"GITHUB_TOKEN": "ghp_0123456789", "HOME": "/home/ada-lovelace"})
    line = "configured-secret ghp_0123456789 short /home/ada-lovelace basic information of the bearer"
    assert redaction.line(line) == f"{HIDDEN} {HIDDEN} short /home/ada-lovelace basic information of the bearer"
