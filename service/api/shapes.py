"""Shapes: what each verb is asked with and answers, and their JSON Schemas as the micro service tells them."""

from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from callboard.bus.commands import Registration, StartRun, Verb
from callboard.service.api import bodies
from callboard.service.api.fork_starts import ForkRun
from callboard.service.api.values import ReadValue
from callboard.service.api.verbs import Verbs


class TellRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``tell``, as `callboard.service.api.bodies.TellRun` reads it; ``body`` is what the verb is told with."""

    run_id: str
    verb: Verb
    body: dict[str, Any] = {}
    wait_s: float = bodies.TELL_WAIT_S


REQUESTS: Mapping[str, type] = {
    "start": StartRun,
    "fork": ForkRun,
    "tell": TellRequest,
    "runs": bodies.ListRuns,
    "count": bodies.CountRuns,
    "costs": bodies.SumCosts,
    "questions": bodies.ListQuestions,
    "show": bodies.OneRun,
    "result": bodies.AwaitResult,
    "trace": bodies.OneRun,
    "state": bodies.OneRun,
    "events": bodies.PageOfEvents,
    "value": ReadValue,
    "definition": Registration,
    "versions": bodies.OneName,
    "rollback": bodies.Rollback,
    "schedule": bodies.AddSchedule,
    "schedules": bodies.Nothing,
    "change_schedule": bodies.ChangeSchedule,
}
"""What each verb of the service is asked with."""


def answer_of(verb: str) -> Any:
    """The type of what a verb answers."""
    return get_type_hints(getattr(Verbs, verb))["return"]


@cache
def schemas_of(verb: str) -> Mapping[str, str]:
    """The JSON Schemas of a verb's request and answer, as text, by what the metadata of its endpoint calls them."""
    return {"request_schema": _text(REQUESTS[verb]), "response_schema": _text(answer_of(verb))}


def _text(shape: Any) -> str:
    (schema,), defs = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    return msgspec.json.encode({**schema, "$defs": defs} if defs else schema).decode()
