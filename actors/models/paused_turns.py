"""Paused turns: a provider may stop before its answer is complete, and continue when the answer so far is sent back.

Claude does so while its provider runs tools (``pause_turn``), and OpenAI's newer models may end with a commentary. All
requests together are one turn: its text is that of the answer, and what was said before a pause is progress.
"""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from callboard.actors.models.attachments import continue_reply
from callboard.actors.models.draft import PAUSED, Fold
from callboard.actors.models.model import ModelTurn, ProviderReply
from callboard.actors.models.request_retries import Spending, TryFailed
from callboard.bus.effects import Failure, Message, Part, Text

PAUSES_MAX = 16
"""How often a turn may be paused."""

COMMENTARIES_MAX = 3
"""How often a turn continues after a commentary. If there is no answer then, the commentary is the answer."""


class Course:
    """The course of one turn: the ``turn`` with the answer so far, the omitted parts of its requests, its usage.

    A try that fails is begun again after the last pause. ``api`` is the name under which the adapter seals attachments.
    """

    def __init__(self, turn: ModelTurn, api: str) -> None:
        self.turn = turn
        self.without: set[str] = set()
        self.spent = Spending()
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
