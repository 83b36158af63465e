"""Live streams of runs, made from their events and from the text that their models are producing."""

from typing import Literal, Protocol

from msgspec import Struct

from callboard.bus.events import Event


class Piece(Struct, frozen=True):
    """A message on ``cb.live``: the k-th piece of the answer to the call that is event n.

    The text of an answer so far is a piece, too: piece 0, which stands for all before the ``following`` one. Its first
    ``omitted`` characters are left out.
    """

    n: int
    epoch: int
    k: int
    path: str
    text: str
    following: int = 0
    omitted: int = 0


class StreamEvent(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An event of the stream.

    ``text`` is content. With ``reset``, it replaces all the text of the step so far. ``status``, tokens, latency and
    ``output`` belong to a finished step. ``message`` and ``code`` describe why a step failed.
    """

    type: Literal["content", "done", "error"]
    id: str
    step: str
    text: str | None = None
    reset: bool = False
    status: str | None = None
    output: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: int | None = None
    message: str | None = None
    code: str | None = None


class RunStream(Protocol):
    """Merges the events of one run, in their order, with the pieces of its models' answers, as they come."""

    def piece(self, piece: Piece) -> list[StreamEvent]:
        """Take a piece of text. Return the stream events to send now."""
        ...

    def event(self, event: Event) -> list[StreamEvent]:
        """Take the next event of the run. Return the stream events to send now."""
        ...


class StreamFilter(Struct):
    """Filters out the stream events that a client already has, given the ``id`` of the last one."""

    n: int = 0
    characters: int = 0

    @classmethod
    def behind(cls, id: str) -> "StreamFilter":
        """Return a filter that resumes after an id.

        :raises ValueError: if the id is invalid
        """
        n, _, k = id.partition(".")
        return cls(int(n), int(k or 0))

    def new(self, told: StreamEvent) -> StreamEvent | None:
        """Return the new part of a stream event; None if it has no new part."""
        n, _, k = told.id.partition(".")
        if int(n) != self.n or told.reset:
            return told if int(n) >= self.n else None
        if not k or int(k) <= self.characters or told.text is None:
            return None
        missing = int(k) - self.characters
        self.characters = int(k)
        whole = missing >= len(told.text)
        return told if whole else StreamEvent(type="content", id=told.id, step=told.step, text=told.text[-missing:])
