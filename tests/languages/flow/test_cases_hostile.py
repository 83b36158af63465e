"""Extreme flows: cancelled after any event, with high stacks, odd names, huge numbers, malformed answers."""

from collections import Counter
from typing import Any, cast

import pytest

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.languages.flow.name_scopes import FLOW_LEVELS_MAX
from callboard.languages.flow.outline import LEVELS_MAX
from callboard.runtime.run.log import read_run
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import VirtualClock, simulate
from tests.support.flow_cases import EXCEEDED, EXHAUSTED, bad, ok, one_step, shaper
from tests.support.flows import (
    LOOP,
    RETRY,
    FlowTheatre,
    call,
    caught,
    cleanup,
    entry,
    failing,
    flow,
    mock,
    perform,
    result_of,
    retry,
    returned,
    subflow,
    timeout,
)
from tests.support.simulation import World, copied, finish
from tests.support.sweeps import select_deaths

# -- cancelled after any event -----------------------------------------------------------------------------------------

NAP = {"action": "Sleep", "for": "PT1S", "next": "done"}
WRAPPED = subflow({"nap": NAP, "done": returned()}, middleware=[cleanup(mock())])
PATIENT = entry(
    RETRY, onEntry={"with": {"policies": [{"match": {"codes": ["*"]}, "attempts": 2, "backoff": {"initial": "PT1S"}}]}}
)

CANCELLED: dict[str, dict[str, Any]] = {
    "a retry of frames inside a timeout": one_step(
        call(
            {"flow": subflow({"x": call(failing("X")), "done": returned()}, middleware=[cleanup(mock())])},
            middleware=[timeout("PT9S"), PATIENT],
        ),
        middleware=[cleanup(mock(delay="PT1S"))],
    ),
    "a loop of sleeps": one_step(
        NAP, middleware=[cleanup(mock()), entry(LOOP, onSuccess={"when": "{{ middleware.metadata.iteration < 2.0 }}"})]
    ),
    "a fan-out of frames, two at a time": one_step(
        {"action": "Gather", "over": [1, 2, 3], "call": {"flow": WRAPPED}, "concurrency": 2, "next": "done"},
        middleware=[cleanup(mock())],
    ),
    "a fan-out that has enough successes": one_step(
        {
            "action": "Gather",
            "calls": [mock(), {"flow": WRAPPED}],
            "completion": {"successes": 1, "wait": False},
            "next": "done",
        },
        middleware=[cleanup(mock())],
    ),
    "a timeout that runs out": one_step(
        call({"flow": WRAPPED}, middleware=[timeout("PT0.5S"), cleanup(mock(delay="PT1S"))], catch=[caught("done")]),
        middleware=[cleanup(mock())],
    ),
}


@pytest.mark.parametrize("name", CANCELLED)
def test_a_cancellation_after_any_event_unwinds_and_replays(name: str) -> None:
    async def body() -> None:
        harness = FlowTheatre()
        ref = await harness.begin(CANCELLED[name])
        uncancelled = await finish(harness, ref, World())
        recorded = await read_run(harness.log, ref)
        seen: Counter[str] = Counter()
        boundaries = select_deaths([item.event for item in recorded])[:-1]
        for boundary in boundaries:
            other = FlowTheatre()
            await copied(recorded[:boundary], cast("CrashingLog", other.log))
            cast("VirtualClock", other.clock).set(recorded[boundary - 1].event.time)
            await other.perform(ref, other.command("cancel", reason="operator"))
            events = await finish(other, ref, World())
            check_log(events)
            check_replay(other.language, ref, events)
            result = result_of(events)
            seen[result.get("code", "success")] += 1
            if result["type"] == "cancellation":
                assert result["code"] == "System.Cancelled", f"after {boundary} events"
                assert "previous" not in result, f"after {boundary} events"
            else:
                assert result["type"] == result_of(uncancelled)["type"], f"after {boundary} events"
            assert max(_count_cleanups(events).values(), default=1) == 1, f"after {boundary} events"
        assert seen["System.Cancelled"] > len(boundaries) / 2

    simulate(body)


def _count_cleanups(events: list[Event]) -> Counter[str]:
    """Count the starts of each clean-up."""
    return Counter(event.key for event in events if event.type == "effect.call" and "onAlways" in event.key)


# -- sizes and numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", [cleanup(mock()), retry(2), shaper()], ids=["Finally", "Retry", "shown"])
def test_a_stack_may_be_high(one: dict[str, Any]) -> None:
    done = perform(one_step(call(mock(value=1), middleware=[one] * 400), middleware=[one] * 100))
    assert done.result == ok(1)


def test_a_failure_a_timeout_and_a_failing_cleanup_cross_a_high_stack() -> None:
    high = [shaper()] * 100
    slow = mock(delay="PT1H")
    crossed = perform(one_step(call(failing("X"), middleware=[retry(2), *high])))
    assert crossed.chain == [EXHAUSTED, "X"]
    crossed = perform(one_step(call(slow, middleware=[timeout("PT5S"), *high])))
    assert crossed.chain == [EXCEEDED]
    crossed = perform(one_step(call(slow, middleware=[timeout("PT5S"), *high, cleanup(failing("C"))])))
    assert crossed.chain == ["C", "System.Cancelled", EXCEEDED]
    crossed = perform(one_step(call(slow, middleware=[*high, cleanup(mock())])), commands=[("cancel", {})])
    assert crossed.chain == ["System.Cancelled"]


def test_a_long_chain_of_named_flows_runs_in_any_order_of_definition() -> None:
    last = FLOW_LEVELS_MAX - 2
    row = {f"f{i}": subflow({"w": call({"flow": f"f{i + 1}"}), "done": returned()}) for i in range(last)}
    row[f"f{last}"] = subflow({"r": returned("bottom")})
    steps = {"w": call({"flow": "f0"}), "done": returned()}
    done = perform(flow(steps, flows=row))
    assert done.value == "bottom"
    accepted = next(ev.payload_of(event) for event in done.events if event.type == ev.RunAccepted.type)
    assert isinstance(accepted, ev.RunAccepted)
    assert accepted.outline is not None
    assert len(accepted.outline.nodes) == 2 * LEVELS_MAX
    assert perform(flow(steps, flows=dict(reversed(row.items())))).value == "bottom"


def test_named_flows_are_found_from_every_place_of_a_call() -> None:
    """In a Gather, in a clean-up, in the stack around a clean-up, in flows inside calls; each is built once."""
    leaf = subflow({"r": returned("leaf")})
    inline = subflow(
        {"w": call({"flow": "Own"}), "done": returned()},
        flows={"Own": subflow({"w": call({"flow": "B"}), "done": returned()})},
    )
    steps = {
        "g": {"action": "Gather", "calls": [{"flow": "A"}, {"flow": inline}], "next": "c"},
        "c": call(
            {**mock(), "input": "{{ call.input }}"},
            middleware=[cleanup({"flow": "C"}, middleware=[cleanup({"flow": "D"})])],
        ),
        "done": returned(),
    }
    named = {
        "A": subflow({"w": call({"flow": "B"}), "done": returned()}, middleware=[cleanup({"flow": "E"})]),
        **dict.fromkeys("BCDE", leaf),
    }
    assert perform(flow(steps, flows=named)).value == ["leaf", "leaf"]


@pytest.mark.parametrize("initial", ["PT1S", "PT0S", "-PT1S", "P9000Y"])
@pytest.mark.parametrize("jitter", ["none", "full", "equal", "decorrelated"])
def test_an_overflowing_delay_is_limited_by_max(initial: str, jitter: str) -> None:
    backoff = {"initial": initial, "rate": 1e300, "max": "PT1S", "jitter": jitter}
    policy = {"match": {"codes": ["*"]}, "attempts": 6, "backoff": backoff}
    armed = entry(RETRY, onEntry={"with": {"policies": [policy]}})
    assert perform(one_step(call(failing("X"), middleware=[armed]))).chain == [EXHAUSTED, "X"]


@pytest.mark.parametrize("jitter", ["none", "equal", "decorrelated"])
def test_an_overflowing_delay_without_max_can_be_interrupted(jitter: str) -> None:
    backoff = {"initial": "P9000Y", "rate": 1e300, "jitter": jitter}
    armed = entry(
        RETRY, onEntry={"with": {"policies": [{"match": {"codes": ["*"]}, "attempts": 3, "backoff": backoff}]}}
    )
    done = perform(one_step(call(failing("X"), middleware=[timeout("PT5S"), armed])))
    assert done.chain == [EXCEEDED]


@pytest.mark.parametrize(("successes", "met"), [(1e300, False), (-1e300, True), (2.0, True), (9007199254740992, False)])
def test_successes_may_be_any_whole_number(successes: float, met: bool) -> None:
    fan = {"action": "Gather", "over": [1, 2], "call": mock(), "completion": {"successes": successes}, "next": "done"}
    assert (perform(one_step(fan)).result["type"] == "success") is met


def test_a_budget_may_be_large() -> None:
    armed = retry(10**15, onFailure={"assign": {"n": "{{ vars.n + 1.0 }}"}})
    numbered = {"type": "object", "properties": {"n": {"default": 0}}}
    target = mock(failure="{{ vars.n < 700.0 ? {'code': 'X'} : null }}", value="{{ vars.n }}")
    done = perform(one_step(call(target, middleware=[armed]), parameters=numbered))
    assert done.value == 700


@pytest.mark.parametrize(
    "name", ["", "a/b", "x[0]", "a:b", "#!%", "é\u2028", " lead", "mw0", "call", "\x00", "x" * 3000]
)
def test_steps_and_flows_may_have_any_name(name: str) -> None:
    inner = subflow(
        {name: call(mock(), next="done"), "done": returned("{{ [step.input] }}")}, middleware=[cleanup(mock())]
    )
    steps = {
        name: call({"flow": name}, next="g", middleware=[retry(2), timeout("PT5S")], output="{{ step.name }}"),
        "g": {"action": "Gather", "over": ["{{ step.input }}"], "call": {"flow": name}, "next": "done"},
        "done": returned(),
    }
    assert perform(flow(steps, flows={name: inner})).value == [[name]]


# -- failures of providers ---------------------------------------------------------------------------------------------

MALFORMED: dict[str, Any] = {
    "a message that is a number": {"type": "error", "code": "X", "message": 5},
    "a retryable that is a string": {"type": "error", "code": "X", "retryable": "yes"},
    "a previous that is a string": {"type": "error", "code": "X", "previous": "no"},
    "a previous that is not a failure": {"type": "error", "code": "X", "previous": {"a": 1}},
    "a previous with a number for its code": {"type": "error", "code": "X", "previous": {"type": "error", "code": 5}},
    "a previous that is a success": {"type": "error", "code": "X", "previous": {"type": "success", "value": 1}},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_failure_with_malformed_members_is_handled_as_any(name: str) -> None:
    """It is matched, retried, translated and chained."""
    uri = "mwl:provider.call/acme/odd/v1"
    document: dict[str, Any] = {"uri": uri, "codePrefix": "Odd", "failureCatalog": {"closed": [], "open": ["*"]}}

    class Odd:
        async def execute(self, request: Any) -> Any:
            return MALFORMED[name]

    async def body() -> None:
        harness = FlowTheatre()
        harness.providers, harness.contracts = {uri: Odd}, {uri: document}
        steps = {
            "a": call(
                {"provider": uri}, middleware=[shaper(onFailure={"code": "T"}), retry(2, "X")], catch=[caught("b", "T")]
            ),
            "b": call({"provider": uri}),
            "done": returned(),
        }
        ref = await harness.begin(flow(steps))
        events = await finish(harness, ref, World())
        check_log(events)
        check_replay(harness.language, ref, events)
        assert result_of(events)["code"] == "X"

    simulate(body)


def test_a_previous_of_any_depth_is_carried() -> None:
    deep: dict[str, Any] = {"type": "error", "code": "Z"}
    for _ in range(100):
        deep = {"type": "error", "code": "Z", "previous": deep}
    target = mock(failure="{{ {'code': 'X', 'previous': call.input} }}")
    steps = {
        "a": call(target, catch=[caught("b")]),
        "b": {"action": "Raise", "result": {"code": "R"}},
        "done": returned(),
    }
    done = perform(flow(steps), deep)
    assert done.chain[:2] == ["R", "X"]
    assert done.chain[-1] == "System.FailureChainTruncated"
    assert done.result == {**bad("R"), "previous": done.result["previous"]}
