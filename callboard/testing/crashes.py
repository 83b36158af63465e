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
    only: RunRef | None = None
    """The run at whose appends writers crash; None for all runs."""

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        if beside is not None:
            return await self._put_together(ref, entries, after, beside)
        if self.only not in (None, ref):
            return await super().put(ref, entries, after)
        for entry in entries:
            point = self.crash(entry)
            if point == "before":
                raise Crash
            after = await super().put(ref, [entry], after)
            if point == "after":
                raise Crash
        return after

    async def _put_together(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside) -> int:
        """Store all entries or none: whoever crashes within the batch has stored nothing."""
        points = [self.crash(entry) if self.only in (None, ref) else None for entry in entries]
        if "before" in points or "after" in points[:-1]:
            raise Crash
        after = await super().put(ref, entries, after, beside)
        if points[-1] == "after":
            raise Crash
        return after
