"""Servers that speak the APIs of services, for the tests of nodes and of skills."""

from collections.abc import Iterator

import pytest

from callboard.actors.services import firecrawl
from callboard.actors.skills import service
from tests.support.mail_server import MailServer, mail_server
from tests.support.service_api import ServiceApi, service_api


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceApi]:
    """Serve the APIs; the client asks again after a millisecond, and through no proxy of this machine."""
    monkeypatch.setattr(service, "PAUSE_S", 0.001)
    monkeypatch.setattr(firecrawl, "POLL_S", 0.001)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with service_api() as api:
        yield api


@pytest.fixture
def post() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server
