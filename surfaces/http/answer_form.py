"""Serves answer links: shows the form of a question, and sends the submitted form to the run as the answer.

Opening a link changes nothing, so mail programs may fetch it; only the submitted form answers the question. If several
people answer, the first answer counts, and the others see who has answered.
"""

import datetime as dt
import html
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

import structlog
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
from callboard.projections.lists.question_data import data_lines
from callboard.projections.lists.question_state import TYPES, QuestionOutcome, QuestionOutcomeFold
from callboard.service.operations.live_projection import fold_once
from callboard.service.operations.operation import ApiError, Operation, outcome
from callboard.service.operations.requests import Told
from callboard.surfaces.http.forms import Unreadable, answer_of, fields_of, form_html
from callboard.surfaces.http.plain_pages import notice, page
from callboard.surfaces.http.request_body import receive_body

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


class Answering:
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
        filters = [subjects.events(self._tenant, link.run, None, type) for type in TYPES]
        return await fold_once(self._log, filters, QuestionOutcomeFold(link.key))

    async def _answer(self, link: Link, asked: HumanAsked, filled: Mapping[str, Sequence[str]]) -> Response:
        schema = _schema(asked)
        try:
            value = answer_of(fields_of(schema), filled)
        except Unreadable as error:
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
