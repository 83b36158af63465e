"""Providers made of the run's own effects, a person, a signal, a child run: they park, time out, survive crashes."""

import datetime as dt
from typing import Any, Literal

import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import StartRun
from callboard.bus.effects import Failure
from callboard.bus.events import Event, Problem
from callboard.bus.subjects import RunRef
from callboard.languages.flow.natives.waits import read_answer
from callboard.languages.flow.result import UNSET
from callboard.runtime.interpreter.waits import has_members
from callboard.runtime.run.activation import Command
from callboard.runtime.run.log import RunLog
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import BEGINNING, simulate
from tests.support.flow_providers import crashing_everywhere, flow_of, ours, played
from tests.support.flows import TIMEOUT, FlowTheatre, result_of
from tests.support.run_harness import Nursery, RunHarness, types
from tests.support.simulation import World, finish

ASK = "main/a:call#1.1!ask"


def of_type(events: list[Event], payload: type[Any]) -> list[Any]:
    return [ev.payload_of(event) for event in events if event.type == payload.type]


# -- a person ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "response", "value"),
    [
        ("input", [], "Ada", "Ada"),
        ("input", [], {"any": 1}, {"any": 1}),
        ("confirm", [], True, True),
        ("confirm", [], " No ", False),
        ("confirm", [], "perhaps", UNSET),
        ("confirm", [], 1, UNSET),
        ("select", ["red", "blue"], "blue", "blue"),
        ("select", ["red", "blue"], "BLUE ", "blue"),
        ("select", ["red", "blue"], "2", "blue"),
        ("select", ["red", "blue"], "3", UNSET),
        ("select", ["red", "blue"], 2, UNSET),
        ("select", [1, 2, 3], "2", 2),
        ("select", [10, 20], "1", UNSET),
        ("select", [1, True], True, True),
        ("select", [{"value": {"id": 7}, "label": "Seven"}], "seven", {"id": 7}),
        ("select", [{"value": {"id": 7}, "label": "Seven"}], {"id": 7}, {"id": 7}),
    ],
)
def test_answers_are_understood(kind: str, options: list[Any], response: Any, value: Any) -> None:
    found = read_answer(kind, options, response)
    assert (found, type(found)) == (value, type(value))


def test_a_person_is_asked_until_the_answer_makes_sense() -> None:
    async def body() -> None:
        flow = flow_of(ours("human"), question="Which?", type="select", options=["red", "blue"], timeout="P1D")
        world = World(answers={ASK: ["green", "blue"]})
        told, events = await played(FlowTheatre(), flow, {"shown": 1}, world)
        assert told == {"value": "blue", "metadata": {"answers": 2}}
        [asked] = of_type(events, ev.HumanAsked)
        assert (asked.question, asked.interaction_type, asked.options) == ("Which?", "select", ["red", "blue"])
        assert (asked.request_data, asked.timeout_at) == ({"shown": 1}, BEGINNING + dt.timedelta(days=1))
        [closed] = of_type(events, ev.HumanClosed)
        assert (closed.outcome, closed.k) == ("answered", 2)
        [warned] = of_type(events, ev.NodeWarning)
        assert warned.code == "human.not_understood"
        assert ev.RunParked.type in types(events)

    simulate(body)


def test_nobody_answers_in_time() -> None:
    async def body() -> None:
        told, events = await played(FlowTheatre(), flow_of(ours("human"), question="Well?", timeout="PT2H"))
        failure = told["failure"]
        assert (failure["type"], failure["code"]) == ("timeout", "Provider.Call.Human.Timeout")
        assert of_type(events, ev.HumanClosed)[0].outcome == "timeout"
        assert events[-1].time >= BEGINNING + dt.timedelta(hours=2)

    simulate(body)


def test_a_question_survives_a_crash_at_every_append() -> None:
    async def body() -> None:
        flow = flow_of(ours("human"), question="Sure?", type="confirm", timeout="P1D")
        world = World(answers={ASK: ["hm", "yes"]})

        def check(told: dict[str, Any]) -> None:
            assert told["value"] is True

        assert await crashing_everywhere(lambda log: FlowTheatre(log), flow, check, world=world) > 10

    simulate(body)


def test_a_timeout_around_a_question_closes_it() -> None:
    async def body() -> None:
        flow = flow_of(ours("human"), question="Well?")
        flow["steps"]["a"]["middleware"] = [{"provider": TIMEOUT, "onEntry": {"with": {"duration": "PT1M"}}}]
        told, events = await played(FlowTheatre(), flow)
        assert told["failure"]["code"] == "Provider.Middleware.Timeout.Exceeded"
        assert of_type(events, ev.HumanClosed)[0].outcome == "cancelled"

    simulate(body)


def test_a_select_without_options_is_refused_by_the_contract() -> None:
    async def body() -> None:
        told, _ = await played(FlowTheatre(), flow_of(ours("human"), question="{{ 'W?' }}", type="{{ 'select' }}"))
        assert told["failure"]["code"] == "System.ParameterValidationFailed"

    simulate(body)


# -- a signal ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "wanted", "matches"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ("text", {}, False),
        (None, {"a": None}, False),
        ({"a": None}, {"a": None}, True),
    ],
)
def test_what_a_signal_must_have(data: Any, wanted: Any, matches: bool) -> None:
    assert has_members(data, wanted) is matches


def test_a_signal_wakes_a_run_that_waits_for_it() -> None:
    async def body() -> None:
        flow = flow_of(ours("signal"), name="paid", timeout="P1D")
        told, events = await played(FlowTheatre(), flow, world=World(signals={"paid": {"amount": 3}}))
        assert told == {"value": {"amount": 3}, "metadata": {"name": "paid"}}
        assert ev.RunParked.type in types(events)

    simulate(body)


async def _with_signals(harness: FlowTheatre, flow: dict[str, Any], *signals: Command) -> tuple[Any, list[Event]]:
    """Run a flow that finds signals when it begins; others come when it has parked."""
    ref = await harness.begin(flow)
    await harness.perform(ref, *signals)
    events = await finish(harness, ref, World())
    check_log(events)
    check_replay(harness.language, ref, events)
    return result_of(events)["value"], events


def test_signals_that_do_not_match_are_passed_over() -> None:
    async def body() -> None:
        harness = FlowTheatre()
        flow = flow_of(ours("signal"), name="paid", match={"order": 2})
        signals = [harness.command("signal", name="paid", data={"order": n}, by=f"p{n}") for n in (1, 2)]
        told, _ = await _with_signals(harness, flow, *signals)
        assert told == {"value": {"order": 2}, "metadata": {"name": "paid", "by": "p2"}}

    simulate(body)


def test_no_signal_in_time() -> None:
    async def body() -> None:
        told, _ = await played(FlowTheatre(), flow_of(ours("signal"), name="paid", timeout="PT1H"))
        assert (told["failure"]["type"], told["failure"]["code"]) == ("timeout", "Provider.Call.Signal.Timeout")

    simulate(body)


def test_a_signal_survives_a_crash_at_every_append() -> None:
    async def body() -> None:
        flow = flow_of(ours("signal"), name="paid", timeout="P1D")

        def check(told: dict[str, Any]) -> None:
            assert told["value"] == 7

        world = World(signals={"paid": 7})
        assert await crashing_everywhere(lambda log: FlowTheatre(log), flow, check, world=world) > 8

    simulate(body)


# -- a child run, which ends as a test says ----------------------------------------------------------------------------


class Children(FlowTheatre):
    """A harness in which child runs end as soon as they are called for."""

    def __init__(self, log: CrashingLog | None = None, end: ev.RunEnd | None = None) -> None:
        # Nobody wakes a run here; while it lingers it looks at its children itself.
        super().__init__(log, park_linger_s=1.0)
        end = end or ev.RunEnd("completed", output=7, results={"type": "success", "value": 7})
        self.children = Ending(self, end)


class Ending(Nursery):
    """Performs children by writing their ends."""

    def __init__(self, harness: RunHarness, end: ev.RunEnd) -> None:
        super().__init__(harness)
        self._services = harness
        self._end = end

    async def admit_child(self, child: RunRef, message: bytes, parent: ev.Parent) -> list[Problem]:
        start = msgspec.json.decode(message, type=StartRun)
        if start.definition.name == "unknown":
            return [Problem("definition.unknown", "no definition 'unknown' is registered", "definition.name")]
        runlog = RunLog(self._services.log, child, writer="admission", clock=self._services.clock)
        runlog.definition = "child"
        source = ev.DefinitionRef("flow", "", "", "child")
        runlog.state(ev.RunAccepted(source, msgspec.to_builtins(start), seed="seed", parent=parent))
        await runlog.append_queued()
        return []

    async def refusal_of(self, child: RunRef) -> list[Problem]:
        return []

    async def call_child(self, child: RunRef) -> None:
        last = await self._services.log.last(child)
        assert last is not None
        runlog = RunLog(self._services.log, child, writer="w2", clock=self._services.clock)
        runlog.continue_from([last])
        runlog.state(self._end)
        await runlog.append_queued()


def test_another_definition_is_run_and_its_output_is_the_value() -> None:
    async def body() -> None:
        flow = flow_of(ours("definition"), name="triage", arguments={"n": 1})
        told, events = await played(Children(), flow, {"asked": 1})
        assert told == {"value": 7, "metadata": {"status": "completed", "results": {"type": "success", "value": 7}}}
        [start] = of_type(events, ev.ChildStart)
        assert (start.definition, start.input, start.start) == (
            {"name": "triage"},
            {"asked": 1},
            {"arguments": {"n": 1}},
        )

    simulate(body)


@pytest.mark.parametrize(
    ("status", "code", "type"),
    [("failed", "Failed", "error"), ("cancelled", "Cancelled", "cancellation"), ("expired", "Expired", "timeout")],
)
def test_a_child_that_does_not_complete_is_a_failure_with_its_own_before_it(
    status: Literal["failed", "cancelled", "expired"], code: str, type: str
) -> None:
    async def body() -> None:
        own = Failure("Mine.Broken", "it broke", details={"k": 1}, retryable=True)
        harness = Children(end=ev.RunEnd(status, results={"half": 1}, error=own))
        told, _ = await played(harness, flow_of(ours("definition"), source="{}"))
        failure = told["failure"]
        assert (failure["code"], failure["type"]) == (f"Provider.Call.Definition.{code}", type)
        assert failure["previous"] == {
            "type": "error",
            "code": "Mine.Broken",
            "message": "it broke",
            "details": {"k": 1},
            "retryable": True,
        }
        assert failure["retryable"] is True
        assert told["metadata"] == {"status": status, "results": {"half": 1}}

    simulate(body)


def test_a_definition_that_is_refused() -> None:
    async def body() -> None:
        told, _ = await played(Children(), flow_of(ours("definition"), name="unknown"))
        failure = told["failure"]
        assert failure["code"] == "Provider.Call.Definition.Rejected"
        assert [problem["code"] for problem in failure["details"]["problems"]] == ["definition.unknown"]

    simulate(body)


def test_a_child_survives_a_crash_at_every_append() -> None:
    async def body() -> None:
        def check(told: dict[str, Any]) -> None:
            assert told["value"] == 7

        await crashing_everywhere(lambda log: Children(log), flow_of(ours("definition"), name="x"), check)

    simulate(body)


def test_a_definition_is_named_in_one_way() -> None:
    async def body() -> None:
        both = {"name": "{{ 'a' }}", "source": "{{ 'b' }}"}
        told, _ = await played(Children(), flow_of(ours("definition"), **both))
        assert told["failure"]["code"] == "System.ParameterValidationFailed"

    simulate(body)
