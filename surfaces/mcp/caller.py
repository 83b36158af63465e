"""The caller: the client of a call, its progress reports, and the questions to the person who uses it.

A question of a run is put as a form of MCP (elicitation): a flat object of text, numbers, yes or no, and choices. A
question that does not fit is not asked this way: it waits for answer_question, as all questions do if the client does
not support forms.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct, field

from callboard.features.access.subject import NOBODY, Scope, Subject
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON
from callboard.projections.lists.question_data import data_lines
from callboard.projections.lists.questions import Question
from callboard.surfaces.mcp.http import subject_of

RESPONSE = "response"
"""The member of a form with the answer, if the answer is a single value."""

_PLAIN = ("string", "number", "integer", "boolean")
_KEPT = ("type", "title", "description", "minLength", "maxLength", "minimum", "maximum", "default", "enum", "format")
_FORMATS = ("email", "uri", "date", "date-time")


def form_of(question: Question) -> dict[str, Any] | None:
    """Return the schema of a question's form, None if no form can express it."""
    if question.options and not _members(question.schema):
        labels = [one.label for one in question.options]
        return _form({RESPONSE: {"type": "string", "enum": labels}}) if len(set(labels)) == len(labels) else None
    if not question.schema:
        return _form({RESPONSE: {"type": "string"}})
    match question.schema:
        case {"type": "object", "properties": dict(properties), **more} if properties:
            required: list[str] = more.get("required", [])
            fields = {
                name: _field(schema) or (None if name in required else _json_field(schema))
                for name, schema in properties.items()
            }
            known: Any = {name: field for name, field in fields.items() if field is not None}
            return _form(known, required) if len(known) == len(fields) else None
        case schema:
            field = _field(schema)
            return None if field is None else _form({RESPONSE: field})


def response_of(question: Question, content: Mapping[str, Any]) -> JSON:
    """Return the answer in a filled-in form."""
    members = _members(question.schema)
    if members or (RESPONSE not in content and not question.options):
        return {name: _read_member(members.get(name), value) for name, value in content.items()}
    answer = content.get(RESPONSE)
    return next((one.value for one in question.options if one.label == answer), answer)


def _members(schema: JSON) -> Mapping[str, Any]:
    """Return the schemas of the members of an object; none if a schema describes something else."""
    match schema:
        case {"type": "object", "properties": dict(properties)}:
            return properties
        case _:
            return {}


def _read_member(schema: JSON, value: Any) -> JSON:
    """Return the value of a field; of one that has JSON, the value that it is."""
    if schema is None or _field(schema) is not None or not isinstance(value, str):
        return value
    try:
        return decode_json(value) if value.strip() else None
    except JSON_ERRORS:
        return value


def _json_field(schema: JSON) -> dict[str, Any]:
    told: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    field = {"type": "string", "description": f"{told.get('description') or ''} As JSON.".strip()}
    field |= {"title": str(told["title"])} if "title" in told else {}
    return field | ({"default": msgspec.json.encode(told["default"]).decode()} if "default" in told else {})


def _form(fields: Mapping[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields), "required": list(fields) if required is None else required}


def _field(schema: JSON) -> dict[str, Any] | None:
    match schema:
        case {"enum": [*values]} if values and all(isinstance(value, str) for value in values):
            return {"type": "string", "enum": values}
        case {"type": str(kind), **rest} if kind in _PLAIN and not {"enum", "const", "oneOf", "anyOf"} & set(rest):
            found = {name: value for name, value in rest.items() if name in _KEPT}
            if found.get("format") not in _FORMATS:
                found.pop("format", None)
            return {"type": kind, **found}
        case _:
            return None


ANSWER_SCOPE: Scope = "answer"
"""The scope that is needed to answer a question, in any way."""

TASKS = "io.modelcontextprotocol/tasks"
"""The extension of clients that accept a task instead of a result."""


class State(Struct, frozen=True, omit_defaults=True):
    """The state that a client returns when it repeats a call after a question: the run and the asked questions."""

    run_id: str
    asked: list[str] = []


class InputNeeded(Exception):
    """A question has to be sent as the result of the call, which the client then repeats (protocol 2026-07-28)."""

    def __init__(self, question: Question, asked: set[str]) -> None:
        super().__init__(question.key)
        self.state = State(question.run, sorted(asked))
        self.requests = {name_of(question): to_elicitation(question)}


class Caller(Struct):
    """The caller of a tool: its self-declared ``name`` and subject, whether it ``asks`` its user and accepts ``tasks``.

    A client whose answers would be refused does not ask. ``elicit`` shows a form to the person; it is None if questions
    are sent as the result of the call. ``asked`` are the questions so far: each is asked only once in a call.
    """

    name: str
    report: Callable[[str], Awaitable[None]]
    subject: Subject = NOBODY
    asks: bool = False
    tasks: bool = False
    elicit: Callable[[str, dict[str, Any]], Awaitable[ElicitResult]] | None = None
    asked: set[str] = field(default_factory=set[str])

    def known_as(self, said: str | None = None) -> str | None:
        """Return the name to record for a command: the one in the call, if the caller may speak for others."""
        return ((said or self.name) if self.subject.speaks_for_others else self.subject.name) or None

    def can_ask(self, question: Question) -> bool:
        return self.asks and name_of(question) not in self.asked and form_of(question) is not None

    async def ask(self, question: Question) -> tuple[bool, JSON]:
        """Ask the person; return whether the question was answered, and the answer.

        :raises InputNeeded: if the question has to be sent as the result of the call
        """
        if self.elicit is None:
            raise InputNeeded(question, self.asked)
        self.asked.add(name_of(question))
        return heard(question, await self.elicit(_message(question), form_of(question) or {}))


def heard(question: Question, result: ElicitResult) -> tuple[bool, JSON]:
    """Return whether a question was answered, and the answer."""
    accepted = result.action == "accept"
    return accepted, response_of(question, result.content or {}) if accepted else None


def name_of(question: Question) -> str:
    """Return the name of a question for clients. It has the event's number, since a run may reuse a key."""
    return f"{question.key}@{question.n}"


def to_elicitation(question: Question) -> ElicitRequest:
    """Return the request that makes a client ask a question."""
    form = form_of(question) or {}
    return ElicitRequest(params=ElicitRequestFormParams(message=_message(question), requested_schema=form))


def _message(question: Question) -> str:
    """Return the text for the person at the client: the question and its data."""
    return "\n".join([question.question, *data_lines(question.data, question.question)])


def caller_of(context: ServerRequestContext[Any, Any]) -> Caller:
    """Return the caller of a request."""
    session, subject = context.session, subject_of(context.request)
    introduced = session.client_params
    offers = session.client_capabilities
    modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    told = 0

    async def report(line: str) -> None:
        nonlocal told
        told += 1
        await session.report_progress(told, message=line)

    async def elicit(message: str, form: dict[str, Any]) -> ElicitResult:
        try:
            return await session.elicit_form(message, form, context.request_id)
        except MCPError:
            return ElicitResult(
                action="cancel"
            )  # the client cannot ask after all; the question stays open for other ways to answer

    forms = offers.elicitation if offers and (modern or session.can_send_request) else None
    extensions: Mapping[str, Any] = (offers.extensions if offers else None) or {}
    return Caller(
        name=introduced.client_info.name if introduced else "",
        report=report,
        subject=subject,
        asks=forms is not None
        and subject.may(ANSWER_SCOPE)
        and (forms.form is not None or forms.url is None)
        and (modern or session.can_send_request),
        tasks=modern and TASKS in extensions,
        elicit=None if modern else elicit,
    )
