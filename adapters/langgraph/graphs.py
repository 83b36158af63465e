"""Durable graphs: a compiled graph whose calls inside of workflows are recorded."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import aclosing
from contextvars import copy_context
from typing import Any, TypeVar

from langgraph.pregel import Pregel

from callboard.adapters.langgraph.models import record_models
from callboard.adapters.langgraph.performed_graphs import performed_form, record_graphs
from callboard.adapters.langgraph.questions import refuse_questions
from callboard.adapters.langgraph.scopes import (
    GraphSettings,
    current_place,
    graph_at,
    inner_graph_at,
    merge_settings,
)
from callboard.adapters.langgraph.tools import record_tools
from callboard.languages.python.approvals import Approving, approvals_of
from callboard.languages.python.errors import NotInWorkflow
from callboard.languages.python.in_steps import refuse_in_step
from callboard.languages.python.loop import WorkflowLoop, current_loop

Graph = TypeVar("Graph", bound=Pregel[Any, Any, Any, Any])

_UNNAMED = "LangGraph"
"""The name of a graph that is compiled without one."""


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
    functional = not hasattr(graph, "builder")
    if not functional and (unknown := set(steps) - set(graph.nodes)):
        known = ", ".join(one for one in graph.nodes if not one.startswith("__"))
        raise ValueError(f"steps names {', '.join(sorted(unknown))}, but the nodes of the graph are {known}")
    settings = GraphSettings(graph.get_name(), frozenset(steps), frozenset(inline), tuple(approvals_of(approve)), to)
    return _make_durable(graph, settings, earlier)


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
            stream = performed_form(loop, self.callboard_graph).astream(input, config, **given)
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
                return await performed_form(loop, self.callboard_graph).ainvoke(input, config, **given)
        return await _start(self, loop, lambda twin: twin.ainvoke(input, config, **given))

    def _state_of(self) -> Any:
        """Return the graph that has the state: in a workflow that of the run."""
        loop = current_loop()
        return self.callboard_graph if loop is None else performed_form(loop, self.callboard_graph)

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
    twin = performed_form(loop, graph.callboard_graph)
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


refuse_questions()
record_models()
record_tools()
record_graphs()
