"""The capability that makes an agent durable: its requests to models, tool calls and approvals are effects of the run.

It is an engine of the SDK's durable execution. Outside of a workflow it changes nothing.
"""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from weakref import WeakValueDictionary

from pydantic_ai.agent import AbstractAgent, EventStreamHandler, WrapperAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperation,
    ModelRequestId,
    conversation_id_from_run_id,
    replay_scope,
)
from pydantic_ai.exceptions import ApprovalRequired, UserError
from pydantic_ai.messages import ModelResponseStreamEvent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models import Model, ModelResolutionContext, infer_model
from pydantic_ai.output import OutputDataT
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.run import AgentRun as SdkRun
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.toolsets import (
    AbstractToolset,
    DynamicToolset,
    ExternalToolset,
    FunctionToolset,
    ToolsetTool,
    WrapperToolset,
)
from pydantic_ai.toolsets.function import FunctionToolsetTool

from callboard.adapters.pydantic_ai.approvals import ask_early, ask_with, decide_all, withdraw
from callboard.adapters.pydantic_ai.operations import ON_TEXT, PLACE, AgentPosition, AgentRun, OperationBackend, path_at
from callboard.bus.paths import child, encode_id
from callboard.languages.python.approvals import Approve, Approving, approvals_of, needs_decision
from callboard.languages.python.in_steps import current_step, is_demanded, refuse_in_step
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.model_turns import ModelTurns, OnText
from callboard.languages.python.runs import RunOnly, uuid4


def _find_mcp_toolsets() -> tuple[type, ...]:
    """Return the SDK's classes of MCP servers; none if its extra for MCP is not installed."""
    try:
        from pydantic_ai.mcp import MCPToolset
    except ImportError:
        return ()
    return (MCPToolset,)


MCP = _find_mcp_toolsets()
"""Imported with this module, because that takes seconds, for which a run would hold the worker."""

NAME = "agent"
"""The name of an agent that has none."""

THREADS_MAX = 64
"""How many plain functions of durable agents are called on threads at the same time, in one process."""

THREADS = ThreadPoolExecutor(THREADS_MAX, "agent-tool")
"""Calls the plain functions of agents in the worker. A workflow's loop calls them itself."""


@dataclass(init=False)
class Durable(BaseDurabilityCapability[AgentDepsT]):
    """Makes an agent durable in workflows: ``Agent(…, capabilities=[Durable(approve=["refund"])])``.

    In a workflow each request to a model is a turn of the run, and each call of a tool a step; both are recorded and
    never repeated. Elsewhere the agent is as without it.

    ``approve`` are the tools whose calls wait for the decision of a person, as for `callboard.Agent`. ``inline`` are
    tools that run in the workflow itself, because they run agents whose own turns are to be recorded; a tool whose code
    names a durable agent does so anyway. ``event_stream_handler`` takes the events of the agent's streams in the
    worker, once. With ``stream`` people who watch see each answer as it comes. ``models`` are further models by name;
    ``name`` replaces the agent's name in paths.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Callboard",
        durable_unit_noun="step",
        durable_container_noun="workflow",
        codec=JSON_CODEC,
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-never",
            "dynamic": "enter-never",
        },
        tool_config_key="callboard",
    )

    def __init__(
        self,
        *,
        approve: Approving = (),
        inline: Collection[str] = (),
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        stream: bool = False,
        models: Mapping[str, Model] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self.approve: Sequence[Approve] = approvals_of(approve)
        self.inline = frozenset(inline)
        self.stream = stream
        self._operations = OperationBackend(self)
        self._instances: WeakValueDictionary[str, Model] = WeakValueDictionary()

    # -- the agent ----------------------------------------------------------------------------------------------------

    def for_agent(self, agent: AbstractAgent[AgentDepsT, Any]) -> AbstractCapability[AgentDepsT]:
        named = copy(self)
        named.name = self.name or agent.name or NAME
        return super(Durable, named).for_agent(agent)

    def _bind_to_agent(self, agent: AbstractAgent[AgentDepsT, Any]) -> None:
        """Bind what belongs to one agent. Its toolsets are replaced in each run, since runs may add some."""
        self._operations = OperationBackend(self)
        self._instances = WeakValueDictionary()

    def _bind_models(self, agent: AbstractAgent[AgentDepsT, Any]) -> None:
        if agent.model is not None:
            super()._bind_models(agent)
            return
        # Its runs name their models.
        self._default_model_id = None
        self._models_by_id = dict(self._extra_models)

    def get_durable_operation_backend(self) -> OperationBackend:
        return self._operations

    @property
    def in_durable_context(self) -> bool:
        return current_loop() is not None

    # -- models -------------------------------------------------------------------------------------------------------

    async def resolve_model_id(self, ctx: ModelResolutionContext[AgentDepsT], *, model_id: str) -> Model | None:
        found = await super().resolve_model_id(ctx, model_id=model_id) or self._instances.get(model_id)
        if found is not None or current_loop() is None:
            return found
        try:
            return infer_model(model_id)
        except UserError:
            # Without a key. In a workflow the model only says what its requests are like, also in a replay elsewhere,
            # and where a script answers. The model that makes the request is another one, in the worker.
            return infer_model(model_id, lambda provider: infer_provider_class(provider)(api_key="none"))  # pyright: ignore

    def _find_model_id(self, model: Model) -> str | None:
        """Return the name of a model; an instance that only a run has is found by it in this process."""
        try:
            return super()._find_model_id(model)
        except UserError:
            key = f"instance-{id(model)}"
            self._instances[key] = model
            return key

    def _registered_model_id(self, model: Model) -> tuple[bool, str | None]:
        key = f"instance-{id(model)}"
        if self._instances.get(key) is model:
            return True, key
        return super()._registered_model_id(model)

    def model_of(self, model_id: str | None, ctx: RunContext[Any]) -> Model:
        """Return the model of a request, as the workflow knows it."""
        found = self._models_by_id.get(model_id or "default") or self._instances.get(model_id or "")
        if found is not None:
            return found
        assert isinstance(ctx.model, Model)
        return ctx.model

    # -- runs ---------------------------------------------------------------------------------------------------------

    def get_default_run_id(self) -> str | None:
        return str(uuid4()) if self.in_durable_context else None

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    def get_run_clock(self) -> Callable[[], datetime] | None:
        loop = current_loop()
        return None if loop is None else loop.stage.now

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        loop = current_loop()
        if loop is None:
            return await super().wrap_run(ctx, handler=handler)
        begun: AgentRun | None = loop.locals.get(_key(ctx))
        assert begun is not None, "toolsets are prepared before"
        PLACE.set(AgentPosition(begun.path, begun.task, PLACE.get()))
        try:
            with (
                AbstractAgent.using_thread_executor(THREADS),
                replay_scope(is_replaying=lambda: _is_replaying(loop)),
            ):
                return await super().wrap_run(ctx, handler=handler)
        finally:
            run: AgentRun | None = loop.locals.pop(_key(ctx), None)
            if run is not None:
                run.sessions.release()
                withdraw(run)

    def begin(self, ctx: RunContext[Any], task: str, source: str) -> None:
        """Note a run of the agent in the workflow, which the task with the path ``task`` has begun."""
        loop = current_loop()
        if loop is not None and _key(ctx) not in loop.locals:
            turns = ModelTurns(self.name, source, above=path_at(task))
            loop.locals[_key(ctx)] = AgentRun(loop, self.name, turns, source, task)

    def run_of(self, ctx: RunContext[Any]) -> AgentRun:
        """Return the run of the agent in the workflow."""
        loop = current_loop()
        if loop is None:
            raise RunOnly(f"agent {self.name} is not in a workflow")
        return loop.locals[_key(ctx)]

    def is_inline(self, tool: str) -> bool:
        return tool in self.inline

    def runs_agents(self, tool: object) -> bool:
        """Whether the code of a function tool names a durable agent: such a tool runs in the workflow, where the
        agent's turns and calls are effects."""
        function: Any = None
        if isinstance(tool, FunctionToolsetTool):
            function = getattr(tool.call_func, "__self__", None)
            function = getattr(function, "function", None) or tool.call_func
        return function is not None and any(_is_durable(one) for one in _named_by(function))

    def handler_of(self, operation: DurableOperation[Any, Any, Any]) -> Callable[[Any], Awaitable[Any]]:
        """Return what carries out an operation in the worker."""
        if self.stream and isinstance(operation.operation_id, ModelRequestId):
            return self._model_request_stream_operation
        return operation.handler

    # -- tools --------------------------------------------------------------------------------------------------------

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT] | None:
        loop = current_loop()
        if loop is None:
            return None if current_step() is None else _CallsInStep(toolset, self)
        # The task is still that of the caller.
        return _Calls(toolset.visit_and_replace(self._make_durable), self, loop.path(), loop.where())

    def _make_durable(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Return a toolset of the run with its calls as steps; unchanged if it makes no calls."""
        if isinstance(toolset, DynamicToolset) and not toolset.per_run_step:
            # The toolset that the function returns is opened and closed in the worker, by the step that needs it.
            toolset = DynamicToolset(toolset.toolset_func, per_run_step=True, id=toolset.id)
        self._operations.server = toolset if isinstance(toolset, MCP) else None
        try:
            return self._wrap_leaf_toolset(toolset) or toolset
        finally:
            self._operations.server = None

    def _wrap_other_leaf_toolset(self, ts: AbstractToolset[AgentDepsT]) -> WrapperToolset[AgentDepsT] | None:
        if isinstance(ts, ExternalToolset | FunctionToolset) or type(ts).__module__.startswith("pydantic_ai.toolsets."):
            return None
        id = ts.id or type(ts).__name__
        own: list[AbstractToolset[AgentDepsT]] = []

        async def make(ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
            # This run's own, with the state that it keeps.
            if not own:
                own.append(await ts.for_run(ctx))
            return own[0]

        return self._build_dynamic_toolset(DynamicToolset(make, id=id))

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        loop = current_loop()
        if loop is None and requests.approvals and _decides_alone(ctx):
            self.refuse_in_step(", ".join(one.tool_name for one in requests.approvals))
        if loop is None or not requests.approvals:
            return None
        return requests.build_results(approvals=await decide_all(self.run_of(ctx), ctx, requests, self.approve))

    def refuse_in_step(self, tool: str) -> None:
        """Refuse a call that needs approval, if the agent works in a step."""
        refuse_in_step(f"agent {self.name}", f"calls {tool}, which needs approval,")

    # -- streams ------------------------------------------------------------------------------------------------------

    def _model_stream_event_handler(self) -> EventStreamHandler[AgentDepsT] | None:
        """Return the consumer of a request's stream in the worker, for people who watch and for the handler."""
        handler, on_text = super()._model_stream_event_handler(), ON_TEXT.get()
        if on_text is None:
            return handler

        async def consume(ctx: RunContext[AgentDepsT], stream: AsyncIterable[Any]) -> None:
            told = _tell(stream, on_text)
            if handler is not None:
                await handler(ctx, told)
            async for _ in told:
                pass

        return consume


async def _tell(stream: AsyncIterable[ModelResponseStreamEvent], on_text: OnText) -> AsyncIterator[Any]:
    async for event in stream:
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                if text:
                    on_text(text)
            case _:
                pass
        yield event


def _decides_alone(ctx: RunContext[Any]) -> bool:
    """Whether no other capability of an agent decides about the calls that its tools defer."""
    found: list[AbstractCapability[Any]] = []
    if ctx.root_capability is not None:
        ctx.root_capability.apply(found.append)
    usual = AbstractCapability.handle_deferred_tool_calls
    return all(isinstance(one, Durable) or type(one).handle_deferred_tool_calls is usual for one in found)


def _key(ctx: RunContext[Any]) -> tuple[str, str | None]:
    """Return the key under which a workflow's loop keeps a run of an agent."""
    return "pydantic_ai", ctx.run_id


def _is_replaying(loop: WorkflowLoop) -> bool:
    return loop.is_running() and loop.stage.replaying


@dataclass
class _Calls(WrapperToolset[AgentDepsT]):
    """All tools of a durable run: calls that need consent are deferred, and agents in them know their place."""

    durability: Durable[AgentDepsT]
    task: str
    source: str

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        self.durability.begin(ctx, self.task, self.source)
        return await super().for_run(ctx)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        run, approve = self.durability.run_of(ctx), self.durability.approve
        early = not ctx.tool_call_approved and _decides_alone(ctx)
        if early:
            ask_with(run, ctx, approve)
        if not ctx.tool_call_approved and needs_decision(approve, name, tool_args):
            ask_early(run, ctx, approve)
            raise ApprovalRequired
        token = PLACE.set(AgentPosition(child(run.path, encode_id(name))))
        try:
            return await super().call_tool(name, tool_args, ctx, tool)
        except ApprovalRequired:
            if early:
                ask_early(run, ctx, approve)
            raise
        finally:
            PLACE.reset(token)


@dataclass
class _CallsInStep(WrapperToolset[AgentDepsT]):
    """All tools of an agent in a step: those that need approval are not called."""

    durability: Durable[AgentDepsT]

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        if needs_decision(self.durability.approve, name, tool_args) or is_demanded(name, tool_args):
            self.durability.refuse_in_step(name)
        return await super().call_tool(name, tool_args, ctx, tool)


class DurableAgent(WrapperAgent[AgentDepsT, OutputDataT]):
    """An agent that exists already, made durable; see `durable`."""

    def __init__(self, wrapped: AbstractAgent[AgentDepsT, OutputDataT], durability: Durable[AgentDepsT]) -> None:
        super().__init__(wrapped)
        self.durability = durability

    @asynccontextmanager
    async def iter(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, user_prompt: Any = None, *, capabilities: Sequence[Any] | None = None, **more: Any
    ) -> AsyncGenerator[SdkRun[AgentDepsT, Any]]:
        async with self.wrapped.iter(user_prompt, capabilities=[*(capabilities or ()), self.durability], **more) as run:
            yield run


def durable(agent: AbstractAgent[AgentDepsT, OutputDataT], **settings: Any) -> DurableAgent[AgentDepsT, OutputDataT]:
    """Return an agent that runs as the given one, and durably in workflows; ``settings`` are those of `Durable`.

    The given agent is not changed.
    """
    return DurableAgent(agent, Durable(**settings))


# -- tools that run agents ------------------------------------------------------------------------------------------


def _is_durable(value: object) -> bool:
    """Whether a value is a durable agent, or a collection that has one."""
    if isinstance(value, Mapping):
        return any(map(_is_durable, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_durable, value))
    if not isinstance(value, AbstractAgent):
        return False
    return isinstance(value, DurableAgent) or Durable.from_agent(value) is not None


def _named_by(function: Any) -> list[Any]:
    """Return the values of global names and of variables of enclosing functions that a function's code uses."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_set(cell)]
    names = {name for one in _codes(code) for name in one.co_names}
    return [*cells, *(function.__globals__[name] for name in sorted(names) if name in function.__globals__)]


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


def _codes(code: Any) -> list[Any]:
    inner = [one for one in code.co_consts if inspect.iscode(one)]
    return [code, *(found for one in inner for found in _codes(one))]
