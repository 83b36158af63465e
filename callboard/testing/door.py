"""The admission of a scenario's runs: a start is checked, planned and admitted, or rejected, as on a server."""

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.events import Problem
from callboard.bus.log.port import LogReader
from callboard.bus.subjects import RunRef
from callboard.languages.kit import find_kit
from callboard.languages.plan import STRICT
from callboard.languages.registry import code_language, hosting, language
from callboard.lib.text import encode_json
from callboard.runtime.admission.first_events import accepted_event, definition_token, last_of_each_kind
from callboard.runtime.admission.start_message import Examined, decode_start, examine, examine_object
from callboard.runtime.admission.successors import complete_successor
from callboard.runtime.client.errors import RequestRefused
from callboard.start_options import Startable, StartMessage, start_message
from callboard.testing.services import ScriptedServices

TENANT = "default"

Admission = tuple[ev.RunAccepted, str]
"""The first event of a run, and the definition's name in subjects."""


def is_code(started: ev.RunAccepted) -> bool:
    """Return whether the definition of a run is code."""
    kit = find_kit(started.definition.language)
    return kit is not None and bool(kit.code_module)


def accept_start(services: ScriptedServices, made: StartMessage, file: str) -> tuple[RunRef, Admission]:
    """Admit the start of a definition in ``file``.

    :raises RequestRefused: with every problem of the definition, or of the start
    """
    named: dict[str, Any] = {"run_id": "run-1", **made.message}
    ref = RunRef(TENANT, named["run_id"])
    accepted = _accept(services, examine(encode_json(named)), ref, None)
    if isinstance(accepted, list):
        raise RequestRefused("start", accepted, file, made.source)
    return ref, accepted


def accept_child(
    services: ScriptedServices, named: "NamedDefinitions", child: RunRef, message: bytes, parent: ev.Parent
) -> Admission | list[Problem]:
    """Admit a child run, whose definition has its text or is one of the ``named`` ones."""
    document = decode_start(message)
    if isinstance(document, list):
        return document
    completed = named.complete(document)
    if isinstance(completed, list):
        return completed
    return _accept(services, examine_object(completed, len(message)), child, parent)


async def accept_successor(
    services: ScriptedServices, log: LogReader, body: bytes
) -> tuple[RunRef, Admission] | list[Problem]:
    """Admit the run that continues a child run."""
    document = decode_start(body)
    completed = document if isinstance(document, list) else await complete_successor(log, TENANT, document)
    if isinstance(completed, list):
        return completed
    message, inherited = completed
    ref = RunRef(TENANT, message["run_id"])
    accepted = _accept(services, examine_object(message, len(body)), ref, inherited.parent)
    if isinstance(accepted, list):
        return accepted
    first, token = accepted
    return ref, (msgspec.structs.replace(first, continues=inherited.continues), token)


def _accept(
    services: ScriptedServices, examined: Examined, ref: RunRef, parent: ev.Parent | None
) -> Admission | list[Problem]:
    start = examined.start
    if start is None or examined.problems:
        return examined.problems
    plan = services.definitions.plan(start.definition, start)
    if isinstance(plan, list):
        return plan
    shortfalls = plan.shortfalls(services.offers(start, plan))
    warnings = last_of_each_kind([*plan.definition.warnings, *plan.warnings, *shortfalls])
    if plan.options[STRICT] and warnings:
        return [msgspec.structs.replace(warning, severity="error") for warning in warnings]
    return accepted_event(start, plan, ref, parent, warnings), definition_token(plan.definition)


class NamedDefinitions:
    """The definitions that child runs name: those that the test gives, and the workflows of the started code."""

    def __init__(self, given: Mapping[str, Startable]) -> None:
        self._given = given
        self._made: dict[str, StartMessage] = {}
        self._code = ""

    def is_beside(self, started: ev.RunAccepted) -> None:
        """Let names also mean the other workflows in the code of the run that was started."""
        self._code = started.definition.source if is_code(started) else ""

    @property
    def texts(self) -> list[str]:
        """The texts of the definitions that the test gives."""
        return [self._message(name).source for name in self._given]

    def complete(self, document: dict[str, Any]) -> dict[str, Any] | list[Problem]:
        """Return a start message with the text of its definition."""
        definition: dict[str, Any] = document["definition"]
        name = definition.get("name")
        if name is None or definition.get("source") is not None:
            return document
        if name in self._given:
            kept = self._message(name).message
            members = {one: {**kept.get(one, {}), **document.get(one, {})} for one in ("files", "options", "children")}
            filled = {one: value for one, value in members.items() if value}
            return {**kept, **document, **filled, "definition": kept["definition"]}
        if (text := self._find_hosted(name)) is not None:
            return {**document, "definition": {"source": text}}
        message = f"no definition {name!r} is registered in this scenario"
        expected = f"Scenario(definitions={{{name!r}: FILE_OR_WORKFLOW}})"
        return [Problem("definition.unknown", message, "definition.name", expected=expected)]

    def _message(self, name: str) -> StartMessage:
        if name not in self._made:
            self._made[name] = start_message(self._given[name], {})
        return self._made[name]

    def _find_hosted(self, name: str) -> str | None:
        if not self._code:
            return None
        spoken = hosting()
        parsed = language(code_language()).parse(self._code)
        assert not isinstance(parsed, list), "it was admitted"
        _entry, digest = spoken.code_named(parsed.document)
        for entry, digests in spoken.entries().items():
            if entry.rpartition(":")[2] == name and digest in digests:
                return spoken.name_code(entry, digest)
        return None
