"""Continuing: child runs of a run that is tried again go on from where they were, as forks of themselves.

A retried run has child runs of its own. Each of them would begin anew, and what its predecessor has done and paid for
would be done again. So the start message of a retry says for each child from which run, and behind which of its events,
the new child goes on; and so on for the children of that child. It names the children that are open at the place, and
those that begin behind it: what asks for these may be asked for once more, by the same key.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from callboard.bus import events as ev
from callboard.bus.child_ids import child_id
from callboard.bus.events import Event, Problem
from callboard.bus.log.port import whole
from callboard.service.api.client import Client, UnknownRun
from callboard.service.api.retry_point import NowhereToFork, continued_at

CONTINUED_MAX = 1_000
"""Child runs of a retried run that go on from where they were; a start message has no room for any number."""

GENERATIONS_MAX = 16
"""Generations of child runs that are looked into: no more may descend from a run."""


class Continued(Struct):
    """The children that go on, by the keys of their effects, and warnings about those that begin anew."""

    children: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    warnings: list[Problem] = field(default_factory=list[Problem])


async def continued(client: Client, run: str, events: Sequence[Event], at: int, *, anew: bool) -> Continued:
    """Say from where the children of a run go on that is tried again behind an event; ``anew`` as in `retried_at`.

    :raises NoAnswer: if the log does not answer
    """
    search = _Search(client, anew=anew)
    children = await search.children(run, events, at, 1)
    return Continued(children, search.warnings())


class _Search:
    """The search through one family."""

    def __init__(self, client: Client, *, anew: bool) -> None:
        self._client = client
        self._anew = anew
        self._count = 0
        self._reasons: list[str] = []

    def warnings(self) -> list[Problem]:
        """One warning about all children that begin anew."""
        if not self._reasons:
            return []
        others = len(self._reasons) - 1
        more = f"; so do {others} others" if others else ""
        return [Problem("fork.child_anew", f"{self._reasons[0]}{more}", severity="warning")]

    async def children(self, run: str, events: Sequence[Event], at: int, generation: int) -> dict[str, dict[str, Any]]:
        """Return the places of a run's children, and of theirs, by the keys of their effects."""
        found: dict[str, dict[str, Any]] = {}
        for key, closed in _asked_for(events, at).items():
            child = await self._child_at(run, events, closed, key)
            try:
                place = await self._place(child, generation)
            except NowhereToFork as error:
                self._reasons.append(f"the child run {child} begins anew: {error.message}")
                continue
            except UnknownRun:
                continue  # Its start was refused: it has done nothing.
            found[key] = place
        return found

    async def _place(self, child: str, generation: int) -> dict[str, Any]:
        """Return the place from which a child goes on.

        :raises UnknownRun: if there is no such run
        :raises NowhereToFork: if it cannot go on from anywhere
        """
        if self._count == CONTINUED_MAX or generation > GENERATIONS_MAX:
            message = f"only {CONTINUED_MAX} child runs, of {GENERATIONS_MAX} generations, go on from where they were"
            raise NowhereToFork(child, message, "Retry it by itself.")
        last = await self._client.log.last(self._client.ref(child))
        end = ev.payload_of(last.event) if last is not None and last.readable else None
        if last is not None and isinstance(end, ev.RunEnd) and end.status == "completed":
            # It ends again at once, whatever there is in it.
            self._count += 1
            return {"run": child, "at": last.event.n - 1}
        events = await self._client.events(child)
        at = continued_at(child, events, anew=self._anew)
        self._count += 1
        below = await self.children(child, events, at, generation + 1)
        return {"run": child, "at": at, **({"children": below} if below else {})}

    async def _child_at(self, run: str, events: Sequence[Event], n: int, key: str) -> str:
        """Return the child run of an effect that event ``n`` closed. A fork has children of its own as soon as it goes
        on by itself, and before that those of its origin."""
        accepted = ev.payload_of(events[0])
        while isinstance(accepted, ev.RunAccepted) and accepted.forked_from is not None and n <= accepted.forked_from.n:
            run = accepted.forked_from.run
            first = await self._client.log.last_of_type(self._client.ref(run), ev.RunAccepted.type)
            if first is None:
                break
            accepted = ev.payload_of(await whole(self._client.log, first))
        return child_id(run, key)


def _asked_for(events: Sequence[Event], at: int) -> dict[str, int]:
    """The keys of the children that are open behind an event, or begin later, and the number of what closed each; of
    one that is open still, that of the last event."""
    found: dict[str, int] = {}
    for event in events:
        if event.type == ev.ChildStart.type:
            found[event.key] = events[-1].n
        elif event.key in found and event.type in (ev.ChildEnd.type, ev.EffectCancelled.type):
            found[event.key] = event.n
    return {key: n for key, n in found.items() if n > at}
