"""Values that differ between machines: a workflow is refused them or gets those of its run; steps may read them."""

import asyncio
import ctypes
import datetime as dt
import getpass
import locale
import os
import platform
import random
import select
import signal
import socket
import sqlite3
import sys
import sysconfig
import tempfile
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from os import getpid
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from callboard import log, now, step, unsafe, workflow
from callboard.languages.python import guard
from callboard.languages.python.machine import PURE, SharedRandom
from callboard.languages.python.replacing import adopt
from callboard.testing import Scenario
from tests.support.scenarios import find_failure

guard.install()

POOL = ThreadPoolExecutor(1)
CONNECTION = socket.socketpair()

READS: dict[str, Callable[[], Any]] = {
    "os.environ[]": lambda: os.environ["PATH"],
    "os.environ.get": lambda: os.environ.get("PATH"),
    "os.getenv": lambda: os.getenv("PATH"),
    "in os.environ": lambda: "PATH" in os.environ,
    "dict(os.environ)": lambda: dict(os.environ),
    "os.environ[] =": lambda: os.environ.update(X="1"),
    "os.path.expandvars": lambda: os.path.expandvars("$HOME"),
    "os.getpid": os.getpid,
    "getpid by name": lambda: getpid(),
    "os.getppid": lambda: os.getppid(),
    "os.getcwd": lambda: os.getcwd(),
    "os.path.abspath": lambda: os.path.abspath("x"),
    "os.cpu_count": lambda: os.cpu_count(),
    "os.uname": lambda: os.uname(),
    "os.times": lambda: os.times(),
    "os.getloadavg": lambda: os.getloadavg(),
    "os.getlogin": lambda: os.getlogin(),
    "os.stat": lambda: os.stat("/"),
    "os.path.exists": lambda: os.path.exists("/"),
    "os.path.getmtime": lambda: os.path.getmtime("/"),
    "Path.exists": lambda: Path("/").exists(),
    "Path.stat": lambda: Path("/").stat(),
    "Path.cwd": lambda: Path.cwd(),
    "Path.home": lambda: Path.home(),
    "os.access": lambda: os.access("/", os.R_OK),
    "os.readlink": lambda: os.readlink("/proc/self"),
    "os.read": lambda: os.read(0, 1),
    "os.pipe": lambda: os.pipe(),
    "os.kill": lambda: os.kill(1, 0),
    "os._exit": lambda: os._exit(3),
    "os.umask": lambda: os.umask(0),
    "os.unlink": lambda: os.unlink("/nowhere"),
    "os.chmod": lambda: os.chmod("/nowhere", 0),
    "tempfile.gettempdir": lambda: tempfile.gettempdir(),
    "tempfile.mkdtemp": lambda: tempfile.mkdtemp(),
    "socket.gethostname": lambda: socket.gethostname(),
    "socket.getfqdn": lambda: socket.getfqdn(),
    "socket.socket": lambda: socket.socket(),
    "socket.if_nameindex": lambda: socket.if_nameindex(),
    "select.select": lambda: select.select([], [], [], 0),
    "signal.getsignal": lambda: signal.getsignal(signal.SIGINT),
    "signal.signal": lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL),
    "platform.node": lambda: platform.node(),
    "platform.platform": lambda: platform.platform(),
    "getpass.getuser": lambda: getpass.getuser(),
    "locale.getlocale": lambda: locale.getlocale(),
    "locale.currency": lambda: locale.currency(1),
    "sys.stdin": lambda: sys.stdin.readline(),
    "sys.argv": lambda: list(sys.argv),
    "input": lambda: input(),
    "sqlite3.connect": lambda: sqlite3.connect(":memory:"),
    "ctypes": lambda: ctypes.CDLL(None),
    "uuid.getnode": lambda: uuid.getnode(),
    "threading.get_native_id": lambda: threading.get_native_id(),
    "threading.active_count": lambda: threading.active_count(),
    "a pool": lambda: POOL.submit(int),
    "time.tzset": lambda: time.tzset(),
}


@pytest.fixture(params=["America/New_York", "Asia/Tokyo"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A machine in another time zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@step
async def read_in_step(name: str) -> bool:
    READS[name]()
    return True


@workflow
async def reading(name: str) -> None:
    READS[name]()


@workflow
async def reading_in_step(name: str) -> bool:
    return await read_in_step(name)


@pytest.mark.parametrize("name", READS)
def test_a_workflow_that_reads_its_machine_fails(name: str, scenario: Scenario) -> None:
    scenario.start(reading, input={"name": name})
    error = find_failure(scenario)
    assert error.code == "python.io_in_workflow", error
    assert "test_machine.py:" in error.message
    assert "@step" in error.message


@pytest.mark.parametrize(
    "name", ["os.environ[]", "os.getpid", "Path.exists", "sys.argv", "socket.gethostname", "a pool"]
)
def test_steps_may_read_the_machine(name: str, scenario: Scenario) -> None:
    scenario.start(reading_in_step, input={"name": name})
    assert scenario.result.output is True, scenario.result.error
    READS[name]()


@workflow
async def permitted() -> dict[str, Any]:
    with unsafe():
        pid = os.getpid()
    log.warning("a line that logging dates, with the process id")
    pure = [os.path.join("a", "b"), os.fspath(Path("x")), str(Path("a") / "b"), platform.python_implementation()]
    parsed = datetime.strptime("2026-01-02", "%Y-%m-%d")
    zone = now().astimezone(ZoneInfo("Pacific/Chatham")).tzname()
    return {"pid": pid > 0, "pure": len(pure), "parsed": str(parsed), "zone": zone, "id": id(pure) == id(pure)}


def test_a_workflow_may_log_and_compute_on_values(scenario: Scenario) -> None:
    scenario.start(permitted)
    assert scenario.result.status == "completed", scenario.result.error
    assert scenario.result.output["parsed"] == "2026-01-02 00:00:00"


def make_library() -> types.ModuleType:
    """Return a module that seems to be installed."""
    module = types.ModuleType("installed_library")
    code = "import os, socket\ndef pid(): return os.getpid()\ndef variable(): return os.environ.get('PATH')\n"
    code += "def host(): return socket.gethostname()\n"
    exec(compile(code, f"{sysconfig.get_path('purelib')}/installed_library.py", "exec"), vars(module))
    return module


LIBRARY = make_library()


@workflow
async def calling(name: str) -> bool:
    return bool(getattr(LIBRARY, name)())


@pytest.mark.parametrize(("name", "status"), [("pid", "completed"), ("variable", "completed"), ("host", "failed")])
def test_libraries_may_read_the_process_but_not_do_io(name: str, status: str, scenario: Scenario) -> None:
    scenario.start(calling, input={"name": name})
    assert scenario.result.status == status, scenario.result.error


def test_functions_that_are_not_known_to_be_pure_are_refused() -> None:
    """A later version of Python may add functions."""
    for name in ("os", "signal", "socket"):
        module = sys.modules[name]
        for function in PURE[name]:
            assert not hasattr(getattr(module, function, None), "__wrapped__") or function == "urandom", function
    wrapped = [name for name, value in vars(os).items() if hasattr(value, "__wrapped__")]
    assert len(wrapped) > 150


# -- time and its zone ------------------------------------------------------------------------------------------------

NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)

IN_UTC: dict[str, Callable[[], Any]] = {
    "time.strftime": lambda: time.strftime("%Y-%m-%d %H:%M") == now().strftime("%Y-%m-%d %H:%M"),
    "time.strftime %Z": lambda: time.strftime("%Z %z") == "UTC +0000",
    "time.strftime of a tuple": lambda: time.strftime("%H %Z", (2026, 1, 2, 12, 0, 0, 4, 2, 0)) == "12 UTC",
    "time.asctime": lambda: time.asctime() == now().strftime("%a %b %e %H:%M:%S %Y"),
    "time.ctime": lambda: time.ctime() == time.asctime() and time.ctime(0) == "Thu Jan  1 00:00:00 1970",
    "time.localtime": lambda: time.localtime(0).tm_hour == 0 and time.localtime() == time.gmtime(),
    "time.mktime": lambda: time.mktime(time.gmtime(86_400)) == 86_400,
    "time.tzname": lambda: (time.tzname, time.timezone, time.altzone, time.daylight) == (("UTC", "UTC"), 0, 0, 0),
    "time.clock_gettime": lambda: time.clock_gettime(time.CLOCK_REALTIME) == now().timestamp(),
    "time.clock_gettime_ns": lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC) == time.monotonic_ns(),
    "datetime.astimezone": lambda: NOON.astimezone().utcoffset() == dt.timedelta(),
    "datetime.astimezone, naive": lambda: datetime(2026, 1, 2, 12).astimezone(dt.UTC) == NOON,
    "datetime.timestamp, naive": lambda: datetime(2026, 1, 2, 12).timestamp() == NOON.timestamp(),
    "datetime.fromtimestamp": lambda: datetime.fromtimestamp(NOON.timestamp()) == datetime(2026, 1, 2, 12),
    "date.fromtimestamp": lambda: dt.date.fromtimestamp(86_400 - 1) == dt.date(1970, 1, 1),
    "another zone": lambda: NOON.astimezone(ZoneInfo("Asia/Tokyo")).hour == 21,
    "datetime.fromtimestamp in a zone": lambda: datetime.fromtimestamp(0, ZoneInfo("Asia/Tokyo")).hour == 9,
}


@workflow
async def comparing() -> list[str]:
    await asyncio.sleep(86_400)
    return [name for name, holds in IN_UTC.items() if not holds()]


def test_the_time_zone_of_a_workflow_is_utc(zone: str, scenario: Scenario) -> None:
    scenario.start(comparing).advance(days=2)
    assert scenario.result.output == [], scenario.result.error


def test_the_time_zone_outside_of_workflows_is_that_of_the_machine(zone: str) -> None:
    offset = datetime(2026, 1, 2, tzinfo=ZoneInfo(zone)).utcoffset()
    assert NOON.astimezone().utcoffset() == offset
    assert datetime(2026, 1, 2, 12).astimezone(dt.UTC) == NOON - (offset or dt.timedelta())
    assert time.localtime(NOON.timestamp()).tm_hour != 12
    assert time.tzname != ("UTC", "UTC")
    assert -time.timezone == (offset or dt.timedelta()).total_seconds()
    assert abs(time.mktime(time.localtime()) - time.time()) < 60
    assert datetime.fromtimestamp(0) != datetime(1970, 1, 1)


# -- random numbers --------------------------------------------------------------------------------------------------

GENERATOR = random.Random()


@workflow
async def drawing() -> list[float]:
    return [await _note(GENERATOR.random()), await _note(GENERATOR.randrange(1 << 40))]


@step
async def _note(value: float) -> float:
    return value


def test_a_generator_of_the_module_draws_from_the_runs_seed(scenario: Scenario) -> None:
    scenario.start(drawing)
    GENERATOR.random()
    scenario.crash_everywhere()
    assert type(GENERATOR) is SharedRandom
    assert random.Random(1).random() == random.Random(1).random()


def test_modules_that_ask_a_module_for_its_type_get_plain_modules() -> None:
    made = type(sys)("made")
    assert type(made) is types.ModuleType
    adopt(made)
