"""Turns a received request into a start, by the trigger of a definition."""

import datetime as dt
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from callboard.bus.subjects import is_name
from callboard.languages.plan import Definition
from callboard.languages.registry import authoring
from callboard.languages.triggers import Begun, PassedOver, Received
from callboard.runtime.client.errors import UsageInvalid

OPTION = "--received"


class _Request(BaseModel):
    """A received request, as the option ``--received`` describes it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    at: dt.datetime = Field(default_factory=lambda: dt.datetime.now(dt.UTC))
    body: Any = None
    headers: dict[str, str] = Field(default_factory=dict)
    method: str = "POST"
    path: str = ""
    query: dict[str, str] = Field(default_factory=dict)
    client_ip: str = ""


def parse_received(given: Any) -> Received:
    """Parse a received request: an object with ``body``, ``headers``, ``method``, ``path``, ``query``, ``client_ip``
    and ``at`` (ISO 8601), all of them optional.

    :raises UsageInvalid: if the object is invalid
    """
    try:
        found = _Request.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        members = ", ".join(_Request.model_fields)
        message = f"invalid {place or 'request'}: {first['msg']}; expected an object with {members}"
        raise UsageInvalid(message, OPTION) from None
    at = found.at if found.at.tzinfo is not None else found.at.replace(tzinfo=dt.UTC)
    headers = {name.lower(): value for name, value in found.headers.items()}
    return Received(at, found.body, headers, found.method, found.path, found.query, found.client_ip)


def apply_trigger(definition: Definition[Any], received: Received, trigger: str | None) -> Begun:
    """Return the start that a definition's trigger makes of a received request.

    :raises UsageInvalid: if no trigger accepts the request, with the reasons, or several do
    """
    made = authoring(definition.language).begun(definition.document, received, trigger)
    found = [one for one in made if isinstance(one, Begun)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one.trigger for one in found)
        raise UsageInvalid(f"several triggers accept the request: {names}; choose one with --trigger", OPTION)
    reasons = "; ".join(f"{one.trigger}: {one.why}" for one in made if isinstance(one, PassedOver))
    named = f" {trigger!r}" if trigger is not None else ""
    raise UsageInvalid(f"no trigger{named} accepts the request{f': {reasons}' if reasons else ''}", OPTION)


def begin(message: dict[str, Any], begun: Begun, definition: Definition[Any], called: str) -> dict[str, Any]:
    """Return the start message for the start that a trigger made; ``called`` is the name of the definition.

    A request with an id of its sender starts only one run, even if it is repeated. If the definition has several
    triggers, the run id also contains the trigger's name, since different senders may use the same ids.
    """
    options: Mapping[str, Any] = message.get("options", {})
    several = len(authoring(definition.language).entrances(definition.document)) > 1
    known = {"run_id": _run_id(f"{called}-{begun.trigger}" if several else called, begun.id)} if begun.id else {}
    return {**known, **message, "input": begun.input, "options": {**begun.options, **options}}


def _run_id(called: str, id: str) -> str:
    """Return the run id for a received request: the sender's id, or its digest if it cannot be part of a run id."""
    named = f"{called}-{id}"
    return named if is_name(named) else f"received-{sha256(named.encode()).hexdigest()}"
