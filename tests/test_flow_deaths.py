"""Flows whose worker dies after any event: another one finishes them, with the same Result and each clean-up once."""

from collections import Counter
from typing import Any, cast

import pytest

from callboard.runtime.run.log import read_run
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import VirtualClock, simulate
from tests.flows import (
    LOOP,
    FlowTheatre,
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
from tests.simulation import World, copied, finish

SLOW = mock(delay="PT60S", value="slow")
NAP = {"action": "Sleep", "for": "PT1H", "next": "done"}

BACKOFF = {"initial": "PT2S", "rate": 2, "jitter": "full"}
PATIENT = entry(
    "mwl:provider.middleware/mwl/retry/v1",
    onEntry={"with": {"policies": [{"match": {"codes": ["*"]}, "attempts": 3, "backoff": BACKOFF}]}},
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


def fanned(target: dict[str, Any], **fields: Any) -> dict[str, Any]:
    fan = {"action": "Gather", "over": [1, 2, 3, 4], "call": target, "concurrency": 2, "next": "done", **fields}
    return flow({"fan": fan, "done": returned()}, middleware=[cleanup(mock())])


WRAPPED = {"flow": subflow({"in": call(mock(delay="PT2S")), "done": returned()}, middleware=[cleanup(mock())])}

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
    "a fan-out": (fanned(WRAPPED), False),
    "a fan-out that needs no more": (fanned(WRAPPED, completion={"successes": 1, "wait": False}), False),
    "a sleep": (flow({"nap": NAP, "done": returned()}, middleware=[cleanup(mock())]), False),
    "a cancelled sleep": (flow({"nap": NAP, "done": returned()}, middleware=[cleanup(mock(delay="PT1S"))]), True),
    "cancelled frames": (nested(inner=mock(delay="PT2H")), True),
    "a cancelled fan-out": (
        fanned({"flow": subflow({"nap": NAP, "done": returned()}, middleware=[cleanup(mock())])}),
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_death_after_any_event_changes_nothing(name: str) -> None:
    definition, cancelled = CASES[name]

    async def body() -> None:
        theatre = FlowTheatre()
        ref = await theatre.begin(definition)
        if cancelled:
            assert await theatre.perform(ref) == "parked"
            await theatre.perform(ref, theatre.command("cancel", reason="operator"))
        events = await finish(theatre, ref, World())
        check_log(events)
        expected, cleaned = _essence(result_of(events)), _cleanups(events)
        assert cleaned, "the flow cleans up"
        assert max(cleaned.values()) == 1, "each clean-up once"
        recorded = await read_run(theatre.log, ref)
        for boundary in range(1, len(recorded)):
            if cancelled and "cancel.requested" not in {item.event.type for item in recorded[:boundary]}:
                # The command would come again; that it is obeyed then is another test's affair.
                continue
            other = FlowTheatre()
            await copied(recorded[:boundary], cast("CrashingLog", other.log))
            cast("VirtualClock", other.clock).set(recorded[boundary - 1].event.time)
            again = await finish(other, ref, World())
            check_log(again)
            check_replay(other.language, ref, again)
            assert _essence(result_of(again)) == expected, f"after {boundary} events"
            assert _cleanups(again) == cleaned, f"after {boundary} events"

    simulate(body)


def _cleanups(events: list[Any]) -> Counter[str]:
    """How often the call of each clean-up came to an outcome of its own."""
    return Counter(event.key for event in events if event.type == "effect.result" and "onAlways" in event.key)


def _essence(result: dict[str, Any]) -> Any:
    return {name: value for name, value in result.items() if name != "details"}
