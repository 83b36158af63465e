"""The model port: one turn in, one reply out; nothing above it depends on a provider."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct, field

from callboard.bus.effects import Choice, Failure, Message, ModelReply, Purpose, ToolSpec, Usage
from callboard.lib.json_types import JSON, JsonSchema

NO_KEY = "none"
"""The key sent to a server that needs none: the SDKs require one, and would otherwise use another provider's."""

NOTHING = Usage()
"""The usage of a request for which the provider reported none."""

OnText = Callable[[str], None]
"""Takes each streamed piece of text as it comes; must not block and never raises."""


class Retrying(Struct, frozen=True):
    """A try of a turn has failed, the ``tries``-th of at most ``tries_max``; the next begins in ``wait_s`` seconds."""

    failure: Failure
    tries: int
    tries_max: int
    wait_s: float


OnRetry = Callable[[Retrying], None]
"""Called for each further try, before the wait; must not block and never raises."""


def unheard(_retrying: Retrying) -> None:
    """Ignore further tries."""


class ModelTurn(Struct, frozen=True, kw_only=True):
    """A complete, resolved request: every part of every message is `Text`, `ToolUse` or a resolved `ToolOutput`.

    ``model`` is the provider's own name of the model, without our prefix. ``ordinal`` counts the calls of the same
    path, purpose and evaluator in this run from 0, in the order of the log; a repeated execution has the same one.
    ``ordinal_of_id`` counts those of all paths that end in the same id; None means the same number.
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


class SpokenReply(ModelReply, frozen=True):
    """A reply with the text before the answer, if the adapter separates it from ``text``."""

    progress: str = ""


class ProviderReply(SpokenReply, frozen=True):
    """A reply of a provider. ``thought`` is what it attached to the message, not to a call (`ToolUse`), and wants back.
    ``requests`` has the usage of each request, if several used anything; ``unmetered``: the
    provider reported no usage of the answer. A ``paused`` one is unfinished: the provider continues it when it is sent
    back."""

    requests: list[Usage] = field(default_factory=list[Usage])
    unmetered: bool = False
    thought: str = ""
    paused: bool = False


class ModelTurnFailed(Exception):
    """A model turn failed, after the adapter's own retries.

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
        """The text before the failure, as `SpokenReply.progress`."""
        self.usage = usage
        """The total usage of all requests, as far as the provider reported it."""
        self.requests = list(requests)
        """The usage of each request, if several used anything."""


class Model(Protocol):
    """A provider of model turns."""

    provider: str
    """The provider's name as OpenTelemetry knows it (``gen_ai.provider.name``)."""

    async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
        """Carry out one turn. A further try streams from the start, and the text of earlier tries is void.

        :raises ModelTurnFailed: without a usable reply
        """
        ...
