"""Graphs of LangGraph as users write them, and workflows that call them. The models answer by the messages alone."""

# Users write graphs with less exact types than the rest of this repository has.
# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportReturnType=false, reportTypedDictNotRequiredAccess=false

import asyncio
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig, RunnableParallel
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, tools_condition
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, RetryPolicy, Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from callboard import workflow
from callboard.adapters.langgraph import durable

CALLED: Counter[str] = Counter()
"""How often models and tools were called, by name."""

Answer = Callable[[list[BaseMessage]], AIMessage]


class Fake(BaseChatModel):
    """A chat model whose answer is a function of the conversation."""

    label: str
    answer: Answer
    pieces: int = 1

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        CALLED[self.label] += 1
        said = self.answer(messages)
        said.response_metadata = {"model_name": f"{self.label}-1", "thinking": "hm"}
        said.usage_metadata = {"input_tokens": len(messages), "output_tokens": 2, "total_tokens": len(messages) + 2}
        return ChatResult(generations=[ChatGeneration(message=said)])

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=list(tools), **kwargs)


class Streaming(Fake):
    """A fake that also streams its answer, word by word."""

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[Any]:
        CALLED[self.label] += 1
        for word in str(self.answer(messages).content).split(" "):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def calls(*uses: tuple[str, dict[str, Any]]) -> AIMessage:
    made = [
        {"id": f"{name}-{i}", "name": name, "args": args, "type": "tool_call"} for i, (name, args) in enumerate(uses)
    ]
    return AIMessage("", tool_calls=made)


def contents(state: Any) -> list[Any]:
    return [message.content for message in state["messages"]]


def has_results(messages: list[BaseMessage]) -> bool:
    return isinstance(messages[-1], ToolMessage)


# -- an agent with parallel tools, a subgraph, and an approval --------------------------------------------------------


@tool
def weather(city: str) -> str:
    """Say what the weather is."""
    CALLED["weather"] += 1
    return f"{city}: sunny"


@tool
async def book(city: str, nights: int = 1) -> str:
    """Book a hotel."""
    CALLED["book"] += 1
    return f"{city} booked for {nights}"


TOOLS: list[BaseTool] = [weather, book]
planner = Fake(
    label="planner",
    answer=lambda messages: (
        AIMessage("A trip.")
        if has_results(messages)
        else calls(("weather", {"city": "Bonn"}), ("book", {"city": "Bonn", "nights": 2}), ("weather", {"city": "Ulm"}))
    ),
)
critic = Fake(label="critic", answer=lambda messages: AIMessage(f"Good: {messages[-1].content}"))
planner_with_tools = planner.bind_tools(TOOLS)


def plan(state: MessagesState) -> dict[str, Any]:
    return {"messages": [planner_with_tools.invoke(state["messages"])]}


async def criticise(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await critic.ainvoke(state["messages"][-1:])]}


def approve(state: MessagesState) -> Command[Literal["polish", "__end__"]]:
    CALLED["approve"] += 1
    answer = interrupt({"question": "Is the trip fine?", "said": state["messages"][-1].content})
    said = HumanMessage(f"person: {answer}")
    return Command(update={"messages": [said]}, goto="polish" if answer == "polish" else END)


def polish(state: MessagesState) -> dict[str, Any]:
    return {"messages": [critic.invoke(state["messages"])]}


reviewing = StateGraph(MessagesState)
reviewing.add_node("criticise", criticise)
reviewing.add_edge(START, "criticise")

travelling = StateGraph(MessagesState)
travelling.add_node("plan", plan)
travelling.add_node("tools", ToolNode(TOOLS))
travelling.add_node("review", reviewing.compile())
travelling.add_node("approve", approve)
travelling.add_node("polish", polish)
travelling.add_edge(START, "plan")
travelling.add_conditional_edges("plan", tools_condition, {"tools": "tools", END: "review"})
travelling.add_edge("tools", "plan")
travelling.add_edge("review", "approve")
plain_travel = travelling.compile()
travel = durable(plain_travel)


@workflow
async def trip(text: str) -> list[Any]:
    return contents(await travel.ainvoke({"messages": [("user", text)]}))


# -- fan-out with reducers --------------------------------------------------------------------------------------------


class Topics(TypedDict, total=False):
    topic: str
    subjects: list[str]
    jokes: Annotated[list[str], operator.add]
    best: str


class Subject(TypedDict):
    subject: str


joker = Fake(label="joker", answer=lambda messages: AIMessage(f"joke: {messages[-1].content}"))


async def joke(state: Subject) -> dict[str, Any]:
    return {"jokes": [(await joker.ainvoke(state["subject"])).content]}


mapping = StateGraph(Topics)
mapping.add_node("split", lambda state: {"subjects": [f"{state['topic']} {i}" for i in range(3)]})
mapping.add_node("joke", joke)
mapping.add_node("pick", lambda state: {"best": max(state["jokes"])})
mapping.add_edge(START, "split")
mapping.add_conditional_edges(
    "split", lambda state: [Send("joke", {"subject": one}) for one in state["subjects"]], ["joke"]
)
mapping.add_edge("joke", "pick")
jokes = durable(mapping.compile(name="jokes"))


@workflow
async def joking(topic: str) -> dict[str, Any]:
    found = await jokes.ainvoke({"topic": topic})
    return {"jokes": found["jokes"], "best": found["best"]}


# -- a router with a typed answer, a chain, and a graph that a function calls -----------------------------------------


class Route(BaseModel):
    """Where a text goes."""

    to: Literal["poem", "sum"]


router = Fake(label="router", answer=lambda messages: calls(("Route", {"to": str(messages[-1].content).split()[0]})))
writer = Fake(label="writer", answer=lambda messages: AIMessage(f"wrote: {messages[-1].content}"))
chain = ChatPromptTemplate.from_messages([("system", "Be brief."), ("user", "About {text}")]) | writer


class Routed(TypedDict, total=False):
    text: str
    said: str


def route(state: Routed) -> str:
    # LangChain makes a chain of the model, its tool and a parser.
    chosen: Any = router.with_structured_output(Route).invoke(state["text"])
    return chosen.to


def write_poem(state: Routed) -> dict[str, Any]:
    both = RunnableParallel(one=chain, other=chain).invoke({"text": state["text"]})
    return {"said": f"{both['one'].content} {both['other'].content}"}


def total(state: Routed) -> dict[str, Any]:
    return {"said": str(sum(int(word) for word in state["text"].split()[1:]))}


poems = StateGraph(Routed)
poems.add_node("write_poem", write_poem)
poems.add_edge(START, "write_poem")
poet = poems.compile()


def call_poet(state: Routed) -> dict[str, Any]:
    return {"said": poet.invoke({"text": state["text"]})["said"]}


routing = StateGraph(Routed)
routing.add_node("poem", call_poet)
routing.add_node("sum", total)
routing.add_conditional_edges(START, route, ["poem", "sum"])
routed = durable(routing.compile())


@workflow
async def routes(text: str) -> str:
    return (await routed.ainvoke({"text": text}))["said"]


@workflow
async def events(text: str) -> list[str]:
    found = [one async for one in routed.astream_events({"text": text}, version="v2")]
    return [f"{one['event']} {one['name']}" for one in found if one["name"] in ("Fake", "poem")]


@workflow
async def left_early(text: str) -> Any:
    async for chunk in routed.astream({"text": text}, stream_mode="updates"):
        return chunk
    return None


# -- the functional interface -----------------------------------------------------------------------------------------


@task
def draft(topic: str) -> str:
    return str(writer.invoke(topic).content)


@task
async def count(text: str) -> int:
    CALLED["count"] += 1
    return len(text)


@entrypoint()
def essays(topics: list[str]) -> dict[str, Any]:
    drafts = [draft(topic) for topic in topics]
    texts = [one.result() for one in drafts]
    answer = interrupt({"question": "Publish?", "texts": texts})
    return {"texts": texts, "answer": answer}


def scale(factor: int, number: int) -> int:
    return factor * number


double = task(partial(scale, 2))


@entrypoint()
async def lengths(texts: list[str]) -> list[int]:
    found = [count(text) for text in texts]
    return [await double(await one) // 2 for one in found]


essay_graph = durable(essays)
length_graph = durable(lengths, steps=["count"])


@workflow
async def publishing(topics: list[str]) -> dict[str, Any]:
    found = await essay_graph.ainvoke(topics)
    given = found["texts"]
    updates = [name async for chunk in length_graph.astream(given, stream_mode="updates") for name in chunk]
    return {**found, "lengths": await length_graph.ainvoke(given), "updates": updates}


# -- a store, injected arguments, and what tools write to the stream --------------------------------------------------

shelf = InMemoryStore()


@tool
def remember(
    fact: str, store: Annotated[BaseStore, InjectedStore()], state: Annotated[dict[str, Any], InjectedState]
) -> str:
    """Remember a fact."""
    CALLED["remember"] += 1
    store.put(("facts",), fact, {"of": len(state["messages"])})
    get_stream_writer()({"remembered": fact})
    return f"remembered {fact}"


minder = Fake(
    label="minder",
    answer=lambda messages: AIMessage("Yes.") if has_results(messages) else calls(("remember", {"fact": "a"})),
)


class Who(TypedDict):
    user: str


def recall(state: MessagesState, runtime: Runtime[Who]) -> dict[str, Any]:
    assert runtime.store is not None
    seen = runtime.store.get(("visits",), runtime.context["user"])
    visits = (seen.value["n"] if seen else 0) + 1
    runtime.store.put(("visits",), runtime.context["user"], {"n": visits})
    return {"messages": [HumanMessage(f"visit {visits}")]}


async def mind(state: MessagesState, store: BaseStore) -> dict[str, Any]:
    facts = await store.asearch(("facts",))
    said = await minder.bind_tools([remember]).ainvoke(state["messages"])
    return {"messages": [HumanMessage(f"{len(facts)} facts"), said]}


minding = StateGraph(MessagesState, context_schema=Who)
minding.add_node("recall", recall)
minding.add_node("mind", mind)
minding.add_node("tools", ToolNode([remember]))
minding.add_edge(START, "recall")
minding.add_edge("recall", "mind")
minding.add_conditional_edges("mind", tools_condition)
minding.add_edge("tools", "mind")
memories = durable(minding.compile(store=shelf))


@workflow
async def minded(user: str) -> dict[str, Any]:
    written: list[Any] = []
    state: Any = {}
    given: Any = {"messages": [("user", "hi")]}
    async for mode, chunk in memories.astream(given, context={"user": user}, stream_mode=["values", "custom"]):
        if mode == "custom":
            written.append(chunk)
        else:
            state = chunk
    return {"said": contents(state), "written": written}


# -- streams, threads and breakpoints ---------------------------------------------------------------------------------

teller = Streaming(label="teller", answer=lambda messages: AIMessage(f"Once upon {len(messages)} times"))


async def tell(state: MessagesState) -> dict[str, Any]:
    get_stream_writer()("telling")
    return {"messages": [await teller.ainvoke(state["messages"])]}


telling = StateGraph(MessagesState)
telling.add_node("tell", tell)
telling.add_edge(START, "tell")
tales = durable(telling.compile(checkpointer=InMemorySaver(), interrupt_before=["tell"]))


@workflow
async def streamed(text: str) -> list[Any]:
    config: RunnableConfig = {"configurable": {"thread_id": "one"}}
    found: list[Any] = []
    for given in ({"messages": [("user", text)]}, None):
        async for mode, chunk in tales.astream(given, config, stream_mode=["updates", "messages", "custom"]):
            if mode == "messages":
                message, about = chunk
                chunk = [type(message).__name__, message.content, about["langgraph_node"]]
            elif mode == "updates":
                chunk = list(chunk)
            found.append([mode, chunk])
        state = await tales.aget_state(config)
        found.append(list(state.next))
    await tales.ainvoke({"messages": [("user", "again")]}, config)
    await tales.ainvoke(None, config)
    await tales.aupdate_state(config, {"messages": [("user", "added")]}, as_node="tell")
    state = tales.get_state(config)
    return [*found, len(state.values["messages"])]


# -- the id of a message in a prompt ----------------------------------------------------------------------------------


async def name_twice(state: MessagesState) -> dict[str, Any]:
    first = await critic.ainvoke("Hello.")
    return {"messages": [await critic.ainvoke(f"{first.id} said {first.content}")]}


naming = StateGraph(MessagesState)
naming.add_node("name_twice", name_twice)
naming.add_edge(START, "name_twice")
named_twice = durable(naming.compile())


@workflow
async def named() -> int:
    return len((await named_twice.ainvoke({"messages": []}))["messages"])


# -- streams that end early, and members that are set later -----------------------------------------------------------

ENDED: list[str] = []
"""The nodes that were cancelled."""


async def run_on(_state: MessagesState) -> dict[str, Any]:
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        ENDED.append("run_on")
        raise
    return {"messages": []}


async def hurry(_state: MessagesState) -> dict[str, Any]:
    await asyncio.sleep(1)
    return {"messages": [("user", "done")]}


racing = StateGraph(MessagesState)
racing.add_node("run_on", run_on)
racing.add_node("hurry", hurry)
racing.add_edge(START, "run_on")
racing.add_edge(START, "hurry")
races = durable(racing.compile())
limited = durable(racing.compile())
limited.step_timeout = 100


@workflow
async def cut_short() -> list[Any]:
    ENDED.clear()
    found: list[Any] = []
    async with aclosing(races.astream({"messages": []})) as stream:
        async for chunk in stream:
            found.append(list(chunk))
            break
    found.append(list(ENDED))
    try:
        await limited.ainvoke({"messages": []})
    except TimeoutError:
        found.append("too long")
    return [*found, list(ENDED)]


# -- handoffs, retries, questions of tools, consent, and nodes with input and output ----------------------------------


@tool
def hand_over(to: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Hand over to another agent."""
    return Command(goto=to, update={"messages": [ToolMessage(f"over to {to}", tool_call_id=call_id)]}, graph=None)


@tool
def refund(cents: int) -> str:
    """Pay money back."""
    CALLED["refund"] += 1
    how = interrupt(f"How shall {cents} be paid?")
    return f"paid {cents} by {how}"


class Busy(Exception):
    """A service is busy."""


@tool
def ship(order: str) -> str:
    """Ship an order."""
    CALLED["ship"] += 1
    if CALLED["ship"] == 1:
        raise Busy(f"busy with {order}")
    return f"shipped {order}"


def answer_desk(messages: list[BaseMessage]) -> AIMessage:
    steps = [calls(("hand_over", {"to": "back"})), calls(("refund", {"cents": 5})), calls(("ship", {"order": "a1"}))]
    done = sum(isinstance(message, ToolMessage) for message in messages)
    return steps[done] if done < len(steps) else AIMessage("Done.")


clerk = Fake(label="clerk", answer=answer_desk).bind_tools([hand_over, refund, ship])


def front(state: MessagesState) -> dict[str, Any]:
    return {"messages": [clerk.invoke(state["messages"])]}


desk = StateGraph(MessagesState)
desk.add_node("front", front)
desk.add_node("back", front)
desk.add_node("front_tools", ToolNode([hand_over]))
desk.add_node("back_tools", ToolNode([refund, ship]), retry_policy=RetryPolicy(retry_on=Busy, initial_interval=1.0))
desk.add_edge(START, "front")
desk.add_edge("front", "front_tools")
desk.add_conditional_edges("back", tools_condition, {"tools": "back_tools", END: END})
desk.add_edge("back_tools", "back")
desks = durable(desk.compile(), approve=["refund"], to="ada")


@workflow
async def served(text: str) -> list[Any]:
    return contents(await desks.ainvoke({"messages": [("user", text)]}))


class Page(TypedDict, total=False):
    file: str
    text: str
    messages: Annotated[list[AnyMessage], add_messages]


def read(state: Page) -> dict[str, Any]:
    CALLED["read"] += 1
    return {"text": Path(state["file"]).read_text()}


reading = StateGraph(Page)
reading.add_node("read", read)
reading.add_node("write", lambda state: {"messages": [writer.invoke(state["text"])]})
reading.add_edge(START, "read")
reading.add_edge("read", "write")
unmarked = durable(reading.compile())
marked = durable(reading.compile(), steps=["read"])


@workflow
async def pages(file: str, mark: bool) -> list[Any]:
    return contents(await (marked if mark else unmarked).ainvoke({"file": file}))


# -- reviews of calls, as LangChain's middleware asks for them ---------------------------------------------------------


class ReviewState(MessagesState):
    told: Any


def _asks_for_reviews(state: ReviewState) -> dict:
    """Review the calls of a turn as `HumanInTheLoopMiddleware` of `langchain.agents` does."""
    names, allowed = state["messages"][-1].text.split(" "), state["told"]
    requests = [{"name": name, "args": {"cents": 500}, "description": "It costs money."} for name in names]
    configs = [{"action_name": name, "allowed_decisions": allowed} for name in names]
    return {"told": interrupt({"action_requests": requests, "review_configs": configs})["decisions"]}


HAS_SCHEMAS = "response_schema" in signature(interrupt).parameters
"""Whether an interrupt of this version of LangGraph may describe its answer."""


class Decided(TypedDict):
    type: Literal["approve", "reject"]
    message: NotRequired[str]


def _asks_for_a_review(state: ReviewState) -> dict:
    """Review one call as it does in its mode `per_call`."""
    request = {"type": "tool_approval", "tool_call_id": "1", "name": "refund", "args": {"cents": 500}}
    return {"told": interrupt(request, response_schema=Decided)}


def _reviewing(node: Any) -> Any:
    builder = StateGraph(ReviewState)
    builder.add_node("review", node)
    builder.add_edge(START, "review")
    return durable(builder.compile(), to="ada")


REVIEWING = {"batched": _reviewing(_asks_for_reviews), "per_call": _reviewing(_asks_for_a_review)}


@workflow
async def reviewed(calls: str, allowed: list[str], mode: str = "batched") -> Any:
    return (await REVIEWING[mode].ainvoke({"messages": [("user", calls)], "told": allowed}))["told"]
