"""The model port: one turn in, one reply out, nothing provider-specific above it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct, field

from callboard.bus.effects import JSON, Choice, Failure, JsonSchema, Message, ModelReply, Purpose, ToolSpec, Usage

NOTHING = Usage()
"""The usage of a request of which the provider reported none."""

OnText = Callable[[str], None]
"""Takes each streamed piece of text as it comes; must not block and never raises."""


class Retrying(Struct, frozen=True):
    """A try of a turn has failed, the ``tries``-th of at most ``tries_max``; the next begins in ``wait_s`` seconds."""

    failure: Failure
    tries: int
    tries_max: int
    wait_s: float


OnRetry = Callable[[Retrying], None]
"""Is told of each further try, before the wait; must not block and never raises."""


def unheard(_retrying: Retrying) -> None:
    """Nobody wants to know."""


class ModelTurn(Struct, frozen=True, kw_only=True):
    """A whole, resolved request: every part of every message is `Text`, `ToolUse` or a resolved `ToolOutput`.

    ``model`` is the provider's own name of the model, without our prefix. ``ordinal`` counts the calls of the same
    path, purpose and evaluator in this run from 0, in the order of the log; a repeated execution has the same one.
    ``ordinal_of_id`` counts those of all paths that end in the same id; None stands for the same number.
    """

    model: str
    path: str
    key: str
    ordinal: int
    idempotency_key: str
    ordinal_of_id: int | None = None
    purpose: Purpose = "turn"
    system: str = ""
    messages: list[Message] = []
    tools: list[ToolSpec] = []
    schema: JsonSchema | None = None
    choices: list[Choice] = []
    evaluator: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    parameters: dict[str, JSON] = {}


class ProviderReply(ModelReply, frozen=True):
    """A reply of a provider. ``requests`` has what each request used, where several used anything; ``unmetered``: the
    provider reported no usage of the answer."""

    requests: list[Usage] = field(default_factory=list[Usage])
    unmetered: bool = False


class SpokenReply(ModelReply, frozen=True):
    """A reply with what was said on the way, where the adapter tells it apart from ``text``."""

    progress: str = ""


class ModelFailed(Exception):
    """A model turn failed for good, after the adapter's own retries.

    Codes: ``model.overloaded``, ``model.rate_limited``, ``model.timeout``, ``model.unreachable``, ``model.refused``,
    ``model.bad_request``, ``model.context_too_long``, ``model.auth``, ``model.bad_reply``, ``model.unscripted``,
    ``model.unknown``, ``model.not_installed``; ``internal`` for a fault of the adapter.
    """

    def __init__(
        self, failure: Failure, progress: str = "", usage: Usage = NOTHING, requests: Sequence[Usage] = ()
    ) -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.failure = failure
        self.progress = progress
        """What was said on the way, as `SpokenReply.progress`."""
        self.usage = usage
        """What all requests have used, as far as the provider reported it."""
        self.requests = list(requests)
        """What each request has used, where several used anything."""


class Model(Protocol):
    """A provider of model turns."""

    provider: str
    """The provider's name as OpenTelemetry knows it (``gen_ai.provider.name``)."""

    async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
        """Carry out one turn. What was streamed before a further try is void: it begins anew.

        :raises ModelFailed: if there is no usable reply
        """
        ...
