"""Evaluating rules: reads are bounded in events, bytes and runs, and every run is evaluated."""

import datetime as dt
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from callboard.bus.events import DefinitionRef, NodeProgress, Outline, Payload, RunAccepted, RunEnd, RunPaused
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.recorded import Recorded
from callboard.bus.subjects import RunRef
from callboard.features.notify import rule_evaluation
from callboard.features.notify.notice import Notice
from callboard.features.notify.rule_evaluation import Judge
from callboard.runtime.run.log import RunLog
from callboard.runtime.settings.notify_settings import NotifyRule

LARGE = "x" * 400_000
LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
EVENTS = 40


class CountingLog(MemoryLog):
    """Records the bytes of each read and the number of concurrent reads."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[int] = []
        self.values = 0
        self.reading = 0
        self.reading_most = 0

    def without_keys(self) -> "CountingLog":
        return self  # this log has no encryption

    async def read(
        self, ref: RunRef, after: int = 0, limit: int | None = None, bytes_max: int | None = None
    ) -> list[Recorded]:
        self.reading += 1
        self.reading_most = max(self.reading_most, self.reading)
        try:
            await anyio.lowlevel.checkpoint()
            found = await super().read(ref, after, limit, bytes_max)
        finally:
            self.reading -= 1
        self.pages.append(sum(len(item.data) for item in found))
        return found

    async def get_blob(self, ref: RunRef, digest: str) -> bytes:
        self.values += 1
        return await super().get_blob(ref, digest)


async def recorded(log: MemoryLog, run: str, *payloads: Payload) -> Recorded:
    """Record a run; return its last event."""
    runlog = RunLog(log, RunRef("acme", run), writer="w")
    runlog.definition = "d"
    begun = RunAccepted(DefinitionRef("workflow", "ab" * 32, "{}", "d"), {}, Outline(), tags={"customer": "acme"})
    for payload in (begun, *payloads):
        runlog.state(payload)
    while runlog.queue:
        await runlog.append_queued()
    last = await log.last(runlog.ref)
    assert last is not None
    return last


def judge(log: MemoryLog, turns: int = 1, **rule: Any) -> Judge:
    made = NotifyRule.model_validate({"webhook": "https://example.com", "tenant": "acme", **rule})
    return Judge(log, "mine", made, None, anyio.CapacityLimiter(turns))


def progress(count: int, size: int) -> list[Payload]:
    return [NodeProgress("a", str(n) + "y" * size) for n in range(count)]


async def test_a_long_run_is_read_in_pages_with_only_the_large_values_that_a_rule_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule_evaluation, "PAGE_BYTES", 50_000)
    log = CountingLog()
    long = progress(EVENTS, 10_000)
    large = [NodeProgress("a", "found", data=LARGE)] * 3
    end = await recorded(log, "ends", *long, *large, RunEnd("failed", output={"words": f"needle {LARGE}"}))
    wanted = judge(log, on="failed", where="tag.customer=acme and text~needle")
    found = await wanted.judge(end, LATER)
    assert isinstance(found, Notice)
    assert (found.run, found.n) == ("ends", end.event.n)
    assert await judge(log, on="failed", where="text~nothing").judge(end, LATER) is None
    assert log.values == 2, "that of the end, once for each question"
    assert max(log.pages) < 2 * 50_000
    assert len(log.pages) > EVENTS * 10_000 / (2 * 50_000)
    # A pause is found after any number of pages.
    waits = await recorded(log, "waits", *long, RunPaused("command", message="for ever"))
    slow = judge(log, on="waiting", longer_than="1s")
    told = await slow.judge(waits, LATER)
    assert isinstance(told, Notice)
    assert told.run == "waits"


async def test_all_runs_are_evaluated_within_the_concurrency_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_evaluation, "PAGE_EVENTS", 5)
    log = CountingLog()
    ends = [await recorded(log, f"r{i}", *progress(20, 10), RunEnd("failed")) for i in range(8)]
    one, told = judge(log, turns=2, on="failed", where="tag.customer=acme"), list[str]()

    async def look(item: Recorded) -> None:
        if await one.judge(item, LATER) is not None:
            told.append(item.ref.run)

    async with anyio.create_task_group() as tasks:
        for item in ends:
            tasks.start_soon(look, item)
    assert sorted(told) == [f"r{i}" for i in range(8)]
    assert log.reading_most == 2
