"""Flows whose worker dies after any event: another one finishes them, with the same Result and each clean-up once."""

import json
from collections import Counter
from typing import Any

import pytest

from callboard.testing import Scenario
from tests.support.flow_cases import one_step
from tests.support.flows import (
    LOOP,
    call,
    caught,
    cleanup,
    entry,
    failing,
    flow,
    mock,
    result_of,
    retry,
    returned,
    subflow,
    timeout,
)

SLOW = mock(delay="PT60S", value="slow")
NAP = {"action": "Sleep", "for": "PT1H", "next": "done"}

BACKOFF = {"initial": "PT2S", "rate": 2, "jitter": "full"}
PATIENT = entry(
    "mwl:provider.middleware/mwl/retry/v1",
    onEntry={"with": {"policies": [{"match": {"codes": ["*"]}, "attempts": 2, "backoff": BACKOFF}]}},
    onFailure={"assign": {"n": "{{ vars.n + 1.0 }}", "at": "{{ string(wallTime()) }}"}},
)


def nested(*stack: dict[str, Any], inner: dict[str, Any] | None = None) -> dict[str, Any]:
    """Two frames, each with a clean-up, around slow work."""
    below = subflow(
        {"in": call(inner or SLOW, middleware=[cleanup(mock(delay="PT1S"))]), "done": returned()},
        middleware=[cleanup(mock())],
    )
    counting = {"type": "object", "properties": {"n": {"type": "number", "default": 0}}}
    steps = {
        "work": call({"flow": below}, middleware=list(stack), catch=[caught("handled")]),
        "done": returned(),
        "handled": returned("{{ [failure.code, vars.n] }}"),
    }
    return flow(steps, parameters=counting, middleware=[cleanup(mock())])


def fan_out(target: dict[str, Any], **fields: Any) -> dict[str, Any]:
    fan = {"action": "Gather", "over": [1, 2, 3, 4], "call": target, "concurrency": 2, "next": "done", **fields}
    return one_step(fan, middleware=[cleanup(mock())])


WRAPPED = {"flow": subflow({"in": call(mock(delay="PT2S")), "done": returned()}, middleware=[cleanup(mock())])}

FLAWED = mock(delay="PT2S", failure="{{ frame.input == 2.0 ? {'code': 'Order.Empty'} : null }}")
FAILS_FOR_TWO = {"flow": subflow({"in": call(FLAWED), "done": returned()}, middleware=[cleanup(mock())])}

CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "a timeout over frames": (nested(timeout("PT5S")), False),
    "a timeout during a clean-up": (nested(timeout("PT0.5S"), inner=mock()), False),
    "a clean-up that fails": (nested(timeout("PT5S"), cleanup(failing("X"))), False),
    "a retry with gaps": (nested(PATIENT, inner=failing("X")), False),
    "a loop of frames": (
        nested(entry(LOOP, onSuccess={"when": "{{ middleware.metadata.iteration < 3.0 }}"}), inner=mock()),
        False,
    ),
    "a retry inside a timeout inside a retry": (nested(retry(2), timeout("PT3S"), PATIENT, inner=failing("X")), False),
    "a fan-out": (fan_out(WRAPPED), False),
    "a fan-out with a branch that fails": (fan_out(FAILS_FOR_TWO, completion={"successes": 3}), False),
    "a fan-out that has enough successes": (fan_out(WRAPPED, completion={"successes": 1, "wait": False}), False),
    "a sleep": (one_step(NAP, middleware=[cleanup(mock())]), False),
    "a cancelled sleep": (one_step(NAP, middleware=[cleanup(mock(delay="PT1S"))]), True),
    "cancelled frames": (nested(inner=mock(delay="PT2H")), True),
    "cancelled frames with a clean-up that fails": (nested(cleanup(failing("X")), inner=mock(delay="PT2H")), True),
    "a cancelled fan-out": (
        fan_out({"flow": subflow({"nap": NAP, "done": returned()}, middleware=[cleanup(mock())])}),
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_death_after_any_event_changes_nothing(name: str) -> None:
    definition, cancelled = CASES[name]
    with Scenario() as scenario:
        scenario.start(source=json.dumps(definition))
        if cancelled:
            scenario.cancel("operator")
        scenario.advance(hours=3)
        cleaned = _count_cleanups(scenario.events)
        assert cleaned, "the flow cleans up"
        assert max(cleaned.values()) == 1, "each clean-up once"
        scenario.crash_everywhere(lambda one: (_without_details(result_of(one.events)), _count_cleanups(one.events)))


def _count_cleanups(events: list[Any]) -> Counter[str]:
    """Count the outcomes of the call of each clean-up."""
    return Counter(event.key for event in events if event.type == "effect.result" and "onAlways" in event.key)


def _without_details(result: dict[str, Any]) -> Any:
    return {name: value for name, value in result.items() if name != "details"}
