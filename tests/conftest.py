"""Fixtures that all tests share."""

import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from callboard.actors.tools import python as python_tools
from callboard.runtime.worker.collector import OLDER_ROUNDS, YOUNG_OBJECTS
from callboard.service.worker.services import Services
from callboard.testing import services as testing
from callboard.testing.scenario import Scenario
from tests.support import forks
from tests.support.places import TESTS
from tests.support.sweeps import EVERY, select_deaths

pytest_plugins = ["tests.support.lane_server", "tests.support.lanes", "tests.support.seconds", "tests.support.skips"]

# What is imported and collected for thousands of tests stays to the end: the garbage collector need not look at it.
gc.disable()

# When a worker in this process has ended, the collector looks at all of that again: then as seldom as with a worker.
gc.set_threshold(YOUNG_OBJECTS, *OLDER_ROUNDS)

# Hundreds of processes and their tools shall not compile the deployment anew, whatever whoever runs them has set.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell that starts the tests in the background has them ignore Ctrl-C, and so do all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where a test is about several workers, or about HTTP beside them, it says so.
os.environ.setdefault("CALLBOARD_WORKERS", "1")
os.environ.setdefault("CALLBOARD_HTTP_LISTEN", "off")

# Tests have servers of their own, whatever whoever runs them works with.
for name in ("NATS_URL", "NATS_CONTEXT"):
    os.environ.pop(name, None)

# Hundreds of processes would each search all installed packages for plugins of pydantic.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# Nobody is asked who would have to prove who they are to one of the authorities of this machine; and to read those of
# all the world takes longer than most tests, which make clients of their own.
os.environ["SSL_CERT_FILE"] = str(TESTS / "fixtures" / "tls" / "nobody.pem")

# How long an example takes depends on the machine. `make sweep` has more examples, and all runs together have many.
settings.register_profile(
    "tests",
    max_examples=200 if EVERY else 20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("tests")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Of the widest scope, for fixtures that last as long as a module."""
    return "asyncio"


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """Keep the log out of the way of test output; what a test wants to see of it, it captures.

    Nothing is rendered: a traceback with its variables takes a second.
    """
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True, scope="session")
def forked_hosts() -> Iterator[None]:
    """Start the processes for Python tools as forks of one that has imported everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_tools, "HOST", tuple(forks.python_host()))
        yield


@pytest.fixture(autouse=True)
def always_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """``CALLBOARD_ALWAYS_REPLAY=true make test``: every run of every test is replayed after each of its outcomes."""
    if os.environ.get("CALLBOARD_ALWAYS_REPLAY") == "true":
        for services in (Services, testing.ScriptedServices):
            monkeypatch.setattr(
                services, "always_replay", property(lambda _: True, lambda _self, _value: None), raising=False
            )


@pytest.fixture(autouse=True, scope="session")
def selected_crashes() -> Iterator[None]:
    """Let `Scenario.crash_everywhere` perform the deaths that `tests.support.sweeps` selects, in all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scenario, "_crash_points", staticmethod(select_deaths))
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Lanes have one process that their programs fork from. It imports while the tests are collected."""
    if config.option.lanes and not config.option.collectonly:
        forks.share()


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.lanes and any(item.get_closest_marker("hypothesis") for item in session.items):
        # Hypothesis looks at all characters once, and keeps what it found beside the tests.
        st.text().validate()
    gc.freeze()
    gc.enable()
