"""Operations: the requests and calls of an agent of the SDK. Each is an effect of the run.

The SDK declares the operations of a durable agent, and binds them to an engine; `OperationBackend` is that of
Callboard. A request to a model is a turn of the run. Everything else is a step: a call of a tool, the check of its
arguments, the list of a server's tools, an event for a stream handler.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context, ContextVar, copy_context
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct, field
from pydantic import TypeAdapter
from pydantic_ai.durable_exec import (
    BoundDurableOperation,
    CapabilityOperationId,
    DurableOperation,
    DurableOperationBackend,
    EventStreamHandlerId,
    ModelCompactMessagesId,
    ModelCompactMessagesParams,
    ModelRequestId,
    ModelRequestParams,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
    durable_unit_scope,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import RunUsage
from pydantic_core import to_jsonable_python

from callboard.adapters.pydantic_ai import limits
from callboard.adapters.pydantic_ai.messages import name_of, reply_of, response_of, to_model_request
from callboard.adapters.pydantic_ai.model_errors import make_error, note
from callboard.adapters.pydantic_ai.sessions import AgentSessions
from callboard.adapters.shared_objects import Changes, SharedObject
from callboard.bus.effects import ToolSpec
from callboard.bus.events import ModelResult
from callboard.bus.work import WORK, TurnReply, Work
from callboard.languages.language import Failed, Node, Ok
from callboard.languages.python.approvals import Approve, check_hosted_tools
from callboard.languages.python.errors import ModelFailed, StepFailed
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.model_turns import ModelTurns, OnText
from callboard.languages.python.raised import encode_error, raised_in
from callboard.languages.python.steps import BACKOFF_S, Attempts, seconds
from callboard.languages.python.values import order_sets, plain_json
from callboard.lib.json_types import JSON

T = TypeVar("T")

TOOL_SEARCH = "tool_search"
"""The tool by which a model finds other tools. It is exempt from approval."""

METADATA = "callboard"
"""The key of a tool's settings in its metadata."""


class AgentPosition(Struct, frozen=True):
    """Where agents run at present: ``path`` is that of a tool call in the workflow, or of the run of another agent.

    The SDK performs the code of an agent, such as its output functions, in separate tasks. ``task`` is the path of
    the task that has begun the run; in that task, agents belong to the workflow or to the ``outer`` place.
    """

    path: str
    task: str | None = None
    outer: "AgentPosition | None" = None


PLACE: ContextVar[AgentPosition | None] = ContextVar("place", default=None)


def path_at(task: str) -> str:
    """Return the path below which an agent runs that is begun in the task with this path."""
    place = PLACE.get()
    while place is not None and place.task == task:
        place = place.outer
    return task if place is None else place.path


ON_TEXT: ContextVar[OnText | None] = ContextVar("on_text", default=None)
"""What takes the text of the model request that is being made."""

USAGE: TypeAdapter[RunUsage] = TypeAdapter(RunUsage)

WITH_USAGE = "with_usage"
"""The kind of a recorded result of a step that has added to the usage of the run, or has changed its dependencies."""


class ToolSettings(Struct, frozen=True):
    """The settings of a tool's step: ``retries``, ``backoff`` and ``timeout``, as those of `callboard.step`."""

    retries: int = 0
    backoff_s: float = BACKOFF_S
    timeout_s: float | None = None


DEFAULTS = ToolSettings()


class AgentRun(Struct):
    """One run of an agent in a workflow: its turns, and the path below which its tools are called."""

    loop: WorkflowLoop
    agent: str
    turns: ModelTurns
    source: str
    task: str
    """The path of the task that has begun it."""
    tools: list[ToolSpec] = field(default_factory=list[ToolSpec])
    """The tools of its last request."""
    sessions: AgentSessions = field(default_factory=AgentSessions)
    asked: dict[str, asyncio.Task[Any]] = field(default_factory=dict[str, asyncio.Task[Any]])
    """The decisions of persons that are waited for, by the ids of the calls."""

    @property
    def path(self) -> str:
        return self.turns.node.path

    def place(self, name: str) -> Node:
        """Return the node of the next effect of this name."""
        return self.loop.place(name, self.source, above=self.path)


class Engine(Protocol):
    """What operations need of the capability."""

    approve: Sequence[Approve]

    def run_of(self, ctx: RunContext[Any]) -> AgentRun: ...
    def model_of(self, model_id: str | None, ctx: RunContext[Any]) -> Model: ...
    def is_inline(self, tool: str) -> bool: ...
    def runs_agents(self, tool: object) -> bool: ...
    def handler_of(self, operation: DurableOperation[Any, Any, Any]) -> Callable[[Any], Awaitable[Any]]: ...


class OperationBackend(DurableOperationBackend[ToolSettings]):
    """The engine of the SDK's durable operations."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.server: AbstractToolset[Any] | None = None
        """The server whose operations are being bound."""

    def bind(self, operation: DurableOperation[Any, Any, Any]) -> "AgentOperation":
        return AgentOperation(operation, self._engine, self.server)

    def config_for_tool(
        self, operation: DurableOperation[Any, Any, Any], *, tool: object | None, tool_name: str
    ) -> ToolSettings | Literal[False]:
        """Return the settings of a tool; False, if it runs in the workflow itself."""
        definition = getattr(tool, "tool_def", None)
        given: Any = (definition.metadata or {}).get(METADATA) if definition is not None else None
        if given is False or self._engine.is_inline(tool_name) or (given is None and self._engine.runs_agents(tool)):
            return False
        return read_settings(tool_name, given)

    def registrations(self) -> Sequence[Callable[..., object]]:
        return ()


def read_settings(tool: str, given: Any) -> ToolSettings:
    """Read the settings in a tool's metadata.

    :raises UserError: if they are not valid
    """
    if given is None or given is True:
        return DEFAULTS
    known = {"retries", "backoff", "timeout"}
    if not isinstance(given, dict) or not given.keys() <= known:
        raise UserError(
            f"metadata {METADATA!r} of tool {tool!r} is {given!r}; expected False, or an object with "
            f"{', '.join(sorted(known))}"
        )
    try:
        timeout = given.get("timeout")
        return ToolSettings(
            int(given.get("retries", 0)),
            seconds(given.get("backoff", BACKOFF_S), "backoff"),
            None if timeout is None else seconds(timeout, "timeout"),
        )
    except (ValueError, TypeError) as error:
        raise UserError(f"metadata {METADATA!r} of tool {tool!r}: {error}") from error


class AgentOperation(BoundDurableOperation[Any, Any, Any]):
    """One operation of a durable agent. In a workflow a call of it is an effect; elsewhere it is made directly."""

    def __init__(
        self, operation: DurableOperation[Any, Any, Any], engine: Engine, server: AbstractToolset[Any] | None = None
    ) -> None:
        self._operation = operation
        self._engine = engine
        self._server = server

    @property
    def operation(self) -> DurableOperation[Any, Any, Any]:
        return self._operation

    async def __call__(self, params: Any, *, config: object | None = None) -> Any:
        loop = current_loop()
        if loop is None:
            return await self._operation.handler(params)
        match self._operation.operation_id, params:
            case ModelRequestId(), ModelRequestParams():
                return await self._ask_model(
                    params,
                    params.messages,
                    params.model_settings,
                    params.model_request_parameters,
                )
            case ModelCompactMessagesId(), ModelCompactMessagesParams(request_context=given):
                return await self._ask_model(
                    params, given.messages, given.model_settings, given.model_request_parameters
                )
            case _:
                return await self._step(loop, params, config if isinstance(config, ToolSettings) else DEFAULTS)

    # -- model requests -----------------------------------------------------------------------------------------------

    async def _ask_model(
        self,
        params: Any,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make a request to a model as a turn of the run.

        :raises Exception: the SDK's exception, or `ModelFailed`, if the model does not answer
        """
        run = self._engine.run_of(params.run_context)
        hosted = [one.kind for one in parameters.native_tools if one.kind != TOOL_SEARCH]
        check_hosted_tools(self._engine.approve, f"agent {run.agent}", hosted)
        model = self._engine.model_of(params.model_id, params.run_context)
        wanted = to_model_request(name_of(model), messages, settings, parameters)
        run.tools = wanted.tools
        params = _without_retries(params, model)
        variables = copy_context()

        async def ask(on_text: OnText) -> TurnReply:
            ON_TEXT.set(on_text)
            async with limits.request_slot(params.run_context.agent):
                with durable_unit_scope():
                    return reply_of(await self._engine.handler_of(self._operation)(params))

        def call(on_text: OnText) -> Coroutine[Any, Any, TurnReply]:
            return _in_context(variables, lambda: ask(on_text))

        try:
            result = await run.turns.perform(wanted, call, note=note)
        except ModelFailed as failed:
            error = make_error(failed)
            if error is failed:
                raise
            raise error from failed
        return self._read(result, run, parameters)

    def _read(self, result: ModelResult, run: AgentRun, parameters: ModelRequestParameters) -> ModelResponse:
        return response_of(result, parameters, run.loop.stage.now(), f"{run.agent}_{run.turns.count}")

    # -- steps --------------------------------------------------------------------------------------------------------

    async def _step(self, loop: WorkflowLoop, params: Any, settings: ToolSettings) -> Any:
        ctx: RunContext[Any] = params.run_context if hasattr(params, "run_context") else params.ctx
        run = self._engine.run_of(ctx)
        name, arguments = self._describe(params)
        node = run.place(name)
        variables = copy_context()
        request: JSON = {"step": name, "arguments": arguments}
        # Only tools may change the dependencies of the run.
        shared = SharedObject(ctx.deps) if isinstance(self._operation.operation_id, ToolsetCallToolId) else None

        async def perform() -> JSON:
            # A tool that adds to the usage of the run adds to a copy, and the difference is recorded.
            before, own = deepcopy(ctx.usage), deepcopy(ctx.usage)
            borrowed = ctx.deps if shared is None else shared.borrow()
            mine = replace(ctx, usage=own, deps=borrowed)
            member = "run_context" if hasattr(params, "run_context") else "ctx"
            with durable_unit_scope():
                if self._server is not None:
                    await run.sessions.of(self._server).open()
                value = await self._operation.handler(replace(params, **{member: mine}))
                payload = self._operation.result_codec.dump(value)
            spent = own - before
            used = USAGE.dump_python(spent, mode="json", exclude_defaults=True) if spent.has_values() else {}
            changes: Changes = {} if shared is None else shared.changes(borrowed)
            if not used and not changes:
                return payload
            more: dict[str, JSON] = {"deps": changes} if changes else {}
            return {"kind": WITH_USAGE, "value": payload, "usage": used, **more}

        def call() -> Coroutine[Any, Any, JSON]:
            return _in_context(variables, perform)

        def effect(slot: str, attempt: int) -> Coroutine[Any, Any, Ok[JSON] | Failed]:
            work = Work(
                name=name,
                call=call,
                is_coroutine=True,
                encode=plain_json,
                retryable=lambda error: not isinstance(error, UserError),
                first=node.key("step"),
                attempt=attempt,
                timeout_s=settings.timeout_s,
                note=encode_error,
            )
            return node.call(slot, "step", request, work=work)

        try:
            recorded: Any = await Attempts(settings.retries, settings.backoff_s).make(loop, node, effect)
        except StepFailed as failed:
            raise raised_in(failed) from failed.__cause__
        if isinstance(recorded, dict) and recorded.get("kind") == WITH_USAGE:
            ctx.usage.incr(USAGE.validate_python(recorded["usage"]))
            if shared is not None:
                shared.apply(recorded.get("deps", {}))
            recorded = recorded["value"]
        return self._operation.result_codec.load(recorded)

    def _describe(self, params: Any) -> tuple[str, JSON]:
        """Return the name of a step, and the arguments that are recorded."""
        match self._operation.operation_id:
            case ToolsetCallToolId():
                return params.name, _plain(params.tool_args)
            case ToolsetValidateToolArgumentsId():
                return f"validate_{params.name}", _plain(params.tool_args)
            case ToolsetGetToolsId(toolset_id=id):
                return "list_tools", {"toolset": id or ""}
            case ToolsetGetInstructionsId(toolset_id=id):
                return "get_instructions", {"toolset": id or ""}
            case EventStreamHandlerId():
                return "event_stream_handler", {"event": params.event.event_kind}
            case CapabilityOperationId(capability_id=id, operation=operation):
                return operation, {"capability": id, **{key: _plain(one) for key, one in params.arguments.items()}}
            case other:
                return type(other).__name__.removesuffix("Id"), {}


def _plain(value: Any) -> JSON:
    """Return the JSON of arguments; values without a form in JSON are named by their type."""

    def name(one: Any) -> str:
        return f"<{type(one).__name__}>"

    return plain_json(to_jsonable_python(order_sets(value, name), fallback=name, bytes_mode="base64"))


def _without_retries(params: Any, model: Model) -> Any:
    """Return the parameters of a request with the SDK's retries off, if the model has any: the worker retries."""
    if not isinstance(params, ModelRequestParams) or not retries_by_client(model):
        return params
    settings: ModelSettings = {**(params.model_settings or ModelSettings()), "max_retries": 0}
    return replace(params, model_settings=settings)


def retries_by_client(model: Model) -> bool:
    """Whether the client of a model, or of one of its fallbacks, repeats failing requests."""
    systems = model.system.removeprefix("fallback:").split(",")
    return not {"openai", "anthropic", "groq"}.isdisjoint(systems)


async def _in_context(variables: Context, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run code of the agent on the worker's code loop, with the context variables of the workflow's task, by which the
    SDK knows the run, its spans and its settings."""
    context = variables.copy()
    context.run(WORK.set, WORK.get())
    return await asyncio.create_task(work(), context=context)
