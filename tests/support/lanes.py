"""``pytest --lanes N``: N processes perform the tests. They are forked when everything is imported and collected.

The tests are collected once, whatever the number of lanes. They are handed out in chunks, mostly of one module, and
those that take longest come first: `tests/longest.txt` has their seconds. If a lane dies or is stuck, another one takes
its place. The test that it performed has failed, or is run once more with ``--reruns``.
"""

import io
import os
import signal
import tempfile
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import TESTS

LONGEST = TESTS / "longest.txt"
"""Lines of seconds and the id of a test."""

LARGE = {"tests/adapters/": inf, "tests/actors/models/": inf, "tests/surfaces/page/": 40.0}
"""Folders with chunks of more than one module, and the seconds of these: their tests share what takes long to make, as
a browser, or an import of large libraries."""

SHORT_S = 0.05
"""The estimate for a test that is not among the longest."""

CHUNK_S = 6.0
"""The seconds of a chunk at most, unless it is one test."""

STUCK_S = 260.0
"""A lane that performs one test for longer is killed: even its time-out has not ended the test, nor a second try."""

LOOK_S = 5.0

LANE = "TESTS_LANE"
"""The variable with the number of the lane that a process is, or was started by."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lanes", type=int, default=0, help="processes that perform the tests, forked after collection")


def read_longest() -> dict[str, float]:
    """Return the seconds of the longest tests, by their ids."""
    lines = [line.split(maxsplit=1) for line in LONGEST.read_text().splitlines() if not line.startswith("#")]
    return {nodeid: float(seconds) for seconds, nodeid in lines}


def chunks(nodeids: Sequence[str], longest: dict[str, float]) -> list[list[int]]:
    """Return the places of the tests in chunks of a module, or of a folder in `LARGE`, the longest first."""
    modules: defaultdict[str, list[int]] = defaultdict(list)
    for place, nodeid in enumerate(nodeids):
        large = next((folder for folder in LARGE if nodeid.startswith(folder)), None)
        modules[large or nodeid.partition("::")[0]].append(place)
    found: list[tuple[float, list[int]]] = []
    for module, places in modules.items():
        chunk: list[int] = []
        total = 0.0
        for place in places:
            seconds = longest.get(nodeids[place], SHORT_S)
            if chunk and total + seconds > LARGE.get(module, CHUNK_S):
                found.append((total, chunk))
                chunk, total = [], 0.0
            chunk.append(place)
            total += seconds
        found.append((total, chunk))
    return [chunk for _, chunk in sorted(found, key=lambda item: -item[0])]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Perform the tests in lanes, if there are any."""
    lanes: int = session.config.option.lanes
    if not lanes or session.config.option.collectonly or (session.testsfailed and not _goes_on(session)):
        return None
    if session.config.option.basetemp or session.config.option.usepdb:
        raise pytest.UsageError("--lanes goes with neither --basetemp nor --pdb: leave it out")
    with tempfile.TemporaryDirectory(prefix="lanes-", ignore_cleanup_errors=True) as folder:
        # A PostgreSQL server, which does not run as root, has its files below.
        Path(folder).chmod(0o711)
        _Dispatcher(session, Path(folder)).perform(lanes)
    return True


def _goes_on(session: pytest.Session) -> bool:
    return bool(session.config.option.continue_on_collection_errors)


@dataclass(eq=False)
class _Lane:
    """A process, as the one that dispatches sees it."""

    pid: int
    line: Connection
    at: int | None = None
    """The place of the test that it performs."""
    since: float = inf
    """When it began that, by the monotonic clock."""
    ahead: deque[int] = field(default_factory=deque[int])
    """The places of the tests that it was given and has not begun."""


class _Dispatcher:
    """Forks lanes, hands out chunks, and has the session hear of every report."""

    def __init__(self, session: pytest.Session, folder: Path) -> None:
        self._session = session
        self._hook = session.config.hook
        self._folder = folder
        self._chunks = deque(chunks([item.nodeid for item in session.items], read_longest()))
        self._lanes: dict[Connection, _Lane] = {}
        self._forked = 0
        self._again = set[int]()

    def perform(self, lanes: int) -> None:
        """Perform all tests; return when each lane has ended.

        :raises pytest.Session.Failed: if the session is to stop, as ``-x`` wants it
        """
        try:
            for _ in range(min(lanes, len(self._chunks))):
                self._fork()
            while self._lanes:
                for line in wait(list(self._lanes), LOOK_S):
                    assert isinstance(line, Connection)
                    self._hear(self._lanes[line])
                for lane in self._lanes.values():
                    if time.monotonic() > lane.since + STUCK_S:
                        # It prints the stacks of its threads.
                        os.kill(lane.pid, signal.SIGABRT)
        finally:
            for lane in self._lanes.values():
                os.kill(lane.pid, signal.SIGKILL)
                os.waitpid(lane.pid, 0)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)

    def _fork(self) -> None:
        self._forked += 1
        ours, theirs = Pipe()
        pid = os.fork()
        if not pid:
            for line in (ours, *self._lanes):
                line.close()
            _be_a_lane(self._session, theirs, self._forked, self._folder)
        theirs.close()
        self._lanes[ours] = _Lane(pid, ours)

    def _hear(self, lane: _Lane) -> None:
        try:
            what, said = lane.line.recv()
        except (EOFError, ConnectionResetError):
            self._end(lane)
            return
        match what:
            case "wants":
                stops = self._session.shouldfail or self._session.shouldstop
                chunk = self._chunks.popleft() if self._chunks and not stops else []
                lane.ahead.extend(chunk)
                with suppress(BrokenPipeError):
                    lane.line.send(chunk)
            case "begins":
                lane.at, lane.since = said, time.monotonic()
                lane.ahead.remove(said)
            case "report":
                self._report(self._hook.pytest_report_from_serializable(config=self._session.config, data=said))
            case "warning":
                self._hook.pytest_warning_recorded.call_historic(kwargs=said)
            case _:
                assert what == "finished"
                lane.at, lane.since = None, inf
                item = self._session.items[said]
                self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _report(self, report: pytest.TestReport) -> None:
        self._hook.pytest_runtest_logreport(report=report)

    def _end(self, lane: _Lane) -> None:
        """Let another lane perform the rest of a lane that died. Its test has failed, if it is not to be run again."""
        del self._lanes[lane.line]
        lane.line.close()
        code = os.waitstatus_to_exitcode(os.waitpid(lane.pid, 0)[1])
        if lane.at is not None:
            item = self._session.items[lane.at]
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            died = f"the process that performed this test ended with {how}"
            again = self._session.config.getoption("reruns", None) and lane.at not in self._again
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", died, "call")
            if again:
                report.outcome = "rerun"  # pyright: ignore  as `pytest-rerunfailures` has it
                self._again.add(lane.at)
                lane.ahead.appendleft(lane.at)
            self._report(report)
        if lane.ahead:
            self._chunks.appendleft([*lane.ahead])
            self._fork()


# -- in a lane --------------------------------------------------------------------------------------------------------


class _Reporter:
    """Sends reports of tests to the process that dispatches."""

    def __init__(self, config: pytest.Config, line: Connection) -> None:
        self._config = config
        self._line = line

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._line.send(("report", data))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        said = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self._line.send(("warning", said))


def _be_a_lane(session: pytest.Session, line: Connection, number: int, folder: Path) -> None:
    """Perform the chunks of tests that this process is given, and end it."""
    code = 1
    try:
        home = folder / str(number)
        home.mkdir()
        # Files that tests leave are in that folder.
        os.environ |= dict.fromkeys(["PYTEST_DEBUG_TEMPROOT", "TMPDIR"], str(home)) | {LANE: str(number)}
        tempfile.tempdir = None
        _separate_output(session.config)
        session.config.pluginmanager.register(_Reporter(session.config, line))
        for place, item, following in _given(session.items, line):
            line.send(("begins", place))
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            line.send(("finished", place))
        code = 0
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        # The process that dispatches has ended, or is about to.
        code = 2
    except BaseException:
        traceback.print_exc()
    finally:
        # Without the functions that the process before the fork has registered for its end.
        os._exit(code)


def _separate_output(config: pytest.Config) -> None:
    """Capture into files of this process, and leave the terminal to the process that dispatches.

    The file objects stay the same: modules may have kept one of them when they were imported.
    """
    manager = config.pluginmanager
    if (capture := manager.get_plugin("capturemanager")) is not None and (streams := capture._global_capturing):
        capture.suspend_global_capture(in_=True)
        for stream in (streams.out, streams.err):
            with suppress(AttributeError, io.UnsupportedOperation), tempfile.TemporaryFile() as own:
                os.dup2(own.fileno(), stream.tmpfile.fileno())
    manager.unregister(name="terminalreporter")


def _given(items: list[pytest.Item], line: Connection) -> Iterator[tuple[int, pytest.Item, pytest.Item | None]]:
    """Yield the tests to perform, each with its place and the test that follows, for which fixtures may be kept."""
    ahead: deque[int] = deque()
    place: int | None = None
    while True:
        if not ahead:
            line.send(("wants", None))
            ahead.extend(line.recv())
        if place is not None:
            yield place, items[place], items[ahead[0]] if ahead else None
        if not ahead:
            return
        place = ahead.popleft()


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that only the lanes share."""
    base = factory.getbasetemp()
    return Path(os.environ["PYTEST_DEBUG_TEMPROOT"]).parent if LANE in os.environ else base
