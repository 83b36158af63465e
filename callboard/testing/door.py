"""The admission of a scenario's run: a start is checked, planned and admitted, or rejected, as on a server."""

from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.subjects import RunRef
from callboard.languages.language import STRICT
from callboard.lib.text import encode_json
from callboard.runtime.admission.first_events import accepted_event, definition_token, last_of_each_kind
from callboard.runtime.admission.start_message import examine
from callboard.service.client.errors import RequestRefused
from callboard.start_options import Message
from callboard.testing.services import Services


def accept_start(services: Services, made: Message, file: str) -> tuple[RunRef, ev.RunAccepted, str]:
    """Admit the start of a definition in ``file``. Return the run, its first event, and the definition's name in
    subjects.

    :raises RequestRefused: with every problem of the definition, or of the start
    """
    named: dict[str, Any] = {"run_id": "run-1", **made.message}

    def refusal(problems: list[ev.Problem]) -> RequestRefused:
        return RequestRefused("start", problems, file, made.source)

    examined = examine(encode_json(named))
    start = examined.start
    if start is None or examined.problems:
        raise refusal(examined.problems)
    plan = services.definitions.plan(start.definition, start)
    if isinstance(plan, list):
        raise refusal(plan)
    shortfalls = plan.shortfalls(services.offers(start, plan))
    warnings = last_of_each_kind([*plan.definition.warnings, *plan.warnings, *shortfalls])
    if plan.options[STRICT] and warnings:
        raise refusal([msgspec.structs.replace(warning, severity="error") for warning in warnings])
    ref = RunRef("default", named["run_id"])
    return ref, accepted_event(start, plan, ref, None, warnings), definition_token(plan.definition)
