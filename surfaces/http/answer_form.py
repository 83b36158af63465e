"""Serves answer links: shows the form of a question, and sends the submitted form to the run as the answer.

Opening a link changes nothing, so mail programs may fetch it; only the submitted form answers the question. If several
people answer, the first answer counts, and the others see who has answered.

The form is made from the JSON Schema of the answer. A value without a suitable kind of field, such as an object inside
an object, is entered as JSON in a text field. Fields and options are named by their numbers, so that no text of a
schema is used as a name in HTML.
"""

import datetime as dt
import html
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec
import structlog
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from callboard.bus.answer_schemas import answer_schema, choice
from callboard.bus.errors import CallboardError
from callboard.bus.events import HumanAsked
from callboard.bus.log.port import NoAnswer
from callboard.bus.log.private_logging import content_guard
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.features.access.links import BadLink, Link, Links
from callboard.languages.json_schema import violations
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON
from callboard.projections.lists.question_data import data_lines
from callboard.projections.lists.questions import OUTCOME_TYPES, QuestionOutcome, QuestionOutcomeFold
from callboard.service.operations.folding import fold_once
from callboard.service.operations.operation import ApiError, Operation, outcome
from callboard.service.operations.requests import Told
from callboard.surfaces.http.plain_pages import notice, page
from callboard.surfaces.http.request_body import receive_body

Kind = Literal["text", "number", "integer", "boolean", "choice", "choices", "json"]

FIELDS_MAX = 200
"""Maximum number of fields of a form; an answer with more members is entered as JSON."""

LONG_CHARS = 120
"""A text that may be longer than this gets a field with several lines."""

_BOOLEANS: tuple[tuple[JSON, str], ...] = ((True, "Yes"), (False, "No"))
_INPUTS: Mapping[str, str] = {"email": "email", "uri": "url", "date": "date", "time": "time"}
"""Types of HTML inputs, by the formats of texts."""


class FormField(Struct, frozen=True):
    """A field for the member ``name`` of the answer, or, if ``name`` is None, for the whole answer.

    ``given`` is its content before anybody has filled it in.
    """

    name: str | None
    kind: Kind
    title: str
    hint: str = ""
    required: bool = True
    options: tuple[tuple[JSON, str], ...] = ()
    long: bool = True
    input: str = "text"
    given: str = ""


class InvalidField(Exception):
    """The value of a field is invalid; the message says why."""


def fields_of(schema: JSON, title: str = "Answer") -> list[FormField]:
    """Return the fields of a schema."""
    if isinstance(schema, dict) and schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        members: dict[str, Any] = schema["properties"]
        listed = schema.get("required")
        required = listed if isinstance(listed, list) else []
        if 0 < len(members) <= FIELDS_MAX:
            return [_field(name, one, name, required=name in required) for name, one in members.items()]
    return [_field(None, schema, title, required=True)]


def _field(name: str | None, schema: Any, title: str, *, required: bool) -> FormField:
    if not isinstance(schema, dict):
        return FormField(name, "text", title, required=required)
    told = str(schema.get("title") or title), str(schema.get("description") or "")
    if options := _options(schema):
        return FormField(name, "choice", *told, required, options)
    match schema:
        case {"type": "boolean"}:
            return FormField(name, "choice", *told, required, _BOOLEANS)
        case {"type": "number"}:
            return FormField(name, "number", *told, required)
        case {"type": "integer"}:
            return FormField(name, "integer", *told, required)
        case {"type": "array", "items": dict(items)} if options := _options(items):
            return FormField(name, "choices", *told, False, options)
        case {"type": "object" | "array"} | {"$ref": _} | {"allOf": _} | {"anyOf": _} | {"oneOf": _}:
            given = msgspec.json.format(msgspec.json.encode(schema["default"])).decode() if "default" in schema else ""
            return FormField(name, "json", *told, required, given=given)
        case _:
            longest = schema.get("maxLength")
            kind = _INPUTS.get(str(schema.get("format")), "")
            long = not kind and not (isinstance(longest, int) and longest <= LONG_CHARS)
            return FormField(name, "text", *told, required, long=long, input=kind or "text")


def _options(schema: Mapping[str, Any]) -> tuple[tuple[JSON, str], ...]:
    match schema:
        case {"enum": list(values)} if values:
            return tuple((value, _display_text(value)) for value in values)
        case {"oneOf": list(each)} | {"anyOf": list(each)} if each and all(
            isinstance(one, dict) and "const" in one for one in each
        ):
            return tuple((one["const"], str(one.get("title", _display_text(one["const"])))) for one in each)
        case {"const": value}:
            return ((value, _display_text(value)),)
        case _:
            return ()


def _display_text(value: JSON) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# -- submitted forms --------------------------------------------------------------------------------------------------


def answer_of(fields: Sequence[FormField], filled: Mapping[str, Sequence[str]]) -> JSON:
    """Return the answer of a submitted form, without the members whose fields are empty.

    :raises InvalidField: if a field has an invalid value, or the field for the whole answer is missing
    """
    found: dict[str, JSON] = {}
    for number, field in enumerate(fields):
        given = [one for one in filled.get(str(number), ()) if one.strip()]
        if field.name is None:
            # Browsers submit empty fields too. Only checkboxes that are not ticked are left out.
            if str(number) not in filled and field.kind != "choices":
                raise InvalidField(f"{field.title}: nothing was filled in")
            return _value(field, given) if given or field.kind == "choices" else ""
        if given or field.kind == "choices":
            found[field.name] = _value(field, given)
    return found


def _value(field: FormField, given: Sequence[str]) -> JSON:
    if field.kind == "choices":
        return [_option_value(field, one) for one in given]
    text = given[0]
    try:
        match field.kind:
            case "choice":
                return _option_value(field, text)
            case "integer":
                return int(text)
            case "number":
                number: Any = decode_json(text.strip())
                return msgspec.convert(number, int | float)
            case "json":
                return decode_json(text)
            case _:
                return text.replace("\r\n", "\n")
    except (ValueError, RecursionError):
        kind = {"integer": "a whole number", "number": "a number"}.get(field.kind, "JSON")
        raise InvalidField(f"{field.title}: {text[:80]!r} is not {kind}") from None


def _option_value(field: FormField, given: str) -> JSON:
    if not given.isascii() or not given.isdigit() or int(given[:6]) >= len(field.options):
        raise InvalidField(f"{field.title}: {given[:80]!r} is not one of the options")
    return field.options[int(given[:6])][0]


# -- HTML -------------------------------------------------------------------------------------------------------------


def form_html(fields: Sequence[FormField], filled: Mapping[str, Sequence[str]]) -> str:
    """Return the fields as HTML, with the values that were entered before."""
    return "\n".join(_field_html(str(i), field, filled.get(str(i), ())) for i, field in enumerate(fields))


def _field_html(number: str, field: FormField, given: Sequence[str]) -> str:
    title, hint = html.escape(field.title), f"<small>{html.escape(field.hint)}</small>" if field.hint else ""
    needed = " required" if field.required else ""
    if field.options:
        kind = "checkbox" if field.kind == "choices" else "radio"
        boxes = "\n".join(
            f'<label><input type="{kind}" name="{number}" value="{place}"{needed}'
            f"{' checked' if str(place) in given else ''}> {html.escape(label)}</label>"
            for place, (_, label) in enumerate(field.options)
        )
        return f"<fieldset><legend>{title}</legend>{hint}\n{boxes}\n</fieldset>"
    text = html.escape(given[0] if given else field.given)
    if field.kind in ("number", "integer"):
        step = "1" if field.kind == "integer" else "any"
        box = f'<input type="number" step="{step}" name="{number}" value="{text}"{needed}>'
    elif field.kind == "json" or field.long:
        box = f'<textarea rows="4" name="{number}"{needed}>\n{text}</textarea>'
    else:
        box = f'<input type="{field.input}" name="{number}" value="{text}"{needed}>'
    return f"<label>{title} {hint}\n{box}</label>"


PATH = "/answer/{link}"

CHANNEL = "api"
"""The channel of these answers; it bypasses the filter for messages that may not be meant as answers."""

FORM = "application/x-www-form-urlencoded"
FORM_BYTES_MAX = 256 * 1024
DATA_CHARS_MAX = 20_000
"""Maximum number of characters that are shown of the data of a question."""

TELL_WAIT_S = 10.0
PRESS_WAIT_S = 1.5
"""How long to wait for the effect of an answer; shorter for a button in a chat, which expects a quick reply."""

logger = structlog.get_logger(__name__)


class AnswerForms:
    """Serves the answer links of one tenant."""

    def __init__(self, log: JetStreamLog, tenant: str, operations: Mapping[str, Operation]) -> None:
        self._log = log
        self._tenant = tenant
        self._links = Links(log, tenant)
        self._operations = operations

    async def serve(self, request: Request) -> Response:
        """Answer a request to ``/answer/<link>``."""
        with content_guard():
            try:
                link = await self._links.read(request.path_params["link"], dt.datetime.now(dt.UTC))
                question = await self._outcome(link)
                if question.asked is None or question.outcome:
                    return _closed_page(question)
                if request.method != "POST":
                    return question_page(question.asked, {})
                return await self._answer(link, question.asked, await _read_form(request))
            except BadLink as error:
                return _bad_link_page(error)
            except ApiError as error:
                return notice("This did not work", error.message, error.status)
            except (CallboardError, NoAnswer):
                return notice("This did not work", "The server is not ready. Please try again in a minute.", 503)
            except Exception:
                logger.exception("an answer failed unexpectedly")
                return notice("This did not work", "The server has an internal error.", 500)

    async def _outcome(self, link: Link) -> QuestionOutcome:
        subjects = self._log.subjects
        filters = [subjects.events(self._tenant, link.run, None, type) for type in OUTCOME_TYPES]
        return await fold_once(self._log, filters, QuestionOutcomeFold(link.key))

    async def _answer(self, link: Link, asked: HumanAsked, filled: Mapping[str, Sequence[str]]) -> Response:
        schema = _schema(asked)
        try:
            value = answer_of(fields_of(schema), filled)
        except InvalidField as error:
            return question_page(asked, filled, [str(error)])
        if isinstance(schema, dict) and (wrong := violations(schema, value)):
            return question_page(asked, filled, wrong)
        found = await self._send_answer(link, value, link.by, TELL_WAIT_S)
        if isinstance(found, Told):
            taken = "was accepted" if found.verdict == "accepted" else "is recorded"
            return notice("Thank you", f"Your answer {taken}.", 200)
        if found.code == "answer.not_understood":
            return question_page(asked, filled, [found.message])
        question = await self._outcome(link)
        if question.outcome:
            return _closed_page(question)
        raise found

    async def _send_answer(self, link: Link, value: Any, by: str, wait_s: float) -> Told | ApiError:
        body = {"interaction": link.key, "user_response": value, "by": by, "channel": CHANNEL}
        said = {"run_id": link.run, "verb": "answer", "body": body, "wait_s": wait_s}
        return await outcome(self._operations["tell"](self._tenant, said))

    async def answer_with_option(self, text: str, place: str, by: str) -> str:
        """Answer the question of a link with the option at a place. Return a text that describes the result.

        :raises ApiError: if the answer fails for another reason than that the question is closed
        """
        try:
            link = await self._links.read(text, dt.datetime.now(dt.UTC))
            question = await self._outcome(link)
        except BadLink:
            return "This link is invalid or has expired."
        except (CallboardError, NoAnswer) as error:
            raise ApiError(503, "log.unavailable", str(error)) from error
        if question.asked is None or question.outcome:
            return ". ".join(_why_closed(question))
        options: list[Any] = question.asked.options
        if not place.isascii() or not place.isdigit() or int(place[:4]) >= len(options):
            raise ApiError(400, "api.malformed", f"the question has no option {place[:40]!r}")
        option = choice(options[int(place[:4])])
        found = await self._send_answer(link, option.value, by, PRESS_WAIT_S)
        if isinstance(found, Told):
            return f"{question.asked.question}\n{option.label}, says {by}."
        question = await self._outcome(link)
        if question.outcome:
            return ". ".join(_why_closed(question))
        raise found


async def _read_form(request: Request) -> Mapping[str, Sequence[str]]:
    """Read a submitted form completely.

    :raises ApiError: if the body is too large, too slow, incomplete, or not a form
    """
    body = await receive_body(request, FORM_BYTES_MAX)
    if body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise ApiError(415, "http.media_type", "Send the answer with the form on this page.", expected=FORM)
    return parse_qs(body.decode(errors="replace"), keep_blank_values=True)


def _schema(asked: HumanAsked) -> Any:
    return answer_schema(asked.options) if asked.schema is None else asked.schema


def question_page(asked: HumanAsked, filled: Mapping[str, Sequence[str]], wrong: Sequence[str] = ()) -> Response:
    """Return the page of a question, with its data and the form for the answer."""
    parts = [f"<h1>{html.escape(asked.question)}</h1>"]
    if about := data_lines(asked.request_data, asked.question, DATA_CHARS_MAX):
        shown = html.escape("\n".join(about))
        parts.append(f"<h2>What it is about</h2>\n<pre>{shown}</pre>")
    parts += [f'<p class="wrong" role="alert">{html.escape(one)}</p>' for one in wrong]
    parts.append(f'<form method="post">\n{form_html(fields_of(_schema(asked)), filled)}')
    parts.append('<p><button type="submit">Send</button></p>\n</form>')
    if asked.timeout_at is not None:
        parts.append(f"<p><small>Until {asked.timeout_at:%Y-%m-%d %H:%M} UTC</small></p>")
    return page(asked.question[:80], "\n".join(parts), 422 if wrong else 200)


def _closed_page(question: QuestionOutcome) -> Response:
    return notice(*_why_closed(question), 410)


def _why_closed(question: QuestionOutcome) -> tuple[str, str]:
    """Return a title and a sentence that say why a question is closed."""
    if question.outcome == "answered":
        who = f" by {question.by}" if question.by else ""
        when = f" at {question.at:%Y-%m-%d %H:%M} UTC" if question.at is not None else ""
        return "This has been answered", f"It was answered{who}{when}. That answer counts."
    if question.outcome == "timeout":
        return "It is too late", "The time for an answer is over."
    return "This question is closed", "It was withdrawn before it was answered."


def _bad_link_page(error: BadLink) -> Response:
    if error.late:
        return notice("It is too late", "This link has expired.", 410)
    return notice("Invalid link", "It may be incomplete. Copy the whole link from the message.", 404)
