"""A node actor and its effects: if one of them fails, all end and their toolboxes are closed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from callboard.actors import toolboxes
from callboard.actors.actor import Supervisor
from callboard.actors.carrier import Reporter
from callboard.actors.node import NodeActor
from callboard.actors.tools.run_scoped_servers import RunScopedServers, SharedObjects
from callboard.bus import events as ev
from callboard.bus.effects import Failure, Usage
from callboard.bus.events import Payload
from callboard.runtime.run.node_actors import NodeActors

NODE = ("a", 1)
NOTHING_SHARED = SharedObjects(RunScopedServers(lambda _body: pytest.fail("no run-scoped server exists")))
PATIENCE_S = 20.0


class RecordingCarrier:
    """Executes effects by the last part of their keys; the outcome of a ``bad`` one cannot be published."""

    def __init__(self) -> None:
        self.permits = SimpleNamespace(check=lambda _sources: None)
        self.tools = None
        self.open = 0
        self.opens = True
        self.running: set[str] = set()
        self.outcomes: list[str] = []
        self.used: list[Usage] = []
        self.failed: list[str] = []
        self.may_end = anyio.Event()
        self.reporters: list[Reporter] = []
        self.immediate: set[str] = set()

    def is_immediate(self, job: Any) -> bool:
        return job.key in self.immediate

    async def carry(self, job: Any, sessions: toolboxes.Toolboxes, reporter: Reporter) -> Payload:
        self.reporters.append(reporter)
        self.running.add(job.key)
        try:
            match job.key.split("!")[1]:
                case "open":
                    await sessions.listing(job.key, [])
                case "hang":
                    await anyio.sleep_forever()
                case "odd":
                    return ev.ModelResult(data=object(), usage=Usage(5, 7), model="m")
                case _:
                    await self.may_end.wait()
            return ev.ModelResult(text="done")
        finally:
            self.running.discard(job.key)

    def outcome(self, key: str, payload: Payload) -> None:
        if key.endswith("bad"):
            raise OSError("no ink")
        ev.encode_payload(payload)
        error = payload.error if isinstance(payload, ev.ModelResult) else None
        self.outcomes.append(f"{key} {error.code if error else 'ok'}")
        self.used.append(payload.usage if isinstance(payload, ev.ModelResult) else Usage())

    def aside(self, key: str, payload: Payload) -> None:
        raise AssertionError("no event is expected aside")

    @asynccontextmanager
    async def toolbox(self, _sources: Any, _environment: Any, _standing: Any) -> AsyncGenerator[Any]:
        self.open += 1
        try:
            if not self.opens:
                await anyio.sleep_forever()
            yield SimpleNamespace(specs=[], warnings=[])
        finally:
            self.open -= 1

    async def until(self, holds: Any) -> None:
        with anyio.fail_after(PATIENCE_S):
            while not holds():
                await anyio.lowlevel.checkpoint()


def job(name: str) -> Any:
    return SimpleNamespace(key=f"a#1.1!{name}", intent=ev.ModelCall("turn", "m", "0"))


@asynccontextmanager
async def open_actors(carrier: RecordingCarrier) -> AsyncGenerator[NodeActors]:
    def failed(name: str, _error: Exception) -> None:
        carrier.failed.append(name)
        node_actors.lost(name)

    async with Supervisor(failed) as actors:

        def start_actor(name: str) -> NodeActor:
            port: Any = carrier
            return NodeActor(name, port, carrier, anyio.CapacityLimiter(9), actors.spawn, NOTHING_SHARED)

        node_actors = NodeActors(start_actor)
        try:
            yield node_actors
        finally:
            actors.stop_all()


@pytest.fixture
def carrier(monkeypatch: pytest.MonkeyPatch) -> RecordingCarrier:
    carrier = RecordingCarrier()
    monkeypatch.setattr(toolboxes, "open_toolbox", carrier.toolbox)
    return carrier


async def test_toolboxes_are_closed_when_the_node_ends(carrier: RecordingCarrier) -> None:
    async with open_actors(carrier) as node_actors:
        node_actors.call(NODE).take(job("open"))
        await carrier.until(lambda: carrier.outcomes)
        assert carrier.open == 1
        node_actors.leave(NODE)
        await carrier.until(lambda: not carrier.open)
    assert carrier.failed == []


@pytest.mark.parametrize("names", [("hang", "bad"), ("bad", "hang")], ids=["beside", "itself"])
async def test_a_failure_ends_all_effects_of_the_node_and_closes_its_toolboxes(
    carrier: RecordingCarrier, names: tuple[str, str]
) -> None:
    async with open_actors(carrier) as node_actors:
        first = node_actors.call(NODE)
        first.take(job("open"))
        await carrier.until(lambda: carrier.outcomes)
        for name in names:
            first.take(job(name))
            await carrier.until(lambda name=name: job(name).key in carrier.running)
        carrier.may_end.set()
        await carrier.until(lambda: carrier.failed)
        await carrier.until(lambda: not carrier.running and not carrier.open)
        assert set(carrier.failed) == {"a#1"}
        assert node_actors.call(NODE) is not first


async def test_a_toolbox_that_never_opens_is_closed_when_the_node_ends(carrier: RecordingCarrier) -> None:
    carrier.opens = False
    async with open_actors(carrier) as node_actors:
        actor = node_actors.call(NODE)
        actor.take(job("open"))
        await carrier.until(lambda: carrier.open)
        actor.abandon(job("open").key)
        node_actors.leave(NODE)
        await carrier.until(lambda: not carrier.open)
    assert carrier.failed == carrier.outcomes == []


async def test_no_toolbox_is_opened_after_the_end_of_the_node(carrier: RecordingCarrier) -> None:
    async with open_actors(carrier) as node_actors:
        node_actors.call(NODE)
        node_actors.leave(NODE)
        no_carrier: Any = SimpleNamespace()
        boxes = toolboxes.Toolboxes(no_carrier, lambda _body: None, NOTHING_SHARED.standing)
        boxes.close_all()
        with pytest.raises(toolboxes.ToolFailed) as caught:
            await boxes.listing("a#1.1!open", [])
        assert caught.value.failure == Failure(code="tool.unavailable", message="the node was left")
    assert carrier.open == 0


async def test_an_outcome_that_cannot_be_encoded_fails_its_effect_only(carrier: RecordingCarrier) -> None:
    async with open_actors(carrier) as node_actors:
        node_actors.call(NODE).take(job("odd"))
        await carrier.until(lambda: carrier.outcomes)
        node_actors.call(NODE).take(job("open"))
        await carrier.until(lambda: len(carrier.outcomes) == 2)
    assert carrier.outcomes == ["a#1.1!odd internal", "a#1.1!open ok"]
    assert carrier.used == [Usage(5, 7), Usage()]
    assert carrier.failed == []


@pytest.mark.parametrize("name", ["hang", "wait"], ids=["abandoned", "completed"])
async def test_progress_that_is_reported_after_the_end_of_an_effect_is_ignored(
    carrier: RecordingCarrier, name: str
) -> None:
    async with open_actors(carrier) as node_actors:
        actor = node_actors.call(NODE)
        actor.take(job(name))
        await carrier.until(lambda: carrier.running)
        actor.abandon(job("hang").key)
        carrier.may_end.set()
        await carrier.until(lambda: not carrier.running)
    # A thread of the effect is still running.
    carrier.reporters[0].progress("a", "line 3")
    carrier.reporters[0].warn("a", "odd", "too late")


async def test_an_immediate_effect_is_carried_out_without_a_task(carrier: RecordingCarrier) -> None:
    carrier.may_end.set()
    carrier.immediate = {job("odd").key, job("open").key}
    async with open_actors(carrier) as node_actors:
        actor = node_actors.call(NODE)
        actor.take(job("odd"), may_complete=True)
        assert carrier.outcomes == ["a#1.1!odd internal"]
        # It has to wait, although it should not: it begins again in a task.
        actor.take(job("open"), may_complete=True)
        assert len(carrier.outcomes) == 1
        await carrier.until(lambda: len(carrier.outcomes) == 2)
    assert carrier.outcomes[1] == "a#1.1!open ok"
    assert carrier.failed == []
