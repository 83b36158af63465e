"""The pace of a worker: long work of one run is done in slices of `SLICE_S`, between which other runs go on.

Interpreters run on the loop's own thread, and within a turn nothing interrupts them. But a turn can be done piece by
piece, between which other runs go on: that the interpreter is not at rest yet is nobody else's affair, and no event
comes to it meanwhile, so its log is the same.
"""

import asyncio
import math
from collections.abc import Callable, Iterator
from time import monotonic

import anyio
import anyio.lowlevel

SLICE_S = 0.01
"""How long the loop may be kept by runs before it looks at everything else."""

REST_SHARE = 0.5
"""How long long work rests behind a piece, as a share of the time that the piece took: others have many short ones."""

IDLE_SHARE = 0.05
"""If everything else had to do for less than this share of a slice, nobody is there to rest for."""


class Pace:
    """Slices the work of one worker's runs. With an infinite ``slice_s`` no work is interrupted."""

    def __init__(self, slice_s: float = SLICE_S, clock: Callable[[], float] = monotonic) -> None:
        self._slice_s = slice_s
        self._clock = clock
        self._since: float | None = None
        self._long = anyio.Lock()
        self.doing = ""
        """Whose work is being done; empty in between."""

    def pressed(self) -> bool:
        """Whether the loop has been kept long enough since it was last seen to look at everything else."""
        if self._slice_s == math.inf:
            return False
        if self._since is None:
            self._since = self._clock()
            asyncio.get_running_loop().call_soon(self._looked)
            return False
        return self._clock() - self._since >= self._slice_s

    def _looked(self) -> None:
        self._since = None

    async def work(self, pieces: Iterator[None], *, of: str = "", long: bool = False) -> bool:
        """Do somebody's work piece by piece; return whether it kept the loop for long.

        ``long`` says that it will probably do so. Of such work, and of what turns out to be such, only one piece is
        done at a time, and behind it the loop has time for others.
        """
        done = kept = False
        if not long:
            while self.pressed():
                await anyio.lowlevel.checkpoint()
            done, kept = await self._piece(pieces, of)
        while not done:
            async with self._long:
                done, long = await self._piece(pieces, of)
                kept = kept or long
        return kept

    async def _piece(self, pieces: Iterator[None], of: str) -> tuple[bool, bool]:
        """Work until the loop has been kept long enough, and rest if so, unless nobody else has anything to do.

        Return whether that was all, and whether it took long.
        """
        self.doing = of
        try:
            done, took = self._slice(pieces)
        finally:
            self.doing = ""
        long = took > self._slice_s
        if long or not done:
            others = await self._looked_around()
            if others >= self._slice_s * IDLE_SHARE:
                await anyio.sleep(took * REST_SHARE)
        return done, long or not done

    async def _looked_around(self) -> float:
        """Let the loop look at everything else once; return how long that took."""
        began = self._clock()
        await anyio.lowlevel.checkpoint()
        return self._clock() - began

    def _slice(self, pieces: Iterator[None]) -> tuple[bool, float]:
        """Do pieces until the loop has been kept long enough; return whether those were all, and how long it took."""
        began = self._clock()
        for _ in pieces:
            if self.pressed():
                return False, self._clock() - began
        return True, self._clock() - began
