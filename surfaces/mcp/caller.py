"""The caller: the client behind a call, what it hears meanwhile, and what the person who sits there can be asked."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct, field

from callboard.features.access.subject import NOBODY, Scope, Subject
from callboard.lib.json_types import JSON
from callboard.projections.lists.question_data import data_lines
from callboard.projections.lists.questions import Question
from callboard.surfaces.mcp.forms import form_of, response_of
from callboard.surfaces.mcp.http import subject_of

ANSWER_SCOPE: Scope = "answer"
"""What it takes to answer a question, by whichever way."""

TASKS = "io.modelcontextprotocol/tasks"
"""The extension by which a client takes a task in place of a result."""


class State(Struct, frozen=True, omit_defaults=True):
    """What a call that was interrupted by a question says when it comes again: its run, and what has been asked."""

    run_id: str
    asked: list[str] = []


class InputNeeded(Exception):
    """A question has to go out with the answer of the call, which then is called again (protocol 2026-07-28)."""

    def __init__(self, question: Question, asked: set[str]) -> None:
        super().__init__(question.key)
        self.state = State(question.run, sorted(asked))
        self.requests = {name_of(question): request_of(question)}


class Caller(Struct):
    """Who calls: its ``name``, as it introduced itself, whose request it is, whether it ``asks`` and takes ``tasks``.

    Nobody is asked whose answer would not be taken.
    ``elicit`` puts a form to the person; None where a question goes out with the answer of the call. ``asked`` are the
    questions that were asked: none is asked twice in one call, whatever came of it.
    """

    name: str
    report: Callable[[str], Awaitable[None]]
    subject: Subject = NOBODY
    asks: bool = False
    tasks: bool = False
    elicit: Callable[[str, dict[str, Any]], Awaitable[ElicitResult]] | None = None
    asked: set[str] = field(default_factory=set[str])

    def known_as(self, said: str | None = None) -> str | None:
        """Who is recorded as the one who does something: whom the call says, if it may speak for others."""
        return ((said or self.name) if self.subject.speaks_for_others else self.subject.name) or None

    def can_ask(self, question: Question) -> bool:
        return self.asks and name_of(question) not in self.asked and form_of(question) is not None

    async def ask(self, question: Question) -> tuple[bool, JSON]:
        """Ask the person; return whether there is an answer, and it.

        :raises InputNeeded: where the question goes out with the answer of the call
        """
        if self.elicit is None:
            raise InputNeeded(question, self.asked)
        self.asked.add(name_of(question))
        return heard(question, await self.elicit(_message(question), form_of(question) or {}))


def heard(question: Question, result: ElicitResult) -> tuple[bool, JSON]:
    """Return whether a question was answered, and how."""
    accepted = result.action == "accept"
    return accepted, response_of(question, result.content or {}) if accepted else None


def name_of(question: Question) -> str:
    """What a question is called towards clients: it may be asked under its key more than once."""
    return f"{question.key}@{question.n}"


def request_of(question: Question) -> ElicitRequest:
    """A question as what a client is asked to ask."""
    form = form_of(question) or {}
    return ElicitRequest(params=ElicitRequestFormParams(message=_message(question), requested_schema=form))


def _message(question: Question) -> str:
    """What the person at the client reads: the question, and what it is about."""
    return "\n".join([question.question, *data_lines(question.data, question.question)])


def caller_of(context: ServerRequestContext[Any, Any]) -> Caller:
    """Say who makes a request."""
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
            return ElicitResult(action="cancel")  # the client cannot ask after all; the question waits for others

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
