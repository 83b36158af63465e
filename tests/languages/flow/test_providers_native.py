"""Providers that wait for a person, a signal or a child run: they park, time out and survive crashes."""

import datetime as dt
from typing import Any, Literal

import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import StartRun
from callboard.bus.effects import Failure
from callboard.bus.events import Problem
from callboard.bus.subjects import RunRef
from callboard.languages.flow.natives.waits import read_answer
from callboard.languages.flow.result import UNSET
from callboard.runtime.interpreter.waits import has_members
from callboard.runtime.run.log import RunLog
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import BEGINNING
from tests.support.flow_providers import flow_of, ours, payloads_of, simulate_crashes, simulate_flow
from tests.support.flows import TIMEOUT, FlowTheatre, perform
from tests.support.run_harness import Nursery, RunHarness, types
from tests.support.simulation import World

ASK = "main/a:call#1.1!ask"


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


def test_a_person_is_asked_again_after_an_invalid_answer() -> None:
    flow = flow_of(ours("human"), question="Which?", type="select", options=["red", "blue"], timeout="P1D")
    world = World(answers={ASK: ["green", "blue"]})
    output, events = simulate_flow(FlowTheatre(), flow, {"shown": 1}, world)
    assert output == {"value": "blue", "metadata": {"answers": 2}}
    [asked] = payloads_of(events, ev.HumanAsked)
    assert (asked.question, asked.interaction_type, asked.options) == ("Which?", "select", ["red", "blue"])
    assert (asked.request_data, asked.timeout_at) == ({"shown": 1}, BEGINNING + dt.timedelta(days=1))
    [closed] = payloads_of(events, ev.HumanClosed)
    assert (closed.outcome, closed.k) == ("answered", 2)
    [warned] = payloads_of(events, ev.NodeWarning)
    assert warned.code == "human.not_understood"
    assert ev.RunParked.type in types(events)


def test_a_question_without_an_answer_times_out() -> None:
    output, events = simulate_flow(FlowTheatre(), flow_of(ours("human"), question="Well?", timeout="PT2H"))
    failure = output["failure"]
    assert (failure["type"], failure["code"]) == ("timeout", "Provider.Call.Human.Timeout")
    assert payloads_of(events, ev.HumanClosed)[0].outcome == "timeout"
    assert events[-1].time >= BEGINNING + dt.timedelta(hours=2)


def test_a_question_survives_a_crash_at_every_append() -> None:
    flow = flow_of(ours("human"), question="Sure?", type="confirm", timeout="P1D")
    world = World(answers={ASK: ["hm", "yes"]})

    assert simulate_crashes(FlowTheatre, flow, True, world=world) > 10


def test_a_timeout_around_a_question_closes_it() -> None:
    flow = flow_of(ours("human"), question="Well?")
    flow["steps"]["a"]["middleware"] = [{"provider": TIMEOUT, "onEntry": {"with": {"duration": "PT1M"}}}]
    output, events = simulate_flow(FlowTheatre(), flow)
    assert output["failure"]["code"] == "Provider.Middleware.Timeout.Exceeded"
    assert payloads_of(events, ev.HumanClosed)[0].outcome == "cancelled"


def test_a_select_without_options_is_refused_by_the_contract() -> None:
    output, _ = simulate_flow(FlowTheatre(), flow_of(ours("human"), question="{{ 'W?' }}", type="{{ 'select' }}"))
    assert output["failure"]["code"] == "System.ParameterValidationFailed"


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
def test_a_signal_matches_if_it_has_the_wanted_members(data: Any, wanted: Any, matches: bool) -> None:
    assert has_members(data, wanted) is matches


def test_a_signal_wakes_a_run_that_waits_for_it() -> None:
    flow = flow_of(ours("signal"), name="paid", timeout="P1D")
    output, events = simulate_flow(FlowTheatre(), flow, world=World(signals={"paid": {"amount": 3}}))
    assert output == {"value": {"amount": 3}, "metadata": {"name": "paid"}}
    assert ev.RunParked.type in types(events)


def test_signals_that_do_not_match_are_skipped() -> None:
    flow = flow_of(ours("signal"), name="paid", match={"order": 2})
    signals = [("signal", {"name": "paid", "data": {"order": n}, "by": f"p{n}"}) for n in (1, 2)]
    assert perform(flow, commands=signals).value == {"value": {"order": 2}, "metadata": {"name": "paid", "by": "p2"}}


def test_a_signal_that_does_not_arrive_times_out() -> None:
    output, _ = simulate_flow(FlowTheatre(), flow_of(ours("signal"), name="paid", timeout="PT1H"))
    assert (output["failure"]["type"], output["failure"]["code"]) == ("timeout", "Provider.Call.Signal.Timeout")


def test_a_signal_survives_a_crash_at_every_append() -> None:
    flow = flow_of(ours("signal"), name="paid", timeout="P1D")

    world = World(signals={"paid": 7})
    assert simulate_crashes(FlowTheatre, flow, 7, world=world) > 8


# -- a child run -------------------------------------------------------------------------------------------------------


class Children(FlowTheatre):
    """A harness in which child runs end as soon as they are called."""

    def __init__(self, log: CrashingLog | None = None, end: ev.RunEnd | None = None) -> None:
        # No message wakes a run here: it has to look at its children while it lingers.
        super().__init__(log, park_linger_s=1.0)
        end = end or ev.RunEnd("completed", output=7, results={"type": "success", "value": 7})
        self.children = EndingNursery(self, end)


class EndingNursery(Nursery):
    """Ends child runs by writing their ends to their logs."""

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
    flow = flow_of(ours("definition"), name="triage", arguments={"n": 1})
    output, events = simulate_flow(Children(), flow, {"asked": 1})
    assert output == {"value": 7, "metadata": {"status": "completed", "results": {"type": "success", "value": 7}}}
    [start] = payloads_of(events, ev.ChildStart)
    assert (start.definition, start.input, start.start) == ({"name": "triage"}, {"asked": 1}, {"arguments": {"n": 1}})


@pytest.mark.parametrize(
    ("status", "code", "type"),
    [("failed", "Failed", "error"), ("cancelled", "Cancelled", "cancellation"), ("expired", "Expired", "timeout")],
)
def test_a_child_that_does_not_complete_is_a_failure_that_chains_its_error(
    status: Literal["failed", "cancelled", "expired"], code: str, type: str
) -> None:
    own = Failure("Mine.Broken", "it broke", details={"k": 1}, retryable=True)
    harness = Children(end=ev.RunEnd(status, results={"half": 1}, error=own))
    output, _ = simulate_flow(harness, flow_of(ours("definition"), source="{}"))
    failure = output["failure"]
    assert (failure["code"], failure["type"]) == (f"Provider.Call.Definition.{code}", type)
    assert failure["retryable"] is True
    assert failure["previous"] == {
        "type": "error",
        "code": "Mine.Broken",
        "message": "it broke",
        "details": {"k": 1},
        "retryable": True,
    }
    assert output["metadata"] == {"status": status, "results": {"half": 1}}


def test_a_definition_that_is_refused_is_a_failure() -> None:
    output, _ = simulate_flow(Children(), flow_of(ours("definition"), name="unknown"))
    failure = output["failure"]
    assert failure["code"] == "Provider.Call.Definition.Rejected"
    assert [problem["code"] for problem in failure["details"]["problems"]] == ["definition.unknown"]


def test_a_child_survives_a_crash_at_every_append() -> None:
    simulate_crashes(Children, flow_of(ours("definition"), name="x"), 7)


def test_a_definition_with_both_name_and_source_is_refused() -> None:
    both = {"name": "{{ 'a' }}", "source": "{{ 'b' }}"}
    output, _ = simulate_flow(Children(), flow_of(ours("definition"), **both))
    assert output["failure"]["code"] == "System.ParameterValidationFailed"
