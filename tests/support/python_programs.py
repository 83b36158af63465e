"""Random workflows in Python: trees of asyncio's constructs, and a family of runs that performs one."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from callboard import ChildFailed, StepFailed, ask, signal, step, step_context
from callboard.actors.kinds.step import StepRunner
from callboard.bus import events as ev
from callboard.bus.subjects import RunRef
from callboard.languages.hosting import SourceBundle
from callboard.languages.language import End, Stage
from callboard.languages.python import guard
from callboard.languages.python.hosted import Hosted
from callboard.languages.python.language import perform
from callboard.languages.python.loop import current_loop
from callboard.languages.python.workflows import WorkflowFunction
from callboard.lib.json_types import JSON
from callboard.testing.checks import open_intents
from callboard.testing.crashes import CrashingLog
from callboard.testing.virtual_time import VirtualClock
from tests.support.families import Hands
from tests.support.run_harness import RunHarness

UNIT_S = 60.0
FACTOR = 5
"""The shortest timer of a program, and how much longer the next one is, so that no two sums are nearly equal."""

# -- trees -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A step, which succeeds, or raises."""

    fails: bool


@dataclass(frozen=True)
class Sleep:
    pass


@dataclass(frozen=True)
class Question:
    """A question; without an answer it expires."""

    answered: bool


@dataclass(frozen=True)
class Awaited:
    """A signal."""


@dataclass(frozen=True)
class Child:
    fails: bool


@dataclass(frozen=True)
class Several:
    """Parts that are performed in one of the ways of `WAYS`."""

    way: str
    parts: tuple["Tree", ...]


@dataclass(frozen=True)
class One:
    """A part that is performed in one of the ways of `WRAPS`."""

    way: str
    part: "Tree"


Tree = Call | Sleep | Question | Awaited | Child | Several | One

WAYS = ("sequence", "gather", "gather_all", "group", "race", "as_completed", "queue", "lock", "semaphore")
WRAPS = ("timeout", "wait_for", "shield", "cancel", "tidy", "catch", "twice", "stubborn")

leaves: st.SearchStrategy[Tree] = (
    st.builds(Call, st.booleans())
    | st.builds(Sleep)
    | st.builds(Question, st.booleans())
    | st.builds(Awaited)
    | st.builds(Child, st.booleans())
)


def _inner(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.builds(Several, st.sampled_from(WAYS), several) | st.builds(One, st.sampled_from(WRAPS), parts)


trees = st.recursive(leaves, _inner, max_leaves=6)

# -- the workflow ------------------------------------------------------------------------------------------------------


Part = Callable[[], Coroutine[Any, Any, JSON]]


OUTSIDE: list[str] = []
"""Calls of steps that no worker has made."""


@step
async def work(label: str, fails: bool) -> str:
    if not step_context().run:
        OUTSIDE.append(label)
    if fails:
        raise ValueError(label)
    return label


class Program:
    """One execution of a tree in a workflow. The outcome of each node is appended to ``trace``."""

    def __init__(self, tree: Tree) -> None:
        self.trace: list[JSON] = []
        paths = sorted(_paths(tree, "t"), key=lambda path: crc32(path.encode()))
        self._seconds = {path: UNIT_S * FACTOR**place for place, path in enumerate(paths)}

    async def run(self, tree: Tree, path: str) -> JSON:
        """Perform a tree; return its value."""
        try:
            value = await self._run(tree, path)
        except BaseException as error:
            self.trace.append([path, type(error).__name__])
            raise
        self.trace.append([path, value])
        return value

    async def _run(self, tree: Tree, path: str) -> JSON:
        match tree:
            case Call(fails):
                return await work(path, fails)
            case Sleep():
                return await asyncio.sleep(self._seconds[path], "slept")
            case Question(answered):
                timeout = None if answered else self._seconds[path]
                return await ask(f"{'answer' if answered else 'silence'} {path}", int, timeout=timeout)
            case Awaited():
                return await signal(f"signal {path}", int)
            case Child(fails):
                return await _start_child(fails, self._seconds[path])
            case Several(way, _):
                return await self._several(way, [partial(self.run, part, at) for part, at in _parts(tree, path)])
            case One(way, part):
                return await self._one(way, partial(self.run, part, f"{path}0"), path)

    async def _several(self, way: str, parts: list[Part]) -> JSON:
        match way:
            case "sequence":
                return [await part() for part in parts]
            case "gather":
                return list(await asyncio.gather(*(part() for part in parts)))
            case "gather_all":
                return _names(await asyncio.gather(*(part() for part in parts), return_exceptions=True))
            case "group":
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(part(), name=f"part {k}") for k, part in enumerate(parts)]
                return [task.result() for task in tasks]
            case "race":
                started = {asyncio.ensure_future(part()) for part in parts}
                done, pending = await asyncio.wait(started, return_when=asyncio.FIRST_COMPLETED)
                for task in pending:
                    task.cancel()
                return _names(await asyncio.gather(*done, *pending, return_exceptions=True))
            case "as_completed":
                return [await one for one in asyncio.as_completed([part() for part in parts])]
            case "queue":
                return await _through_a_queue(parts)
            case _:
                lock = asyncio.Lock() if way == "lock" else asyncio.Semaphore(2)
                return list(await asyncio.gather(*(_locked(lock, part) for part in parts)))

    async def _one(self, way: str, part: Part, path: str) -> JSON:
        match way:
            case "timeout":
                async with asyncio.timeout(self._seconds[path]):
                    return await part()
            case "wait_for":
                return await asyncio.wait_for(part(), self._seconds[path])
            case "shield":
                return await asyncio.shield(part())
            case "cancel":
                task = asyncio.ensure_future(part())
                await asyncio.sleep(self._seconds[path])
                task.cancel()
                return _names(await asyncio.gather(task, return_exceptions=True))
            case "tidy":
                try:
                    return await part()
                finally:
                    await work("tidy", False)
            case "catch":
                try:
                    return await part()
                except (StepFailed, ChildFailed, TimeoutError, ExceptionGroup) as error:
                    return type(error).__name__
            case "twice":
                return [await part(), await part()]
            case _:
                try:
                    return await part()
                except asyncio.CancelledError:
                    return await work("stubborn", False)


def _parts(tree: Tree, path: str) -> list[tuple[Tree, str]]:
    """Return the parts of a tree with their paths."""
    match tree:
        case Several(_, parts):
            return [(part, f"{path}{k}") for k, part in enumerate(parts)]
        case One(_, part):
            return [(part, f"{path}0")]
        case _:
            return []


def _paths(tree: Tree, path: str) -> list[str]:
    return [path, *(inner for part, at in _parts(tree, path) for inner in _paths(part, at))]


async def _locked(lock: "asyncio.Lock | asyncio.Semaphore", part: Part) -> JSON:
    async with lock:
        return await part()


async def _through_a_queue(parts: list[Part]) -> list[JSON]:
    """Have two consumers perform parts that a producer puts into a queue of one place."""
    queue: asyncio.Queue[Part | None] = asyncio.Queue(1)
    found: list[JSON] = []

    async def produce() -> None:
        for part in parts:
            await queue.put(part)
        for _ in range(2):
            await queue.put(None)

    async def consume() -> None:
        while (part := await queue.get()) is not None:
            found.append(await part())

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        group.create_task(consume())
        group.create_task(consume())
    return found


async def _start_child(fails: bool, seconds: float) -> JSON:
    """Do what `callboard.child` does, with a definition of the harness, whose run takes these seconds."""
    loop = current_loop()
    assert loop is not None
    node = loop.place("child")
    definition = {"language": "play", "source": "child"}
    end: End = await loop.effect(node, node.child("child", definition, {"fails": fails, "seconds": seconds}))
    if end.status != "completed":
        raise ChildFailed(end.status, end.error)
    return end.output


def _names(values: Sequence[Any]) -> JSON:
    """Return values, with the names of exceptions."""
    return [type(value).__name__ if isinstance(value, BaseException) else value for value in values]


def workflow_of(tree: Tree) -> Callable[[], Awaitable[Any]]:
    """Make the function of a workflow that performs a tree and returns what it has done."""

    async def program() -> Any:
        program = Program(tree)
        try:
            await program.run(tree, "t")
        except Exception as error:
            program.trace.append(["", type(error).__name__])
        return program.trace

    return program


# -- the runs ----------------------------------------------------------------------------------------------------------


def play_of(function: Callable[[], Any]) -> Callable[[Stage], Awaitable[End]]:
    """Make the play that performs the function of a workflow."""
    hosted = Hosted(SourceBundle("", {}, "", lambda name: name), WorkflowFunction(function))

    async def play(stage: Stage) -> End:
        return await perform(hosted, None, stage)

    return play


async def _child(stage: Stage) -> End:
    given: Any = stage.info.input

    async def program() -> str:
        await asyncio.sleep(given["seconds"])
        return await work("child", given["fails"])

    return await play_of(program)(stage)


REF = RunRef("acme", "r1")


def hands_for(tree: Tree, log: CrashingLog, *, cancel_at: int | None = None, always_replay: bool = False) -> Hands:
    """Make the hands that perform a tree as the play ``p``. Whenever all runs rest they give one answer or signal, or
    resume the run if it is paused.

    When the runs rest for the time ``cancel_at``, they cancel the run instead. ``harness.executed`` has the run and key
    of each call of a step.
    """
    guard.install()
    rests = itertools.count()
    said: set[str] = set()
    steps = StepRunner()
    harness = RunHarness(
        {"p": play_of(workflow_of(tree)), "child": _child},
        log=log,
        clock=VirtualClock(),
        always_replay=always_replay,
        kinds={"step": steps.carry},
    )

    async def meanwhile(hands: Hands) -> None:
        events = await harness.events(REF)
        if not hands.idle or events[-1].type != ev.RunParked.type:
            return
        paused = [event.type for event in events if event.type in (ev.RunPaused.type, ev.RunResumed.type)]
        if paused[-1:] == [ev.RunPaused.type]:
            hands.say(REF, "resume")
            return
        if next(rests) == cancel_at:
            hands.say(REF, "cancel", reason="enough")
            return
        for intent in open_intents(events):
            if intent.key in said:
                continue
            match ev.payload_of(intent):
                case ev.HumanAsked(question=question) if question.startswith("answer"):
                    hands.say(REF, "answer", interaction=intent.key, user_response=len(said))
                case ev.SignalAwaited(name=name):
                    hands.say(REF, "signal", name=name, data=len(said))
                case _:
                    continue
            said.add(intent.key)
            return

    return Hands(harness, meanwhile)
