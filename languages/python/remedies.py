"""Remedies for input and output in a workflow: a step, or the line by which a library of agents is durable."""

import asyncio
import sys
from types import FrameType

from callboard.languages.python.frames import is_installed, is_own

STEP = "make what does this a @step"

_STANDARD_LIBRARY = asyncio.__file__.rpartition("/asyncio/")[0]

_OF_LIBRARIES = {
    "pydantic_ai.direct": "ask the model by an agent with capabilities=[Durable()] (callboard.adapters.pydantic_ai), "
    "or in a @step",
    "pydantic_ai": "let it be durable, by capabilities=[Durable()] in Agent(…) (callboard.adapters.pydantic_ai), "
    "or run it in a @step",
    "langchain_core": "let a durable graph ask it, by durable(graph) (callboard.adapters.langgraph), "
    "or ask it in a @step",
    "langgraph": "let the graph be durable, by durable(graph) (callboard.adapters.langgraph), or run it in a @step",
    "agents": "let the agent be durable, by run_config=callboard_run_config() in Runner.run(…) "
    "(callboard.adapters.openai_agents), or run it in a @step",
    "claude_agent_sdk": "take query and ClaudeSDKClient from callboard.adapters.claude_agent, or use it in a @step",
}
"""What to do about each library, by the name of its module or of its package."""

_NAMES = {
    "pydantic_ai": "an agent of Pydantic AI",
    "pydantic_ai.direct": "a model of Pydantic AI",
    "langchain_core": "a chat model or another component of LangChain",
    "langgraph": "a graph of LangGraph",
    "agents": "an agent of the OpenAI Agents SDK",
    "claude_agent_sdk": "an agent of the Claude Agent SDK",
}


def remedy(frame: FrameType | None = None) -> str:
    """Return what to do about the operation of a frame, by default of the caller.

    It is the library's if no code of a user is between the operation and the library.
    """
    frame = frame or sys._getframe(1)  # pyright: ignore
    found = ""
    while frame is not None and not _is_of_a_user(frame.f_code.co_filename):
        module = str(frame.f_globals.get("__name__", ""))
        found = next((one for one in (module, module.partition(".")[0]) if one in _OF_LIBRARIES), found)
        frame = frame.f_back
    return f"{_NAMES[found]} does this, where nothing records it: {_OF_LIBRARIES[found]}" if found else STEP


def _is_of_a_user(file: str) -> bool:
    return not is_own(file) and not is_installed(file) and not file.startswith((_STANDARD_LIBRARY, "<"))
