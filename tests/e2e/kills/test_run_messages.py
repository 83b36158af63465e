"""Commands from runs and callers to runs fit into messages of the server's maximum size."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import Cancel, Kill
from callboard.bus.effects import Failure
from callboard.bus.subjects import RunRef
from callboard.runtime.client.client import Client
from callboard.runtime.run.messages import RUN_MESSAGE_BYTES_MAX, stop_of
from tests.support.family_interpreters import child_of
from tests.support.run_harness import end_of
from tests.support.worker_interpreters import play
from tests.support.worker_processes import Fleet, open_client, say, say_start, until, until_end

PARENT, CHILD = RunRef("acme", "parent"), RunRef("acme", "child")

MEBIBYTE = 1024 * 1024
"""The maximum size of a message, with its headers."""


# -- messages between runs --------------------------------------------------------------------------------------------


def test_a_small_cause_is_sent_whole() -> None:
    cause = Failure("cancelled", "enough", type="cancellation", details={"by": "Ada"})
    cancel = msgspec.json.decode(stop_of(CHILD, PARENT, cause, kill=False, key=None).body, type=Cancel)
    assert (cancel.reason, cancel.message, cancel.by) == ("cancelled", "enough", "run parent")
    assert cancel.details == msgspec.to_builtins(cause)


@pytest.mark.parametrize("letters", ["m", "\0", "\N{EURO SIGN}", "\N{PILE OF POO}"])
@pytest.mark.parametrize("kill", [False, True])
def test_a_message_to_a_run_fits_into_the_maximum_size(letters: str, kill: bool) -> None:
    large = Failure(letters * 300_000, letters * 300_000, details=letters * 300_000)
    run_message = stop_of(CHILD, PARENT, large, kill=kill, key=None)
    assert len(run_message.body) <= RUN_MESSAGE_BYTES_MAX
    result: Cancel | Kill = msgspec.json.decode(run_message.body, type=Kill if kill else Cancel)
    assert result.reason.startswith(letters)


def test_large_details_are_left_out_of_a_message() -> None:
    large = Failure("cancelled", "enough", details="x" * MEBIBYTE)
    cancel = msgspec.json.decode(stop_of(CHILD, PARENT, large, kill=False, key=None).body, type=Cancel)
    assert (cancel.reason, cancel.message, cancel.details) == ("cancelled", "enough", None)


# -- at a worker ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def parent_at_work(home: Path) -> AsyncGenerator[tuple[Fleet, Client]]:
    """A run ``big`` that waits for a child whose effect never ends."""
    async with open_client(home, partitions=2) as (fleet, client):
        await fleet.hire("only")
        await say_start(client, play("keeps", "big", {"child": {"hang": True}}))
        await until(client, child_of("big"), lambda event: event.key == "work#1.1!do")
        yield fleet, client


async def status_of(client: Client, run: str) -> str:
    await until_end(client, run)
    return end_of(await client.events(run)).status


async def test_a_cancellation_with_a_large_message_reaches_the_child(tmp_path: Path) -> None:
    async with parent_at_work(tmp_path) as (_, client):
        await say(client, "big", "cancel", Cancel(reason="enough", message="m" * 600_000))
        for run in ("big", child_of("big")):
            assert await status_of(client, run) == "cancelled"


async def publish_bare(client: Client, verb: str, body: dict[str, Any], size: int) -> None:
    """Publish a tell of a given size without headers, as any NATS client can."""
    empty = len(msgspec.json.encode({**body, "message": ""}))
    data = msgspec.json.encode({**body, "message": "m" * (size - empty)})
    assert len(data) == size
    await client.log.nc.publish(client.log.subjects.tell(client.ref("big"), verb), data)


async def test_a_tell_of_the_maximum_message_size_is_refused_without_harm(tmp_path: Path) -> None:
    """Routed further it would exceed the maximum size, which closes the connection of its sender."""
    async with parent_at_work(tmp_path) as (fleet, client):
        rejections = client.log.subjects.reject(client.tenant, "big")
        subscription = await client.log.nc.subscribe(rejections)
        await publish_bare(client, "cancel", {"reason": "enough"}, MEBIBYTE)
        rejected = msgspec.json.decode((await subscription.next_msg(timeout=60)).data, type=ev.RunRejected)
        assert [(problem.code, problem.where) for problem in rejected.problems] == [("tell.too_large", "message")]
        # The worker is still connected, and takes a slightly smaller tell.
        await publish_bare(client, "cancel", {"reason": "enough"}, MEBIBYTE - 64 * 1024)
        assert await status_of(client, "big") == "cancelled"
        assert fleet.workers["only"].status is None
