"""Reconstructs the input of a call to a model, by a replay that verifies it."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from callboard.bus.effects import Choice, Message, Purpose, ToolSpec
from callboard.bus.events import Event, ModelCall, ModelResult, payload_of
from callboard.bus.subjects import RunRef
from callboard.lib.json_types import JSON, JsonSchema
from callboard.runtime.interpreter.asks import model_turn
from callboard.runtime.interpreter.replay import Admitted
from callboard.service.operations.replays import replayed_to


class Said(Struct, frozen=True):
    """A message of the conversation. ``n`` is the event that added it; ``new`` is true if the previous turn did not
    have it."""

    message: Message
    n: int
    new: bool


class Reply(Struct, frozen=True):
    """The model's answer, recorded as event ``n``."""

    n: int
    payload: ModelResult


class Seen(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A complete request to a model. ``verified`` is true if a replay has made the same request, with equal digest."""

    key: str
    n: int
    path: str
    iteration: int
    attempt: int
    purpose: Purpose
    provider: str
    model: str
    digest: str
    verified: bool
    system: str = ""
    messages: list[Said]
    tools: list[ToolSpec] = []
    schema: JsonSchema | None = None
    choices: list[Choice] = []
    max_output_tokens: int | None = None
    temperature: float | None = None
    parameters: dict[str, JSON] = {}
    result: Reply | None = None


def reconstruct_request(
    ref: RunRef, events: Sequence[Event], admission: Admitted, secrets: dict[str, str], reply: Event | None
) -> Seen | None:
    """Return the input of the ``model.call`` that is the last of a run's events; ``reply`` is its outcome.

    Return None if the call was cancelled before it was made.

    :raises ReplayDiverged: if the replay differs from the recorded events
    :raises CallboardError: ``replay.not_started``
    """
    called = events[-1]
    call = payload_of(called)
    if not isinstance(call, ModelCall):
        return None
    with replayed_to(ref, events, admission, secrets, called.n) as (stage, _):
        effect = stage.waits.effects.get(called.key)
        if effect is None:
            return None
        turn = model_turn(effect, stage.asks.memory, "")
    numbers = list(_message_events(events, called.key))
    new = len(turn.messages) - len(call.messages) - (call.base is not None)
    return Seen(
        key=called.key,
        n=called.n,
        path=called.path,
        iteration=called.iteration,
        attempt=called.attempt,
        purpose=turn.purpose,
        provider=call.provider,
        model=turn.model,
        digest=call.digest,
        verified=True,
        system=turn.system,
        messages=[
            Said(message, n, place >= new)
            for place, (message, n) in enumerate(zip(turn.messages, numbers, strict=True))
        ],
        tools=turn.tools,
        schema=turn.schema,
        choices=turn.choices,
        max_output_tokens=turn.max_output_tokens,
        temperature=turn.temperature,
        parameters=turn.parameters,
        result=_reply(reply),
    )


def _message_events(events: Sequence[Event], key: str) -> Iterator[int]:
    """Yield the numbers of the events that added the messages of a conversation, in order."""
    calls = {event.key: event for event in events if event.type == ModelCall.type}
    replies = {event.key: event.n for event in events if event.type == ModelResult.type}
    chain: list[str] = []
    link: str | None = key
    while link is not None:
        chain.append(link)
        link = _call(calls[link]).base
    for link in reversed(chain):
        yield from (calls[link].n for _ in _call(calls[link]).messages)
        if link != key:
            yield replies[link]


def _call(event: Event) -> ModelCall:
    payload = payload_of(event)
    assert isinstance(payload, ModelCall)
    return payload


def _reply(event: Event | None) -> Reply | None:
    payload = payload_of(event) if event is not None else None
    return Reply(event.n, payload) if event is not None and isinstance(payload, ModelResult) else None
