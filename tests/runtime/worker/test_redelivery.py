"""Commands to runs that continue one another: each acts once, although the server delivers it again (law 9).

The tests delete the consumers while no worker is active, so the server delivers every message again.
"""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import Answer, Cancel, Kill, Pause, Resume, Signal, Tell
from callboard.bus.nats.cooling import cool_runs
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.segments import SegmentFolder
from callboard.bus.subjects import RunRef
from callboard.runtime.admission import command_routing, tells
from callboard.runtime.admission.command_routing import ADMISSION, route
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.hosting.code_loader import load_object
from callboard.runtime.hosting.code_registration import register_bundle
from callboard.runtime.settings.config import load
from callboard.service.operations.settlement import tell_and_wait
from callboard.service.worker.bootstrap import open_worker
from tests.support import python_workflows as plays
from tests.support.service_client import PATIENCE_S

LINKS = 3


@asynccontextmanager
async def open_deployment(home: Path) -> AsyncGenerator[Connection]:
    config = load({"data_dir": home, "partitions": 2, "park_linger_s": 0.0}, env={}, cwd=home)
    async with open_connection(config, "test") as connection:
        yield connection


async def start(connection: Connection, name: str, run: str, **given: Any) -> None:
    await register_bundle(connection, load_object(plays))
    verdict = await connection.client.start({"definition": {"name": name}, "run_id": run, "input": given})
    assert verdict.status == "accepted", verdict


async def tell(client: Client, run: str, verb: str, commands: Tell) -> str:
    """Send a command; return the id of the run that has recorded it."""
    reception = await tell_and_wait(client, run, verb, commands, wait_s=PATIENCE_S)
    assert reception.recorded is not None, reception
    return reception.recorded.run


async def send_commands(client: Client, run: str) -> None:
    """Send every kind of command to a run of `taking_commands`, and to those that continue it, by the id of the first.

    Half of the commands have an id. The signals named ``other`` are not awaited, so each run hands them to the next.
    """
    for link in range(LINKS):
        id = f"{link}" if link % 2 else None
        commands = [
            ("pause", Pause(id)),
            ("signal", Signal("other", id=id, data=link)),
            ("resume", Resume(id)),
            ("signal", Signal("item", id=f"item-{link}", data=f"item {link}")),
            ("answer", Answer(id=id, user_response=f"answer {link}")),
        ]
        for verb, command in commands:
            await tell(client, run, verb, command)


async def read_end(client: Client, run: str) -> ev.RunEnd:
    """Wait for the end of a run."""
    with anyio.fail_after(PATIENCE_S):
        async with client.follow(run, event_type="run.end") as feed:
            end = ev.payload_of((await anext(feed)).event)
    assert isinstance(end, ev.RunEnd)
    return end


async def read_chain(client: Client, run: str) -> dict[str, list[ev.Event]]:
    """The events of a run and of those that continue it."""
    found = {}
    following: str | None = run
    while following is not None:
        found[following] = await client.events(following)
        end = ev.payload_of(found[following][-1])
        following = end.successor.run if isinstance(end, ev.RunEnd) and end.successor is not None else None
    return found


def count_causes(chain: dict[str, list[ev.Event]]) -> Counter[int]:
    """How many events name each command as their cause, in all runs of a chain."""
    return Counter(event.cause for events in chain.values() for event in events if event.cause and event.n > 1)


async def deliver_everything_again(connection: Connection) -> None:
    """Delete the consumers, and have a worker receive all their messages again."""
    log = connection.log
    queues = [ADMISSION, *(f"partition-{partition}" for partition in range(log.partitions))]
    for queue in queues:
        assert (await api(log.requests, f"CONSUMER.DELETE.{log.stream}.{queue}", {}))["success"]
    async with open_worker(connection, env={}):
        await register_bundle(connection, load_object(plays))
        with anyio.fail_after(PATIENCE_S):
            for queue in queues:
                while await _has_open(connection, queue):  # noqa: ASYNC110 - the server does not report it
                    await anyio.sleep(0.05)


async def _has_open(connection: Connection, queue: str) -> bool:
    info = await api(connection.log.requests, f"CONSUMER.INFO.{connection.log.stream}.{queue}", {})
    return "error" in info or bool(info["num_pending"] or info["num_ack_pending"])


@pytest.fixture(params=["within", "after"])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the server recognises the ids of the messages or has forgotten them."""
    if request.param == "after":
        monkeypatch.setattr(command_routing, "TOLD_APART_NS", 0)
        monkeypatch.setattr(tells, "TOLD_APART_NS", 0)
    return request.param


async def forget_ids(connection: Connection, window: str) -> None:
    """After the window, let the server forget the ids of the messages."""
    if window == "after":
        log = connection.log
        config = (await api(log.requests, f"STREAM.INFO.{log.stream}", {}))["config"]
        answer = await api(log.requests, f"STREAM.UPDATE.{log.stream}", {**config, "duplicate_window": 100_000_000})
        assert "error" not in answer, answer
        # The server forgets an id after the window, and looks for such ids once per window.
        await anyio.sleep(0.5)


@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
async def test_redelivered_commands_act_once_in_a_chain(tmp_path: Path, window: str, cold: bool) -> None:
    async with open_deployment(tmp_path) as connection:
        client = connection.client
        async with open_worker(connection, env={}):
            await start(connection, "taking_commands", "first", left=LINKS - 1)
            await send_commands(client, "first")
        before = await read_chain(client, "first")
        assert len(before) == LINKS
        assert set(count_causes(before).values()) == {1}
        assert len(count_causes(before)) == LINKS * 5
        if cold:
            ended = [RunRef(client.tenant, run) for run in list(before)[:-1]]
            assert await cool_runs(connection.log, SegmentFolder(connection.config.cold_folder()), ended)
        await forget_ids(connection, window)
        await deliver_everything_again(connection)
        after = await read_chain(client, "first")
        assert count_causes(after) == count_causes(before)
        async with open_worker(connection, env={}):
            # A command that is sent again under its id acted in a run that has ended since.
            for link in range(LINKS):
                commands = Signal("item", id=f"item-{link}", data=f"item {link}")
                assert (await client.tell("first", "signal", commands)).duplicate
            last = await tell(client, "first", "signal", Signal("last", data="done"))
            end = await read_end(client, last)
    answers = [command for link in range(LINKS) for command in (f"item {link}", f"answer {link}")]
    assert end.output == [*answers, "done"]


async def test_a_redelivered_command_is_not_passed_on_twice(tmp_path: Path, window: str) -> None:
    async with open_deployment(tmp_path) as connection:
        client = connection.client
        async with open_worker(connection, env={}):
            await start(connection, "taking_commands", "first", left=LINKS - 1)
            await tell(client, "first", "signal", Signal("item", data="item 0"))
            await tell(client, "first", "answer", Answer(user_response="answer 0"))
            second = (await read_end(client, "first")).successor
            assert second is not None
            # Admission has routed this signal to the first run just before that run ended.
            late = msgspec.json.encode(Signal("item", data="item 1"))
            await route(connection.log, RunRef(client.tenant, "first"), "signal", late, "late")
            async with client.follow(second.run, event_type="signal.received") as feed:
                await anext(feed)
            await tell(client, "first", "answer", Answer(user_response="answer 1"))
            third = (await read_end(client, second.run)).successor
            assert third is not None
            async with client.follow(third.run, event_type="run.parked") as feed:
                await anext(feed)
        before = await read_chain(client, "first")
        await forget_ids(connection, window)
        await deliver_everything_again(connection)
        after = await read_chain(client, "first")
    assert count_causes(after) == count_causes(before)
    assert [event for event in after[third.run] if event.type == "signal.received"] == []


@pytest.mark.parametrize(("verb", "stop"), [("cancel", Cancel()), ("kill", Kill())])
async def test_a_cancel_or_kill_stops_a_chain_that_continues_at_once(tmp_path: Path, verb: str, stop: Tell) -> None:
    async with open_deployment(tmp_path) as connection:
        client = connection.client
        async with open_worker(connection, env={}):
            await start(connection, "continuing_at_once", "first", busy=True)
            stopped = await tell(client, "first", verb, stop)
            end = await read_end(client, stopped)
        assert (end.status, end.successor) == ("cancelled", None)
        chain = await read_chain(client, "first")
        assert list(chain)[-1] == stopped
        await deliver_everything_again(connection)
        assert await read_chain(client, "first") == chain


async def test_a_chain_without_effects_fails(tmp_path: Path) -> None:
    async with open_deployment(tmp_path) as connection:
        client = connection.client
        async with open_worker(connection, env={}):
            await start(connection, "continuing_at_once", "first", busy=False)
            run = "first"
            while (end := await read_end(client, run)).successor is not None:
                run = end.successor.run
    assert end.error is not None
    assert (end.status, end.error.code) == ("failed", "run.continues_idly")
