"""A node actor and what works beside it: if one of them fails, all of them end, and what they held is let go."""

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

HERE = ("a", 1)
NOTHING_SHARED = SharedObjects(RunScopedServers(lambda _body: pytest.fail("nothing stands")))
PATIENCE_S = 20.0


class Stageful:
    """Carries effects out by the words of their keys, and takes note; outcomes of ``bad`` ones cannot be published."""

    def __init__(self) -> None:
        self.permits = SimpleNamespace(check=lambda _sources: None)
        self.tools = None
        self.open = 0
        self.opens = True
        self.running: set[str] = set()
        self.outcomes: list[str] = []
        self.used: list[Usage] = []
        self.failed: list[str] = []
        self.go = anyio.Event()
        self.reporters: list[Reporter] = []

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
                    await self.go.wait()
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
        raise AssertionError("nobody says anything aside")

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


def job(word: str) -> Any:
    return SimpleNamespace(key=f"a#1.1!{word}", intent=ev.ModelCall("turn", "m", "0"))


@asynccontextmanager
async def acting(stage: Stageful) -> AsyncGenerator[NodeActors]:
    def failed(name: str, _error: Exception) -> None:
        stage.failed.append(name)
        node_actors.lost(name)

    async with Supervisor(failed) as actors:

        def hire(name: str) -> NodeActor:
            carrier: Any = stage
            return NodeActor(name, carrier, stage, anyio.CapacityLimiter(9), actors.spawn, NOTHING_SHARED)

        node_actors = NodeActors(hire, actors.spawn)
        try:
            yield node_actors
        finally:
            actors.stop_all()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stageful:
    made = Stageful()
    monkeypatch.setattr(toolboxes, "open_toolbox", made.toolbox)
    return made


async def test_sessions_are_closed_when_the_node_is_left(stage: Stageful) -> None:
    async with acting(stage) as node_actors:
        node_actors.call(HERE).take(job("open"))
        await stage.until(lambda: stage.outcomes)
        assert stage.open == 1
        node_actors.leave(HERE)
        await stage.until(lambda: not stage.open)
    assert stage.failed == []


@pytest.mark.parametrize("words", [("hang", "bad"), ("bad", "hang")], ids=["beside", "itself"])
async def test_if_one_fails_all_end_and_the_sessions_are_closed(stage: Stageful, words: tuple[str, str]) -> None:
    async with acting(stage) as node_actors:
        first = node_actors.call(HERE)
        first.take(job("open"))
        await stage.until(lambda: stage.outcomes)
        for word in words:
            first.take(job(word))
            await stage.until(lambda word=word: job(word).key in stage.running)
        stage.go.set()
        await stage.until(lambda: stage.failed)
        await stage.until(lambda: not stage.running and not stage.open)
        assert set(stage.failed) == {"a#1"}
        assert node_actors.call(HERE) is not first


async def test_what_does_not_open_is_let_go_when_the_node_is_left(stage: Stageful) -> None:
    stage.opens = False
    async with acting(stage) as node_actors:
        actor = node_actors.call(HERE)
        actor.take(job("open"))
        await stage.until(lambda: stage.open)
        actor.abandon(job("open").key)
        node_actors.leave(HERE)
        await stage.until(lambda: not stage.open)
    assert stage.failed == stage.outcomes == []


async def test_nothing_is_opened_behind_a_node_that_was_left(stage: Stageful) -> None:
    async with acting(stage) as node_actors:
        node_actors.call(HERE)
        node_actors.leave(HERE)
        carrier: Any = SimpleNamespace()
        boxes = toolboxes.Toolboxes(carrier, lambda _body: None, NOTHING_SHARED.standing)
        boxes.close_all()
        with pytest.raises(toolboxes.ToolFailed) as caught:
            await boxes.listing("a#1.1!open", [])
        assert caught.value.failure == Failure(code="tool.unavailable", message="the node was left")
    assert stage.open == 0


async def test_an_outcome_that_has_no_recorded_form_is_a_failure_of_its_effect_alone(stage: Stageful) -> None:
    async with acting(stage) as node_actors:
        node_actors.call(HERE).take(job("odd"))
        await stage.until(lambda: stage.outcomes)
        node_actors.call(HERE).take(job("open"))
        await stage.until(lambda: len(stage.outcomes) == 2)
    assert stage.outcomes == ["a#1.1!odd internal", "a#1.1!open ok"]
    assert stage.used == [Usage(5, 7), Usage()]
    assert stage.failed == []


@pytest.mark.parametrize("word", ["hang", "wait"], ids=["abandoned", "completed"])
async def test_progress_that_is_reported_after_the_end_of_an_effect_is_ignored(stage: Stageful, word: str) -> None:
    async with acting(stage) as node_actors:
        actor = node_actors.call(HERE)
        actor.take(job(word))
        await stage.until(lambda: stage.running)
        actor.abandon(job("hang").key)
        stage.go.set()
        await stage.until(lambda: not stage.running)
    # A thread of the effect goes on.
    stage.reporters[0].progress("a", "line 3")
    stage.reporters[0].warn("a", "odd", "too late")
