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
from callboard.adapters.langgraph.messages import tool_spec
from callboard.adapters.langgraph.scopes import NodeScope, current_place
from callboard.adapters.langgraph.values import show_value
from callboard.adapters.langgraph.work import outside_runtime, perform_work
from callboard.bus.paths import child, encode_id
from callboard.languages.agent import Refusal
from callboard.languages.approvals.question import ProposedCall
from callboard.languages.language import Ok
from callboard.languages.python.approvals import decide
from callboard.languages.python.errors import StepFailed
from callboard.languages.python.in_steps import is_demanded, refuse_in_step

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
    if place is None:
        _refuse_demanded(self, tool_input)
    if place is None or isinstance(self, _Recorded):
        return await _arun(self, tool_input, *args, **given)
    call_id: str | None = given.get("tool_call_id")
    allowed: Ok[Any] | Refusal = Ok(tool_input)
    if place.settings.approve:
        named = _name_inputs(self, tool_input)
        allowed = await _decide(place, self, named, place.call.requested.get(call_id or "", ""))
        if isinstance(allowed, Ok) and allowed.value is named:
            allowed = Ok(tool_input)
    if isinstance(allowed, Refusal):
        if allowed.final:
            raise StepFailed(allowed.error)
        text = allowed.error.message
        return text if call_id is None else ToolMessage(text, tool_call_id=call_id, name=self.name, status="error")
    called = self if self.name in place.settings.inline else _with_step_body(self)
    return await _arun(called, allowed.value, *args, **given)


def _call_and_wait(self: Any, tool_input: Any, *args: Any, **given: Any) -> Any:
    place = current_place()
    if place is None:
        _refuse_demanded(self, tool_input)
        return _run(self, tool_input, *args, **given)
    return wait_for(_call(self, tool_input, *args, **given), f"tool {self.name}")


def _name_inputs(tool: Any, tool_input: Any) -> dict[str, Any]:
    """Return the input of a tool by the names of its parameters; a text is the input of the first one."""
    if isinstance(tool_input, dict):
        return tool_input  # pyright: ignore[reportUnknownVariableType]
    names: Any = tool_spec(tool).input_schema.get("properties") or ["input"]
    return {next(iter(names)): tool_input}


def _refuse_demanded(tool: Any, tool_input: Any) -> None:
    """Refuse a call in a step, if the graph that has the step demands an approval of it."""
    if is_demanded(tool.name, _name_inputs(tool, tool_input)):
        refuse_in_step("the graph", f"calls {tool.name}, which needs approval,")


async def _decide(place: NodeScope, tool: Any, given: dict[str, Any], turn: str) -> Ok[Any] | Refusal:
    """Return the input with which a tool may be called, or why it must not be; ask a person if the settings say so.
    ``turn`` is the key of the turn that has requested the call."""
    own: dict[str, Any] = tool._filter_injected_args(given)
    arguments = show_value(own)
    node = place.loop.place("approval", above=child(place.path, encode_id(tool.name)))
    call = ProposedCall(tool_spec(tool), arguments, f"graph {place.settings.graph}", place.path, turn)
    match await decide(place.loop, node, "ask", call, place.settings.approve):
        case Refusal() as refusal:
            return refusal
        case Ok(allowed) if allowed is not arguments and isinstance(allowed, dict):
            return Ok({**{name: one for name, one in given.items() if name not in own}, **allowed})
        case Ok():
            return Ok(given)


class _Recorded:
    """The methods that differ in the class of a tool whose body is a step."""

    __slots__ = ()

    async def _arun(self, *args: Any, config: RunnableConfig, **given: Any) -> Any:
        place = current_place()
        assert place is not None, "only a durable graph calls it"
        tool: Any = self.__dict__["recorded_tool"]
        own = tool._filter_injected_args(given)
        shown_args = show_value({**own, **({"args": list(args)} if args else {})})
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


def _with_step_body(tool: Any) -> Any:
    """Return the tool with a body that is a step."""
    kind = type(tool)
    if kind not in _KINDS:
        _KINDS[kind] = type(kind.__name__, (_Recorded, kind), {"__module__": kind.__module__})
    found = tool.model_copy()
    object.__setattr__(found, "__class__", _KINDS[kind])
    found.__dict__["recorded_tool"] = tool
    return found
