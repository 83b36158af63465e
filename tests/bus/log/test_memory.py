"""The in-memory log and the one function that appends: the guard, lost answers, rivals, alarms, followers."""

import datetime as dt
from typing import Any

import anyio
import pytest

from callboard.bus import events as ev
from callboard.bus.errors import LogUnavailable, RunLost
from callboard.bus.log.memory import Fault, MemoryLog
from callboard.bus.log.port import Alarm, AppendRefused, Entry, NoAnswer, RunMessage, append
from callboard.bus.log.recorded import Recorded
from callboard.bus.subjects import RunRef, Subjects
from callboard.testing.virtual_time import BEGINNING, VIRTUAL

REF = RunRef("acme", "r1")
OTHER = RunRef("acme", "r2")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


def entry(n: int, mark: str = "w1") -> Entry:
    payload = ev.RunClaimed(worker=mark, epoch=1)
    event = ev.Event(
        type=payload.type,
        run="r1",
        n=n,
        epoch=1,
        v=1,
        time=BEGINNING,
        path="",
        payload=ev.Raw(ev.encode_payload(payload)),
    )
    return Entry(n, 1, payload.type, "triage", f"{mark}.1.{n}", ev.encode_event(event))


class Faulty:
    """Orders these faults, one per put, and none afterwards."""

    def __init__(self, *faults: Fault) -> None:
        self.left = list(faults)

    def __call__(self, _ref: RunRef, _entry: Entry) -> Fault:
        return self.left.pop(0) if self.left else "none"


async def test_only_the_next_event_is_appended() -> None:
    log = MemoryLog()
    first = await log.put(REF, [entry(1)], 0)
    for after in (0, first + 1):
        with pytest.raises(AppendRefused) as refused:
            await log.put(REF, [entry(2)], after)
        assert refused.value.actual == first
    second = await log.put(REF, [entry(2)], first)
    assert [item.sequence for item in await log.read(REF)] == [first, second]


async def test_each_run_has_its_own_guard() -> None:
    log = MemoryLog()
    first = await log.put(REF, [entry(1)], 0)
    other = await log.put(OTHER, [entry(1)], 0)
    assert other > first
    assert await log.put(REF, [entry(2)], first) > other


async def test_a_read_returns_the_appended_events() -> None:
    log = MemoryLog()
    assert await log.last(REF) is None
    assert await log.read(REF) == []
    put = entry(1)
    sequence = await log.put(REF, [put], 0)
    last = await log.last(REF)
    assert last == Recorded(sequence, REF, put.id, put.data, ev.decode_event(put.data))
    assert await log.read(REF, sequence) == []


async def test_an_alarm_is_set_only_if_its_event_is_stored() -> None:
    log = MemoryLog(faults=Faulty("lost", "refused"))
    alarm = Alarm(BEGINNING + dt.timedelta(hours=1), 3)
    with pytest.raises(NoAnswer):
        await log.put(REF, [entry(1)], 0, alarm)
    with pytest.raises(AppendRefused):
        await log.put(REF, [entry(1)], 0, alarm)
    assert log.alarms == {}
    await log.put(REF, [entry(1)], 0, alarm)
    assert log.alarms == {REF: alarm}


async def test_a_message_is_stored_once_and_only_with_its_event() -> None:
    log = MemoryLog(faults=Faulty("lost", "refused", "stored_but_unknown"))
    run_message = RunMessage(RunRef("acme", "other"), "wake", b"{}")
    with pytest.raises(NoAnswer):
        await log.put(REF, [entry(1)], 0, run_message)
    with pytest.raises(AppendRefused):
        await log.put(REF, [entry(1)], 0, run_message)
    assert log.run_messages == []
    await append(log, REF, [entry(1)], 0, run_message)
    assert log.run_messages == [run_message]


@pytest.mark.parametrize(
    "faults",
    [
        ("refused",),
        ("lost",),
        ("stored_but_unknown",),
        ("late",),
        ("lost", "refused", "lost", "late"),
        ("lost", "stored_but_unknown"),
        ("refused", "refused", "stored_but_unknown"),
    ],
)
@pytest.mark.parametrize("n", [1, 2])
async def test_an_append_stores_once_despite_lost_answers(faults: tuple[Fault, ...], n: int) -> None:
    log = MemoryLog()
    after = 0
    for number in range(1, n):
        after = await append(log, REF, [entry(number)], after)
    log.faults = Faulty(*faults)
    sequence = await append(log, REF, [entry(n)], after)
    recorded = await log.read(REF)
    assert [item.event.n for item in recorded] == list(range(1, n + 1))
    assert recorded[-1].sequence == sequence


@pytest.mark.parametrize("faults", [(), ("lost",), ("refused",), ("late",)])
async def test_an_append_after_that_of_another_writer_is_lost(faults: tuple[Fault, ...]) -> None:
    log = MemoryLog()
    await append(log, REF, [entry(1, "rival")], 0)
    log.faults = Faulty(*faults)
    with pytest.raises(RunLost) as lost:
        await append(log, REF, [entry(1)], 0)
    assert lost.value.found is not None
    assert (lost.value.n, lost.value.found.n) == (1, 1)
    assert [item.id for item in await log.read(REF)] == ["rival.1.1"]


async def test_an_append_is_retried_for_a_limited_time() -> None:
    log = MemoryLog(faults=lambda _ref, _entry: "lost")
    begun = anyio.current_time()
    with pytest.raises(LogUnavailable) as unavailable:
        await append(log, REF, [entry(1)], 0, patience_s=5)
    assert 1 < anyio.current_time() - begun <= 5
    assert (unavailable.value.n, unavailable.value.patience_s) == (1, 5)


async def test_large_values_are_stored_by_run_and_digest() -> None:
    log = MemoryLog()
    await log.put_blob(REF, "0f", b"large")
    await log.put_blob(REF, "0f", b"large")
    assert await log.get_blob(REF, "0f") == b"large"
    for ref, digest in ((REF, "1f"), (OTHER, "0f")):
        with pytest.raises(KeyError):
            await log.get_blob(ref, digest)


async def test_followers_get_past_events_and_then_new_ones() -> None:
    log = MemoryLog()
    subjects = Subjects()
    first = await log.put(REF, [entry(1)], 0)
    await log.put(OTHER, [entry(1)], 0)
    seen: dict[str, list[tuple[str, int]]] = {"all": [], "run": [], "new": []}

    async def follow(name: str, filter: str, after: int | None, count: int) -> None:
        async with log.follow(filter, after) as events:
            started[name].set()
            async for item in events:
                seen[name].append((item.ref.run, item.event.n))
                if len(seen[name]) == count:
                    break

    started = {name: anyio.Event() for name in seen}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, "all", subjects.events(), 0, 4)
        tasks.start_soon(follow, "run", subjects.run(REF), 0, 3)
        tasks.start_soon(follow, "new", subjects.events("acme", None, "triage", "run.claimed"), None, 2)
        for event in started.values():
            await event.wait()
        second = await log.put(REF, [entry(2)], first)
        await log.put(REF, [entry(3)], second)
    assert seen["all"] == [("r1", 1), ("r2", 1), ("r1", 2), ("r1", 3)]
    assert seen["run"] == [("r1", 1), ("r1", 2), ("r1", 3)]
    assert seen["new"] == [("r1", 2), ("r1", 3)]
