"""The line to the server: nats-py's client, which says when the connection is lost and when it is back.

nats-py connects again by itself, with all subscriptions. What was on its way is lost, and the consumers and requests
that lived with the connection are gone; nobody else tells those who wait for them.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio
from nats.aio.client import Client

Act = Callable[[], None]


class Line(Client):
    """A client that connects again by itself. Functions that are called when it is lost or back must not block."""

    def __init__(self) -> None:
        super().__init__()
        self._at_loss: dict[object, Act] = {}
        self._at_return: dict[object, Act] = {}
        self._whole = True

    def when_lost(self, act: Act) -> None:
        """Call a function whenever the connection is lost: what was asked over it will not be answered."""
        self._at_loss[object()] = act

    @contextmanager
    def lost(self, act: Act) -> Generator[None]:
        """Call a function whenever the connection is lost within the block."""
        with _registered(self._at_loss, act):
            yield

    @contextmanager
    def back(self, act: Act) -> Generator[None]:
        """Call a function whenever the connection is back within the block: subscriptions hear again."""
        with _registered(self._at_return, act):
            yield

    async def settled(self) -> None:
        """Wait as long as the connection is just coming back: to drain it then would take until that times out."""
        news = anyio.Event()
        with self.lost(news.set), self.back(news.set):
            if self.is_connected and not self._whole:
                await news.wait()

    def say_lost(self) -> None:
        """The connection is lost."""
        self._whole = False
        for act in list(self._at_loss.values()):
            act()

    def say_back(self) -> None:
        """There is a new connection, with all subscriptions."""
        self._whole = True
        for act in list(self._at_return.values()):
            act()


@contextmanager
def _registered(acts: dict[object, Act], act: Act) -> Generator[None]:
    token = object()
    acts[token] = act
    try:
        yield
    finally:
        del acts[token]
