"""Questions that tests ask about the run of a scenario."""

from typing import TypeVar

from callboard import Failure
from callboard.bus import events as ev
from callboard.testing import Scenario


def find_keys(scenario: Scenario, event_type: str) -> list[str]:
    """Return the key of each event of a type."""
    return [event.key for event in scenario.events if event.type == event_type]


def find_failure(scenario: Scenario) -> Failure:
    """Return the error of a run that has failed."""
    error = scenario.result.error
    assert error is not None, scenario.result
    return error


P = TypeVar("P", bound=ev.Payload)


def find_payload(scenario: Scenario, kind: type[P]) -> P:
    """Return the payload of the only event of a kind."""
    (payload,) = scenario.payloads(kind.type)
    assert isinstance(payload, kind)
    return payload
