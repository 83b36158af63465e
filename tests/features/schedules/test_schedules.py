"""Schedules on a real server: one start for each due time, despite duplicates, delays and concurrent changes."""

import datetime as dt
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from callboard.bus import events as ev
from callboard.bus.log.port import Entry, NoAnswer
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.purge import PurgeMark, mark_gone
from callboard.bus.nats.queue import Outbox, ack_floor, ensure_consumer
from callboard.bus.nats.requests import Requests
from callboard.bus.nats.stream import ensure_stream, stream_of
from callboard.bus.subjects import RunRef, Subjects
from callboard.features.schedules.publisher import QUEUE, SchedulePublisher
from callboard.features.schedules.schedule import Overlap, Schedule, Tick
from callboard.features.schedules.schedules import ScheduleChanged, Schedules, ScheduleUnknown, warnings_of
from callboard.features.schedules.store import ScheduleStore
from callboard.features.schedules.timetable import Timetable
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.client.client import UnknownRun
from callboard.runtime.client.connection import open_connection
from callboard.runtime.cluster.membership import Beat, Load
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support.lane_server import AccountServer
from tests.support.workflows import document

PATIENCE_S = 30.0
ACK_WAIT_S = 30.0
NOW = dt.datetime(2099, 1, 1, 12, 30, tzinfo=dt.UTC)
"""Far in the future, so that the server publishes no tick of its schedules."""

START: dict[str, Any] = {
    "definition": {"source": json.dumps(document({"a": {}}, []))},
    "model": "scripted",
    "script": {"turns": {"a": [{"text": "done"}]}},
}


def hour(number: int) -> dt.datetime:
    return NOW.replace(hour=number, minute=0)


def hourly(**members: Any) -> Schedule:
    return Schedule("hourly", Timetable("0 * * * *"), START, **members)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[JetStreamLog]:
    async with AccountServer(tmp_path) as server, open_nats_connection(server.url, name="test") as nc:
        yield await open_log(nc, Subjects(), partitions=4)


class PublisherBench:
    """A schedule publisher with a fixed clock, and the messages that it has published."""

    def __init__(self, log: JetStreamLog) -> None:
        self.log = log
        self.schedules = Schedules(log, "acme", now=lambda: NOW)
        self.store = ScheduleStore(log)
        self.said_last = 0

    async def add(self, schedule: Schedule) -> None:
        added = await self.schedules.add(schedule, Definitions())
        assert not isinstance(added, list), added

    async def tick(self, due: dt.datetime, **members: Any) -> None:
        """Publish a tick as the server does."""
        kept = await self.store.get("acme", "hourly")
        assert kept is not None
        tick = Tick(kept.schedule.version, due, **members)
        await self.say(tick)

    async def say(self, tick: Tick) -> None:
        said = OutgoingMessage(self.log.subjects.tick("acme", "hourly"), msgspec.json.encode(tick), {})
        self.said_last = await self.log.publish(said)

    async def clock(self) -> Tick:
        """Wait until all ticks are processed; return the next tick."""
        with anyio.fail_after(PATIENCE_S):
            while await ack_floor(self.log.requests, self.log.stream, QUEUE) < self.said_last:  # noqa: ASYNC110  no event reports it
                await anyio.sleep(0.01)
        kept = await self.store.get("acme", "hourly")
        assert kept is not None
        assert kept.tick is not None
        return kept.tick

    async def said(self, subject: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        start = 1
        while (message := await self.log.next_message(subject, start)) is not None:
            found.append(json.loads(message.data))
            start = message.sequence + 1
        return found

    async def started(self) -> list[str]:
        """The due hours that a run was started for, in order."""
        said = await self.said(self.log.subjects.start("acme"))
        return [one["run_id"].removeprefix("hourly-20990101T").removesuffix("0000Z") for one in said]

    async def at_work(self, run: str, event_type: str = "run.start", **payload: Any) -> None:
        """Append an event to a run."""
        event = {"type": event_type, "run": run, "n": 1, "epoch": 1, "v": 1, "time": NOW, "path": "", "definition": "d"}
        data = msgspec.json.encode({**event, "payload": payload})
        await self.log.put(RunRef("acme", run), [Entry(1, 1, event_type, "d", "w.1.1", data)], 0)


@asynccontextmanager
async def publishing(log: JetStreamLog, now: dt.datetime = NOW) -> AsyncGenerator[PublisherBench]:
    outbox = Outbox(log.nc)
    await ensure_consumer(log.requests, log.stream, QUEUE, [log.subjects.ticks()], ACK_WAIT_S)
    publisher = SchedulePublisher(log, outbox, ack_wait_s=ACK_WAIT_S, now=lambda: now)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        tasks.start_soon(publisher.run)
        yield PublisherBench(log)
        tasks.cancel_scope.cancel()


# -- due times --------------------------------------------------------------------------------------------------------


async def test_a_due_time_starts_a_run_and_sets_the_clock(log: JetStreamLog) -> None:
    async with publishing(log, hour(12)) as bench:
        await bench.add(hourly(due_field="at"))
        await bench.tick(hour(12))
        tick = await bench.clock()
        assert (tick.due, tick.last) == (hour(13), "hourly-20990101T120000Z")
        (start,) = await bench.said(log.subjects.start("acme"))
    due = "2099-01-01T12:00:00+00:00"
    assert start == {
        **START,
        "run_id": "hourly-20990101T120000Z",
        "input": {"at": due},
        "scheduled": {"schedule": "hourly", "due": due},
    }


async def test_a_tick_that_comes_twice_starts_the_same_run(log: JetStreamLog) -> None:
    async with publishing(log, hour(12)) as bench:
        await bench.add(hourly())
        await bench.tick(hour(12))
        await bench.tick(hour(12))
        await bench.clock()
        assert set(await bench.started()) == {"12"}


@pytest.mark.parametrize(
    ("catch_up", "made_up"), [(0, []), (1, ["12"]), (2, ["11", "12"]), (9, ["09", "10", "11", "12"])]
)
async def test_the_latest_missed_due_times_are_caught_up(log: JetStreamLog, catch_up: int, made_up: list[str]) -> None:
    async with publishing(log) as bench:
        await bench.add(hourly(catch_up=catch_up, overlap="allow"))
        await bench.tick(hour(9))
        assert (await bench.clock()).due == hour(13)
        assert await bench.started() == made_up


async def test_a_punctual_run_is_started_besides_the_missed_ones(log: JetStreamLog) -> None:
    async with publishing(log, hour(12) + dt.timedelta(seconds=20)) as bench:
        await bench.add(hourly(catch_up=1, overlap="allow"))
        await bench.tick(hour(9))
        await bench.clock()
        assert await bench.started() == ["11", "12"]


async def test_a_run_less_than_a_minute_late_is_punctual(log: JetStreamLog) -> None:
    now = hour(12) + dt.timedelta(seconds=75)
    async with publishing(log, now) as bench:
        wanted = Schedule("hourly", Timetable(every_s=10.0), START, catch_up=1, overlap="allow")
        await bench.add(wanted)
        await bench.tick(hour(12))
        await bench.clock()
        said = await bench.said(log.subjects.start("acme"))
    # From 12:00:15 on, and the latest missed one.
    assert [one["run_id"][-7:-1] for one in said] == [f"1200{s}" for s in (10, 20, 30, 40, 50)] + ["120100", "120110"]


async def test_a_due_time_delayed_into_the_future_waits(log: JetStreamLog) -> None:
    table = Timetable(every_s=10.0, jitter_s=30.0)
    first = hour(12)
    async with publishing(log, table.put_off(first, "hourly")) as bench:
        await bench.add(Schedule("hourly", table, START, overlap="allow"))
        await bench.tick(first)
        tick = await bench.clock()
        started = {one["scheduled"]["due"] for one in await bench.said(log.subjects.start("acme"))}
    dues = [first + dt.timedelta(seconds=10 * i) for i in range(9)]
    waits = next(due for due in dues if table.put_off(due, "hourly") > table.put_off(first, "hourly"))
    assert tick.due == waits
    assert started == {due.isoformat() for due in dues if due < waits}


async def test_a_tick_before_its_time_counts(log: JetStreamLog) -> None:
    """The clock of the server counts."""
    async with publishing(log, hour(12) - dt.timedelta(seconds=5)) as bench:
        await bench.add(hourly())
        await bench.tick(hour(12))
        assert (await bench.clock()).due == hour(13)
        assert await bench.started() == ["12"]


# -- overlaps ---------------------------------------------------------------------------------------------------------

BEFORE = "hourly-20990101T110000Z"


@pytest.mark.parametrize(
    ("overlap", "started", "due", "cancelled", "skipped"),
    [
        ("skip", [], hour(13), 0, 1),
        ("queue", [], hour(12), 0, 0),
        ("cancel", [], hour(12), 1, 0),
        ("allow", ["12"], hour(13), 0, 0),
    ],
)
async def test_the_overlap_rule_decides_about_a_due_run_while_the_previous_one_runs(
    log: JetStreamLog, overlap: Overlap, started: list[str], due: dt.datetime, cancelled: int, skipped: int
) -> None:
    async with publishing(log, hour(12)) as bench:
        await bench.add(hourly(overlap=overlap))
        await bench.at_work(BEFORE)
        await bench.tick(hour(12), last=BEFORE)
        tick = await bench.clock()
        assert await bench.started() == started
        assert (tick.due, tick.skipped) == (due, skipped)
        cancels = await bench.said(log.subjects.tell(RunRef("acme", BEFORE), "cancel"))
        assert len(cancels) == cancelled
        assert all(cancel["reason"] == "schedule.overlap" for cancel in cancels)


@pytest.mark.parametrize(
    ("event_type", "payload"),
    [
        (ev.RunEnd.type, {"status": "completed"}),
        (
            ev.RunQuarantined.type,
            {"code": "log.unreadable", "sequence": 7, "subject": "cb.x", "message": "no event"},
        ),
    ],
)
async def test_an_ended_or_quarantined_previous_run_does_not_block(
    log: JetStreamLog, event_type: str, payload: dict[str, Any]
) -> None:
    async with publishing(log, hour(12)) as bench:
        await bench.add(hourly())
        await bench.at_work(BEFORE, event_type, **payload)
        await bench.tick(hour(12), last=BEFORE, skipped=3)
        assert (await bench.clock()).skipped == 0
        assert await bench.started() == ["12"]


async def test_a_run_starts_at_once_when_the_one_that_it_cancels_has_ended(log: JetStreamLog) -> None:
    cancelled = log.subjects.tell(RunRef("acme", BEFORE), "cancel")
    async with publishing(log, hour(12)) as bench, anyio.create_task_group() as tasks:
        await bench.add(hourly(overlap="cancel"))
        await bench.at_work(BEFORE)

        async def end_when_cancelled() -> None:
            while not await bench.said(cancelled):  # noqa: ASYNC110  no event reports it
                await anyio.sleep(0.01)
            event = {
                "type": "run.end",
                "run": BEFORE,
                "n": 2,
                "epoch": 1,
                "v": 1,
                "time": NOW,
                "path": "",
                "definition": "d",
            }
            data = msgspec.json.encode({**event, "payload": {"status": "cancelled"}})
            last = await log.last(RunRef("acme", BEFORE))
            assert last is not None
            await log.put(RunRef("acme", BEFORE), [Entry(2, 1, "run.end", "d", "w.1.2", data)], last.sequence)

        tasks.start_soon(end_when_cancelled)
        await bench.tick(hour(12), last=BEFORE)
        tick = await bench.clock()
        assert (tick.due, tick.queued) == (hour(13), False)
        assert await bench.started() == ["12"]


async def test_a_due_time_that_waits_is_shown_beside_the_next_one(log: JetStreamLog) -> None:
    async with publishing(log, hour(12)) as bench:
        await bench.add(hourly(overlap="queue"))
        await bench.at_work(BEFORE)
        await bench.tick(hour(12), last=BEFORE)
        await bench.clock()
        (row,) = await bench.schedules.rows()
        assert (row.next, row.waiting) == (hour(13), hour(12))


@pytest.mark.parametrize("overlap", ["queue", "cancel"])
async def test_a_queued_due_time_is_not_missed_after_a_long_wait(log: JetStreamLog, overlap: Overlap) -> None:
    async with publishing(log, hour(9)) as bench:
        await bench.add(hourly(overlap=overlap, catch_up=0))
        await bench.at_work(BEFORE)
        await bench.tick(hour(9), last=BEFORE)
        waiting = await bench.clock()
    assert (waiting.due, waiting.queued) == (hour(9), True)
    await bench.at_work("ended", ev.RunEnd.type, status="completed")
    async with publishing(log) as bench:
        # It ends three hours later: the due times in between were missed.
        await bench.tick(hour(9), last="ended", queued=True)
        tick = await bench.clock()
        assert (tick.due, tick.last, tick.queued) == (hour(13), "hourly-20990101T090000Z", False)
        assert await bench.started() == ["09"]


async def test_caught_up_runs_do_not_overlap_each_other(log: JetStreamLog) -> None:
    async with publishing(log) as bench:
        await bench.add(hourly(catch_up=3))
        await bench.tick(hour(9))
        assert (await bench.clock()).skipped == 2
        assert await bench.started() == ["10"]


# -- changes ----------------------------------------------------------------------------------------------------------


async def test_a_paused_schedule_starts_nothing_and_resumes_with_the_next_due_time(log: JetStreamLog) -> None:
    async with publishing(log, hour(12)) as bench:
        await bench.add(hourly())
        (row,) = await bench.schedules.rows()
        assert (row.next, row.paused, row.definition) == (hour(13), False, "w")
        assert (await bench.schedules.pause("hourly")).next is None
        await bench.tick(hour(12))
        row = await bench.schedules.resume("hourly")
        assert (row.next, row.paused) == (hour(13), False)
        await bench.clock()
        assert await bench.started() == []


async def test_a_removed_schedule_can_be_added_again(log: JetStreamLog) -> None:
    bench = PublisherBench(log)
    await bench.add(hourly())
    await bench.schedules.remove("hourly")
    assert await bench.schedules.rows() == []
    for change in (bench.schedules.pause, bench.schedules.resume, bench.schedules.remove):
        with pytest.raises(ScheduleUnknown):
            await change("hourly")
    await bench.add(hourly())
    assert len(await bench.schedules.rows()) == 1


async def test_a_tick_of_an_older_version_is_ignored(log: JetStreamLog) -> None:
    async with publishing(log, hour(12)) as bench:
        await bench.add(hourly())
        kept = await bench.store.get("acme", "hourly")
        assert kept is not None
        await bench.add(Schedule("hourly", Timetable("30 * * * *"), START))
        await bench.say(Tick(kept.schedule.version, hour(12)))
        assert (await bench.clock()).due == hour(13).replace(minute=30)
        assert await bench.started() == []


async def test_a_change_during_a_tick_is_kept(log: JetStreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock = ScheduleStore.set_clock

    async def changed_before(*args: Any) -> None:
        await bench.add(Schedule("hourly", Timetable("45 * * * *"), START))
        await set_clock(*args)

    monkeypatch.setattr(ScheduleStore, "set_clock", changed_before)
    async with publishing(log, hour(12)) as bench:
        await bench.add(hourly())
        await bench.tick(hour(12))
        assert (await bench.clock()).due.minute == 45


async def test_a_retry_after_a_failed_clock_update_uses_the_same_run_id(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock, failed = ScheduleStore.set_clock, False

    async def fails_once(*args: Any) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise NoAnswer("lost")
        await set_clock(*args)

    monkeypatch.setattr(ScheduleStore, "set_clock", fails_once)
    async with publishing(log, hour(12)) as bench:
        await bench.add(hourly())
        await bench.tick(hour(12))
        assert (await bench.clock()).due == hour(13)
        assert await bench.started() == ["12", "12"]
    assert failed


@pytest.mark.parametrize("body", [b"{", b"{}", b'{"version": "v", "due": "2026-01-01T00:00:00"}', b"[1]"])
async def test_an_invalid_tick_is_skipped(log: JetStreamLog, body: bytes) -> None:
    async with publishing(log, hour(12)) as bench:
        await bench.add(hourly())
        await log.publish(OutgoingMessage(log.subjects.tick("acme", "hourly"), body, {}))
        await bench.tick(hour(12))
        assert (await bench.clock()).due == hour(13)
        assert await bench.started() == ["12"]


async def test_an_unreadable_schedule_is_not_listed_and_can_be_replaced(log: JetStreamLog) -> None:
    bench = PublisherBench(log)
    await log.publish(OutgoingMessage(log.subjects.schedule("acme", "hourly"), b"junk", {}))
    assert await bench.schedules.rows() == []
    with pytest.raises(ScheduleUnknown):
        await bench.schedules.pause("hourly")
    await bench.add(hourly())
    assert [row.name for row in await bench.schedules.rows()] == ["hourly"]


async def test_a_concurrent_change_is_refused(log: JetStreamLog) -> None:
    bench = PublisherBench(log)
    kept: list[str] = []

    async def add(minute: int) -> None:
        try:
            await bench.add(Schedule("hourly", Timetable(f"{minute} * * * *"), START))
            kept.append(f"{minute} * * * * UTC")
        except ScheduleChanged:
            return

    async with anyio.create_task_group() as tasks:
        for minute in range(5):
            tasks.start_soon(add, minute)
    (row,) = await bench.schedules.rows()
    assert row.when in kept


# -- invalid schedules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "codes"),
    [
        (Schedule("", Timetable("0 * * * *"), START), ["schedule.name"]),
        (Schedule("x" * 200, Timetable("0 * * * *"), START), ["schedule.name"]),
        (Schedule("s", Timetable("x", "y"), START), ["schedule.timezone", "schedule.cron"]),
        (Schedule("s", Timetable("0 * * * *"), {**START, "run_id": "r"}), ["schedule.run_id"]),
        (Schedule("s", Timetable("0 * * * *"), {"definition": {"name": "nix"}}), ["definition.unknown"]),
        (Schedule("s", Timetable("0 * * * *"), {"definition": {"source": "x"}}), ["UNKNOWN_LANGUAGE"]),
        (Schedule("s", Timetable("0 * * * *"), {**START, "more": 1}), ["start.unknown_field"]),
        (Schedule("s", Timetable("0 * * * *"), {**START, "input": [1]}, due_field="at"), ["schedule.due_field"]),
        (Schedule("s", Timetable("0 * * * *"), START, catch_up=-1), ["schedule.catch_up"]),
        (Schedule("s", Timetable("0 * * * *"), {**START, "input": "x" * 1_100_000}), ["schedule.too_large"]),
    ],
)
async def test_an_invalid_schedule_is_refused(log: JetStreamLog, wanted: Schedule, codes: list[str]) -> None:
    found = await Schedules(log, "acme").add(wanted, Definitions())
    assert isinstance(found, list)
    assert [one.code for one in found] == codes
    assert await Schedules(log, "acme").rows() == []


# -- with a worker ----------------------------------------------------------------------------------------------------


async def test_a_worker_starts_scheduled_runs_and_catches_up_after_a_gap(tmp_path: Path) -> None:
    flags = {"data_dir": tmp_path, "sync": "100ms", "tenant": "acme", "partitions": 4, "allow_scripts": True}
    async with open_connection(load(flags, env={}, cwd=tmp_path), "test") as connection:
        schedules = Schedules(connection.log, "acme")
        every = Schedule("tick", Timetable(every_s=1.0), START, overlap="allow")
        async with open_worker(connection, env={}):
            assert not isinstance(await schedules.add(every, Definitions()), list)
            with anyio.fail_after(PATIENCE_S):
                async with connection.log.follow(
                    connection.log.subjects.events("acme", event_type="run.end"), 0
                ) as ends:
                    ran = [(await anext(ends)).ref.run for _ in range(2)]
        times = [dt.datetime.strptime(run, "tick-%Y%m%dT%H%M%SZ") for run in ran]
        assert times[1] - times[0] == dt.timedelta(seconds=1)
        # The clock runs without a worker; the next worker catches up the latest due time.
        async with (
            open_worker(connection, env={}),
            connection.log.follow(connection.log.subjects.events("acme", event_type="run.end")) as ends,
        ):
            with anyio.fail_after(PATIENCE_S):
                assert (await anext(ends)).ref.run > ran[1]
        (row,) = await schedules.rows()
        assert row.last >= ran[1]
        await schedules.remove("tick")


async def test_a_stream_without_schedule_subjects_performs_runs(tmp_path: Path) -> None:
    """An older version may have created the stream on a shared server."""
    async with AccountServer(tmp_path) as server, open_nats_connection(server.url, name="test") as nc:
        requests, subjects = Requests(nc), Subjects()
        await ensure_stream(requests, subjects, partitions=4)
        stream = stream_of(subjects)
        made = (await api(requests, f"STREAM.INFO.{stream}", {}))["config"]
        news = {f"cb.{family}.>" for family in ("schedule", "clock", "tick")}
        kept = [subject for subject in made["subjects"] if subject not in news]
        assert "error" not in await api(requests, f"STREAM.UPDATE.{stream}", {**made, "subjects": kept})
        flags = {"nats_url": server.url, "tenant": "acme", "partitions": 4, "allow_scripts": True}
        with capture_logs() as logs:
            async with (
                open_connection(load(flags, env={}, cwd=tmp_path), "test") as connection,
                open_worker(connection, env={}),
            ):
                with anyio.fail_after(PATIENCE_S):
                    assert (await connection.client.start({**START, "run_id": "one"})).status == "accepted"
                    ends = connection.log.subjects.events("acme", "one", event_type="run.end")
                    async with connection.log.follow(ends, 0) as feed:
                        await anext(feed)
                with pytest.raises(NoAnswer):
                    await Schedules(connection.log, "acme").add(hourly(), Definitions())
    told = [one for one in logs if one["event"].startswith("the stream lacks subjects")]
    assert told[0]["missing"] == sorted(news)


# -- starts that are rejected -----------------------------------------------------------------------------------------

NO_MODEL: dict[str, Any] = {"definition": START["definition"]}


async def test_a_schedule_shows_why_its_last_start_was_rejected(tmp_path: Path) -> None:
    config = load({"data_dir": tmp_path, "sync": "100ms"}, env={}, cwd=tmp_path)
    async with open_connection(config, "test") as connection, open_worker(connection, env={}):
        schedules = Schedules(connection.log, "default", now=lambda: NOW)
        added = await schedules.add(Schedule("hourly", Timetable("0 * * * *"), NO_MODEL), Definitions())
        assert not isinstance(added, list), added
        assert [one.code for one in added.warnings] == ["schedule.no_model"]
        start = Schedule("hourly", Timetable("0 * * * *"), NO_MODEL).start_of(hour(12))
        with capture_logs() as logged:
            verdict = await connection.client.start(start)
        assert verdict.status == "rejected"
        kept = await ScheduleStore(connection.log).get("default", "hourly")
        assert kept is not None
        tick = Tick(kept.schedule.version, hour(13), start["run_id"])
        await ScheduleStore(connection.log).set_clock("default", kept, tick, hour(13))
        row = await schedules.row("hourly")
        assert (row.last_status, [one.code for one in row.last_problems]) == ("rejected", ["model.none"])
        # A rejected command to that run does not count as a rejected start.
        refused = ev.RunRejected([ev.Problem("run.unknown", "there is no such run")], "cancel", start["run_id"])
        subject = connection.log.subjects.reject("default", start["run_id"])
        await connection.log.publish(OutgoingMessage(subject, msgspec.json.encode(refused), {}))
        assert [one.code for one in (await schedules.row("hourly")).last_problems] == ["model.none"]
        with pytest.raises(UnknownRun, match=r"its start was rejected: model\.none: no model is named"):
            await connection.client.events(start["run_id"])
    (line,) = [one for one in logged if one["event"] == "a scheduled start was rejected"]
    assert (line["log_level"], line["schedule"], line["run"]) == ("warning", "hourly", start["run_id"])
    assert line["problems"][0].startswith("model.none: no model is named")


async def test_a_start_without_a_worker_is_pending(log: JetStreamLog) -> None:
    async with publishing(log, hour(12)) as bench:
        added = await bench.schedules.add(hourly(), Definitions())
        assert not isinstance(added, list), added
        assert [(one.code, one.severity) for one in added.warnings] == [("schedule.no_worker", "warning")]
        await bench.tick(hour(12))
        await bench.clock()
        row = await bench.schedules.row("hourly")
        assert (row.last, row.last_status, row.last_problems) == ("hourly-20990101T120000Z", "pending", [])
        await mark_gone(log, RunRef("acme", row.last), PurgeMark(), 0)
        assert (await bench.schedules.row("hourly")).last_status == "purged"


def test_adding_a_schedule_warns_of_workers_without_a_model() -> None:
    """A guest worker performs no scheduled runs."""

    def warned(*beats: Beat, needs_model: bool = True) -> list[str]:
        return [one.code for one in warnings_of(beats, needs_model=needs_model)]

    def load(*, has_model: bool) -> Load:
        return Load(0, 1, 0, 1, has_model=has_model)

    without, guest = Beat("a", "here", load=load(has_model=False)), Beat("b", "here", True, load(has_model=True))
    assert warned(without, guest) == ["schedule.no_model"]
    assert warned(guest, Beat("d", "leaving", load=load(has_model=True))) == ["schedule.no_worker"]
    assert warned(without, needs_model=False) == []
    assert warned(without, Beat("c", "here", load=load(has_model=True))) == []
