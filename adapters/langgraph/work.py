"""Work of a graph that the worker performs as one step: the body of a tool, a node, or an operation of a store.

Custom data that the work has written to the stream, and an `interrupt`, are part of the outcome. A question
that an interrupt asks is put to people, and the work is performed again with the answer, as LangGraph does.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import is_dataclass, replace
from itertools import count
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context
from langchain_core.runnables.utils import coro_with_context
from langgraph._internal._constants import CONF, CONFIG_KEY_RUNTIME, CONFIG_KEY_SCRATCHPAD, CONFIG_KEY_SEND
from langgraph.errors import GraphInterrupt
from langgraph.store.base import BaseStore, Op, Result

from callboard.adapters.langgraph.greenlets import wait_for
from callboard.adapters.langgraph.questions import StepScratchpad, put_question
from callboard.adapters.langgraph.scopes import NodeScope, current_place
from callboard.adapters.langgraph.values import decode, encode, encode_error
from callboard.bus.work import Work
from callboard.languages.language import Failed
from callboard.languages.python.approvals import demands_of
from callboard.languages.python.errors import StepFailed
from callboard.languages.python.raised import raised_in
from callboard.lib.json_types import JSON


async def perform_work(
    place: NodeScope,
    name: str,
    arguments: JSON,
    config: RunnableConfig,
    body: Callable[[RunnableConfig], Awaitable[Any]],
) -> Any:
    """Perform ``body`` in the worker, as a step of this name, and return its recorded result.

    ``arguments`` are recorded with the step; ``body`` has its own, and takes the configuration that is to be the
    current one.

    :raises StepFailed: if the body raises an exception that cannot be made again; otherwise that exception
    """
    answers: list[Any] = []
    while True:
        asked: dict[str, JSON] = {"step": name, "arguments": arguments}
        if answers:
            asked["answers"] = encode(answers)
        found = await _perform(place, name, asked, _prepare(config, list(answers)), body)
        _write(config, found.get("wrote", []))
        if "interrupt" not in found:
            return decode(found.get("value"))
        answers.append(await put_question(place, decode(found["interrupt"])))


async def _perform(
    place: NodeScope,
    name: str,
    asked: dict[str, JSON],
    prepared: "Prepared",
    body: Callable[[RunnableConfig], Awaitable[Any]],
) -> dict[str, Any]:
    loop = place.loop

    async def call() -> dict[str, Any]:
        prepared.wrote.clear()
        with set_config_context(prepared.config) as context:
            try:
                value = await coro_with_context(_body(), context)
            except GraphInterrupt as interrupt:
                return {"interrupt": interrupt.args[0][0].value, "wrote": prepared.wrote}
        return {"value": value, "wrote": prepared.wrote}

    async def _body() -> Any:
        return await body(prepared.config)

    node = loop.place(name)
    work = Work(
        name=name,
        call=call,
        is_coroutine=True,
        encode=lambda found: {key: encode(one) for key, one in found.items() if key != "wrote" or one},
        retryable=lambda _error: False,
        first=node.key("step"),
        note=encode_error,
        demands=demands_of(place.settings.approve),
    )
    outcome = await loop.effect(node, node.call("step", "step", asked, work=work))
    if isinstance(outcome, Failed):
        raise raised_in(StepFailed(outcome.error), decode)
    found: Any = outcome.value
    return found


class Prepared:
    """The configuration of work in the worker, and what the work has written to the stream."""

    def __init__(self, config: RunnableConfig) -> None:
        self.config = config
        self.wrote: list[Any] = []


def _prepare(config: RunnableConfig, answers: list[Any]) -> Prepared:
    """Make the configuration of the work: without callbacks, which belong to the workflow, with the graph's own store,
    and with the answers to its interrupts so far."""
    conf: Mapping[str, Any] = config.get(CONF, {})
    prepared = Prepared({**config, "callbacks": None})
    inner: dict[str, Any] = {
        **conf,
        CONFIG_KEY_SEND: lambda _writes: None,
        CONFIG_KEY_SCRATCHPAD: StepScratchpad(
            step=0,
            stop=0,
            call_counter=count().__next__,
            interrupt_counter=count().__next__,
            get_null_resume=lambda _consume=False: None,
            resume=answers,
            subgraph_counter=count().__next__,
        ),
    }
    if CONFIG_KEY_RUNTIME in conf:
        inner[CONFIG_KEY_RUNTIME] = outside_runtime(conf[CONFIG_KEY_RUNTIME], prepared.wrote.append)
    prepared.config[CONF] = inner
    return prepared


def outside_runtime(runtime: Any, writer: Callable[[Any], object]) -> Any:
    """Return a runtime of LangGraph for the worker: with the graph's own store, and ``writer`` for the stream."""
    if not is_dataclass(runtime) or isinstance(runtime, type):
        return runtime
    store = getattr(runtime, "store", None)
    own = store.store if isinstance(store, RecordedStore) else store
    return replace(runtime, store=own, stream_writer=writer)


def _write(config: RunnableConfig, wrote: JSON) -> None:
    runtime = config.get(CONF, {}).get(CONFIG_KEY_RUNTIME)
    for one in decode(wrote) or ():
        if runtime is not None:
            runtime.stream_writer(one)


class RecordedStore(BaseStore):
    """A store in a workflow; each operation is a step, which the worker performs on ``store``."""

    def __init__(self, store: BaseStore) -> None:
        self.store = store
        self.supports_ttl = store.supports_ttl
        self.ttl_config = getattr(store, "ttl_config", None)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        place = current_place()
        batch = list(ops)
        if place is None:
            return await self.store.abatch(batch)

        async def body(_config: RunnableConfig) -> list[Result]:
            return await self.store.abatch(batch)

        found: list[Result] = await perform_work(place, "store", encode(batch), {}, body)
        return found

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        if current_place() is None:
            return self.store.batch(ops)
        return wait_for(self.abatch(ops), "the store")
