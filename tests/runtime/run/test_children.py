"""Child runs in a simulated world: each starts once, reports one end and stops with its parent, despite crashes."""

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
from callboard.bus.log.port import Entry, NoAnswer
from callboard.bus.log.recorded import Recorded
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
    """Log entries are not rendered."""
    structlog.configure(processors=[])


ROOT = RunRef("acme", "r1")

Intervention = Callable[[Hands], Awaitable[None]]


def tell_root_when_youngest_works(verb: str) -> Intervention:
    """Send a command to the root, once, when the youngest run of a lineage executes an effect."""

    async def tell(hands: Hands) -> None:
        if any(message.ref == ROOT and message.verb == verb for message in hands.messages):
            return
        youngest = (await hands.family(ROOT))[-1]
        if ev.EffectCall.type in types(await hands.harness.events(youngest)):
            hands.say(ROOT, verb, reason="enough", by="Ada")

    return tell


@dataclass(frozen=True)
class Case:
    """A family, the command for its root, and the statuses of its runs, the root first."""

    play: str
    ends: tuple[str, ...]
    intervention: str = ""

    def __str__(self) -> str:
        return f"{self.play} {self.intervention}".strip()

    def hands(self, log: CrashingLog | None = None) -> Hands:
        return Hands(
            family_theatre(log), tell_root_when_youngest_works(self.intervention) if self.intervention else None
        )


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
async def test_a_family_of_runs_ends(case: Case) -> None:
    hands = case.hands()
    ends = await perform(case, hands)
    assert tuple(end.status for end in ends.values()) == case.ends
    executed = hands.harness.executed
    assert len(executed) == len({*executed}) or case.play == "mother"


@every_case
async def test_a_family_survives_a_crash_at_every_append(case: Case) -> None:
    """A crash after an append and a crash before the next leave the same log, so each boundary has one of them."""
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
async def test_a_family_ends_the_same_if_every_activation_replays(case: Case) -> None:
    expected = await perform(case, case.hands())
    hands = case.hands()
    hands.harness.always_replay = True
    assert await perform(case, hands) == expected


@every_case
async def test_a_lost_acknowledgement_does_not_repeat_messages_between_runs(case: Case) -> None:
    """An append that concerns two runs is stored without an answer. The writer repeats it, but not its message."""
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
    hands = Hands(harness, tell_root_when_youngest_works(case.intervention) if case.intervention else None)
    await hands.finish(ref)
    assert {member: end_of(await harness.events(member)) for member in await hands.family(ref)} == expected
    assert len(troubled) >= len(expected)
    wakes = [run_message for run_message in harness.children.run_messages if run_message.verb == "wake"]
    assert len(wakes) == len(expected) - 1


# -- results for the parent -------------------------------------------------------------------------------------------


async def perform_family(play: str, **names: Any) -> tuple[Hands, list[Event]]:
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


async def test_a_parent_gets_the_results_of_its_children() -> None:
    _, events = await perform_family("mother")
    twins = [["completed", [0, "do", "three"], None], ["completed", [1, "do", "three"], None]]
    late = ["completed", ["late", "do", "three"], None]
    assert end_of(events).output == ["do", twins, late, ["failed", None, "internal"], ["failed", None, "child.refused"]]


async def test_usage_of_children_counts_once() -> None:
    """Five turns: one of the parent, one of each child."""
    hands, events = await perform_family("mother")
    assert end_of(events).usage == Usage(50, 5)
    child = RunRef("acme", children_of(events)["late#1.1!call"])
    assert end_of(await hands.harness.events(child)).usage == Usage(10, 1)


async def test_a_child_records_its_parent_and_has_the_script_of_its_parent() -> None:
    hands, events = await perform_family("mother")
    child = children_of(events)["late#1.1!call"]
    accepted = accepted_of(await hands.harness.events(RunRef("acme", child)))
    assert accepted.parent == ev.Parent("r1", "late#1.1!call", 1)
    assert accepted.start["run_id"] == child
    assert accepted.start["script"] == hands.harness.script


async def test_the_end_of_a_parked_runs_child_names_the_command_that_woke_it() -> None:
    hands, events = await perform_family("mother")
    causes = {event.key: event.cause for event in events if event.type == ev.ChildEnd.type}
    wakes = {message.sequence for message in hands.messages if message.verb == "wake"}
    woken = [key for key, end in child_ends(events).items() if (end.error or Failure("")).code != "child.refused"]
    assert {causes[key] for key in woken} == wakes
    assert len(wakes) == 4


async def test_a_waiting_parent_is_parked() -> None:
    _, events = await perform_family("impatient")
    parked = [ev.payload_of(event) for event in events if event.type == ev.RunParked.type]
    awaited = ["slow#1.1!call", "top#1.1!timeout"]
    assert [sorted(payload.awaits) for payload in parked if isinstance(payload, ev.RunParked)] == [awaited]


async def test_a_refusal_names_every_problem() -> None:
    _, events = await perform_family("mother")
    refused = child_ends(events)["none#1.1!call"]
    assert refused.status == "failed"
    assert refused.error is not None
    assert refused.error.details == {
        "problems": [{"code": "play.unknown", "message": "there is no play 'nobody'"}],
    }


async def test_a_definition_that_starts_itself_is_refused_at_the_depth_limit() -> None:
    hands, events = await perform_family("endless")
    assert end_of(events).output == [LINEAGE_MAX, "child.refused"]
    generations = await hands.family(ROOT)
    assert len(generations) == 1 + LINEAGE_MAX
    youngest = await hands.harness.events(generations[-1])
    assert (accepted_of(youngest).parent or ev.Parent("", "", 0)).depth == LINEAGE_MAX
    (refused,) = child_ends(youngest).values()
    assert refused.error is not None
    assert [problem["code"] for problem in refused.error.details["problems"]] == ["child.too_deep"]


async def test_views_show_the_child_at_its_node() -> None:
    _, events = await perform_family("mother")
    child = children_of(events)["late#1.1!call"]
    start = next(i for i, event in enumerate(events) if event.key == "late#1.1!call")
    parked = next(i for i, event in enumerate(events) if i > start and event.type == ev.RunParked.type)
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


async def test_a_cancellation_reaches_all_descendants_which_clean_up() -> None:
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


async def test_a_kill_reaches_all_descendants_without_clean_up() -> None:
    hands = CASES[4].hands()
    await perform(CASES[4], hands)
    for member in await hands.family(ROOT):
        events = await hands.harness.events(member)
        (requested,) = [ev.payload_of(event) for event in events if event.type == ev.CancelRequested.type]
        assert isinstance(requested, ev.CancelRequested)
        assert requested.kill
    assert "work#1.1!tidy" not in hands.harness.executed


async def test_a_child_that_is_admitted_during_the_cancellation_of_its_parent_is_cancelled() -> None:
    """The cancellation waits until the child is admitted or refused."""
    hands = Hands(family_theatre())
    ref = await hands.harness.accept("line")
    admit = hands.harness.children.admit_child

    async def admit_slowly(child: RunRef, message: bytes, parent: ev.Parent) -> list[ev.Problem]:
        hands.say(ref, "cancel", reason="enough")
        await anyio.sleep(30)
        return await admit(child, message, parent)

    hands.harness.children.admit_child = admit_slowly
    events = await hands.finish(ref)
    assert end_of(events).status == "cancelled"
    _, child = await hands.family(ref)
    assert end_of(await hands.harness.events(child)).status == "cancelled"


async def test_a_refused_child_gets_no_message_when_its_parent_is_cancelled() -> None:
    hands = Hands(family_theatre())
    ref = await hands.harness.accept("line")

    async def refuse(child: RunRef, message: bytes, parent: ev.Parent) -> list[ev.Problem]:
        hands.say(ref, "cancel", reason="enough")
        await anyio.sleep(30)
        return [ev.Problem("no", "no")]

    hands.harness.children.admit_child = refuse
    assert end_of(await hands.finish(ref)).status == "cancelled"
    assert hands.harness.children.run_messages == []


# -- ends without a message -------------------------------------------------------------------------------------------


async def test_an_active_parent_notices_the_end_of_a_child_without_a_message() -> None:
    """As after the kill of a run that no worker can execute: its end is recorded without a message."""
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
        runlog = RunLog(hands.harness.log, child, writer="other", clock=hands.harness.clock)
        runlog.continue_from([last])
        runlog.state(ev.RunEnd("cancelled", error=Failure("cancelled", "killed")))
        await runlog.append_queued()

    hands = Hands(hands.harness, end_silently)
    events = await hands.finish(ref)
    (end,) = child_ends(events).values()
    assert end.status == "cancelled"
    assert hands.harness.children.run_messages == []


async def test_a_wake_for_an_active_child_changes_nothing() -> None:
    sent = False

    async def wake_early(hands: Hands) -> None:
        nonlocal sent
        if not sent and len(await hands.family(ROOT)) > 1:
            sent = True
            key, child = next(iter(children_of(await hands.harness.events(ROOT)).items()))
            hands.say(ROOT, "wake", key=key, child=child)
            hands.say(ROOT, "wake", key="nowhere#1.1!call", child=child)

    hands = Hands(family_theatre(), wake_early)
    ref = await hands.harness.accept("impatient")
    assert end_of(await hands.finish(ref)).output == "expired"
    assert sent


# -- replicas that lag ------------------------------------------------------------------------------------------------


class LaggingLog(CrashingLog):
    """A log whose replicas lag: the next reads of a large value, or of the end of a run, do not find it."""

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


class AfterChildEnd:
    """Calls ``action`` once the only child of the root has ended."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.has_ended = False
        self._action = action

    async def __call__(self, hands: Hands) -> None:
        perform_family = await hands.family(ROOT) if not self.has_ended else []
        if len(perform_family) < 2:
            return
        if ev.RunEnd.type in types([item.event for item in await hands.harness.log.read(perform_family[1])]):
            self.has_ended = True
            self._action()


async def read_child_result(log: LaggingLog, lag: AfterChildEnd, **names: Any) -> Any:
    """Return the result of a root whose only child returns 10,000 letters."""
    hands = Hands(family_theatre(log, **names), lag)
    ref = await hands.harness.accept("asks", input=10_000)
    events = await hands.finish(ref)
    assert lag.has_ended
    return end_of(events).output


async def test_a_parent_waits_for_a_large_value_that_a_replica_lacks() -> None:
    log = LaggingLog()

    def lag() -> None:
        log.values_late = 3

    output = await read_child_result(log, AfterChildEnd(lag), inline_bytes_max=1_000)
    assert output == ["completed", "x" * 10_000, None]
    assert log.values_late == 0


async def test_a_lost_large_value_fails_the_child_after_some_attempts() -> None:
    log = LaggingLog()
    before = 0

    def lose() -> None:
        nonlocal before
        before = log.looked
        log.values_late = BEHIND_MAX

    output = await read_child_result(log, AfterChildEnd(lose), inline_bytes_max=1_000)
    assert output == ["failed", None, "internal"]
    assert log.looked - before >= BEHIND_MAX


async def test_a_wake_is_trusted_although_the_end_is_not_readable_yet() -> None:
    """The wake is stored in one batch with the end, so a read without the end is stale."""
    log = LaggingLog()

    def lag() -> None:
        log.ends_late = 3

    assert await read_child_result(log, AfterChildEnd(lag)) == ["completed", "x" * 10_000, None]
    assert log.ends_late == 0


@pytest.mark.parametrize("message_arrives", [False, True])
async def test_a_worker_that_lost_the_parent_activates_no_child(message_arrives: bool) -> None:
    """A worker states a child and is disconnected. Another worker takes the parent over and cancels it. Then the first
    worker reconnects, or its last message arrives."""
    harness = family_theatre()
    ref = await harness.accept("line")
    admit = harness.children.admit_child
    tried, reconnected, is_connected = anyio.Event(), anyio.Event(), False

    async def admit_after_reconnect(child: RunRef, message: bytes, parent: ev.Parent) -> list[ev.Problem]:
        tried.set()
        if message_arrives:
            await reconnected.wait()
        elif not is_connected:
            raise NoAnswer
        return await admit(child, message, parent)

    harness.children.admit_child = admit_after_reconnect
    lost: list[RunLost] = []

    async def perform_first() -> None:
        try:
            await harness.actor(ref).run()
        except RunLost as error:
            lost.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(perform_first)
        await tried.wait()
        assert await harness.perform(ref, harness.command("cancel", reason="enough")) == "ended"
        is_connected = True
        reconnected.set()
    (child,) = children_of(await harness.events(ref)).values()
    assert (await harness.log.last(RunRef("acme", child)) is not None) == message_arrives
    assert len(lost) == 1
    assert harness.children.called == []
