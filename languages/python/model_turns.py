"""Model turns that a library makes in a workflow: an SDK's own code asks the model, and the run records the turn.

An adapter of an SDK opens `ModelTurns` for each run of an agent, and performs each request of the SDK by it. The
request is given twice: as a `ModelRequest`, which is recorded, shown, counted and scripted like any other, and as a
function, which the worker calls to ask the model. If a script or a recorded run stands in for the run's models, the
function is not called.
"""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from callboard.bus.conversation import reply_message
from callboard.bus.effects import Message, ModelRequest, Text
from callboard.bus.events import ModelResult
from callboard.bus.work import TurnReply, TurnWork
from callboard.languages.language import Failed
from callboard.languages.patience import patient_turn
from callboard.languages.python.errors import ModelFailed
from callboard.languages.python.likeness import turns_alike
from callboard.languages.python.loop import current_loop
from callboard.languages.python.runs import RunOnly
from callboard.lib.json_types import JSON

OnText = Callable[[str], None]
"""Takes each piece of text that the model streams, for people who watch; never blocks and never raises."""


class ModelTurns:
    """The turns of one agent at work, recorded at the path of the current task, or ``above``, and ``name``.

    ``source`` is the place in the code, as ``file:line function``; by default that of the caller.

    :raises RunOnly: outside of a workflow
    """

    def __init__(self, name: str, source: str = "", *, above: str | None = None) -> None:
        loop = current_loop()
        if loop is None:
            raise RunOnly(f"the model turns of {name} need a run: callboard run FILE.py:NAME")
        self._loop = loop
        self.node = loop.place(name, source or loop.where(), above=above)
        self.node.compares_by(turns_alike)
        self.count = 0
        """How many turns were asked for."""
        self._first: ModelRequest | None = None
        self._base = ""
        self._said: list[Message] = []

    @property
    def latest(self) -> str:
        """The key of the latest turn; empty before the first."""
        return self._base

    async def perform(
        self,
        request: ModelRequest,
        call: Callable[[OnText], Awaitable[TurnReply]],
        *,
        note: Callable[[Exception], JSON] = lambda _error: None,
    ) -> ModelResult:
        """Perform one turn, and return its recorded result.

        ``request`` has all messages of the conversation; of those that the previous turn had, none is recorded again.
        Its ``model`` is ``provider:name``, as in the table of prices. ``call`` asks the model once, in the worker; it
        must not retry, as the worker does. What it raises fails the turn or is tried again, by the HTTP status or the
        class of the exception or of its causes; ``note`` makes the JSON of an exception, which is recorded as
        ``native`` among the details of the failure.

        :raises ModelFailed: without a reply
        """
        self.count += 1
        provider = (request.model or "").partition(":")[0]
        work = TurnWork(call, provider, note)
        slot, outcome = await self._loop.effect(
            self.node, patient_turn(self.node, f"turn.{self.count}", self._shorten(request), work)
        )
        if isinstance(outcome, Failed):
            # The next turn does not continue from a turn without a reply.
            self._first = None
            self._loop.end_if_person_needed(outcome.error)
            raise ModelFailed(outcome.error)
        result = outcome.value
        assert isinstance(result, ModelResult)
        self._base = self.node.key(slot)
        self._said = [*request.messages, reply_message(result)]
        return result

    def _shorten(self, request: ModelRequest) -> ModelRequest:
        """Return the request as it is recorded: without what it shares with the previous turn, if it continues it."""
        first = self._first
        if first is None or not self._continues(first, request):
            self._first = request
            return request
        return replace(
            request,
            base=self._base,
            system="" if request.system == first.system else request.system,
            messages=request.messages[len(self._said) :],
            tools=[] if request.tools == first.tools else request.tools,
            schema=None if request.schema == first.schema else request.schema,
        )

    def _continues(self, first: ModelRequest, request: ModelRequest) -> bool:
        """Whether the request continues the previous turn. A turn inherits what it does not have, so one that lacks
        something that the first turn has does not."""
        inherits = (
            (first.system and not request.system)
            or (first.tools and not request.tools)
            or (first.schema is not None and request.schema is None)
        )
        shared = request.messages[: len(self._said)]
        return not inherits and len(request.messages) > len(self._said) and same_messages(shared, self._said)


def same_messages(one: list[Message], other: list[Message]) -> bool:
    """Whether two conversations say the same, however their texts are divided into parts."""
    return list(map(_merge_texts, one)) == list(map(_merge_texts, other))


def _merge_texts(message: Message) -> Message:
    """Return a message whose texts are one part before the others."""
    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    rest = [part for part in message.parts if not isinstance(part, Text)]
    return Message(message.role, [Text(text), *rest])
