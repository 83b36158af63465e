"""The pace of a worker: long work of one run is done in slices of `SLICE_S`, between which other runs continue.

Interpreters run on the event loop's thread, and nothing interrupts them within a turn. But a turn may be done piece by
piece, and other runs continue between the pieces. Other runs do not depend on whether this interpreter is at rest, and
no event is delivered to it between pieces, so its log is the same. Long computations (`Driver.compute`) run on a thread
beside the loop; the loop waits for that thread at most `TURN_S` of `callboard.lib.threads` at a time.
"""

import asyncio
import math
from collections.abc import Callable, Iterator
from time import monotonic

import anyio
import anyio.lowlevel
from anyio import from_thread
from anyio.lowlevel import RunVar
from msgspec import Struct

from callboard.lib.loop_polls import Polls, polls_of
from callboard.lib.threads import Beside, on_a_thread, on_the_loop
from callboard.runtime.interpreter.computation import Computation, run_thread

SLICE_S = 0.01
"""How long runs may occupy the loop before it serves all other tasks."""

REST_SHARE = 0.5
"""How long long work rests after a piece, as a share of the piece's time, because others have many short pieces."""

IDLE_SHARE = 0.05
"""If all other tasks together needed less than this share of a slice, long work does not rest."""


COMPUTATIONS_MAX = 4
"""Maximum number of concurrent computations of one worker's runs; each has a thread."""


async def computed_on_a_thread(work: Callable[[], None]) -> None:
    """Carry a computation out on a thread; at most `COMPUTATIONS_MAX` run concurrently."""

    def carry_out() -> None:
        with run_thread(from_thread.run_sync):
            work()

    await on_a_thread(carry_out, _computations())


class Pace:
    """Slices the work of one worker's runs. With an infinite ``slice_s`` no work is interrupted."""

    def __init__(
        self, slice_s: float = SLICE_S, clock: Callable[[], float] = monotonic, beside: Beside = computed_on_a_thread
    ) -> None:
        self._slice_s = slice_s
        self._clock = clock
        self.beside = on_the_loop if slice_s == math.inf else beside
        """Carries long work out beside the loop."""
        self._polls: Polls | None = None
        self._poll = -1
        self._since = 0.0
        self._long = anyio.Lock()
        self.doing = ""
        """The run whose work is being done; empty in between."""

    def is_pressed(self) -> bool:
        """Whether runs have occupied the loop for a whole slice since it last served other tasks."""
        if self._slice_s == math.inf:
            return False
        polls = self._polls
        if polls is None:
            polls = self._polls = polls_of(asyncio.get_running_loop())
        if polls.number != self._poll:
            self._poll = polls.number
            self._since = self._clock()
            return False
        return self._clock() - self._since >= self._slice_s

    async def work(self, pieces: Iterator[Computation | None], *, of: str = "", long: bool = False) -> bool:
        """Do work piece by piece; return whether it occupied the loop for long.

        ``long`` means that it probably will. Pieces of long work, announced or not, are done one at a time, and after
        each the loop has time for other tasks. Computations beside the loop are not such pieces, so other long work
        continues during them.
        """
        piece, kept = _Piece(), False
        if not long:
            while self.is_pressed():
                await anyio.lowlevel.checkpoint()
            piece = await self._piece(pieces, of)
            kept = piece.long
        while not piece.last:
            if piece.computation is not None:
                await self.beside(piece.computation.carry_out)
            async with self._long:
                piece = await self._piece(pieces, of)
                kept = kept or piece.long
        return kept

    async def _piece(self, pieces: Iterator[Computation | None], of: str) -> "_Piece":
        """Work for at most a slice. After a long piece, rest, unless no other task needs the loop."""
        self.doing = of
        try:
            piece, took = self._slice(pieces)
        finally:
            self.doing = ""
        if piece.long:
            others = await self._serve_others()
            if others >= self._slice_s * IDLE_SHARE:
                await anyio.sleep(took * REST_SHARE)
        return piece

    async def _serve_others(self) -> float:
        """Let the loop serve all other tasks once; return how long that took."""
        began = self._clock()
        await anyio.lowlevel.checkpoint()
        return self._clock() - began

    def _slice(self, pieces: Iterator[Computation | None]) -> tuple["_Piece", float]:
        """Do pieces until the slice is over or a computation must be carried out; return result and duration."""
        began = self._clock()
        for computation in pieces:
            if computation is not None:
                took = self._clock() - began
                return _Piece(long=took > self._slice_s, computation=computation), took
            if self.is_pressed():
                return _Piece(long=True), self._clock() - began
        took = self._clock() - began
        return _Piece(long=took > self._slice_s, last=True), took


class _Piece(Struct, frozen=True):
    """The result of a slice: whether it occupied the loop for long, whether it was the last, and the computation that
    must be carried out before the next."""

    long: bool = False
    last: bool = False
    computation: Computation | None = None


_LIMITER: RunVar[anyio.CapacityLimiter] = RunVar("computations")


def _computations() -> anyio.CapacityLimiter:
    """The limiter of computations, one per event loop, no matter how many paces there are."""
    limiter = _LIMITER.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(COMPUTATIONS_MAX)
        _LIMITER.set(limiter)
    return limiter
