"""The text of models' answers while they are being given, kept in memory for viewers that come in the middle.

Nothing of it is recorded: the text of a finished turn is in its event, and pieces are published as they come.
"""

from collections.abc import Generator
from contextlib import contextmanager

from msgspec import Struct

from callboard.bus.subjects import RunRef

PARTIAL_CHARS_MAX = 128 * 1024
"""Maximum length of a partial answer that is sent: in JSON it then fits into one message. Of more, the end is sent."""


class PartialAnswer(Struct, frozen=True, omit_defaults=True):
    """What the model call that is event ``n`` has said so far: all pieces before the ``k``-th, of its last try.

    ``omitted`` is the number of characters at the beginning that were left out of ``text``.
    """

    n: int
    epoch: int
    k: int
    path: str
    text: str
    omitted: int = 0


class AskPartialAnswer(Struct, frozen=True):
    """The request to a worker for the text so far of the model call that is event ``n`` of a run."""

    tenant: str
    run: str
    n: int


class AnswerText:
    """The text of a model's answer, from the last try that had any: all there is of a turn that fails."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._over = False
        self.count = 0
        """The number of pieces in all tries."""

    def take(self, text: str) -> int:
        """Take the next piece; return how many there were before it, in all tries."""
        if self._over:
            self._pieces.clear()
            self._over = False
        self._pieces.append(text)
        self.count += 1
        return self.count - 1

    def begin_again(self) -> None:
        """Another try begins."""
        self._over = True

    @property
    def text(self) -> str:
        return "".join(self._pieces)


class _Turn(Struct, frozen=True):
    epoch: int
    path: str
    answer: AnswerText


class PartialAnswers:
    """The answers that models are giving in this process, by run and number of the call."""

    def __init__(self) -> None:
        self._turns: dict[tuple[RunRef, int], _Turn] = {}

    @contextmanager
    def collect(self, ref: RunRef, n: int, epoch: int, path: str) -> Generator[AnswerText]:
        """Yield the text of a call, which can be found for the length of the block."""
        turn = _Turn(epoch, path, AnswerText())
        self._turns[ref, n] = turn
        try:
            yield turn.answer
        finally:
            # The run may have been lost and claimed again, so that the turn is repeated in this process already.
            if self._turns.get((ref, n)) is turn:
                del self._turns[ref, n]

    def find(self, ref: RunRef, n: int) -> PartialAnswer | None:
        """Return what the model call that is event ``n`` has said so far; None if it is not in progress here."""
        turn = self._turns.get((ref, n))
        if turn is None:
            return None
        text = turn.answer.text
        shown = text[-PARTIAL_CHARS_MAX:]
        return PartialAnswer(n, turn.epoch, turn.answer.count, turn.path, shown, len(text) - len(shown))
