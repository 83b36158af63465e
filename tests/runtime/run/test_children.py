"""Child runs in a simulated world: started once, heard of once, stopped with their parents, whoever dies when."""

import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
import structlog

from callboard.bus import events as ev
from callboard.bus.effects import Failure, Usage
from callboard.bus.errors import RunLost
from callboard.bus.events import Event
from callboard.bus.log.memory import Fault, MemoryLog
from callboard.bus.log.port import Entry, NoAnswer, Recorded
from callboard.bus.subjects import RunRef
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from callboard.projections.trace.trace import TraceFold
from callboard.runtime.run.children import BEHIND_MAX, LINEAGE_MAX
from callboard.runtime.run.log import RunLog
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.tree_text import tree_text
from callboard.surfaces.cli.views import open_line
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog, CrashPoint
from callboard.testing.virtual_time import VIRTUAL
from tests.support.families import Hands, children_of, family_theatre
from tests.support.run_harness import end_of, types
from tests.support.sweeps import select


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


@pytest.fixture(autouse=True)
def plain_log(quiet_log: None) -> None:
    """Spare the rendering of tracebacks that nobody reads."""
    structlog.configure(processors=[])


ROOT = RunRef("acme", "r1")

Meanwhile = Callable[[Hands], Awaitable[None]]


def when_at_work(verb: str) -> Meanwhile:
    """Tell the root something, once, when the youngest of a line of runs is at work."""

    async def tell(hands: Hands) -> None:
        if any(message.ref == ROOT and message.verb == verb for message in hands.messages):
            return
        youngest = (await hands.family(ROOT))[-1]
        if ev.EffectCall.type in types(await hands.harness.events(youngest)):
            hands.say(ROOT, verb, reason="enough", by="Ada")

    return tell


@dataclass(frozen=True)
class Case:
    """A family, what happens to it, and how its runs end, the root first."""

    play: str
    ends: tuple[str, ...]
    meanwhile: str = ""

    def __str__(self) -> str:
        return f"{self.play} {self.meanwhile}".strip()

    def hands(self, log: CrashingLog | None = None) -> Hands:
        return Hands(family_theatre(log), when_at_work(self.meanwhile) if self.meanwhile else None)


CASES = [
    Case("mother", ("completed", "completed", "completed", "completed", "failed")),
    Case("impatient", ("completed", "cancelled")),
    Case("fails", ("failed", "cancelled")),
    Case("grandmother", ("cancelled", "cancelled", "cancelled"), "cancel"),
    Case("grandmother", ("cancelled", "cancelled", "cancelled"), "kill"),
]

every_case = pytest.mark.parametrize("case", CASES, ids=str)


async def perform(case: Case, hands: Hands) -> dict[RunRef, ev.RunEnd]:
    """Perform a family; return the ends of its runs."""
    ref = await hands.harness.accept(case.play, input=0)
    await hands.finish(ref)
    ends: dict[RunRef, ev.RunEnd] = {}
    for member in await hands.family(ref):
        events = await hands.harness.events(member)
        check_log(events)
        if end_of(events).status == "completed":
            check_replay(hands.harness.language, member, events)
        ends[member] = end_of(events)
    return ends


@every_case
async def test_a_family_comes_to_its_end(case: Case) -> None:
    hands = case.hands()
    ends = await perform(case, hands)
    assert tuple(end.status for end in ends.values()) == case.ends
    executed = hands.harness.executed
    assert len(executed) == len({*executed}) or case.play == "mother"


@every_case
async def test_crash_at_every_append_of_the_family(case: Case) -> None:
    """Before one, or after the previous one: the log is the same, so each boundary has one of the two deaths."""
    appended: list[str] = []

    def note(entry: Entry) -> CrashPoint:
        appended.append(entry.type)
        return None

    log = CrashingLog()
    log.crash = note
    expected = await perform(case, case.hands(log))
    count = len(appended)
    assert count > 20

    for n in select([*itertools.pairwise([*appended, ""])]):
        # The first append is the root's own admission.
        point, k = ("after", n) if n % 2 == 0 or n == count else ("before", n + 1)
        counted = itertools.count(1)

        def crash(_entry: Entry, point: CrashPoint = point, k: int = k, counted: Iterator[int] = counted) -> CrashPoint:
            return point if next(counted) == k else None

        log = CrashingLog()
        log.crash = crash
        hands = case.hands(log)
        assert await perform(case, hands) == expected, f"after a crash {point} append {k}"
        assert hands.crashes == 1


@every_case
async def test_every_step_of_the_family_by_replay(case: Case) -> None:
    expected = await perform(case, case.hands())
    hands = case.hands()
    hands.harness.always_replay = True
    assert await perform(case, hands) == expected


@every_case
async def test_lost_acknowledgements_say_nothing_twice(case: Case) -> None:
    """What concerns two runs is stored, and its writer hears nothing; it is tried again and must not be said again."""
    expected = await perform(case, case.hands())
    troubled: set[str] = set()

    def fault(_ref: RunRef, entry: Entry) -> Fault:
        if entry.type not in (ev.RunEnd.type, ev.EffectCancelled.type, ev.RunAccepted.type) or entry.id in troubled:
            return "none"
        troubled.add(entry.id)
        return "stored_but_unknown"

    harness = case.hands().harness
    ref = await harness.accept(case.play, input=0)
    assert isinstance(harness.log, MemoryLog)
    harness.log.faults = fault
    hands = Hands(harness, when_at_work(case.meanwhile) if case.meanwhile else None)
    await hands.finish(ref)
    assert {member: end_of(await harness.events(member)) for member in await hands.family(ref)} == expected
    assert len(troubled) >= len(expected)
    wakes = [run_message for run_message in harness.children.run_messages if run_message.verb == "wake"]
    assert len(wakes) == len(expected) - 1


# -- what a parent sees -----------------------------------------------------------------------------------------------


async def family(play: str, **names: Any) -> tuple[Hands, list[Event]]:
    hands = Hands(family_theatre(**names))
    ref = await hands.harness.accept(play, input=0)
    return hands, await hands.finish(ref)


def child_ends(events: list[Event]) -> dict[str, ev.ChildEnd]:
    ends = {event.key: ev.payload_of(event) for event in events if event.type == ev.ChildEnd.type}
    return {key: end for key, end in ends.items() if isinstance(end, ev.ChildEnd)}


def accepted_of(events: list[Event]) -> ev.RunAccepted:
    accepted = ev.payload_of(events[0])
    assert isinstance(accepted, ev.RunAccepted)
    return accepted


async def test_a_parent_sees_what_its_children_came_to() -> None:
    _, events = await family("mother")
    twins = [["completed", [0, "do", "three"], None], ["completed", [1, "do", "three"], None]]
    late = ["completed", ["late", "do", "three"], None]
    assert end_of(events).output == ["do", twins, late, ["failed", None, "internal"], ["failed", None, "child.refused"]]


async def test_what_children_cost_counts_once() -> None:
    """Five turns: one of the mother's own, one of each child."""
    hands, events = await family("mother")
    assert end_of(events).usage == Usage(50, 5)
    child = RunRef("acme", children_of(events)["late#1.1!call"])
    assert end_of(await hands.harness.events(child)).usage == Usage(10, 1)


async def test_a_child_says_whose_it_is_and_takes_its_parents_model_along() -> None:
    hands, events = await family("mother")
    child = children_of(events)["late#1.1!call"]
    accepted = accepted_of(await hands.harness.events(RunRef("acme", child)))
    assert accepted.parent == ev.Parent("r1", "late#1.1!call", 1)
    assert accepted.start["run_id"] == child
    assert accepted.start["script"] == hands.harness.script


async def test_the_end_of_a_parked_runs_child_names_the_command_that_woke_it() -> None:
    hands, events = await family("mother")
    causes = {event.key: event.cause for event in events if event.type == ev.ChildEnd.type}
    wakes = {message.sequence for message in hands.messages if message.verb == "wake"}
    woken = [key for key, end in child_ends(events).items() if (end.error or Failure("")).code != "child.refused"]
    assert {causes[key] for key in woken} == wakes
    assert len(wakes) == 4


async def test_a_waiting_parent_is_parked() -> None:
    _, events = await family("impatient")
    parked = [ev.payload_of(event) for event in events if event.type == ev.RunParked.type]
    awaited = ["slow#1.1!call", "top#1.1!timeout"]
    assert [sorted(payload.awaits) for payload in parked if isinstance(payload, ev.RunParked)] == [awaited]


async def test_a_refusal_names_every_problem() -> None:
    _, events = await family("mother")
    refused = child_ends(events)["none#1.1!call"]
    assert refused.status == "failed"
    assert refused.error is not None
    assert refused.error.details == {
        "problems": [{"code": "play.unknown", "message": "there is no play 'nobody'"}],
    }


async def test_a_definition_that_starts_itself_comes_to_an_end() -> None:
    hands, events = await family("endless")
    assert end_of(events).output == [LINEAGE_MAX, "child.refused"]
    generations = await hands.family(ROOT)
    assert len(generations) == 1 + LINEAGE_MAX
    youngest = await hands.harness.events(generations[-1])
    assert (accepted_of(youngest).parent or ev.Parent("", "", 0)).depth == LINEAGE_MAX
    (refused,) = child_ends(youngest).values()
    assert refused.error is not None
    assert [problem["code"] for problem in refused.error.details["problems"]] == ["child.too_deep"]


async def test_views_name_the_child_at_its_node() -> None:
    _, events = await family("mother")
    child = children_of(events)["late#1.1!call"]
    begun = next(i for i, event in enumerate(events) if event.key == "late#1.1!call")
    parked = next(i for i, event in enumerate(events) if i > begun and event.type == ev.RunParked.type)
    so_far = fold(Results(), events[: parked + 1])
    assert so_far.status == "waiting:child"
    assert [effect.run for effect in so_far.open] == [child]
    assert open_line(so_far.open[0], "r1", Settings()).endswith(f"show {child}")
    tree = tree_text(fold(TraceFold(), events)).splitlines()
    (line,) = [line for line in tree if child in line]
    assert f"child play → run {child}" in line
    assert line.lstrip("│├└─ ").startswith("✓")
    assert tree.index(line) > next(i for i, other in enumerate(tree) if "late" in other)


# -- stopping ---------------------------------------------------------------------------------------------------------


async def test_a_cancellation_goes_down_the_line_and_every_run_tidies_up() -> None:
    hands = CASES[3].hands()
    await perform(CASES[3], hands)
    *_, youngest = await hands.family(ROOT)
    events = await hands.harness.events(youngest)
    (requested,) = [ev.payload_of(event) for event in events if event.type == ev.CancelRequested.type]
    assert isinstance(requested, ev.CancelRequested)
    assert not requested.kill
    assert (requested.reason, requested.message) == ("cancelled", "enough")
    assert (requested.by or "").startswith("run ")
    assert requested.details["type"] == "cancellation"
    assert "work#1.1!tidy" in hands.harness.executed


async def test_a_kill_goes_down_the_line_and_nothing_tidies_up() -> None:
    hands = CASES[4].hands()
    await perform(CASES[4], hands)
    for member in await hands.family(ROOT):
        events = await hands.harness.events(member)
        (requested,) = [ev.payload_of(event) for event in events if event.type == ev.CancelRequested.type]
        assert isinstance(requested, ev.CancelRequested)
        assert requested.kill
    assert "work#1.1!tidy" not in hands.harness.executed


async def test_a_child_that_is_being_admitted_while_its_parent_is_cancelled_is_stopped_too() -> None:
    """The cancellation waits until the child is there, or is refused."""
    hands = Hands(family_theatre())
    ref = await hands.harness.accept("line")
    admit = hands.harness.children.admit_child

    async def slowly(child: RunRef, message: bytes, parent: ev.Parent) -> list[ev.Problem]:
        hands.say(ref, "cancel", reason="enough")
        await anyio.sleep(30)
        return await admit(child, message, parent)

    hands.harness.children.admit_child = slowly
    events = await hands.finish(ref)
    assert end_of(events).status == "cancelled"
    _, child = await hands.family(ref)
    assert end_of(await hands.harness.events(child)).status == "cancelled"


async def test_a_refused_child_is_told_nothing_when_its_parent_is_cancelled() -> None:
    hands = Hands(family_theatre())
    ref = await hands.harness.accept("line")

    async def refusing(child: RunRef, message: bytes, parent: ev.Parent) -> list[ev.Problem]:
        hands.say(ref, "cancel", reason="enough")
        await anyio.sleep(30)
        return [ev.Problem("no", "no")]

    hands.harness.children.admit_child = refusing
    assert end_of(await hands.finish(ref)).status == "cancelled"
    assert hands.harness.children.run_messages == []


# -- ends that nobody announces ---------------------------------------------------------------------------------------


async def test_an_active_parent_looks_at_its_children_unasked() -> None:
    """As when a run that nobody can perform is killed: its end is written, and nobody is told."""
    hands = Hands(family_theatre())
    ref = await hands.harness.accept("fails")
    ended = False

    async def end_silently(_: Hands) -> None:
        nonlocal ended
        members = await hands.family(ref)
        if ended or len(members) < 2:
            return
        ended = True
        child = members[1]
        hands.harness.children.called.remove(child)
        last = await hands.harness.log.last(child)
        assert last is not None
        assert last.event.n == 1
        runlog = RunLog(hands.harness.log, child, writer="somebody", clock=hands.harness.clock)
        runlog.continue_from([last])
        runlog.state(ev.RunEnd("cancelled", error=Failure("cancelled", "killed")))
        await runlog.append_queued()

    hands = Hands(hands.harness, end_silently)
    events = await hands.finish(ref)
    (end,) = child_ends(events).values()
    assert end.status == "cancelled"
    assert hands.harness.children.run_messages == []


async def test_a_wake_for_a_child_that_goes_on_changes_nothing() -> None:
    said = False

    async def early(hands: Hands) -> None:
        nonlocal said
        if not said and len(await hands.family(ROOT)) > 1:
            said = True
            key, child = next(iter(children_of(await hands.harness.events(ROOT)).items()))
            hands.say(ROOT, "wake", key=key, child=child)
            hands.say(ROOT, "wake", key="nowhere#1.1!call", child=child)

    hands = Hands(family_theatre(), early)
    ref = await hands.harness.accept("impatient")
    assert end_of(await hands.finish(ref)).output == "expired"
    assert said


# -- what is not there at once ----------------------------------------------------------------------------------------


class LaggingLog(CrashingLog):
    """A log whose replicas are behind: so often a large value is not found, and no run is known to have ended."""

    values_late = 0
    ends_late = 0
    looked = 0

    async def get_blob(self, ref: RunRef, digest: str) -> bytes:
        self.looked += 1
        if self.values_late:
            self.values_late -= 1
            raise KeyError(digest)
        return await super().get_blob(ref, digest)

    async def last(self, ref: RunRef) -> Recorded | None:
        last = await super().last(ref)
        if last is None or last.event.type != ev.RunEnd.type or not self.ends_late:
            return last
        self.ends_late -= 1
        return (await self.read(ref))[-2]


class WhenEnded:
    """Does something once the only child of the root has ended."""

    def __init__(self, does: Callable[[], None]) -> None:
        self.has_ended = False
        self._does = does

    async def __call__(self, hands: Hands) -> None:
        family = await hands.family(ROOT) if not self.has_ended else []
        if len(family) < 2:
            return
        if ev.RunEnd.type in types([item.event for item in await hands.harness.log.read(family[1])]):
            self.has_ended = True
            self._does()


async def told_by_a_child(log: LaggingLog, lag: WhenEnded, **names: Any) -> Any:
    """What a root sees of the end of its only child, which says 10,000 letters."""
    hands = Hands(family_theatre(log, **names), lag)
    ref = await hands.harness.accept("asks", input=10_000)
    events = await hands.finish(ref)
    assert lag.has_ended
    return end_of(events).output


async def test_a_large_value_that_a_replica_does_not_have_yet_is_waited_for() -> None:
    log = LaggingLog()

    def lag() -> None:
        log.values_late = 3

    output = await told_by_a_child(log, WhenEnded(lag), inline_bytes_max=1_000)
    assert output == ["completed", "x" * 10_000, None]
    assert log.values_late == 0


async def test_a_large_value_that_is_lost_fails_the_child_in_the_end() -> None:
    log = LaggingLog()
    before = 0

    def lose() -> None:
        nonlocal before
        before = log.looked
        log.values_late = BEHIND_MAX

    output = await told_by_a_child(log, WhenEnded(lose), inline_bytes_max=1_000)
    assert output == ["failed", None, "internal"]
    assert log.looked - before >= BEHIND_MAX


async def test_a_wake_is_believed_although_the_end_cannot_be_read_yet() -> None:
    """Stored together with the end, it says more than a read that is behind."""
    log = LaggingLog()

    def lag() -> None:
        log.ends_late = 3

    assert await told_by_a_child(log, WhenEnded(lag)) == ["completed", "x" * 10_000, None]
    assert log.ends_late == 0


@pytest.mark.parametrize("comes_through", [False, True])
async def test_who_has_lost_the_parent_has_no_child_performed(comes_through: bool) -> None:
    """A worker announces a child and is cut off; another takes the run over and is told to cancel it: there is no child
    that could be stopped. Then the first one is back, or what it said last comes through."""
    harness = family_theatre()
    ref = await harness.accept("line")
    admit = harness.children.admit_child
    tried, back, is_back = anyio.Event(), anyio.Event(), False

    async def cut_off(child: RunRef, message: bytes, parent: ev.Parent) -> list[ev.Problem]:
        tried.set()
        if comes_through:
            await back.wait()
        elif not is_back:
            raise NoAnswer
        return await admit(child, message, parent)

    harness.children.admit_child = cut_off
    lost: list[RunLost] = []

    async def first() -> None:
        try:
            await harness.actor(ref).run()
        except RunLost as error:
            lost.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await tried.wait()
        assert await harness.perform(ref, harness.command("cancel", reason="enough")) == "ended"
        is_back = True
        back.set()
    (child,) = children_of(await harness.events(ref)).values()
    assert (await harness.log.last(RunRef("acme", child)) is not None) == comes_through
    assert harness.children.called == []
    assert len(lost) == 1
    assert harness.children.called == []
