"""The types of each verb's request and answer, and their JSON Schemas for the metadata of the micro service."""

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
    """For ``tell``, as `callboard.service.api.bodies.TellRun` reads it; ``body`` is the body of the command."""

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
"""The type of each verb's request."""


def answer_of(verb: str) -> Any:
    """The type of a verb's answer."""
    return get_type_hints(getattr(Verbs, verb))["return"]


@cache
def schemas_of(verb: str) -> Mapping[str, str]:
    """The JSON Schemas of a verb's request and answer, as text, by their names in the metadata of its endpoint."""
    return {"request_schema": _text(REQUESTS[verb]), "response_schema": _text(answer_of(verb))}


def _text(shape: Any) -> str:
    (schema,), defs = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    return msgspec.json.encode({**schema, "$defs": defs} if defs else schema).decode()
