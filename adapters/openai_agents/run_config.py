"""The configuration of a run of the SDK: the one line that makes an agent durable."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from agents import (
    HostedMCPTool,
    Model,
    ModelRetrySettings,
    ModelSettings,
    RunConfig,
    Tool,
)
from agents.items import TResponseStreamEvent
from agents.run import AgentRunner, CallModelData

from callboard.adapters.openai_agents.models import AGENT, DurableModel
from callboard.adapters.openai_agents.tools import hosted_tools
from callboard.languages.python.approvals import Approve, Approving, approvals_of, needs_decision
from callboard.languages.python.errors import NotInWorkflow
from callboard.languages.python.in_steps import current_step, refuse_in_step
from callboard.languages.python.loop import current_loop

AS_TOOL = ", or by an agent that is a tool (as_tool)"
"""A remedy for an agent in a step that needs a person."""

_NO_RETRIES = ModelSettings(retry=ModelRetrySettings(max_retries=0))


def callboard_run_config(
    *,
    approve: Approving = (),
    inline: Collection[str] = (),
    on_event: Callable[[TResponseStreamEvent], object] | None = None,
    **settings: Any,
) -> RunConfig:
    """Return a `RunConfig` with which an agent that runs in a workflow is durable.

    ``Runner.run(agent, input, run_config=callboard_run_config())``: each request of the agent to a model, and each call
    of a tool, is an effect of the run. ``approve`` says which calls wait for the decision of a person, as for
    `callboard.Agent`; those of tools with ``needs_approval`` do so too. The functions of the tools in ``inline`` run in
    the workflow, because they run other agents whose own turns and calls are to be recorded. ``on_event`` takes each
    event of a streamed response as it comes, in the worker; it is not called in a replay. ``settings`` are those of
    `RunConfig`. Outside of a workflow the configuration is one with these settings.

    :raises TypeError: if `RunConfig` has no such setting
    """
    loop = current_loop()
    config = CallboardRunConfig(**settings)
    config.approvals = approvals_of(approve)
    config.inline = frozenset(inline)
    config.on_event = on_event
    if loop is not None:
        config.base = loop.path()
        config.source = loop.where()
    return config


@dataclass
class CallboardRunConfig(RunConfig):
    """A `RunConfig` that differs in workflows: it has a durable model, no tracing, and no retries of the SDK. Copies
    that the SDK or a user makes by `dataclasses.replace` have its settings too."""

    approvals: Sequence[Approve] = ()
    inline: Collection[str] = ()
    on_event: Callable[[TResponseStreamEvent], object] | None = None
    base: str = ""
    source: str = ""

    @property
    def model(self) -> str | Model | None:
        given = self._model
        if current_loop() is None or isinstance(given, DurableModel):
            return given
        return DurableModel(
            given, self.model_provider, self.approvals, self.base, self.source, self.on_event, self.inline
        )

    @model.setter
    def model(self, value: str | Model | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._model = value

    @property
    def model_settings(self) -> ModelSettings | None:
        given = self._model_settings
        if current_loop() is None:
            return given
        return _NO_RETRIES if given is None else given.resolve(_NO_RETRIES)

    @model_settings.setter
    def model_settings(self, value: ModelSettings | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._model_settings = value

    @property
    def tracing_disabled(self) -> bool:
        return self._tracing_disabled or current_loop() is not None

    @tracing_disabled.setter
    def tracing_disabled(self, value: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._tracing_disabled = value

    @property
    def call_model_input_filter(self) -> Any:
        if current_loop() is not None:
            return self._note_agent
        return self._filter if current_step() is None else self._check_tools

    @call_model_input_filter.setter
    def call_model_input_filter(self, value: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._filter = value

    def _check_tools(self, data: CallModelData[Any]) -> Any:
        """Refuse tools that need approval in a step, and apply the filter of the settings. The calls of function tools
        are checked by `in_steps`."""
        for name in hosted_tools([_answered_alone(tool) for tool in data.agent.tools], self.approvals):
            if needs_decision(self.approvals, name, {}):
                refuse_in_step(f"agent {data.agent.name}", f"has the tool {name}, which needs approval,", AS_TOOL)
        return data.model_data if self._filter is None else self._filter(data)

    def _note_agent(self, data: CallModelData[Any]) -> Any:
        """Note the agent that asks next, and apply the filter of the settings."""
        AGENT.set(data.agent)
        return data.model_data if self._filter is None else self._filter(data)


def _answered_alone(tool: Tool) -> Tool:
    """Return a tool of a server whose provider asks the function of a user, as one whose provider does not ask."""
    if not isinstance(tool, HostedMCPTool) or tool.on_approval_request is None:
        return tool
    return replace(tool, tool_config={**tool.tool_config, "require_approval": "never"})


def refuse_unrecorded() -> None:
    """Refuse runs of the SDK in workflows that have another configuration: they would not be recorded."""
    for name in ("run", "run_streamed"):
        setattr(AgentRunner, name, _recorded_only(getattr(AgentRunner, name)))


def _recorded_only(method: Any) -> Any:
    @wraps(method)
    def call(self: AgentRunner, starting_agent: Any, input: Any, **given: Any) -> Any:
        if current_loop() is not None and not isinstance(given.get("run_config"), CallboardRunConfig):
            raise NotInWorkflow(
                f"agent {starting_agent.name} runs in the workflow, where nothing records it: let it be durable, by "
                "run_config=callboard_run_config() in Runner.run(…), or run it in a @step"
            )
        return method(self, starting_agent, input, **given)

    return call
