"""Crashes on demand: an in-memory log whose writers crash at chosen appends."""

from collections.abc import Callable, Sequence
from typing import Literal

from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import Beside, Entry
from callboard.bus.subjects import RunRef


class Crash(BaseException):
    """Raised where a worker crashes."""


CrashPoint = Literal["before", "after"] | None


def never(_entry: Entry) -> CrashPoint:
    return None


class CrashingLog(MemoryLog):
    """An in-memory log whose writers crash at chosen appends, directly before or after the entry is stored."""

    crash: Callable[[Entry], CrashPoint] = staticmethod(never)

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        for entry in entries:
            point = self.crash(entry)
            if point == "before":
                raise Crash
            after = await super().put(ref, [entry], after, beside)
            if point == "after":
                raise Crash
        return after
