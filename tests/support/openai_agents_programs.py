"""Programs with the OpenAI Agents SDK that the tests of its adapter perform: agents as their users write them."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    ModelSettings,
    OpenAIProvider,
    OutputGuardrailTripwireTriggered,
    RunContextWrapper,
    RunHooks,
    Runner,
    SQLiteSession,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    trace,
)
from agents.mcp import MCPServerStdio
from agents.testing import ScriptedModel, assistant_message
from openai.types.shared import Reasoning
from pydantic import BaseModel

from callboard import McpTools, step_context, workflow
from callboard.adapters.openai_agents import (
    CallboardMCPServer,
    CallboardSession,
    RecordedSession,
    callboard_run_config,
)
from tests.support.forks import python
from tests.support.openai_agents_model import PlayedModel, calls
from tests.support.places import TESTS

MADE: list[str] = []
"""The tools that were called, with their arguments."""

KEYS: list[str] = []
"""The idempotency keys of the calls."""


# -- tools, handoffs and an approval ----------------------------------------------------------------------------------


class Order(BaseModel):
    id: str
    cents: int


@dataclass
class Customer:
    name: str
    refunded: int = 0
    notes: list[str] = field(default_factory=list)


@function_tool
async def look_up(order: str) -> Order:
    """Look an order up."""
    MADE.append(f"look_up {order}")
    KEYS.append(step_context().idempotency_key)
    return Order(id=order, cents=100 * len(order))


@function_tool
def policy(topic: str) -> str:
    """Read the policy."""
    MADE.append(f"policy {topic}")
    return f"{topic}: up to 500 cents"


@function_tool
async def refund(context: RunContextWrapper[Customer], order: str, cents: int) -> str:
    """Pay money back."""
    MADE.append(f"refund {order} {cents}")
    context.context.refunded += cents
    context.context.notes.append(f"refunded {order}")
    return f"paid {cents} for {order}"


CLERK = PlayedModel("clerk", calls(refund={"order": "ab", "cents": 200}), "It is paid.")
FRONT = PlayedModel(
    "front",
    calls(look_up=[{"order": "ab"}, {"order": "abc"}], policy={"topic": "refunds"}),
    calls(transfer_to_refund_clerk={}),
)


def about(context: RunContextWrapper[Customer], _agent: Agent[Customer]) -> str:
    return f"The customer is {context.context.name}, who has got {context.context.refunded} cents."


refund_clerk = Agent[Customer]("Refund clerk", instructions=about, tools=[refund], model=CLERK)
front_desk = Agent[Customer](
    "Front desk",
    instructions="Help.",
    tools=[look_up, policy],
    handoffs=[handoff(refund_clerk)],
    model=FRONT,
    model_settings=ModelSettings(temperature=0.5, reasoning=Reasoning(effort="low"), tool_choice="auto"),
)


@workflow
async def complaint(text: str) -> dict[str, Any]:
    """Parallel tools, a handoff, an approval, and a context that a tool changes."""
    customer = Customer("Ada")
    result = await Runner.run(front_desk, text, context=customer, run_config=callboard_run_config(approve=["refund"]))
    return {
        "output": result.final_output,
        "agent": result.last_agent.name,
        "same": result.last_agent is refund_clerk,
        "customer": customer,
        "usage": result.context_wrapper.usage.total_tokens,
        "requests": result.context_wrapper.usage.requests,
        "items": [type(item).__name__ for item in result.new_items],
    }


# -- consent that the tool asks for -----------------------------------------------------------------------------------


async def is_large(_context: Any, arguments: dict[str, Any], _id: str) -> bool:
    return arguments["cents"] > 300


@function_tool(needs_approval=is_large)
async def pay(cents: int) -> str:
    MADE.append(f"pay {cents}")
    return f"paid {cents}"


@function_tool(needs_approval=True)
async def close(order: str) -> str:
    MADE.append(f"close {order}")
    return f"closed {order}"


careful = Agent(
    "Careful",
    tools=[pay, close],
    model=PlayedModel("careful", calls(pay=[{"cents": 100}, {"cents": 900}], close={"order": "ab"}), "Done."),
)


@workflow
async def careful_work() -> dict[str, Any]:
    result = await Runner.run(careful, "Pay.", run_config=callboard_run_config())
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    return {"outputs": outputs, "interruptions": len(result.interruptions)}


# -- guardrails -------------------------------------------------------------------------------------------------------


class Verdict(BaseModel):
    homework: bool


judge = Agent("Judge", model=PlayedModel("judge", '{"homework": true}'), output_type=Verdict)


@input_guardrail
async def no_homework(context: RunContextWrapper[Any], _agent: Agent[Any], given: Any) -> GuardrailFunctionOutput:
    result = await Runner.run(judge, given, context=context.context, run_config=callboard_run_config())
    verdict = result.final_output_as(Verdict)
    return GuardrailFunctionOutput(verdict, verdict.homework)


@output_guardrail
async def no_numbers(_context: RunContextWrapper[Any], _agent: Agent[Any], output: str) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, any(letter.isdigit() for letter in output))


pupil = Agent("Tutor", model=PlayedModel("tutor", "x is 4"), input_guardrails=[no_homework])
teller = Agent("Teller", model=PlayedModel("teller", "x is 4"), output_guardrails=[no_numbers])


@workflow
async def guarded() -> list[str]:
    tripped: list[str] = []
    try:
        await Runner.run(pupil, "What is x?", run_config=callboard_run_config())
    except InputGuardrailTripwireTriggered:
        tripped.append("input")
    try:
        await Runner.run(teller, "What is x?", run_config=callboard_run_config())
    except OutputGuardrailTripwireTriggered:
        tripped.append("output")
    return tripped


# -- agents as tools, in parallel -------------------------------------------------------------------------------------

spanish = Agent("Spanish", model=PlayedModel("es", calls(policy={"topic": "es"}), "hola"), tools=[policy])
french = Agent("French", model=PlayedModel("fr", "salut"))
translator = Agent(
    "Translator",
    tools=[
        spanish.as_tool("to_spanish", "Translate to Spanish"),
        french.as_tool("to_french", "Translate to French", needs_approval=True),
    ],
    model=PlayedModel("tr", calls(to_spanish={"input": "hi"}, to_french={"input": "hi"}), "hola, salut"),
)


@workflow
async def translated() -> str:
    with trace("translation"):
        result = await Runner.run(translator, "hi", run_config=callboard_run_config())
    return result.final_output


# -- several runs at once, structured output, hooks -------------------------------------------------------------------


class Plan(BaseModel):
    steps: list[str]


planner = Agent("Planner", output_type=Plan, model=PlayedModel("plan", '{"steps": ["a", "b"]}'))
worker = Agent("Worker", model=PlayedModel("work", calls(look_up={"order": "w"}), "done"), tools=[look_up])


EVENTS: list[str] = []
"""The types of the events that came from the model while it answered."""


@workflow
async def streamed() -> dict[str, Any]:
    config = callboard_run_config(on_event=lambda event: EVENTS.append(event.type))
    result = Runner.run_streamed(worker, "Go.", run_config=config)
    kinds: list[str] = []
    said = ""
    async for event in result.stream_events():
        if event.type == "raw_response_event":
            if event.data.type == "response.output_text.delta":
                said += event.data.delta
        elif event.type == "run_item_stream_event":
            kinds.append(event.name)
    return {"output": result.final_output, "said": said, "kinds": kinds}


class Hooks(RunHooks[Any]):
    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.seen.append(f"start {tool.name}")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.seen.append(f"end {tool.name} {result!r}")

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self.seen.append(f"agent {agent.name}")


@workflow
async def planned() -> dict[str, Any]:
    config = callboard_run_config()
    plan = await Runner.run(planner, "Plan.", run_config=config)
    hooks = Hooks()
    steps = plan.final_output_as(Plan).steps
    done = await asyncio.gather(*(Runner.run(worker, one, hooks=hooks, run_config=config) for one in steps))
    return {"steps": steps, "done": [one.final_output for one in done], "hooks": sorted(hooks.seen)}


# -- failing tools and models -----------------------------------------------------------------------------------------


@function_tool
async def broken() -> str:
    raise ValueError("no such order")


@function_tool(failure_error_function=None)
async def fatal() -> str:
    raise ValueError("no such order")


@function_tool(timeout=5)
async def slow() -> str:
    await asyncio.sleep(100)
    return "late"


@function_tool
async def abandoned() -> str:
    raise asyncio.CancelledError("not today")


FAILING = PlayedModel("failing", calls(broken={}, slow={}, look_up="{", abandoned={}), "I could not.")
failing = Agent("Failing", tools=[broken, slow, look_up, abandoned], model=FAILING)
dying = Agent("Dying", tools=[fatal], model=PlayedModel("dying", calls(fatal={})))


@workflow
async def failures() -> list[str]:
    result = await Runner.run(failing, "Go.", run_config=callboard_run_config())
    return [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]


@workflow
async def death() -> str:
    return (await Runner.run(dying, "Go.", run_config=callboard_run_config())).final_output


@workflow
async def forgotten() -> str:
    model = ScriptedModel([[assistant_message("unseen")]])
    return (await Runner.run(Agent("Bare", model=model), "Go.")).final_output


# -- outputs of tools -------------------------------------------------------------------------------------------------


@function_tool
def pair() -> tuple[int, int]:
    return (1, 2)


@function_tool
def unannotated(kind: str):  # type: ignore[no-untyped-def]
    return {"set": {3}, "text": "t", "tuple": (1, 2), "model": Order(id="o", cents=1), "none": None}[kind]


typed = Agent(
    "Typed",
    tools=[pair, unannotated, look_up],
    model=PlayedModel(
        "typed",
        calls(
            pair={},
            unannotated=[{"kind": "set"}, {"kind": "text"}, {"kind": "tuple"}, {"kind": "model"}, {"kind": "none"}],
            look_up={"order": "x"},
        ),
        "Done.",
    ),
)


@workflow
async def outputs() -> list[str]:
    result = await Runner.run(typed, "Go.", run_config=callboard_run_config())
    items: list[Any] = [item.raw_item for item in result.new_items if item.type == "tool_call_output_item"]
    return [item["output"] for item in items]


first_tool = Agent(
    "First",
    tools=[look_up],
    tool_use_behavior="stop_on_first_tool",
    model=PlayedModel("first", calls(look_up={"order": "x"})),
)


@workflow
async def stopped() -> str:
    return (await Runner.run(first_tool, "Go.", run_config=callboard_run_config())).final_output


# -- the API of the provider ------------------------------------------------------------------------------------------

served = Agent(
    "Served",
    tools=[look_up],
    model="gpt-asked",
    model_settings=ModelSettings(
        temperature=0.25, extra_headers={"x-team": "secret-team"}, reasoning=Reasoning(effort="low"), top_p=0.5
    ),
)


@workflow
async def wired(url: str) -> dict[str, Any]:
    config = callboard_run_config(model_provider=OpenAIProvider(base_url=url, api_key="key"))
    first = await Runner.run(served, "Where is it?", run_config=config)
    second = Runner.run_streamed(
        served, [*first.to_input_list(), {"role": "user", "content": "And?"}], run_config=config
    )
    said = [
        event.data.delta
        async for event in second.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    return {"first": first.final_output, "said": said, "id": first.last_response_id}


# -- sessions and MCP servers -----------------------------------------------------------------------------------------

friend = Agent("Friend", model=PlayedModel("friend", "one", "two", "three"))


@workflow
async def chat(text: str, forget: bool = False) -> dict[str, Any]:
    session = CallboardSession("ada", expires="30d")
    if forget:
        await session.pop_item()
        await session.clear_session()
    result = await Runner.run(friend, text, session=session, run_config=callboard_run_config())
    return {"output": result.final_output, "items": len(await session.get_items()), "last": await session.get_items(1)}


@workflow
async def chat_in(file: str) -> list[str]:
    session = RecordedSession(SQLiteSession("ada", file))
    said: list[str] = []
    for text in ("Hi.", "And?"):
        result = await Runner.run(friend, text, session=session, run_config=callboard_run_config())
        said.append(result.final_output)
    return said


DESK = McpTools("desk", command=python(str(TESTS / "fixtures" / "tools" / "mcp_server.py")))


def guide_with(server: CallboardMCPServer) -> Agent[Any]:
    model = PlayedModel("guide", calls(weather={"city": "Bonn"}, refuse={"reason": "closed"}), "21 degrees")
    return Agent("Guide", mcp_servers=[server], model=model)


@workflow
async def guided() -> list[str]:
    async with CallboardMCPServer(DESK, require_approval={"always": {"tool_names": ["refuse"]}}) as server:
        result = await Runner.run(guide_with(server), "How is it?", run_config=callboard_run_config())
    return [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]


# -- sessions that the SDK compacts, and servers of the SDK ------------------------------------------------------------


class CompactedSession(SQLiteSession):
    """A session that counts how often the SDK has it compacted."""

    compacted = 0

    async def run_compaction(self, args: Any = None) -> None:
        CompactedSession.compacted += 1


@workflow
async def compacted(file: str) -> None:
    session = RecordedSession(CompactedSession("ada", file))
    await Runner.run(friend, "Hi.", session=session, run_config=callboard_run_config())


@workflow
async def with_own_server() -> None:
    async with MCPServerStdio(params={"command": "cat"}, name="issues") as server:
        await Runner.run(Agent("Guide", mcp_servers=[server]), "Hi.", run_config=callboard_run_config())


class Closed(Exception):
    pass


@function_tool(failure_error_function=None)
async def closing() -> str:
    raise Closed("no such order")


closing_agent = Agent("Closing", tools=[closing], model=PlayedModel("closing", calls(closing={})))


@workflow
async def cause_of_death() -> str:
    try:
        await Runner.run(closing_agent, "Go.", run_config=callboard_run_config())
    except Exception as error:
        return f"{type(error).__name__} from {type(error.__cause__).__name__}: {error.__cause__}"
    return "alive"
