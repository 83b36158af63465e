"""The model of a run of the SDK in a workflow: each of its requests is a model turn of the run.

The agent's own model makes the request, in the worker. In a workflow nothing but the recorded response is seen of it,
also of one that is streamed: while it comes, its text goes to people who watch the run.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar, copy_context
from typing import Any

from agents import (
    Agent,
    AgentOutputSchemaBase,
    Handoff,
    Model,
    ModelBehaviorError,
    ModelProvider,
    ModelResponse,
    ModelSettings,
    ModelTracing,
    Tool,
    TResponseInputItem,
)
from agents.items import TResponseStreamEvent
from agents.models import get_default_model, get_default_model_settings
from openai.types.responses import ResponseCompletedEvent, ResponseOutputItemDoneEvent, ResponseTextDeltaEvent
from pydantic import TypeAdapter

from callboard.adapters.openai_agents.conversations import continues, in_context, messages_of, specs_of
from callboard.adapters.openai_agents.responses import events_of, from_completed, reply_of, response_of
from callboard.adapters.openai_agents.tools import PLACE, Calls, approvals_here, hosted_tools, make_durable
from callboard.bus.effects import ModelRequest
from callboard.bus.paths import child, encode_id
from callboard.bus.work import TurnReply
from callboard.languages.python.approvals import Approve, check_hosted_tools
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.model_turns import ModelTurns, OnText
from callboard.languages.python.values import plain_json
from callboard.lib.json_types import JSON

AGENT: ContextVar[Agent[Any] | None] = ContextVar("agent", default=None)
"""The agent whose model is asked next in this task. The SDK does not pass it to a model."""

_MAPPED = {"temperature", "max_tokens"}
"""Settings that a recorded request has as separate members."""

_HIDDEN = {"extra_headers", "extra_query", "retry", "timeout"}
"""Settings that are not recorded: they do not change the answer, or may contain credentials."""

_SETTINGS: TypeAdapter[ModelSettings] = TypeAdapter(ModelSettings)


class _Conversation:
    """The turns of one agent in one run of the SDK, and the items of its conversation so far."""

    def __init__(self, turns: ModelTurns) -> None:
        self.turns = turns
        self.items: list[JSON] = []


class DurableModel(Model):
    """The model of a run of the SDK. ``model`` and ``provider`` are those of its configuration; ``base`` is the path at
    which its agents are recorded, and ``source`` the place in the code."""

    def __init__(
        self,
        model: str | Model | None,
        provider: ModelProvider,
        approvals: Sequence[Approve],
        base: str = "",
        source: str = "",
        on_event: Callable[[TResponseStreamEvent], object] | None = None,
        inline: Collection[str] = (),
    ) -> None:
        self._model = model
        self._provider = provider
        self._approvals = approvals
        self._base = base
        self._source = source
        self._on_event = on_event
        self._inline = inline

    async def get_response(self, *given: Any, **more: Any) -> ModelResponse:
        async def ask(model: Model, _on_text: OnText, *given: Any, **more: Any) -> ModelResponse:
            return await model.get_response(*given, **more)

        return await self._perform(ask, *given, **more)

    async def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[TResponseStreamEvent]:
        async def ask(model: Model, on_text: OnText, *given: Any, **more: Any) -> ModelResponse:
            return await self._listen(model.stream_response(*given, **more), on_text)

        response = await self._perform(ask, *given, **more)
        for event in events_of(response, self._name_of(self._resolve(AGENT.get()))):
            yield event

    async def _perform(
        self,
        ask: Callable[..., Awaitable[ModelResponse]],
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        **more: Any,
    ) -> ModelResponse:
        """Have the worker ask the model, and return the recorded response; make the ``tools`` durable."""
        loop = current_loop()
        assert loop is not None, "the configuration has this model in workflows only"
        agent = AGENT.get()
        name = agent.name if agent is not None else "agent"
        approvals = approvals_here(self._approvals)
        check_hosted_tools(approvals, f"agent {name}", hosted_tools(tools, approvals))
        own_tools = list(tools)
        model = self._resolve(agent)
        settings = self._settings(agent, model, model_settings)
        structured = output_schema is not None and not output_schema.is_plain_text()
        spoken: list[TResponseInputItem] = [{"role": "user", "content": input}] if isinstance(input, str) else input
        items: list[JSON] = [plain_json(item) for item in spoken]
        named = {**_SETTINGS.dump_python(settings, mode="json", exclude=_HIDDEN), **more}
        model_name = self._name_of(model)
        request = ModelRequest(
            model=model_name,
            system=system_instructions or "",
            messages=messages_of(spoken),
            tools=specs_of(tools, handoffs),
            schema=plain_json(output_schema.json_schema()) if structured and output_schema is not None else None,
            max_output_tokens=settings.max_tokens,
            temperature=settings.temperature,
            parameters={
                key: plain_json(value) for key, value in named.items() if key not in _MAPPED and value is not None
            },
        )
        variables = copy_context()

        async def call(on_text: OnText) -> TurnReply:
            async def perform() -> ModelResponse:
                asked = self._provider.get_model(model) if not isinstance(model, Model) else model
                sent = (system_instructions, input, settings, own_tools, output_schema, handoffs, tracing)
                return await ask(asked, on_text, *sent, **more)

            response = await in_context(variables, perform)
            return reply_of(response, structured=structured, provider=model_name.partition(":")[0])

        conversation = self._conversation(loop, name, items)
        result = await conversation.turns.perform(request, call)
        response = response_of(result, result.native)
        conversation.items = [*items, *(plain_json(item) for item in response.to_input_items())]
        turns = conversation.turns
        calls = Calls(turns.node.path, self._source, name, turns.latest, approvals, self._inline)
        make_durable(tools, calls)
        return response

    def _conversation(self, loop: WorkflowLoop, name: str, items: list[JSON]) -> _Conversation:
        """Return the conversation that a request continues, or a new one."""
        above = PLACE.get() or self._base
        path = child(above, encode_id(name))
        kept: dict[str, list[_Conversation]] = loop.locals.setdefault("openai_agents", {})
        known = kept.setdefault(path, [])
        found = next((one for one in known if continues(items, one.items)), None)
        if found is None:
            found = _Conversation(ModelTurns(name, self._source, above=above))
            known.append(found)
        # Until this turn has ended, no other request continues the conversation.
        found.items = [None, *items]
        return found

    def _resolve(self, agent: Agent[Any] | None) -> str | Model | None:
        """Return the model, or the name of the model, as the SDK selects it for an agent."""
        own = agent.model if agent is not None else None
        return self._model if self._model is not None else own

    def _name_of(self, model: str | Model | None) -> str:
        """Return the name of a model as in the table of prices: ``provider:name``."""
        if isinstance(model, Model):
            own = getattr(model, "model", None)
            model = own if isinstance(own, str) else f"sdk/{type(model).__name__}"
        name = (model or get_default_model()).removeprefix("litellm/").removeprefix("any-llm/")
        provider, slash, rest = name.partition("/")
        return f"{provider}:{rest}" if slash else f"openai:{name}"

    def _settings(self, agent: Agent[Any] | None, model: str | Model | None, settings: ModelSettings) -> ModelSettings:
        """Return the settings of a request, with the defaults that the SDK has for a model that is named."""
        if agent is None or isinstance(model, Model):
            return settings
        implicit = ModelSettings()
        if isinstance(agent.model, str | None):
            implicit = get_default_model_settings(*([agent.model] if agent.model is not None else []))
        if agent.model_settings != implicit:
            return settings
        return get_default_model_settings(*([model] if model is not None else [])).resolve(settings)

    async def _listen(self, stream: AsyncIterator[TResponseStreamEvent], on_text: OnText) -> ModelResponse:
        """Read a stream to its end, and return its response; its texts go to ``on_text``."""
        items: list[Any] = []
        async for event in stream:
            if self._on_event is not None:
                self._on_event(event)
            match event:
                case ResponseTextDeltaEvent(delta=piece):
                    on_text(piece)
                case ResponseOutputItemDoneEvent(item=item):
                    items.append(item)
                case ResponseCompletedEvent(response=response):
                    return from_completed(response, items)
                case _ if event.type in ("response.failed", "response.incomplete", "error"):
                    raise ModelBehaviorError(f"the response ended with {event.type}: {event.to_json()}")
                case _:
                    pass
        raise ModelBehaviorError("the stream ended without a response")
