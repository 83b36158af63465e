"""Receiving: the start that a definition's trigger makes of something that came in."""

import datetime as dt
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from callboard.bus.subjects import is_name
from callboard.languages.language import Definition
from callboard.languages.registry import authoring
from callboard.languages.triggers import Begun, PassedOver, Received
from callboard.service.operations.errors import UsageInvalid

OPTION = "--received"


class _Request(BaseModel):
    """Something that came in, as people write it down."""

    model_config = ConfigDict(extra="forbid")
    at: dt.datetime = Field(default_factory=lambda: dt.datetime.now(dt.UTC))
    body: Any = None
    headers: dict[str, str] = Field(default_factory=dict)
    method: str = "POST"
    path: str = ""
    query: dict[str, str] = Field(default_factory=dict)
    client_ip: str = ""


def received_of(given: Any) -> Received:
    """Read something that came in: an object with ``body``, ``headers``, ``method``, ``path``, ``query``, ``client_ip``
    and ``at`` (ISO 8601), all of which may be left out.

    :raises UsageInvalid: if it is none
    """
    try:
        found = _Request.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        members = ", ".join(_Request.model_fields)
        raise UsageInvalid(f"{place or 'it'}: {first['msg']}; it has {members}", OPTION) from None
    at = found.at if found.at.tzinfo is not None else found.at.replace(tzinfo=dt.UTC)
    headers = {name.lower(): value for name, value in found.headers.items()}
    return Received(at, found.body, headers, found.method, found.path, found.query, found.client_ip)


def begun_of(definition: Definition[Any], received: Received, trigger: str | None) -> Begun:
    """Return the start that a definition's trigger makes of what came in.

    :raises UsageInvalid: if none does, with why, or several do
    """
    made = authoring(definition.language).begun(definition.document, received, trigger)
    found = [one for one in made if isinstance(one, Begun)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one.trigger for one in found)
        raise UsageInvalid(f"several triggers begin with it: {names}; choose one with --trigger", OPTION)
    reasons = "; ".join(f"{one.trigger}: {one.why}" for one in made if isinstance(one, PassedOver))
    named = f" {trigger!r}" if trigger is not None else ""
    raise UsageInvalid(f"no trigger{named} begins with it{f': {reasons}' if reasons else ''}", OPTION)


def begin(message: dict[str, Any], begun: Begun, definition: Definition[Any], called: str) -> dict[str, Any]:
    """Return a start message of a definition that is called so, as a trigger has it begin.

    What the sender has a name for starts one run, however often it comes. Where several triggers take something in, the
    name is that of one: their senders know nothing of each other.
    """
    options: Mapping[str, Any] = message.get("options", {})
    several = len(authoring(definition.language).entrances(definition.document)) > 1
    known = {"run_id": _run_id(f"{called}-{begun.trigger}" if several else called, begun.id)} if begun.id else {}
    return {**known, **message, "input": begun.input, "options": {**begun.options, **options}}


def _run_id(called: str, id: str) -> str:
    """The id of the run that something begins; a digest, where what the sender calls it is too long for one."""
    named = f"{called}-{id}"
    return named if is_name(named) else f"received-{sha256(named.encode()).hexdigest()}"
