"""The node actors of an active run: started when a node is entered or has an effect, released when it is left."""

from collections.abc import Callable

from callboard.actors.node import NodeActor
from callboard.bus.paths import parse_key

Address = tuple[str, int]
"""Path and iteration of a node execution, or of a place that is not a node."""


class NodeActors:
    """The node actors of one run at one worker, each under its address."""

    def __init__(self, hire: Callable[[str], NodeActor]) -> None:
        self._hire = hire
        self._acting: dict[Address, NodeActor] = {}

    def call(self, address: Address) -> NodeActor:
        """Return the actor of an address; start one if necessary."""
        actor = self._acting.get(address)
        if actor is None:
            path, iteration = address
            actor = self._acting[address] = self._hire(f"{path}#{iteration}")
        return actor

    def leave(self, address: Address) -> None:
        """Release the actor of an address, if there is one: it ends when its running effects have their outcomes."""
        actor = self._acting.pop(address, None)
        if actor is not None:
            actor.leave()

    def lost(self, name: str) -> Address | None:
        """Note that an actor died, released or not; return its address, or None if the name is not a node actor's."""
        path, hash_sign, iteration = name.rpartition("#")
        if not (hash_sign and iteration.isdigit()):
            return None
        address = path, int(iteration)
        actor = self._acting.get(address)
        if actor is not None and actor.has_stopped:
            del self._acting[address]
        return address

    def abandon(self, key: str) -> Address:
        """Stop an effect that is being carried out; return the address of its node."""
        address = _address(key)
        if (actor := self._acting.get(address)) is not None:
            actor.abandon(key)
        return address

    def close_toolbox(self, key: str) -> None:
        if (actor := self._acting.get(_address(key))) is not None:
            actor.close_toolbox(key)


def _address(key: str) -> Address:
    """Return the address of an effect's node."""
    parsed = parse_key(key)
    return parsed.path, parsed.iteration
