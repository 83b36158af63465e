"""Random workflows in Python, killed at every event: they end as they do undisturbed, and repeat nothing recorded."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.bus.log.port import Beside, Entry
from callboard.bus.subjects import RunRef
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog, CrashPoint
from callboard.testing.virtual_time import simulate
from tests.support.python_programs import OUTSIDE, REF, Tree, hands_for, trees
from tests.support.run_harness import end_of
from tests.support.sweeps import EVERY

PROGRAMS = 100 if EVERY else 6

fixed = settings(max_examples=PROGRAMS, derandomize=True, database=None, print_blob=False)


class NotingLog(CrashingLog):
    """A log that notes the run and the number of each event, in the order in which they are appended."""

    def __init__(self) -> None:
        super().__init__()
        self.appended: list[tuple[str, int]] = []
        self.on_append: Callable[[RunRef, int], object] = lambda _ref, _n: None

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        self.appended += [(ref.run, entry.n) for entry in entries]
        for entry in entries:
            self.on_append(ref, entry.n)
        return await super().put(ref, entries, after, beside)


async def perform(
    tree: Tree, cancel_at: int | None, death: int | None = None, pauses: Collection[int] = ()
) -> tuple[ev.RunEnd, int]:
    """Perform a program, and check its logs. With ``death`` its worker dies after it has appended that event.

    After the events ``pauses`` of the run, it is paused; it is resumed once all runs rest. Return how the run ended,
    and the number of events that it and its children have appended.
    """
    count = 0

    def crash(_entry: Entry) -> CrashPoint:
        nonlocal count
        count += 1
        return "after" if count == death else None

    log = NotingLog()
    log.crash = crash
    hands = hands_for(tree, log, cancel_at=cancel_at, always_replay=death is None)
    left = set(pauses)

    def pause(ref: RunRef, n: int) -> None:
        if ref == REF and n in left:
            left.remove(n)
            hands.say(REF, "pause")

    log.on_append = pause
    harness = hands.harness
    end = end_of(await hands.finish(await harness.accept("p")))
    assert death is None or hands.crashes == 1
    assert not OUTSIDE
    carried = Counter(harness.carried)
    before = set(log.appended[:death])
    for member in await hands.family(REF):
        events = await harness.events(member)
        check_log(events)
        if any(event.type == ev.RunStart.type for event in events):
            # A child that is cancelled before it starts has nothing to replay.
            check_replay(harness.language, member, events)
        check_pauses(events)
        for event in events:
            if ev.TYPES[event.type].kind == "outcome" and (member.run, event.n) in before:
                assert carried[member.run, event.key] <= 1, f"{event.key} was executed again"
    return end, len(log.appended)


def check_pauses(events: Sequence[Event]) -> None:
    """Check that no effect begins while a run is paused."""
    paused = False
    for event in events:
        match event.type:
            case ev.RunPaused.type:
                paused = True
            case ev.RunResumed.type | ev.CancelRequested.type:
                paused = False
            case _:
                assert not (paused and ev.TYPES[event.type].kind == "intent"), f"event {event.n} began in a pause"


@fixed
@given(trees, st.none() | st.integers(0, 3))
def test_a_program_whose_worker_dies_at_any_event_ends_as_without_the_death(tree: Tree, cancel_at: int | None) -> None:
    structlog.configure(processors=[])

    async def body() -> None:
        expected, appended = await perform(tree, cancel_at)
        for death in range(2, appended + 1):
            end, _ = await perform(tree, cancel_at, death)
            assert end == expected, f"after a death at event {death}"

    simulate(body)


@settings(fixed, max_examples=max(1, PROGRAMS // 4))
@given(trees, st.sets(st.integers(3, 14), min_size=1, max_size=3))
def test_a_program_that_is_paused_ends_as_without_the_pause(tree: Tree, pauses: set[int]) -> None:
    structlog.configure(processors=[])

    async def body() -> None:
        expected, _ = await perform(tree, None)
        end, appended = await perform(tree, None, pauses=pauses)
        assert end == expected
        for death in range(2, appended + 1):
            end, _ = await perform(tree, None, death, pauses)
            assert end == expected, f"after a death at event {death}"

    simulate(body)
