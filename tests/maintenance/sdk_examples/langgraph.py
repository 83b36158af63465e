"""The notebooks of LangGraph: ``graph = durable(graph)`` is added after the statements that define the graph.

Those that call it are left out, as the workflow calls it. Stand-ins for the packages of providers have models that
cannot answer, since a script answers.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.tools import tool
from langgraph.func import entrypoint
from langgraph.graph import StateGraph
from pydantic import ConfigDict

from callboard.adapters.langgraph import durable
from tests.maintenance.sdk_examples.examples import Example, Perform, Program, call, definitions_of, say

_ASKED = {"messages": [("user", "What is the weather in sf?")]}
_SF = ("get_weather", {"location": "sf"})
_HELLO = [{"role": "user", "content": "Hello."}]
_THREAD = {"configurable": {"thread_id": "1", "user_id": "1"}}

EXAMPLES: Sequence[Example] = (
    Example(
        file="docs/docs/how-tos/react-agent-from-scratch.ipynb",
        covers="a `StateGraph` that calls tools by `invoke`",
        program="graph",
        input=_ASKED,
        turns={"agent": [call(_SF, _SF), say("Sunny.")]},
    ),
    Example(
        file="docs/docs/how-tos/react-agent-from-scratch-functional.ipynb",
        covers="the functional API: tasks at the same time, `previous`",
        program="agent",
        input=_HELLO,
        turns={"call_model": [call(_SF, ("get_weather", {"location": "boston"})), say("Sunny and rainy.")]},
    ),
    Example(
        file="docs/docs/how-tos/react-agent-structured-output.ipynb",
        covers="`with_structured_output`, `ToolNode`",
        program="graph",
        input=_ASKED,
        turns={
            "agent": [call(("get_weather", {"city": "sf"})), say("75 degrees.")],
            "respond": [call(("WeatherResponse", {"temperature": 75, "wind_directon": "SE", "wind_speed": 3}))],
        },
    ),
    Example(
        file="docs/docs/how-tos/human_in_the_loop/wait-user-input.ipynb",
        covers="`interrupt` in a node of an agent",
        program="app",
        input=_ASKED,
        turns={
            "agent": [
                call(("AskHuman", {"question": "Where are you?"})),
                call(("search", {"query": "weather in sf"})),
                say("Sunny."),
            ]
        },
        answers=["San Francisco"],
    ),
    Example(
        file="docs/docs/how-tos/multi-agent-network-functional.ipynb",
        covers="agents of `create_react_agent` in tasks, handed over to by `return_direct`",
        program="workflow",
        input=_HELLO,
        turns={
            "agent": [
                call(("get_travel_recommendations", {})),
                call(("transfer_to_hotel_advisor", {})),
                call(("get_hotel_recommendations", {"location": "aruba"})),
                say("The Ritz."),
            ]
        },
    ),
    Example(
        file="docs/docs/how-tos/persistence-functional.ipynb",
        covers="`entrypoint.final`",
        program="workflow",
        input=_HELLO,
        turns={"call_model": [say("Hi.")]},
    ),
    Example(
        file="docs/docs/how-tos/disable-streaming.ipynb",
        covers="`disable_streaming`",
        program="graph",
        input=_ASKED,
        turns={"chatbot": [say("Three.")]},
    ),
    Example(
        file="docs/docs/tutorials/rewoo/rewoo.ipynb",
        covers="chains of prompt and model, a tool called by a node",
        program="app",
        input={"task": "Who won?"},
        turns={
            "plan": [say("Plan: Look. #E1 = Google[winner]\nPlan: Think. #E2 = LLM[Who is #E1?]")],
            "tool": [say("Sinner")],
            "solve": [say("Sexten")],
        },
    ),
    Example(
        file="docs/docs/tutorials/plan-and-execute/plan-and-execute.ipynb",
        covers="structured outputs, an agent called by a node",
        program="app",
        input={"input": "Who won?"},
        turns={
            "planner": [call(("Plan", {"steps": ["Look."]}))],
            "agent/agent": [call(("tavily", {"query": "winner"})), say("Sinner.")],
            "replan": [call(("Act", {"action": {"response": "Sinner."}}))],
        },
    ),
    Example(
        file="docs/docs/tutorials/multi_agent/multi-agent-collaboration.ipynb",
        covers="agents as nodes, `Command(goto=…)`",
        program="graph",
        input={"messages": [("user", "Draw it.")]},
        turns={
            "researcher/agent": [call(("tavily", {"query": "GDP"})), say("Numbers.")],
            "chart_generator/agent": [call(("python_repl_tool", {"code": "1"})), say("FINAL ANSWER")],
        },
    ),
    Example(
        file="docs/docs/tutorials/reflection/reflection.ipynb",
        covers="a loop of two asynchronous nodes",
        program="graph",
        input={"messages": [("user", "Write.")]},
        turns={"generate": [say(f"Essay {k}.") for k in range(4)], "reflect": [say("More.")] * 3},
    ),
    Example(
        file="docs/docs/tutorials/chatbots/information-gather-prompting.ipynb",
        covers="a routed conversation",
        program="graph",
        input={"messages": [("user", "A prompt, please.")]},
        turns={
            "info": [
                call(("PromptInstructions", {"objective": "o", "variables": [], "constraints": [], "requirements": []}))
            ],
            "prompt": [say("Do o.")],
        },
    ),
)


def load(one: Example, checkout: Path, folder: Path) -> Program:
    """Define the graph of a notebook, and return a function that calls it."""
    sys.modules.update(_stand_ins())
    notebook = json.loads((checkout / one.file).read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    path = folder / f"{Path(one.file).stem.replace('-', '_')}.py"
    path.write_text(definitions_of(cells))
    module = ModuleType(path.stem)
    sys.modules[path.stem] = module
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    graph = durable(getattr(module, one.program), **one.options)

    async def perform() -> Any:
        return await graph.ainvoke(one.input, _THREAD)

    return perform


class _Unasked(BaseChatModel):
    """A chat model of a provider."""

    model_config = ConfigDict(extra="allow")

    @property
    def _llm_type(self) -> str:
        return "unasked"

    def _generate(self, *_given: Any, **_named: Any) -> Any:
        raise AssertionError("a script answers")

    def bind_tools(self, tools: Any, **given: Any) -> Any:
        return self.bind(tools=list(tools), **given)


def _search(**_given: Any) -> Any:
    @tool
    def tavily(query: str) -> str:
        """Search the web."""
        return f"results for {query}"

    return tavily


class _Repl:
    def run(self, code: str) -> str:
        return code


def _stand_ins() -> dict[str, ModuleType]:
    """Return modules in the place of packages that are not installed, with what the examples import of them."""
    members: dict[str, dict[str, Any]] = {
        "langchain_openai": {"ChatOpenAI": _Unasked},
        "langchain_anthropic": {"ChatAnthropic": _Unasked},
        "langchain_fireworks": {"ChatFireworks": _Unasked},
        "langchain_tavily": {"TavilySearch": _search},
        "langchain_community": {},
        "langchain_community.tools": {},
        "langchain_community.tools.tavily_search": {"TavilySearchResults": _search},
        "langchain_experimental": {},
        "langchain_experimental.utilities": {"PythonREPL": _Repl},
        "IPython": {},
        "IPython.display": {"Image": None, "display": None},
    }
    made = {name: ModuleType(name) for name in members}
    for name, found in members.items():
        made[name].__dict__.update(found)
    return made


def patch(_perform: Perform) -> None:
    """Make each graph and each functional graph durable, for LangGraph's own tests."""
    graphs: Any = StateGraph
    functions: Any = entrypoint
    compiled, called = graphs.compile, functions.__call__
    graphs.compile = lambda self, *given, **named: durable(compiled(self, *given, **named))
    functions.__call__ = lambda self, function: durable(called(self, function))
