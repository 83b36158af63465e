"""One driver for the models of all providers: tries, pauses, refused parameters, streams and embeddings.

A provider adds its wire format (`WireFormat`) and a client of its official SDK. The SDKs retry nothing: tries are
counted and limited here, and are begun again within a stream as well.

A provider may pause a turn before its answer is complete, and continue when the answer so far is sent back. Claude does
so while its provider runs tools (``pause_turn``), and OpenAI's newer models may end with a commentary. All requests
together are one turn: its text is that of the answer, and what was said before a pause is progress.
"""

import importlib
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from callboard.actors.models.attachments import continue_reply
from callboard.actors.models.draft import PAUSED, Fold
from callboard.actors.models.embedding_models import EmbeddingReply, EmbeddingRequest, embed_all
from callboard.actors.models.model import ModelTurn, ModelTurnFailed, OnRetry, OnText, ProviderReply, unheard
from callboard.actors.models.refusals import Refusals
from callboard.actors.models.request_parts import SdkRequest, sent
from callboard.actors.models.request_retries import RetryPolicy, TryFailed, TurnSpending, with_retries
from callboard.actors.models.stream_reader import Read, Stream, listen
from callboard.actors.models.turn_limits import ProviderLimit
from callboard.bus import tracecontext
from callboard.bus.effects import Failure, Message, ModelReply, Part, Text

CONNECT_S = 10.0
"""How long connecting may take, in seconds."""
SILENCE_S = 120.0
"""How long a stream may be silent, in seconds; the APIs send something well within that time."""

PAUSES_MAX = 16
"""How often a turn may be paused."""

COMMENTARIES_MAX = 3
"""How often a turn continues after a commentary. After that the commentary is the answer."""


class Course:
    """The course of one turn: the ``turn`` with the answer so far, the omitted parts of its requests, its usage.

    A try that fails is begun again after the last pause. ``api`` is the name under which the adapter seals attachments.
    """

    def __init__(self, turn: ModelTurn, api: str) -> None:
        self.turn = turn
        self.without: set[str] = set()
        self.spent = TurnSpending()
        self._api = api
        self._messages = turn.messages
        self._earlier: ProviderReply | None = None
        self._pauses = 0

    async def follow(self, request: Callable[[], Awaitable[ProviderReply]]) -> ProviderReply:
        """Make requests until the answer is complete, and return it.

        :raises TryFailed: as ``request``; ``model.bad_reply`` after too many pauses
        """
        while True:
            reply = await request()
            if self._earlier is not None:
                reply = continue_reply(self._earlier, reply, self._api)
            comments = self._ends_with_commentary(reply)
            if not (reply.paused or comments):
                return reply
            self._pauses += 1
            if comments and (not reply.paused or self._pauses > COMMENTARIES_MAX):
                return replace(reply, text=reply.progress, progress="", thought="", paused=False)
            if self._pauses > PAUSES_MAX:
                message = f"the provider has paused the turn {self._pauses} times without an answer"
                raise TryFailed(Failure("model.bad_reply", message, retryable=False), again=False)
            self._earlier = reply
            said: list[Part] = [Text(reply.text)]
            self.turn = replace(self.turn, messages=[*self._messages, Message("assistant", said, reply.thought)])
            self.spent.begin()

    def _ends_with_commentary(self, reply: ProviderReply) -> bool:
        """Whether the provider has given a commentary, and no answer after it."""
        if reply.paused:
            return reply.stop_reason not in PAUSED
        commented = self._earlier is not None and self._earlier.stop_reason not in PAUSED
        return commented and not (reply.text or reply.tool_calls)

    def begin(self, fold: Fold) -> None:
        """Prepare the reader of the next request's stream."""
        if self._earlier is not None:
            fold.draft.resume(self._earlier.text)


class WireFormat(Struct, frozen=True):
    """The wire format of an API. ``api`` is its name in the log.

    ``build_request`` converts a turn to a request, without the parameters that the model refused; ``fold`` makes the
    reader of a stream; ``failure_of`` converts an exception of the SDK. The other members are those of `Refusals`.
    """

    api: str
    build_request: Callable[[ModelTurn, Collection[str]], SdkRequest]
    fold: Callable[[], Fold]
    failure_of: Read
    dispensable: Collection[str]
    schema: str
    attached: re.Pattern[str]
    attached_by_model: bool = False


class ProviderModel:
    """Turns carried out by a provider. One client, any number of turns at a time; close it with `aclose`."""

    def __init__(self, wire: WireFormat, provider: str, retry: RetryPolicy | None, lane: ProviderLimit | None) -> None:
        """Make the model of a provider; the ``lane`` limits its turns."""
        self.provider = provider
        self._wire = wire
        self._retry = retry or RetryPolicy()
        self._lane = lane or ProviderLimit()
        self._refusals = Refusals(wire.dispensable, wire.schema, wire.attached, by_model=wire.attached_by_model)

    async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
        """Carry out one turn; a try that breaks off within the stream is started again, and streams from the start.

        :raises ModelTurnFailed: without a usable reply
        """
        course = Course(turn, self._wire.api)
        return await with_retries(
            self._retry,
            lambda: course.follow(lambda: self._request(course, on_text)),
            on_retry,
            spent=course.spent,
            lane=self._lane,
            model=turn.model,
        )

    async def _request(self, course: Course, on_text: OnText) -> ProviderReply:
        turn, fold = course.turn, self._wire.fold()
        course.begin(fold)
        request = self._wire.build_request(turn, course.without | self._refusals.of(turn.model))
        stream = self._open_stream(request, turn.idempotency_key)
        try:
            reply = await listen(stream, fold, request, on_text, self._wire.failure_of, course.spent)
        except TryFailed as refused:
            raise self._refusals.process_refusal(turn.model, refused, sent(request), course.without) from refused
        return replace(reply, provider=self.provider)

    def _open_stream(self, request: SdkRequest, idempotency_key: str) -> Awaitable[Stream]:
        """Send a request, and return the stream of events that answers it."""
        raise NotImplementedError


class EmbeddingProviderModel(ProviderModel):
    """A provider that has models for embeddings as well."""

    async def embed(self, request: EmbeddingRequest) -> EmbeddingReply:
        """Embed texts.

        :raises ModelTurnFailed: without a usable answer
        """

        async def ask(part: EmbeddingRequest) -> EmbeddingReply:
            try:
                return await self._request_embeddings(part)
            except Exception as error:
                if (known := self._wire.failure_of(error)) is None:
                    raise
                raise known from error

        return await embed_all(request, self._retry, ask, self._lane)

    async def _request_embeddings(self, request: EmbeddingRequest) -> EmbeddingReply:
        """Ask once.

        :raises TryFailed: if the answer cannot be read
        """
        raise NotImplementedError


def request_headers(idempotency_key: str) -> dict[str, str]:
    """Return the headers of a request to an API that knows a repeated one by its key."""
    return {"Idempotency-Key": idempotency_key, **tracecontext.headers()}


def missing_key(where: str) -> ModelTurnFailed:
    """Return the failure of a model without a key; ``where`` names the provider and its variable."""
    return ModelTurnFailed(Failure("model.auth", f"no key for {where} for the worker", retryable=False))


def forget_headers(client: Any) -> None:
    """Have an SDK's client send no headers from this process's environment, such as ``OPENAI_CUSTOM_HEADERS``: they are
    meant for the provider itself, and one of them may be its key."""
    # The SDKs read that variable whatever arguments they get, and have no other way to ignore it.
    client._custom_headers = {}


def sdk(module: str, extra: str) -> Any:
    """Import a provider's SDK late: it takes tens of megabytes and most of a second.

    :raises ModelTurnFailed: ``model.not_installed`` with what to install
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = (
            f"{module} cannot be imported ({error}): install it for the worker with pip install 'callboard[{extra}]'"
        )
        raise ModelTurnFailed(Failure("model.not_installed", message, retryable=False)) from error
