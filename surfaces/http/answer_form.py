"""Answering by a link: the form of one question, and what becomes of what is filled in.

To look at a link changes nothing, so that mail programs may; only what is sent with the form answers. Of several
answers one counts, and the others are told whose.
"""

import datetime as dt
import html
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from callboard.bus.answer_schemas import answer_schema, choice
from callboard.bus.errors import CallboardError
from callboard.bus.events import HumanAsked
from callboard.bus.log.port import NoAnswer
from callboard.bus.log.private_logging import discretion
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.features.access.links import BadLink, Link, Links
from callboard.languages.json_schema import violations
from callboard.projections.lists.question_data import data_lines
from callboard.projections.lists.question_state import TYPES, Fate, FateFold
from callboard.service.api.bodies import Told
from callboard.service.api.live_projection import folded
from callboard.service.api.outcomes import Verb, outcome
from callboard.service.api.verbs import ApiError
from callboard.surfaces.http.forms import Unreadable, answer_of, fields_of, form_html
from callboard.surfaces.http.plain_pages import notice, page
from callboard.surfaces.http.request_body import received

PATH = "/answer/{link}"

CHANNEL = "api"
"""How answers come: past the filter for messages that may not be meant as one."""

FORM = "application/x-www-form-urlencoded"
FORM_BYTES_MAX = 256 * 1024
DATA_CHARS_MAX = 20_000
"""How much is shown of what a question is about."""

TELL_WAIT_S = 10.0
PRESS_WAIT_S = 1.5
"""How long it is waited for what a run makes of an answer; who presses a button in a chat is told sooner."""

logger = structlog.get_logger(__name__)


class Answering:
    """Serves the answer links of one tenant."""

    def __init__(self, log: JetStreamLog, tenant: str, verbs: Mapping[str, Verb]) -> None:
        self._log = log
        self._tenant = tenant
        self._links = Links(log, tenant)
        self._verbs = verbs

    async def serve(self, request: Request) -> Response:
        """Answer a request to ``/answer/<link>``."""
        with discretion():
            try:
                link = await self._links.read(request.path_params["link"], dt.datetime.now(dt.UTC))
                fate = await self._fate(link)
                if fate.asked is None or fate.outcome:
                    return _closed_page(fate)
                if request.method != "POST":
                    return question_page(fate.asked, {})
                return await self._answer(link, fate.asked, await _read_form(request))
            except BadLink as error:
                return _bad(error)
            except ApiError as error:
                return notice("This did not work", error.message, error.status)
            except (CallboardError, NoAnswer):
                return notice("This did not work just now", "Please try again in a minute.", 503)
            except Exception:
                logger.exception("an answer failed unexpectedly")
                return notice("This did not work", "That is our fault.", 500)

    async def _fate(self, link: Link) -> Fate:
        subjects = self._log.subjects
        filters = [subjects.events(self._tenant, link.run, None, type) for type in TYPES]
        return await folded(self._log, filters, FateFold(link.key))

    async def _answer(self, link: Link, asked: HumanAsked, filled: Mapping[str, Sequence[str]]) -> Response:
        schema = _schema(asked)
        try:
            value = answer_of(fields_of(schema), filled)
        except Unreadable as error:
            return question_page(asked, filled, [str(error)])
        if isinstance(schema, dict) and (wrong := violations(schema, value)):
            return question_page(asked, filled, wrong)
        found = await self._tell_answer(link, value, link.by, TELL_WAIT_S)
        if isinstance(found, Told):
            taken = "was taken" if found.verdict == "accepted" else "is recorded"
            return notice("Thank you", f"Your answer {taken}.", 200)
        if found.code == "answer.not_understood":
            return question_page(asked, filled, [found.message])
        fate = await self._fate(link)
        if fate.outcome:
            return _closed_page(fate)
        raise found

    async def _tell_answer(self, link: Link, value: Any, by: str, wait_s: float) -> Told | ApiError:
        body = {"interaction": link.key, "user_response": value, "by": by, "channel": CHANNEL}
        said = {"run_id": link.run, "verb": "answer", "body": body, "wait_s": wait_s}
        return await outcome(self._verbs["tell"], self._tenant, msgspec.json.encode(said))

    async def chosen(self, text: str, place: str, by: str) -> str:
        """Answer the question of a link with the option at a place; return in words what became of that.

        :raises ApiError: if it comes to nothing for another reason than that the question is closed
        """
        try:
            link = await self._links.read(text, dt.datetime.now(dt.UTC))
            fate = await self._fate(link)
        except BadLink:
            return "This holds no longer."
        except (CallboardError, NoAnswer) as error:
            raise ApiError(503, "log.unavailable", str(error)) from error
        if fate.asked is None or fate.outcome:
            return ". ".join(_why_closed(fate))
        options: list[Any] = fate.asked.options
        if not place.isascii() or not place.isdigit() or int(place[:4]) >= len(options):
            raise ApiError(400, "api.malformed", f"there is no option {place[:40]!r}")
        option = choice(options[int(place[:4])])
        found = await self._tell_answer(link, option.value, by, PRESS_WAIT_S)
        if isinstance(found, Told):
            return f"{fate.asked.question}\n{option.label}, says {by}."
        fate = await self._fate(link)
        if fate.outcome:
            return ". ".join(_why_closed(fate))
        raise found


async def _read_form(request: Request) -> Mapping[str, Sequence[str]]:
    """Read what was filled in, all of it: a part of an answer is none.

    :raises ApiError: if it is too large or too slow, did not come to its end, or is no form
    """
    body = await received(request, FORM_BYTES_MAX)
    if body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise ApiError(415, "http.media_type", "An answer comes with the form of its question.", expected=FORM)
    return parse_qs(body.decode(errors="replace"), keep_blank_values=True)


def _schema(asked: HumanAsked) -> Any:
    return answer_schema(asked.options) if asked.schema is None else asked.schema


def question_page(asked: HumanAsked, filled: Mapping[str, Sequence[str]], wrong: Sequence[str] = ()) -> Response:
    """The page of a question: what it asks, what it is about, and the form of its answer."""
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


def _closed_page(fate: Fate) -> Response:
    return notice(*_why_closed(fate), 410)


def _why_closed(fate: Fate) -> tuple[str, str]:
    """In a title and a sentence."""
    if fate.outcome == "answered":
        who = f" by {fate.by}" if fate.by else ""
        when = f" at {fate.at:%Y-%m-%d %H:%M} UTC" if fate.at is not None else ""
        return "This has been answered", f"It was answered{who}{when}. That answer counts."
    if fate.outcome == "timeout":
        return "It is too late", "The time for an answer is over."
    return "Nobody asks this any more", "The question was withdrawn."


def _bad(error: BadLink) -> Response:
    if error.late:
        return notice("It is too late", "This link holds no longer.", 410)
    return notice("This is no link of ours", "It may have been cut off on its way.", 404)
