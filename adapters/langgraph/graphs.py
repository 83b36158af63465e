"""Durable graphs: a compiled graph whose calls inside of workflows are recorded."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from contextvars import copy_context
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from langchain_core.callbacks import manager as callbacks
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph._internal._constants import CONF, CONFIG_KEY_CALL
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.pregel import Pregel

from callboard.adapters.langgraph.greenlets import wait_for
from callboard.adapters.langgraph.models import record_models
from callboard.adapters.langgraph.questions import ask_in, refuse_questions
from callboard.adapters.langgraph.scopes import (
    GraphSettings,
    NodeScope,
    current_place,
    graph_at,
    inner_graph_at,
    merge_settings,
    node_at,
)
from callboard.adapters.langgraph.tools import record_tools
from callboard.adapters.langgraph.values import show_value
from callboard.adapters.langgraph.work import RecordedStore, perform_work
from callboard.languages.python.approvals import Approving, approvals_of
from callboard.languages.python.errors import NotInWorkflow
from callboard.languages.python.in_steps import refuse_in_step
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.tasks import NumberedFuture

_log = logging.getLogger("callboard.langgraph")

Graph = TypeVar("Graph", bound=Pregel[Any, Any, Any, Any])

_UNNAMED = "LangGraph"
"""The name of a graph that is compiled without one."""

REMEDY = "durable(…, steps="
"""The beginning of the remedy for a node with input or output."""

_astream: Any = Pregel.astream
_stream: Any = Pregel.stream
_invoke: Any = Pregel.invoke
_submit: Any = ThreadPoolExecutor.submit
_run_coros: Any = callbacks._run_coros  # pyright: ignore[reportPrivateUsage]


def durable(
    graph: Graph,
    *,
    steps: Collection[str] = (),
    inline: Collection[str] = (),
    approve: Approving = (),
    to: str | None = None,
) -> Graph:
    """Return the graph in a form that workflows can call: each model turn, tool call, operation of the store and
    `interrupt` is recorded, so that none is repeated after a crash.

    The nodes named in ``steps``, or the tasks of a functional graph, are performed by the worker as one step each; use
    it for nodes that do other input or output. The functions of all other nodes are code of the workflow. The bodies of
    tools are steps, except those in ``inline``, which are code of the workflow too: use it for tools that call other
    graphs. Calls of the tools in ``approve`` wait for the decision of a person; it has the same forms as for
    `callboard.Agent`. ``to`` names who answers interrupts.

    Outside of workflows the graph does what it did before.

    :raises TypeError: if it is not a compiled graph, or ``approve`` has another form
    :raises ValueError: if ``steps`` names what is not a node
    """
    given: Any = graph
    earlier: GraphSettings | None = None
    if isinstance(given, _Durable):
        graph, earlier = given.callboard_graph, given.callboard_settings
    elif not isinstance(given, Pregel):
        expected = "a compiled graph: durable(builder.compile())"
        raise TypeError(f"durable got a {type(given).__name__}, and needs {expected}")
    functional = _is_functional(graph)
    if not functional and (unknown := set(steps) - set(graph.nodes)):
        known = ", ".join(one for one in graph.nodes if not one.startswith("__"))
        raise ValueError(f"steps names {', '.join(sorted(unknown))}, but the nodes of the graph are {known}")
    settings = GraphSettings(graph.get_name(), frozenset(steps), frozenset(inline), tuple(approvals_of(approve)), to)
    return _make_durable(graph, settings, earlier)


def _is_functional(graph: Any) -> bool:
    return not hasattr(graph, "builder")


class _Durable:
    """The methods that differ in the class of a durable graph."""

    callboard_settings: GraphSettings
    callboard_earlier: GraphSettings | None
    """Those of the durable graph of which it was made."""
    callboard_graph: Any

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a member such as ``step_timeout``, also of the graph that is performed."""
        super().__setattr__(name, value)
        setattr(self.callboard_graph, name, value)

    def copy(self, update: dict[str, Any] | None = None) -> Any:
        return _make_durable(self.callboard_graph.copy(update), self.callboard_settings, self.callboard_earlier)

    async def astream(self, input: Any, config: Any = None, **given: Any) -> AsyncIterator[Any]:
        loop = current_loop()
        stream: AsyncGenerator[Any]
        if loop is None:
            self._refuse_approvals()
            stream = self.callboard_graph.astream(input, config, **given)
        elif current_place() is not None:
            # A node of another durable graph.
            stream = _twin(loop, self.callboard_graph).astream(input, config, **given)
        else:
            stream = _relay(self, loop, input, config, given)
        with inner_graph_at(self.all_settings()):
            async with aclosing(stream):
                async for chunk in stream:
                    yield chunk

    async def ainvoke(self, input: Any, config: Any = None, **given: Any) -> Any:
        loop = current_loop()
        if loop is None:
            self._refuse_approvals()
            return await self.callboard_graph.ainvoke(input, config, **given)
        if current_place() is not None:
            with inner_graph_at(self.all_settings()):
                return await _twin(loop, self.callboard_graph).ainvoke(input, config, **given)
        return await _start(self, loop, lambda twin: twin.ainvoke(input, config, **given))

    def _state_of(self) -> Any:
        """Return the graph that has the state: in a workflow that of the run."""
        loop = current_loop()
        return self.callboard_graph if loop is None else _twin(loop, self.callboard_graph)

    def invoke(self, input: Any, config: Any = None, **given: Any) -> Any:
        self._check_waits("invoke", "ainvoke")
        with inner_graph_at(self.all_settings()):
            return self._state_of().invoke(input, config, **given)

    def stream(self, input: Any, config: Any = None, **given: Any) -> Iterator[Any]:
        self._check_waits("stream", "astream")
        return self._stream(input, config, given)

    def _stream(self, input: Any, config: Any, given: dict[str, Any]) -> Iterator[Any]:
        with inner_graph_at(self.all_settings()):
            yield from self._state_of().stream(input, config, **given)

    def all_settings(self) -> GraphSettings:
        """Return the settings, with those of the durable graph of which this one was made."""
        earlier = self.callboard_earlier
        return self.callboard_settings if earlier is None else merge_settings(self.callboard_settings, earlier)

    def _refuse_approvals(self) -> None:
        """Refuse to run in a step, if the graph has tools that need approval."""
        settings = self.all_settings()
        if settings.approve:
            refuse_in_step(f"graph {settings.graph}", "has tools that need approval")

    def _check_waits(self, name: str, other: str) -> None:
        self._refuse_approvals()
        if current_loop() is not None and current_place() is None:
            graph = self.callboard_settings.graph
            raise NotInWorkflow(f"{graph}.{name} cannot wait in a workflow: use await {graph}.{other}(…)")

    def get_state(self, config: Any, **given: Any) -> Any:
        return self._state_of().get_state(config, **given)

    async def aget_state(self, config: Any, **given: Any) -> Any:
        return await self._state_of().aget_state(config, **given)

    def get_state_history(self, config: Any, **given: Any) -> Iterator[Any]:
        return self._state_of().get_state_history(config, **given)

    def aget_state_history(self, config: Any, **given: Any) -> AsyncIterator[Any]:
        return self._state_of().aget_state_history(config, **given)

    def bulk_update_state(self, config: Any, *args: Any, **given: Any) -> Any:
        return self._state_of().bulk_update_state(config, *args, **given)

    async def abulk_update_state(self, config: Any, *args: Any, **given: Any) -> Any:
        return await self._state_of().abulk_update_state(config, *args, **given)


_CLASSES: dict[type, type] = {}


def _make_durable(graph: Any, settings: GraphSettings, earlier: GraphSettings | None) -> Any:
    kind: Any = type(graph)
    if kind not in _CLASSES:
        _CLASSES[kind] = type(kind.__name__, (_Durable, kind), {"__module__": kind.__module__})
    made: Any = object.__new__(_CLASSES[kind])
    made.__dict__.update(graph.__dict__)
    made.__dict__.update(callboard_settings=settings, callboard_earlier=earlier, callboard_graph=graph)
    return made


# -- in workflows -----------------------------------------------------------------------------------------------------


async def _start(graph: _Durable, loop: WorkflowLoop, call: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """Perform a call of the graph in a separate task, below which all tasks of LangGraph are."""
    settings = graph.all_settings()
    twin = _twin(loop, graph.callboard_graph)
    name = "" if settings.graph == _UNNAMED else settings.graph
    with graph_at(loop, settings, name) as place:
        context = copy_context()
    task = loop.create_task(call(twin), context=context, path=place.path)
    try:
        return await task
    except asyncio.CancelledError:
        # As in LangGraph, the nodes have ended when the call has.
        task.cancel()
        if not loop.is_closed():
            await asyncio.wait([task])
        raise
    except BaseException:
        task.cancel()
        raise


async def _relay(
    graph: _Durable, loop: WorkflowLoop, input: Any, config: Any, given: dict[str, Any]
) -> AsyncGenerator[Any]:
    """Yield the chunks that a graph streams. As in LangGraph, it goes no further until its next chunk is asked for."""
    chunks: asyncio.Queue[tuple[Any]] = asyncio.Queue(1)
    wanted = asyncio.Semaphore(0)

    async def produce(twin: Any) -> None:
        async with aclosing(twin.astream(input, config, **given)) as stream:
            async for chunk in stream:
                await chunks.put((chunk,))
                await wanted.acquire()

    producing = loop.create_task(_start(graph, loop, produce), path=loop.path())
    getting: Any = None
    try:
        while not (producing.done() and chunks.empty()):
            getting = loop.create_task(chunks.get(), path=loop.path())
            await asyncio.wait({getting, producing}, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                (chunk,) = getting.result()
                yield chunk
                wanted.release()
        await producing
    finally:
        left = [task for task in (getting, producing) if task is not None and not task.done()]
        for task in left:
            task.cancel()
        if left and not loop.is_closed():
            await asyncio.wait(left)


def _twin(loop: WorkflowLoop, graph: Any) -> Any:
    """Return the form of a graph in which it is performed in this run."""
    twins: dict[int, tuple[Any, Any]] = loop.locals.setdefault("langgraph", {})
    if id(graph) not in twins:
        # The state between calls belongs to the run: a replay computes it again.
        saves = isinstance(graph.checkpointer, BaseCheckpointSaver)
        store = graph.store
        update = {
            "nodes": {name: _node(graph, name, node) for name, node in graph.nodes.items()},
            "checkpointer": InMemorySaver() if saves else graph.checkpointer,
            "store": RecordedStore(store) if store is not None and not isinstance(store, RecordedStore) else store,
            "cache": None,
        }
        twin = graph.copy(update)
        for name in graph.nodes:
            twin.nodes[name].__dict__["node"] = _Node(name, twin.nodes[name].node)
        twin.callboard_twin = True
        twins[id(graph)] = (graph, twin)
    found = twins[id(graph)][1]
    found.step_timeout = graph.step_timeout
    return found


def _node(graph: Any, name: str, node: Any) -> Any:
    return node.copy({"bound": _NodeStep(name, node.bound)})


class _Node(Runnable[Any, Any]):
    """A node with its writers and branches: a place in the graph."""

    def __init__(self, name: str, runnable: Any) -> None:
        self._name = name
        self._runnable = runnable

    def invoke(self, input: Any, config: Any = None, **given: Any) -> Any:
        return self._runnable.invoke(input, config, **given)

    async def ainvoke(self, input: Any, config: Any = None, **given: Any) -> Any:
        place = current_place()
        assert place is not None, "only a durable graph calls it"
        with node_at(place, self._name, _number(config)) as inner:
            return await self._runnable.ainvoke(input, _prepare(config, inner), **given)

    async def astream(self, input: Any, config: Any = None, **given: Any) -> AsyncIterator[Any]:
        place = current_place()
        assert place is not None, "only a durable graph calls it"
        with node_at(place, self._name, _number(config)) as inner:
            async for chunk in self._runnable.astream(input, _prepare(config, inner), **given):
                yield chunk


class _NodeStep(Runnable[Any, Any]):
    """The function of a node, which is performed as a step if the settings say so."""

    def __init__(self, name: str, bound: Any) -> None:
        self._name = name
        self._bound = bound

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bound, name)

    def invoke(self, input: Any, config: Any = None, **given: Any) -> Any:
        return self._bound.invoke(input, config, **given)

    async def ainvoke(self, input: Any, config: Any = None, **given: Any) -> Any:
        place = current_place()
        if place is None or self._name not in place.settings.steps:
            try:
                return await self._bound.ainvoke(input, config, **given)
            except NotInWorkflow as refused:
                if place is None or REMEDY in str(refused):
                    raise
                raise NotInWorkflow(f'{refused}, or the node one: {REMEDY}["{self._name}"])') from refused

        async def body(config: RunnableConfig) -> Any:
            return await self._bound.ainvoke(input, config, **given)

        return await perform_work(place, "step", {"input": show_value(input)}, config or {}, body)


def _number(config: Any) -> int:
    """Return which of the nodes of one name, which `Send` has started in a step, this is."""
    path: Any = config.get("metadata", {}).get("langgraph_path") or ()
    return path[1] + 1 if len(path) > 1 and path[0] == "__pregel_push" and isinstance(path[1], int) else 1


def _prepare(config: Any, place: NodeScope) -> Any:
    """Return the configuration of a node: interrupts ask people, and each task has its own place."""
    conf = dict(config.get(CONF, {}))
    prepared = {**config, CONF: conf}
    _prepare_in(prepared, place)
    return prepared


def _prepare_in(config: Any, place: NodeScope) -> None:
    ask_in(config, place)
    conf = config[CONF]
    if CONFIG_KEY_CALL in conf:
        conf[CONFIG_KEY_CALL] = _calls(conf[CONFIG_KEY_CALL], place)


def _calls(call: Any, place: NodeScope) -> Any:
    """Return the function that starts the tasks of a functional graph."""

    def start(func: Any, input: Any, **options: Any) -> Any:
        name = _name_of(func)
        started = call(_task(func, name, place, place.next_number(name)), input, **options)
        future = _Awaited(number=place.loop.next_number(), loop=place.loop)
        started.add_done_callback(future.take)
        return future

    return start


class _Awaited(NumberedFuture):
    """The result of a task, for which plain functions can wait too."""

    def take(self, started: Any) -> None:
        if self.done():
            return
        if started.cancelled():
            self.cancel()
        elif started.exception() is not None:
            self.set_exception(started.exception())
        else:
            self.set_result(started.result())

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            wait_for(asyncio.wait([self]), "the result of a task")
        return super().result()


def _task(func: Any, name: str, place: NodeScope, number: int) -> Any:
    """Return the function of a task, at its own place."""
    if name in place.settings.steps:
        return _task_step(func, name, place, number)

    async def aperform(*args: Any, **given: Any) -> Any:
        with node_at(place, name, number) as inner:
            _prepare_in(get_config(), inner)
            return await func(*args, **given)

    def perform(*args: Any, **given: Any) -> Any:
        with node_at(place, name, number) as inner:
            _prepare_in(get_config(), inner)
            return func(*args, **given)

    return _named(aperform if iscoroutinefunction(func) else perform, func)


def _task_step(func: Any, name: str, place: NodeScope, number: int) -> Any:
    async def perform(*args: Any, **given: Any) -> Any:
        async def body(_config: RunnableConfig) -> Any:
            if iscoroutinefunction(func):
                return await func(*args, **given)
            return await asyncio.to_thread(func, *args, **given)

        with node_at(place, name, number) as inner:
            arguments = show_value({"args": list(args), **given})
            return await perform_work(inner, "step", arguments, get_config(), body)

    return _named(perform, func)


def _name_of(func: Any) -> str:
    """Return the name that LangGraph gives a task."""
    named = func if hasattr(func, "__name__") else getattr(func, "func", None)
    return getattr(named, "__name__", type(func).__name__)


def _named(perform: Any, func: Any) -> Any:
    perform = wraps(func)(perform)
    perform.__name__ = _name_of(func)
    return perform


# -- graphs that nodes call -------------------------------------------------------------------------------------------


def record_graphs() -> None:
    """Replace the methods of `Pregel`, so that a graph that a node of a durable graph calls is durable too.

    LangChain uses threads for parallel chains, and for asynchronous callbacks of plain functions. A workflow has no
    threads, so both are performed by the caller.
    """
    kind: Any = Pregel
    kind.astream = _astream_inside
    kind.stream = _stream_inside
    kind.invoke = _invoke_inside
    executor: Any = ThreadPoolExecutor
    executor.submit = _submit_inside
    of_callbacks: Any = callbacks
    of_callbacks._run_coros = _run_coros_inside


def _inner_twin(graph: Any) -> Any:
    """Return the twin of a graph that is called in a durable graph; None elsewhere, and if it is a twin itself."""
    place = current_place()
    if place is None or hasattr(graph, "callboard_twin"):
        return None
    return _twin(place.loop, graph)


async def _astream_inside(self: Any, input: Any, config: Any = None, **given: Any) -> AsyncIterator[Any]:
    twin = _inner_twin(self) or self
    async with aclosing(_astream(twin, input, config, **given)) as stream:
        async for chunk in stream:
            yield chunk


def _stream_inside(self: Any, input: Any, config: Any = None, **given: Any) -> Iterator[Any]:
    if current_place() is None:
        yield from _stream(self, input, config, **given)
        return
    twin = _inner_twin(self) or self

    async def collect() -> list[Any]:
        return [chunk async for chunk in twin.astream(input, config, **given)]

    yield from wait_for(collect(), f"{self.get_name()}.stream")


def _invoke_inside(self: Any, input: Any, config: Any = None, **given: Any) -> Any:
    if current_place() is None:
        return _invoke(self, input, config, **given)
    return wait_for((_inner_twin(self) or self).ainvoke(input, config, **given), f"{self.get_name()}.invoke")


def _submit_inside(self: Any, func: Any, *args: Any, **given: Any) -> Any:
    if current_place() is None:
        return _submit(self, func, *args, **given)
    future: Future[Any] = Future()
    try:
        future.set_result(func(*args, **given))
    except Exception as error:
        future.set_exception(error)
    return future


def _run_coros_inside(coros: list[Any]) -> None:
    if current_place() is None:
        _run_coros(coros)
        return
    for coro in coros:
        try:
            wait_for(coro, "a callback")
        except Exception:
            # As in LangChain: a callback cannot fail the graph.
            _log.warning("a callback of LangChain raised", exc_info=True)


refuse_questions()
record_models()
record_tools()
record_graphs()
