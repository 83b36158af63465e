"""Fixtures that all tests share."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """Keep the log out of the way of test output; what a test wants to see of it, it captures."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()
