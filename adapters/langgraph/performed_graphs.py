"""The form in which a run performs a graph: its nodes have places, and its tasks and inner graphs belong to the run."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from langchain_core.callbacks import manager as callbacks
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph._internal._constants import CONF, CONFIG_KEY_CALL
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.pregel import Pregel

from callboard.adapters.langgraph.greenlets import wait_for
from callboard.adapters.langgraph.questions import ask_in
from callboard.adapters.langgraph.scopes import NodeScope, current_place, node_at
from callboard.adapters.langgraph.values import show_value
from callboard.adapters.langgraph.work import RecordedStore, perform_work
from callboard.languages.python.errors import NotInWorkflow
from callboard.languages.python.loop import WorkflowLoop
from callboard.languages.python.tasks import NumberedFuture

_log = logging.getLogger("callboard.langgraph")

REMEDY = "durable(…, steps="
"""The beginning of the remedy for a node with input or output."""

_astream: Any = Pregel.astream
_stream: Any = Pregel.stream
_invoke: Any = Pregel.invoke
_submit: Any = ThreadPoolExecutor.submit
_run_coros: Any = callbacks._run_coros  # pyright: ignore[reportPrivateUsage]


def performed_form(loop: WorkflowLoop, graph: Any) -> Any:
    """Return the form of a graph in which it is performed in this run."""
    twins: dict[int, tuple[Any, Any]] = loop.locals.setdefault("langgraph", {})
    if id(graph) not in twins:
        # The state between calls belongs to the run: a replay computes it again.
        saves = isinstance(graph.checkpointer, BaseCheckpointSaver)
        store = graph.store
        update = {
            "nodes": {name: node.copy({"bound": _NodeStep(name, node.bound)}) for name, node in graph.nodes.items()},
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

    return _copy_name(aperform if iscoroutinefunction(func) else perform, func)


def _task_step(func: Any, name: str, place: NodeScope, number: int) -> Any:
    async def perform(*args: Any, **given: Any) -> Any:
        async def body(_config: RunnableConfig) -> Any:
            if iscoroutinefunction(func):
                return await func(*args, **given)
            return await asyncio.to_thread(func, *args, **given)

        with node_at(place, name, number) as inner:
            arguments = show_value({"args": list(args), **given})
            return await perform_work(inner, "step", arguments, get_config(), body)

    return _copy_name(perform, func)


def _name_of(func: Any) -> str:
    """Return the name that LangGraph gives a task."""
    named = func if hasattr(func, "__name__") else getattr(func, "func", None)
    return getattr(named, "__name__", type(func).__name__)


def _copy_name(perform: Any, func: Any) -> Any:
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
    return performed_form(place.loop, graph)


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
