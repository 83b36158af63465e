"""Tools in graphs: the body of each tool call is a step. LangChain's own code checks the input and formats the output.

As with models, the methods by which all tools are called are replaced; outside of durable graphs nothing changes.
"""

from inspect import signature
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForToolRun
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.tools.base import _get_runnable_config_param  # pyright: ignore[reportPrivateUsage]
from langgraph._internal._constants import CONF, CONFIG_KEY_RUNTIME

from callboard.adapters.langgraph.greenlets import wait_for
from callboard.adapters.langgraph.scopes import Place, current_place
from callboard.adapters.langgraph.values import shown
from callboard.adapters.langgraph.work import outside_runtime, perform_work
from callboard.languages.python.runs import ask

_arun: Any = BaseTool.arun
_run: Any = BaseTool.run
_default_arun: Any = BaseTool._arun  # pyright: ignore[reportPrivateUsage]


def record_tools() -> None:
    """Replace the methods of `BaseTool`, so that calls in durable graphs are recorded."""
    kind: Any = BaseTool
    kind.arun = _call
    kind.run = _call_and_wait


async def _call(self: Any, tool_input: Any, *args: Any, **given: Any) -> Any:
    place = current_place()
    if place is None or isinstance(self, _Recorded):
        return await _arun(self, tool_input, *args, **given)
    call_id = given.get("tool_call_id")
    if self.name in place.settings.approve and not await _is_approved(place, self, tool_input):
        text = "a person has denied this call"
        return text if call_id is None else ToolMessage(text, tool_call_id=call_id, name=self.name, status="error")
    called = self if self.name in place.settings.inline else _recorded(self)
    return await _arun(called, tool_input, *args, **given)


def _call_and_wait(self: Any, tool_input: Any, *args: Any, **given: Any) -> Any:
    place = current_place()
    if place is None:
        return _run(self, tool_input, *args, **given)
    return wait_for(_call(self, tool_input, *args, **given), f"tool {self.name}")


async def _is_approved(place: Place, tool: Any, given: Any) -> bool:
    own = tool._filter_injected_args(given) if isinstance(given, dict) else given
    data = {"tool": tool.name, "input": shown(own)}
    return await ask(f"May {place.settings.graph} call {tool.name}?", bool, to=place.settings.to, data=data)


class _Recorded:
    """The methods that differ in the class of a tool whose body is a step."""

    __slots__ = ()

    async def _arun(self, *args: Any, config: RunnableConfig, **given: Any) -> Any:
        place = current_place()
        assert place is not None, "only a durable graph calls it"
        tool: Any = self.__dict__["recorded_tool"]
        own = tool._filter_injected_args(given)
        shown_args = shown({**own, **({"args": list(args)} if args else {})})
        kind: Any = type(tool)
        own_body: Any = tool._run if kind._arun is _default_arun else tool._arun
        takes_config = _get_runnable_config_param(own_body)
        takes_manager = "run_manager" in signature(own_body).parameters

        async def body(config: RunnableConfig) -> Any:
            runtime: Any = config.get(CONF, {}).get(CONFIG_KEY_RUNTIME)
            writer = runtime.stream_writer if runtime is not None else _ignore
            called = {name: outside_runtime(one, writer) if name not in own else one for name, one in given.items()}
            if takes_config:
                called[takes_config] = config
            if takes_manager:
                called["run_manager"] = AsyncCallbackManagerForToolRun.get_noop_manager()
            return await tool._arun(*args, **called)

        return await perform_work(place, tool.name, shown_args, config, body)


def _ignore(_one: Any) -> None:
    """Drop it: nothing streams."""


_KINDS: dict[type, type] = {}


def _recorded(tool: Any) -> Any:
    """Return the tool with a body that is a step."""
    kind = type(tool)
    if kind not in _KINDS:
        _KINDS[kind] = type(kind.__name__, (_Recorded, kind), {"__module__": kind.__module__})
    found = tool.model_copy()
    object.__setattr__(found, "__class__", _KINDS[kind])
    found.__dict__["recorded_tool"] = tool
    return found
