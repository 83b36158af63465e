"""Pacing: limits how many turns of a provider run at once, and delays further turns after the provider refused one.

A provider limits the requests of a key. A refusal of one turn concerns all turns of the same model at the same key: a
`ModelLimit` delays them until the time that the provider named, then admits half as many as were running before, and
one more with each answer. A `ProviderLimit` limits the turns of one provider, whatever their models.
"""

import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import anyio

from callboard.lib.canonical_json import digest

SPREAD = 0.25
"""Turns that a gate delayed begin within this part of the wait after its end, not all at once."""

OPEN_TURNS = 512
"""A gate that admits this number of turns at once no longer counts them."""


class ModelLimit:
    """Turns of one model at one key. They pass in the order in which they came."""

    def __init__(self) -> None:
        self._places = anyio.CapacityLimiter(float("inf"))
        self._opens_at = 0.0
        self._spread_s = 0.0

    @asynccontextmanager
    async def pass_limits(self) -> AsyncGenerator[None]:
        """Wait until a turn may go, and count it until the block ends."""
        turn = object()
        await self._places.acquire_on_behalf_of(turn)
        try:
            while (left_s := self._opens_at - anyio.current_time()) > 0:  # noqa: ASYNC110 - a time, not an event
                await anyio.sleep(left_s + random.random() * self._spread_s)
            yield
        finally:
            self._places.release_on_behalf_of(turn)

    def close(self, wait_s: float) -> None:
        """Let no turn begin within ``wait_s`` seconds, after the provider refused one."""
        now = anyio.current_time()
        if now >= self._opens_at:  # turns that ran together are refused together, and count as one refusal
            self._places.total_tokens = max(1, self._places.borrowed_tokens // 2)
        self._opens_at = max(self._opens_at, now + wait_s)
        self._spread_s = wait_s * SPREAD

    def widen(self) -> None:
        """Admit one more turn at once, after the provider answered one."""
        places = self._places.total_tokens + 1
        self._places.total_tokens = places if places < OPEN_TURNS else float("inf")


class ProviderLimit:
    """The turns of one provider: at most ``turns_max`` run at once, None for any number."""

    def __init__(self, turns_max: int | None = None, gates: "dict[str, ModelLimit] | None" = None) -> None:
        self._places = anyio.CapacityLimiter(turns_max if turns_max is not None else float("inf"))
        self._gates = {} if gates is None else gates

    def gate(self, model: str) -> ModelLimit:
        """Return the gate of a model."""
        return self._gates.setdefault(model, ModelLimit())

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Wait for one of the lane's places, and hold it until the block ends."""
        turn = object()
        await self._places.acquire_on_behalf_of(turn)
        try:
            yield
        finally:
            self._places.release_on_behalf_of(turn)


class ProviderLimits:
    """The lanes of one worker's providers, by name; providers with the same address and key share their gates."""

    def __init__(self, turns_max: Mapping[str, int] | None = None) -> None:
        self._turns_max = turns_max or {}
        self._lanes: dict[str, ProviderLimit] = {}
        self._gates: dict[str, dict[str, ModelLimit]] = {}

    def lane(self, provider: str, *address: str) -> ProviderLimit:
        """Return the lane of a provider. ``address`` identifies its server and the key for it."""
        lane = self._lanes.get(provider)
        if lane is None:
            gates = self._gates.setdefault(digest(list(address)), {})
            lane = self._lanes[provider] = ProviderLimit(self._turns_max.get(provider), gates)
        return lane
