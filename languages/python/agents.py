"""Agents: a model works with tools, which are steps of the workflow or tools of MCP servers, until it has an answer.

Each turn of the model and each call of a tool is recorded, so neither is repeated after a crash. A call of a step has
its own path. The calls of one turn run concurrently.
"""

import asyncio
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from msgspec import Struct
from msgspec.structs import replace

from callboard.bus.effects import (
    Failure,
    McpTools,
    Message,
    ModelReply,
    ModelRequest,
    Part,
    Text,
    ToolOutput,
    ToolSpec,
    ToolUse,
    user,
)
from callboard.bus.tool_names import names_of
from callboard.languages.agent import CUT_SHORT, Refusal, read_structured_answer
from callboard.languages.approvals.question import ProposedCall
from callboard.languages.language import Failed, Node, Ok, Toolbox
from callboard.languages.patience import patient_turn
from callboard.languages.python.approvals import Approving, approvals_of, decide, named_tools
from callboard.languages.python.errors import ModelFailed, StepFailed
from callboard.languages.python.in_steps import refuse_in_step
from callboard.languages.python.likeness import turns_alike
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.runs import RunOnly
from callboard.languages.python.sessions import Session
from callboard.languages.python.steps import StepFunction, step
from callboard.languages.python.values import Codec, codec, plain_json
from callboard.languages.python.workflows import InputMisfit, arguments_of, problems_of
from callboard.languages.tool_names import DistinctTools
from callboard.lib.json_types import JSON
from callboard.lib.text import encode_json

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")

TURNS_MAX = 20
"""The greatest number of a model's turns in one call of an agent, by default."""

CORRECTIONS_MAX = 2
"""How often a model is asked again after an answer that does not fit the type."""


class AgentAnswer(Struct, Generic[T], frozen=True):
    """The answer of an agent: its ``output`` as the agent's type, its last ``text``, and how many ``turns`` it took."""

    output: T
    text: str
    turns: int


class Agent(Generic[T]):
    """A model with tools. `run` lets it work on a prompt.

    ``tools`` are steps, or functions, which become steps. Name, docstring and annotations describe each to the model.
    ``servers`` are MCP servers, whose tools are offered as well; a server is open while `run` works. ``approve`` says
    which calls wait for the decision of a person: names of tools or ``"*"``, a function of the tool's name and the
    arguments, or `Approve`. ``output`` is the type of the answer; without it the answer is text. ``model`` defaults to
    the run's model. The model has at most ``turns`` turns.

    :raises TypeError: if a tool has a parameter whose type has no form in JSON
    :raises ValueError: if two tools have the same name, ``approve`` names no tool, or a server has not exactly one of
        ``command`` and ``url``
    """

    @overload
    def __init__(
        self: "Agent[str]",
        name: str = "agent",
        *,
        system: str = "",
        tools: Sequence[StepFunction[..., Any] | Callable[..., Any]] = (),
        servers: Sequence[McpTools] = (),
        model: str | None = None,
        output: None = None,
        approve: Approving = (),
        turns: int = TURNS_MAX,
        temperature: float | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str = "agent",
        *,
        output: "TypeForm[T]",
        system: str = "",
        tools: Sequence[StepFunction[..., Any] | Callable[..., Any]] = (),
        servers: Sequence[McpTools] = (),
        model: str | None = None,
        approve: Approving = (),
        turns: int = TURNS_MAX,
        temperature: float | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str = "agent",
        *,
        system: str = "",
        tools: Sequence[StepFunction[..., Any] | Callable[..., Any]] = (),
        servers: Sequence[McpTools] = (),
        model: str | None = None,
        output: Any = None,
        approve: Approving = (),
        turns: int = TURNS_MAX,
        temperature: float | None = None,
    ) -> None:
        self.name = name
        self.system = system
        self.model = model
        self.temperature = temperature
        self.turns = turns
        self.approve = approvals_of(approve)
        steps = [tool if isinstance(tool, StepFunction) else step(tool) for tool in tools]
        self.tools: dict[str, StepFunction[..., Any]] = {one.name: one for one in steps}
        if len(self.tools) < len(steps):
            names = [one.name for one in steps]
            twice = ", ".join(sorted({one for one in names if names.count(one) > 1}))
            raise ValueError(f"agent {name} has several tools of the name {twice}")
        self.servers = list(servers)
        for server in self.servers:
            if bool(server.command) == bool(server.url):
                raise ValueError(f"server {server.name} of agent {name} needs either command or url")
        if not self.servers:
            self._check_approved(self.tools)
        if turns < 1:
            raise ValueError(f"turns is {turns}; it has to be 1 or more")
        self._output: Codec | None = None if output is None or output is str else codec(output)

    async def run(self, prompt: str, *, session: Session | None = None) -> AgentAnswer[T]:
        """Let the model work on a prompt until it answers.

        With ``session`` the prompt continues the conversation there: the model reads its messages first, and the prompt
        and the answer are appended at the end. The calls of tools are not.

        :raises ModelFailed: if the model does not answer, its answer does not fit the type, it needs more turns, or
            a call is not decided in time and the terms say that the agent then fails
        :raises StepFailed: if a server cannot be opened
        :raises ValueError: if ``approve`` names no tool
        """
        loop = current_loop()
        if loop is None:
            if self.approve:
                refuse_in_step(f"agent {self.name}", "has tools that need approval")
            raise RunOnly(f"agent {self.name} needs a run: callboard run FILE.py:NAME --model MODEL")
        node = loop.place(self.name, loop.where())
        node.compares_by(turns_alike)
        said = [] if session is None else _conversation(await session.items())
        answer = await self._converse(loop, node, [*said, user(prompt)])
        if session is not None:
            text = answer.text or encode_json(plain_json(answer.output)).decode()
            await session.append({"role": "user", "content": prompt}, {"role": "assistant", "content": text})
        return answer

    async def _converse(self, loop: WorkflowLoop, node: Node, messages: list[Message]) -> AgentAnswer[T]:
        """Let the model continue a conversation, while the servers are open."""
        if not self.servers:
            return await self._work(loop, node, messages, None)
        toolbox = node.toolbox(self.servers)
        listed = await loop.effect(node, toolbox.__aenter__())
        try:
            if isinstance(listed, Failed):
                raise StepFailed(listed.error)
            return await self._work(loop, node, messages, toolbox)
        finally:
            await toolbox.__aexit__(None, None, None)

    async def _work(
        self, loop: WorkflowLoop, node: Node, messages: list[Message], toolbox: Toolbox | None
    ) -> AgentAnswer[T]:
        """Let the model work with the steps and the tools of the toolbox, which servers have."""
        names = DistinctTools(node, self.tools.keys())
        served = _served_tools(names, toolbox)
        self._check_approved({*self.tools, *(name for one in served.values() for name in names_of(one))})
        steps = {name: _spec(tool) for name, tool in self.tools.items()}
        request = ModelRequest(
            model=self.model,
            system=self.system,
            messages=messages,
            tools=[*steps.values(), *served.values()],
            schema=self._output.schema if self._output is not None else None,
            temperature=self.temperature,
        )
        corrections = 0
        for turn in range(1, self.turns + 1):
            slot, reply = await self._turn(loop, node, turn, request)
            if reply.tool_calls:
                told = await self._call_all(loop, node, turn, slot, reply.tool_calls, steps, served)
                request = self._next(node.key(slot), Message("user", told))
                if (now := _served_tools(names, toolbox)) != served:
                    served = now
                    request = replace(request, tools=[*steps.values(), *served.values()], retooled=True)
                continue
            try:
                return AgentAnswer(self._read(reply), reply.text, turn)
            except (ValueError, TypeError) as error:
                problems = "; ".join(f"{at}: {what}" if at else what for at, what in problems_of(error))
                if corrections == CORRECTIONS_MAX:
                    message = f"the answer of agent {self.name} does not fit: {problems}"
                    raise ModelFailed(Failure("model.bad_output", message)) from error
                corrections += 1
                request = self._next(node.key(slot), user(f"The answer does not fit: {problems}. Correct it."))
        message = f"agent {self.name} has used its {self.turns} turns without an answer"
        raise ModelFailed(Failure("agent.max_turns", message))

    async def _call_all(
        self,
        loop: WorkflowLoop,
        node: Node,
        turn: int,
        slot: str,
        uses: list[ToolUse],
        steps: Mapping[str, ToolSpec],
        served: Mapping[str, ToolSpec],
    ) -> list[Part]:
        """Make the calls that a turn requested, concurrently; return their answers.

        :raises ModelFailed: if a call is not decided in time, and the terms say that the agent then fails
        """
        place = _Place(loop, node, turn, node.key(slot), {**steps, **served})
        calls = (
            self._call_served(place, i, use, served[use.tool]) if use.tool in served else self._call(place, i, use)
            for i, use in enumerate(uses)
        )
        answers = await asyncio.gather(*calls)
        if (final := next((one.error for one in answers if isinstance(one, Refusal)), None)) is not None:
            raise ModelFailed(final)
        return [one for one in answers if isinstance(one, ToolOutput)]

    def _check_approved(self, tools: Collection[str]) -> None:
        """Check that every tool that needs consent exists; a misspelled name would leave a tool unprotected.

        :raises ValueError: if one does not
        """
        if unknown := named_tools(self.approve) - set(tools):
            raise ValueError(f"agent {self.name} has no tool {', '.join(sorted(unknown))}, which approve names")

    async def _turn(self, loop: WorkflowLoop, node: Node, turn: int, request: ModelRequest) -> tuple[str, ModelReply]:
        slot, outcome = await loop.effect(node, patient_turn(node, f"turn.{turn}", request))
        if isinstance(outcome, Failed):
            raise ModelFailed(outcome.error)
        reason = outcome.value.stop_reason
        if reason in CUT_SHORT:
            message = f"the model ended early: {reason}"
            raise ModelFailed(Failure("agent.cut_short", message, details={"stop_reason": reason}))
        return slot, outcome.value

    def _next(self, base: str, message: Message) -> ModelRequest:
        return ModelRequest(model=self.model, base=base, messages=[message], temperature=self.temperature)

    def _read(self, reply: ModelReply) -> Any:
        if self._output is None:
            return reply.text
        return self._output.decode(read_structured_answer(reply, asked=True))

    async def _call_served(self, place: "_Place", i: int, use: ToolUse, spec: ToolSpec) -> ToolOutput | Refusal:
        """Call a tool of a server for the model, which reads the output or failure that the log has."""
        if use.fault:
            return _refuse(use, "tool.invalid_input", use.fault)
        match await self._decide(place, i, use):
            case Refusal() as refusal:
                return refusal if refusal.final else ToolOutput(use.id, error=refusal.error)
            case Ok(arguments):
                pass
        node, slot = place.node, place.slot(i)
        call = node.tool(slot, use.tool, arguments, id=use.id, server=spec.server, own_name=spec.own_name)
        await place.loop.effect(node, call)
        return ToolOutput(use.id, of=node.key(slot))

    async def _call(self, place: "_Place", i: int, use: ToolUse) -> ToolOutput | Refusal:
        """Call a step for the model; every failure is an output that the model reads."""
        tool = self.tools.get(use.tool)
        if tool is None:
            known = ", ".join(place.tools) or "none"
            return _refuse(use, "tool.unknown", f"there is no tool {use.tool!r}; there are: {known}")
        if use.fault:
            return _refuse(use, "tool.invalid_input", use.fault)
        try:
            arguments = arguments_of(tool.parameters, tool.name, use.input)
            match await self._decide(place, i, use):
                case Refusal() as refusal:
                    return refusal if refusal.final else ToolOutput(use.id, error=refusal.error)
                case Ok(allowed) if allowed is not use.input:
                    arguments = arguments_of(tool.parameters, tool.name, allowed)
                case Ok():
                    pass
        except InputMisfit as misfit:
            return _refuse(use, "tool.invalid_input", str(misfit))
        try:
            output = await tool(**arguments)
        except StepFailed as failed:
            return ToolOutput(use.id, error=failed.failure)
        return ToolOutput(use.id, output=tool.parameters.result.encode(output))

    async def _decide(self, place: "_Place", i: int, use: ToolUse) -> Ok[JSON] | Refusal:
        """Return the arguments with which a call may be made, or why it must not be made."""
        call = ProposedCall(place.tools[use.tool], use.input, f"agent {self.name}", place.node.path, place.requested)
        return await decide(place.loop, place.node, place.slot(i), call, self.approve)


class _Place(Struct, frozen=True):
    """The calls of one turn: its key is ``requested``. ``tools`` are those that the model may call."""

    loop: WorkflowLoop
    node: Node
    turn: int
    requested: str
    tools: Mapping[str, ToolSpec]

    def slot(self, i: int) -> str:
        """Return the slot of the turn's call i."""
        return f"tool.{self.turn}.{i}"


def _conversation(items: Sequence[JSON]) -> list[Message]:
    """Return the messages among the items of a session; those of other libraries are left out."""
    found: list[Message] = []
    for one in items:
        match one:
            case {"role": "user" | "assistant" as role, "content": str(text)}:
                found.append(Message(role, [Text(text)]))
            case _:
                continue
    return found


def _served_tools(names: DistinctTools, toolbox: Toolbox | None) -> dict[str, ToolSpec]:
    """Return the tools that servers have now, by the name under which the model is offered them."""
    return {} if toolbox is None else {one.name: one for one in names.name(toolbox.specs)}


def _spec(tool: StepFunction[..., Any]) -> ToolSpec:
    description = inspect.getdoc(tool.function) or ""
    return ToolSpec(tool.name, description, tool.parameters.input_schema)


def _refuse(use: ToolUse, code: str, message: str) -> ToolOutput:
    return ToolOutput(use.id, error=Failure(code, message))
