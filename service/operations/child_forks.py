"""Lets the child runs of a retried run continue from where they were, as forks of the earlier children.

A retried run starts new child runs. Without further information each would start from its beginning, and would repeat
the work of the earlier child at the same cost. So the start message of a retry names for each child the earlier run,
and the event after which the new child continues; the same for the children of that child. The message names the
children that are open at the place of the retry, and those that start after it: the retried run may request these again
with the same key.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from callboard.bus import events as ev
from callboard.bus.events import Event, Problem
from callboard.bus.log.port import whole
from callboard.bus.nats.purge import find_newest_run
from callboard.bus.run_ids import child_id
from callboard.runtime.client.client import Client, UnknownRun
from callboard.service.operations.retry_point import NowhereToFork, find_continue_place

CONTINUED_MAX = 1_000
"""Child runs of a retried run that continue from where they were; the size of a start message is limited."""

GENERATIONS_MAX = 16
"""Generations of child runs that are searched; a run cannot have more."""


class ChildPlaces(Struct):
    """The children that continue, by the keys of their effects, and warnings about those that start over."""

    children: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    warnings: list[Problem] = field(default_factory=list[Problem])


async def find_child_places(
    client: Client, run: str, events: Sequence[Event], at: int, *, repeat_calls: bool
) -> ChildPlaces:
    """Return the places from which the children continue, for a run that is retried after event ``at``.

    See `find_retry_place` for ``repeat_calls``.

    :raises NoAnswer: if the log does not answer
    """
    search = _Search(client, repeat_calls=repeat_calls)
    children = await search.find_places(run, events, at, 1)
    return ChildPlaces(children, search.warnings())


class _Search:
    """The search through a run and its descendants."""

    def __init__(self, client: Client, *, repeat_calls: bool) -> None:
        self._client = client
        self._repeat_calls = repeat_calls
        self._count = 0
        self._reasons: list[str] = []

    def warnings(self) -> list[Problem]:
        """Return one warning about all children that start over; an empty list if all continue."""
        if not self._reasons:
            return []
        others = len(self._reasons) - 1
        more = f"; {others} other child runs start over as well" if others else ""
        return [Problem("fork.child_anew", f"{self._reasons[0]}{more}", severity="warning")]

    async def find_places(
        self, run: str, events: Sequence[Event], at: int, generation: int
    ) -> dict[str, dict[str, Any]]:
        """Return the places of a run's descendants; those of each run by the keys of their effects."""
        found: dict[str, dict[str, Any]] = {}
        for key, closed in _children_after(events, at).items():
            child = await self._child_at(run, events, closed, key)
            try:
                place = await self._place(child, generation)
            except NowhereToFork as error:
                self._reasons.append(f"the child run {child} starts over: {error.message}")
                continue
            except UnknownRun:
                continue  # Its start was refused, so there is no work to keep.
            found[key] = place
        return found

    async def _place(self, child: str, generation: int) -> dict[str, Any]:
        """Return the place from which a child continues.

        :raises UnknownRun: if the child does not exist
        :raises NowhereToFork: if it cannot continue from any place
        """
        if self._count == CONTINUED_MAX or generation > GENERATIONS_MAX:
            message = f"at most {CONTINUED_MAX} child runs, of {GENERATIONS_MAX} generations, can continue"
            raise NowhereToFork(child, message, "Retry the child run separately.")
        last = await self._client.log.last(self._client.ref(child))
        end = ev.payload_of(last.event) if last is not None and last.readable else None
        if last is not None and isinstance(end, ev.RunEnd) and end.status == "completed":
            # The new child ends again at once, so the other events need not be read.
            self._count += 1
            return {"run": child, "at": last.event.n - 1}
        events = await self._client.events(child)
        at = find_continue_place(child, events, repeat_calls=self._repeat_calls)
        self._count += 1
        below = await self.find_places(child, events, at, generation + 1)
        return {"run": child, "at": at, **({"children": below} if below else {})}

    async def _child_at(self, run: str, events: Sequence[Event], n: int, key: str) -> str:
        """Return the child run of an effect that event ``n`` closed, or the newest run that continues it.

        Up to the place of a fork, the children are those of its origin; after it, the fork has its own.
        """
        accepted = ev.payload_of(events[0])
        while isinstance(accepted, ev.RunAccepted) and accepted.forked_from is not None and n <= accepted.forked_from.n:
            run = accepted.forked_from.run
            first = await self._client.log.last_of_type(self._client.ref(run), ev.RunAccepted.type)
            if first is None:
                break
            accepted = ev.payload_of(await whole(self._client.log, first))
        child, _ = await find_newest_run(self._client.log, self._client.ref(child_id(run, key)))
        return child.run


def _children_after(events: Sequence[Event], at: int) -> dict[str, int]:
    """Return the keys of the children that are open after event ``at`` or start later, each with the number of the
    event that closed it. A child that is still open has the number of the run's last event."""
    found: dict[str, int] = {}
    for event in events:
        if event.type == ev.ChildStart.type:
            found[event.key] = events[-1].n
        elif event.key in found and event.type in (ev.ChildEnd.type, ev.EffectCancelled.type):
            found[event.key] = event.n
    return {key: n for key, n in found.items() if n > at}
