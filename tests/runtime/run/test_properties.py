"""Random plays with random crashes and faults of the log keep the properties of every run.

A play is a small tree, performed by one interpreter. A failing example prints its tree, faults and crash points.
"""

from dataclasses import dataclass

import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.log.memory import Fault
from callboard.bus.log.port import Entry
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Expired, Failed, Ok, Stage, Task
from callboard.lib.json_types import JSON
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog, CrashPoint
from callboard.testing.virtual_time import simulate
from tests.support.run_harness import end_of
from tests.support.sample_interpreters import after, value
from tests.support.simulation import World, finish, harness_for

# -- trees -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    wait_s: int
    fails: bool


@dataclass(frozen=True)
class Sleep:
    seconds: int


@dataclass(frozen=True)
class Sequence:
    parts: list["Tree"]


@dataclass(frozen=True)
class Parallel:
    parts: list["Tree"]


@dataclass(frozen=True)
class Race:
    parts: list["Tree"]


@dataclass(frozen=True)
class Timeout:
    seconds: int
    part: "Tree"


@dataclass(frozen=True)
class Retry:
    times: int
    part: "Tree"


@dataclass(frozen=True)
class Cancel:
    """A part that is cancelled after some seconds, and then cleans up."""

    seconds: int
    part: "Tree"


@dataclass(frozen=True)
class Shielded:
    part: "Tree"


Tree = Effect | Sleep | Sequence | Parallel | Race | Timeout | Retry | Cancel | Shielded

seconds = st.integers(0, 20)
leaves: st.SearchStrategy[Tree] = st.builds(Effect, seconds, st.booleans()) | st.builds(Sleep, seconds)


def clockless(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    """Trees whose result does not depend on durations."""
    several = st.lists(parts, min_size=1, max_size=3)
    return (
        st.builds(Sequence, several)
        | st.builds(Parallel, several)
        | st.builds(Retry, st.integers(1, 3), parts)
        | st.builds(Shielded, parts)
    )


def clocked(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    several = st.lists(parts, min_size=2, max_size=3)
    return st.builds(Race, several) | st.builds(Timeout, seconds, parts) | st.builds(Cancel, seconds, parts)


clockless_trees = st.recursive(leaves, clockless, max_leaves=6)
trees = st.recursive(leaves, lambda parts: clockless(parts) | clocked(parts), max_leaves=7)

# -- the interpreter ---------------------------------------------------------------------------------------------------


async def perform(stage: Stage, tree: Tree, path: str) -> JSON:
    """Perform a tree; return the results of its parts."""
    node = stage.enter(path, type(tree).__name__)
    done = False
    result: JSON = None
    try:
        match tree:
            case Effect(wait_s, fails):
                request = {"after": wait_s, "value": path, **({"fail": "no"} if fails else {})}
                outcome = await node.call("call", "http", request)
                result = outcome.error.code if isinstance(outcome, Failed) else outcome.value
            case Sleep(duration):
                await node.sleep("sleep", after(node.entered_at, duration))
                result = "slept"
            case Sequence(parts):
                result = [await perform(stage, part, f"{path}/{i}") for i, part in enumerate(parts)]
            case Parallel(parts):
                result = [value(settled) for settled in await stage.join(*spawn_parts(stage, parts, path))]
            case Race(parts):
                tasks = spawn_parts(stage, parts, path)
                winner = await stage.first(*tasks)
                for loser in tasks:
                    stage.cancel(loser, Failure("lost"), winner)
                result = [value(settled) for settled in await stage.join(*tasks)]
            case Timeout(duration, part):
                due = after(node.entered_at, duration)
                bounded = await stage.within(due, perform(stage, part, f"{path}/0"), node=node, slot="timeout")
                result = ["expired", value(bounded.settled)] if isinstance(bounded, Expired) else bounded.value
            case Retry(times, part):
                for _ in range(times):
                    result = await perform(stage, part, f"{path}/0")
                    if result != "no":
                        break
                    node.retry("it said no")
            case Cancel(duration, part):
                task = stage.spawn(perform(stage, part, f"{path}/0"))
                await node.sleep("before", after(node.entered_at, duration))
                stage.cancel(task, Failure("stopped"), node)
                result = [value(settled) for settled in await stage.join(task)]
            case Shielded(part):
                async with stage.shield():
                    result = await perform(stage, part, f"{path}/0")
        done = True
        return result
    finally:
        if not done:
            async with stage.shield():
                tidied = await node.call("tidy", "http", {"after": 1, "value": "tidy"})
                assert isinstance(tidied, Ok)
        node.exit("ok" if done else "cancelled")


def spawn_parts(stage: Stage, parts: list[Tree], path: str) -> list[Task[JSON]]:
    return [stage.spawn(perform(stage, part, f"{path}/{i}")) for i, part in enumerate(parts)]


# -- properties --------------------------------------------------------------------------------------------------------

crashes = st.lists(st.tuples(st.integers(2, 60), st.sampled_from(["before", "after"])), max_size=6)
faults = st.lists(st.sampled_from(["none", "none", "refused", "stored_but_unknown", "lost", "late"]), max_size=40)

sixty_examples = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


async def perform_with_faults(tree: Tree, crashing: list[tuple[int, CrashPoint]], failing: list[Fault]) -> ev.RunEnd:
    """Perform a tree with crashes and faults, check its log, and return its end."""
    structlog.configure(processors=[])

    async def play(stage: Stage) -> End:
        return End("completed", await perform(stage, tree, "t"))

    left = [*crashing]
    faults_left: list[Fault] = [*failing]
    recorded: set[str] = set()
    started: list[tuple[str, bool]] = []

    def crash(entry: Entry) -> CrashPoint:
        point = next((item for item in left if item[0] == entry.n), None)
        if point is None:
            return None
        left.remove(point)
        return point[1]

    def fault(_ref: RunRef, _entry: Entry) -> Fault:
        if not faults_left:
            return "none"
        return faults_left.pop(0)

    log = CrashingLog(faults=fault)
    log.crash = crash
    harness = harness_for(play, log)
    carry = harness.calls
    assert carry is not None

    async def record_execution(job: object, request: JSON) -> tuple[JSON, JSON]:
        events = await log.read(ref)
        recorded.update(item.event.key for item in events if ev.TYPES[item.event.type].kind == "outcome")
        started.append((harness.executed[-1], harness.executed[-1] in recorded))
        return await carry(job, request)  # pyright: ignore[reportArgumentType] -- as it came

    harness.calls = record_execution
    ref = await harness.accept("p")
    events = await finish(harness, ref, World())
    check_log(events)
    check_replay(harness.language, ref, events)
    assert not [key for key, again in started if again], "a recorded effect was executed again"
    return end_of(events)


@sixty_examples
@given(trees, crashes, faults)
def test_every_run_completes_despite_crashes_and_faults(
    tree: Tree, crashing: list[tuple[int, CrashPoint]], failing: list[Fault]
) -> None:
    async def body() -> None:
        end = await perform_with_faults(tree, crashing, failing)
        assert end.status == "completed"

    simulate(body)


@sixty_examples
@given(clockless_trees, crashes, faults)
def test_a_tree_without_deadlines_ends_the_same_despite_crashes_and_faults(
    tree: Tree, crashing: list[tuple[int, CrashPoint]], failing: list[Fault]
) -> None:
    async def body() -> None:
        assert await perform_with_faults(tree, crashing, failing) == await perform_with_faults(tree, [], [])

    simulate(body)


@sixty_examples
@given(trees)
def test_a_run_without_faults_executes_every_effect_once(tree: Tree) -> None:
    async def play(stage: Stage) -> End:
        return End("completed", await perform(stage, tree, "t"))

    async def body() -> None:
        harness = harness_for(play)
        ref = await harness.accept("p")
        events = await finish(harness, ref, World())
        check_log(events)
        intents = [event.key for event in events if event.type == ev.EffectCall.type]
        assert sorted(harness.executed) == sorted(set(harness.executed))
        assert set(harness.executed) <= set(intents)

    simulate(body)
