"""Agents of Pydantic AI, as its users write them, with the one line that makes each durable, and their workflows.

Each shows another part of the SDK: dependencies, output types and validators, retries, delegation, streams, toolsets,
deferred calls, histories. Their models are the SDK's own models for tests.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field
from pydantic_ai import (
    Agent,
    AgentStreamEvent,
    ApprovalRequired,
    BinaryContent,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelHTTPError,
    ModelMessage,
    ModelRetry,
    NativeOutput,
    RunContext,
    Tool,
    ToolFailed,
    ToolReturn,
    UsageLimitExceeded,
    UsageLimits,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls, Hooks, ProcessHistory
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from callboard import step_context, workflow
from callboard.adapters.pydantic_ai import Durable, durable
from tests.support.forks import python
from tests.support.places import TESTS

CALLED: Counter[str] = Counter()
"""How often each tool and model was called."""

HEARD: list[str] = []
"""The events that a stream handler has received."""

Parts = list[Any] | Callable[[list[ModelMessage], AgentInfo], list[Any]]


def answering(*turns: Parts, name: str = "model") -> FunctionModel:
    """Return a model with an answer for each turn; the last one repeats."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        CALLED[name] += 1
        said = sum(isinstance(one, ModelResponse) for one in messages)
        turn = turns[min(said, len(turns) - 1)]
        return ModelResponse(parts=turn(messages, info) if callable(turn) else turn)

    return FunctionModel(answer, model_name=name)


def call(tool: str, id: str | None = None, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(tool, arguments, id) if id else ToolCallPart(tool, arguments)


def returned(messages: Sequence[ModelMessage]) -> dict[str, Any]:
    """Return what tools have returned, by their names."""
    parts = [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
    return {part.tool_name: part.content for part in parts}


def say_returned(messages: list[ModelMessage], _info: AgentInfo) -> list[Any]:
    return [TextPart(" ".join(f"{name}={value}" for name, value in sorted(returned(messages).items())))]


# -- a desk: parallel tools, a delegation, an approval, a retry --------------------------------------------------------

joker = Agent(
    answering([TextPart("A cat.")], name="joker-model"),
    name="joker",
    instructions="Be funny.",
    capabilities=[Durable()],
)

GUESTS = {"joker": joker}

desk = Agent(
    answering(
        [
            call("look_up", order="a1"),
            call("refund", order="a1", cents=500),
            call("joke", topic="cats"),
            call("weigh", grams=0),
        ],
        [call("weigh", grams=7)],
        say_returned,
    ),
    name="desk",
    system_prompt="Be fair.",
    capabilities=[Durable(approve=["refund"])],
)


@desk.tool_plain
def look_up(order: str) -> dict[str, int]:
    """Look an order up."""
    CALLED["look_up"] += 1
    return {"cents": 500}


@desk.tool_plain
async def refund(order: str, cents: int) -> str:
    """Pay money back."""
    CALLED["refund"] += 1
    return f"{cents} for {order}"


@desk.tool
async def joke(ctx: RunContext[object], topic: str) -> str:
    result = await GUESTS["joker"].run(f"A joke about {topic}", usage=ctx.usage)
    return result.output


@desk.tool_plain(retries=2)
async def weigh(grams: int) -> int:
    CALLED["weigh"] += 1
    if grams == 0:
        raise ModelRetry("nothing weighs nothing")
    return grams


@workflow
async def serving() -> dict[str, Any]:
    result = await desk.run("It is broken.", usage_limits=UsageLimits(request_limit=5))
    usage = result.usage
    return {"output": result.output, "requests": usage.requests, "tokens": [usage.input_tokens, usage.output_tokens]}


@workflow
async def serving_twice() -> list[str]:
    results = await asyncio.gather(joker.run("one"), joker.run("two"))
    return [one.output for one in results]


# -- dependencies, dynamic instructions, typed output ------------------------------------------------------------------


class Bank:
    async def balance(self, id: int, pending: bool) -> float:
        CALLED["balance"] += 1
        return 100.0 + pending


@dataclass
class Customer:
    id: int
    bank: Bank


class Advice(BaseModel):
    text: str
    block: bool = Field(description="Whether to block the card")
    risk: int = Field(ge=0, le=10)


support = Agent(
    answering(
        [call("balance", include_pending=True)],
        lambda messages, info: [
            call(info.output_tools[0].name, text=str(returned(messages)["balance"]), block=False, risk=1)
        ],
    ),
    deps_type=Customer,
    output_type=Advice,
    instructions="You advise customers of a bank.",
    capabilities=[Durable()],
)


@support.instructions
async def greet(ctx: RunContext[Customer]) -> str:
    return f"The customer is number {ctx.deps.id}."


@support.tool
async def balance(ctx: RunContext[Customer], include_pending: bool) -> str:
    """Return the balance of the customer's account."""
    return f"${await ctx.deps.bank.balance(ctx.deps.id, include_pending):.2f}"


@workflow
async def advising(id: int) -> Advice:
    return (await support.run("What do I have?", deps=Customer(id, Bank()))).output


# -- output validators, unions, retries --------------------------------------------------------------------------------


class Query(BaseModel):
    sql: str


class Impossible(BaseModel):
    why: str


planner = Agent(
    answering(
        [call("final_result_Query", sql=5)],
        [call("final_result_Query", sql="DROP TABLE x")],
        [call("final_result_Query", sql="SELECT 1")],
    ),
    output_type=[Query, Impossible],
    retries=4,
    capabilities=[Durable()],
)


@planner.output_validator
async def check(ctx: RunContext[object], output: Query | Impossible) -> Query | Impossible:
    if isinstance(output, Query) and not output.sql.startswith("SELECT"):
        raise ModelRetry("only SELECT")
    return output


@workflow
async def planning() -> Query:
    output = (await planner.run("one")).output
    assert isinstance(output, Query)
    return output


async def hand_over(topic: str) -> str:
    """Let another agent make the output."""
    return (await joker.run(topic)).output


host = Agent(
    answering(lambda _messages, info: [call(info.output_tools[0].name, topic="cats")]),
    name="host",
    output_type=hand_over,
    capabilities=[Durable()],
)


@workflow
async def hosting() -> str:
    async with host.iter("A joke, please.") as run:
        async for _node in run:
            pass
        assert run.result is not None
        # The task that iterates belongs to the workflow.
        return f"{run.result.output} {(await joker.run('Another.')).output}"


native = Agent(answering([TextPart('{"sql": "SELECT 2"}')]), output_type=NativeOutput(Query), capabilities=[Durable()])
native_model = native.model
assert isinstance(native_model, FunctionModel)
native_model.profile["supports_json_schema_output"] = True


@workflow
async def querying() -> Query:
    return (await native.run("two")).output


# -- usage limits, iteration, histories --------------------------------------------------------------------------------

looping = Agent(answering([call("look_up", order="a")]), name="looping", tools=[look_up], capabilities=[Durable()])


@workflow
async def limited() -> str:
    try:
        await looping.run("again", usage_limits=UsageLimits(request_limit=3))
    except UsageLimitExceeded:
        return "limited"
    return "?"


def keep_prompts(messages: list[ModelMessage]) -> list[ModelMessage]:
    return [one for one in messages if isinstance(one, ModelRequest)]


chatting = Agent(
    answering(lambda messages, _info: [TextPart(f"{len(messages)} messages")]),
    name="chat",
    capabilities=[Durable(), ProcessHistory(keep_prompts)],
)


@workflow
async def chat() -> list[str]:
    first = await chatting.run("Hello")
    second = await chatting.run("And now?", message_history=first.all_messages())
    nodes: list[str] = []
    async with chatting.iter("Bye", message_history=second.all_messages()) as run:
        async for node in run:
            nodes.append(type(node).__name__)
    assert run.result is not None
    return [first.output, second.output, run.result.output, *nodes]


# -- streams -----------------------------------------------------------------------------------------------------------


async def speak(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    CALLED["streamed"] += 1
    if len(messages) == 1:
        yield {0: DeltaToolCall(name="look_up", json_args='{"order": "a1"}', tool_call_id="c1")}
    else:
        yield "Hello "
        yield "world"


async def hear(_ctx: RunContext[Any], events: Any) -> None:
    async for event in events:
        HEARD.append(event.event_kind)


speaker = Agent(
    FunctionModel(stream_function=speak),
    name="speaker",
    tools=[look_up],
    capabilities=[Durable(event_stream_handler=hear)],
)


@workflow
async def streaming() -> list[str]:
    pieces: list[str] = []
    async with speaker.run_stream("Speak.") as stream:
        async for piece in stream.stream_text(delta=True):
            pieces.append(piece)
    kinds: list[str] = []

    async def note(_ctx: RunContext[Any], events: Any) -> None:
        async for event in events:
            kinds.append(event.event_kind)

    result = await speaker.run("Again.", event_stream_handler=note)
    return [*pieces, result.output, *kinds]


@workflow
async def streaming_events() -> list[str]:
    found: list[str] = []
    async with speaker.run_stream_events("Speak.") as events:
        async for event in events:
            found.append(kind_of(event))
    return found


def kind_of(event: AgentStreamEvent | Any) -> str:
    return event.event_kind


told = durable(Agent(FunctionModel(stream_function=speak), tools=[look_up]), stream=True, name="told")


@workflow
async def telling() -> str:
    return (await told.run("Speak.")).output


# -- toolsets ----------------------------------------------------------------------------------------------------------


class Doubling(AbstractToolset[Any]):
    """A toolset of another kind, whose list of tools is looked up. Each run has one that counts calls."""

    def __init__(self) -> None:
        self.count = 0

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return Doubling()

    @property
    def id(self) -> str:
        return "doubling"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        CALLED["list"] += 1
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        validator = SchemaValidator(core_schema.any_schema())
        return {
            "double": ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(name="double", parameters_json_schema=schema),
                max_retries=1,
                args_validator=validator,
            )
        }

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: Any) -> Any:
        self.count += 1
        CALLED["most"] = max(CALLED["most"], self.count)
        return tool_args["n"] * 2


def choose(ctx: RunContext[Any]) -> FunctionToolset[Any]:
    return FunctionToolset([look_up])


extra = FunctionToolset[Any]()


@extra.tool_plain(metadata={"callboard": {"retries": 1, "backoff": 1}})
async def add(a: int, b: int) -> int:
    CALLED["add"] += 1
    if CALLED["add"] == 1:
        raise ConnectionError("not now")
    return a + b


@extra.tool_plain(metadata={"callboard": False})
def here(x: int) -> int:
    """A tool that runs in the workflow."""
    return x


crafts = Agent(
    answering(
        [call("double", n=4), call("look_up", order="a"), call("add", a=1, b=2), call("here", x=9)], say_returned
    ),
    toolsets=[Doubling(), choose],
    capabilities=[Durable(name="crafts")],
)


@workflow
async def crafting() -> str:
    return (await crafts.run("x", toolsets=[extra])).output


doubler = Agent(
    answering([call("double", n=1)], [call("double", n=2)], say_returned),
    name="doubler",
    toolsets=[Doubling()],
    capabilities=[Durable()],
)


@workflow
async def doubling() -> list[str]:
    return [(await doubler.run("x")).output for _ in range(2)]


def desk_server() -> MCPToolset[Any]:
    from fastmcp.client.transports import StdioTransport

    command, *arguments = python(str(TESTS / "fixtures" / "tools" / "mcp_server.py"))
    return MCPToolset(StdioTransport(command, arguments), id="desk", init_timeout=60)


guide = Agent(
    answering([call("weather", city="Bonn")], say_returned),
    name="guide",
    toolsets=[desk_server()],
    capabilities=[Durable()],
)


@workflow
async def guiding() -> str:
    return (await guide.run("How is it?")).output


# -- calls that are deferred, denied, or return more than a value ------------------------------------------------------

deferring = Agent(
    answering(
        [call("fetch", "c1", q="z"), call("delete", "c2", file="z"), call("keep", "c3", file="z")],
        lambda messages, _info: [TextPart(str([returned(messages)[one] for one in ("fetch", "delete", "keep")]))],
    ),
    name="deferring",
    output_type=[str, DeferredToolRequests],
    capabilities=[Durable()],
)


@deferring.tool_plain
async def fetch(q: str) -> str:
    raise CallDeferred


@deferring.tool_plain(requires_approval=True)
async def delete(file: str) -> str:
    return f"deleted {file}"


@deferring.tool
async def keep(ctx: RunContext[object], file: str) -> str:
    if not ctx.tool_call_approved:
        raise ApprovalRequired(metadata={"why": "large"})
    return f"kept {file}"


@workflow
async def waiting() -> str:
    first = await deferring.run("x")
    assert isinstance(first.output, DeferredToolRequests)
    results = DeferredToolResults(calls={one.tool_call_id: "fetched" for one in first.output.calls})
    second = await deferring.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert isinstance(second.output, str)
    return second.output


clearing = Agent(
    answering(
        [
            call("delete", "c1", file="z"),
            call("look_up", "c2", order="a"),
            call("keep", "c3", file="z"),
            call("delete", "c4", folder="z"),
        ],
        say_returned,
    ),
    name="clearing",
    tools=[Tool(delete, requires_approval=True), look_up, keep],
    capabilities=[Durable()],
)


@workflow
async def clearing_up() -> str:
    return (await clearing.run("x")).output


checked = durable(
    Agent(
        answering([call("delete", "c1", file="z"), call("look_up", "c2", order="a")], say_returned),
        tools=[Tool(delete, requires_approval=True), look_up],
        capabilities=[HandleDeferredToolCalls(lambda _ctx, requests: requests.build_results(approve_all=True))],
    ),
    name="checked",
)


@workflow
async def checking() -> str:
    return (await checked.run("x")).output


varied = Agent(
    answering([call("report"), call("fail")], say_returned),
    name="varied",
    capabilities=[Durable()],
)


@varied.tool_plain
def report() -> ToolReturn[Any]:
    return ToolReturn("see below", content=["a picture:", BinaryContent(b"png", media_type="image/png")])


@varied.tool_plain
def fail() -> str:
    raise ToolFailed("out of order")


@workflow
async def reporting() -> list[str]:
    picture = BinaryContent(b"abc", media_type="image/png")
    result = await varied.run(["What is it?", picture])
    kinds = [type(part).__name__ for one in result.all_messages() for part in one.parts]
    prompts = [part for one in result.all_messages() for part in one.parts if isinstance(part, UserPromptPart)]
    assert any(one == picture for one in prompts[0].content)
    return [result.output, *kinds]


# -- models ------------------------------------------------------------------------------------------------------------

named = Agent(
    "openai:gpt-4.1",
    name="named",
    tools=[look_up],
    model_settings={"temperature": 0.2},
    capabilities=[Durable()],
)
typed = durable(Agent("anthropic:claude-sonnet-4-5", output_type=Advice, name="typed", defer_model_check=True))
thinking = Agent(
    answering([ThinkingPart("hm", signature="s1"), TextPart("yes")]), name="thinking", capabilities=[Durable()]
)


@workflow
async def thinking_aloud() -> list[Any]:
    result = await thinking.run("?")
    return [type(part).__name__ for part in result.response.parts] + [result.response.parts[0].signature]  # pyright: ignore


@workflow
async def testing() -> str:
    with named.override(model=TestModel(custom_output_text="tested")):
        return (await named.run("x")).output


@workflow
async def scripted() -> list[Any]:
    return [(await named.run("x")).output, (await typed.run("y")).output.text]


def refuse(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    CALLED["refused"] += 1
    raise ModelHTTPError(400, "broken", {"error": "no"})


broken = Agent(FunctionModel(refuse), name="broken", capabilities=[Durable()])
falling = Agent(
    FallbackModel(FunctionModel(refuse), answering([TextPart("second")])), name="falling", capabilities=[Durable()]
)


@workflow
async def failing(caught: bool) -> str:
    try:
        return (await broken.run("x")).output
    except ModelHTTPError as error:
        if not caught:
            raise
        return f"{error.status_code} {error.model_name} {error.body} {(await falling.run('x')).output}"


@workflow
async def keys() -> list[str]:
    """Two runs of one agent, each of whose tool calls has another idempotency key."""
    found: list[str] = []
    keyed = Agent(answering([call("key")], say_returned), name="keyed", capabilities=[Durable()])

    @keyed.tool_plain
    def key() -> str:
        return step_context().idempotency_key[:8]

    for _ in range(2):
        found.append((await keyed.run("x")).output)
    return found


@dataclass(frozen=True)
class Basket:
    """Dependencies that tools change: a frozen object with a list in it."""

    owner: str
    orders: list[str]


packer = Agent(
    answering(
        [call("pack", order="a1"), call("pack", order="a2")],
        [call("count")],
        say_returned,
    ),
    name="packer",
    deps_type=Basket,
    capabilities=[Durable()],
)


@packer.tool
def pack(ctx: RunContext[Basket], order: str) -> str:
    """Put an order into the basket."""
    CALLED["pack"] += 1
    ctx.deps.orders.append(order)
    return order


@packer.tool
def count(ctx: RunContext[Basket]) -> int:
    """Count what is in the basket."""
    return len(ctx.deps.orders)


@workflow
async def packing(together: bool) -> list[Any]:
    basket = Basket("ada", ["a0"])
    with packer.parallel_tool_call_execution_mode("parallel" if together else "sequential"):
        output = (await packer.run("Pack.", deps=basket)).output
    return [output, basket.orders]


fragile = Agent(
    answering([call("pay", cents=1), call("explode")], say_returned),
    name="fragile",
    capabilities=[Durable(approve=["pay"])],
)


@fragile.tool_plain
def pay(cents: int) -> int:
    """Pay."""
    return cents


@fragile.tool_plain
def explode() -> None:
    """Fail."""
    raise ValueError("it broke")


@workflow
async def exploding() -> str:
    try:
        return (await fragile.run("x")).output
    except ValueError as failed:
        return str(failed)


# -- a limit of concurrent runs ----------------------------------------------------------------------------------------

AT_ONCE: list[int] = [0, 0]
"""How many requests are being made, and the most that were."""


async def answer_slowly(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    AT_ONCE[0] += 1
    AT_ONCE[1] = max(AT_ONCE)
    await asyncio.sleep(1)
    AT_ONCE[0] -= 1
    return ModelResponse(parts=[TextPart("Yes.")])


bounded = Agent(FunctionModel(answer_slowly), name="bounded", max_concurrency=2, capabilities=[Durable()])
limited_clerk = Agent(TestModel(), name="clerk", max_concurrency=1, capabilities=[Durable(approve=["limited_pay"])])


@limited_clerk.tool_plain
def limited_pay() -> str:
    """Pay."""
    return "paid"


@workflow
async def gathered() -> int:
    return len(await asyncio.gather(*(bounded.run(f"Question {i}") for i in range(4))))


@workflow
async def limited_payment() -> str:
    return (await limited_clerk.run("Pay.")).output


# -- hooks for exceptions of tools, and agents that are not durable ----------------------------------------------------


class UpstreamError(Exception):
    pass


hooks: Any = Hooks()


@hooks.on.tool_execute_error
async def tell_of_upstream(ctx: Any, *, call: Any, tool_def: Any, args: Any, error: Exception) -> str:
    if isinstance(error, UpstreamError):
        return f"Could not fetch: {error}"
    raise error


fetching: Agent = Agent(TestModel(), name="fetching", capabilities=[hooks, Durable()])


@fetching.tool_plain
async def get_document() -> str:
    """Get a document."""
    raise UpstreamError("404")


@workflow
async def fetched() -> str:
    return (await fetching.run("Get it.")).output


@workflow
async def not_durable() -> str:
    return (await Agent(OpenAIChatModel("gpt-5", provider=OpenAIProvider(api_key="none"))).run("Hi.")).output
