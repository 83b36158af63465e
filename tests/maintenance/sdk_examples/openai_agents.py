"""The examples of the OpenAI Agents SDK: ``run_config=callboard_run_config()`` is added to each run of an agent."""

import ast
import importlib
import inspect
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from agents import Runner

from callboard.adapters.openai_agents import callboard_run_config
from callboard.languages.python.loop import current_loop
from tests.maintenance.sdk_examples.examples import Edits, Example, Perform, Program, call, data, edit, say

_WEATHER = [call(("get_weather", {"city": "Tokyo"})), say("It is sunny.")]
_NUMBERS = {
    "Start Agent": [call(("random_number", {"max": 50})), call(("transfer_to_multiply_agent", {}))],
    "Multiply Agent": [call(("multiply_by_two", {"x": 7})), data(number=14)],
}
_FILTERED = [say("Hello."), call(("random_number_tool", {"max": 100})), say("42.")]

EXAMPLES: Sequence[Example] = (
    Example(
        file="examples/agent_patterns/agents_as_tools.py",
        covers="agents that are tools of another, two calls in one turn",
        turns={
            "orchestrator_agent": [
                call(("translate_to_spanish", {"input": "Hello"}), ("translate_to_french", {"input": "Hello"})),
                say("Hola, bonjour."),
            ],
            "spanish_agent": [say("Hola.")],
            "french_agent": [say("Bonjour.")],
            "synthesizer_agent": [say("Hola. Bonjour.")],
        },
    ),
    Example(
        file="examples/agent_patterns/agents_as_tools_conditional.py",
        covers="`is_enabled` of tools, and an approval in an agent that is a tool",
        turns={
            "orchestrator": [
                call(("respond_spanish", {"input": "Hi"}), ("respond_french", {"input": "Hi"})),
                say("Hola, bonjour."),
            ],
            "spanish_agent": [call(("get_user_name", {})), say("Hola.")],
            "french_agent": [say("Bonjour.")],
        },
    ),
    Example(
        file="examples/agent_patterns/agents_as_tools_streaming.py",
        covers="the stream of an agent that is a tool",
        turns={
            "Customer Support Agent": [call(("billing_agent", {"input": "ABC123"})), say("It is paid.")],
            "Billing Agent": [
                call(("billing_status_checker", {"customer_id": "ABC123", "question": "Paid?"})),
                say("Paid."),
            ],
        },
    ),
    Example(
        file="examples/agent_patterns/agents_as_tools_structured.py",
        covers="an agent that is a tool with a structured input",
        turns={
            "translator": [say("Hola."), say("Hola.")],
            "orchestrator": [
                call(("translate_text", {"text": "Hello", "source": "en", "target": "es"})),
                say("Hola."),
            ],
        },
    ),
    Example(
        file="examples/agent_patterns/deterministic.py",
        covers="agents one after another, a structured output",
        turns={
            "story_outline_agent": [say("A ship.")],
            "outline_checker_agent": [data(good_quality=True, is_scifi=True)],
            "story_agent": [say("The end.")],
        },
    ),
    Example(
        file="examples/agent_patterns/forcing_tool_use.py",
        program="auto_demo",
        covers="`tool_choice`, and the three forms of `tool_use_behavior`",
        turns={"Weather agent": [_WEATHER[0], _WEATHER[1], _WEATHER[0], _WEATHER[0]]},
    ),
    Example(
        file="examples/agent_patterns/human_in_the_loop.py",
        covers="`needs_approval` by the arguments of a call",
        turns={
            "Weather Assistant": [
                call(("get_weather", {"city": "Oakland"}), ("get_temperature", {"city": "Oakland"})),
                say("Sunny, 20 degrees."),
            ]
        },
    ),
    Example(
        file="examples/agent_patterns/human_in_the_loop_custom_rejection.py",
        covers="`tool_error_formatter` for a rejected call",
        turns={
            "Operations Assistant": [
                call(("publish_announcement", {"title": "Office", "body": "Closed."})),
                say("It was not published."),
            ]
        },
        answers=[False],
    ),
    Example(
        file="examples/agent_patterns/human_in_the_loop_stream.py",
        covers="an approval in a streamed run",
        turns={
            "Weather Assistant": [
                call(("get_weather", {"city": "Oakland"}), ("get_temperature", {"city": "Oakland"})),
                say("Sunny, 20 degrees."),
            ]
        },
    ),
    Example(
        file="examples/agent_patterns/input_guardrails.py",
        covers="an input guardrail that asks another agent, beside the agent's own turn",
        turns={
            "Customer support agent": [say("Sacramento."), say("x is 3.")],
            "Guardrail check": [
                data(reasoning="geography", is_math_homework=False),
                data(reasoning="algebra", is_math_homework=True),
            ],
        },
    ),
    Example(
        file="examples/agent_patterns/output_guardrails.py",
        covers="an output guardrail",
        turns={
            "Assistant": [
                data(reasoning="easy", response="Sacramento.", user_name=None),
                data(reasoning="phone number 650-123-4567", response="California.", user_name=None),
            ]
        },
    ),
    Example(
        file="examples/agent_patterns/llm_as_a_judge.py",
        covers="a loop of two agents over one list of items",
        turns={
            "story_outline_generator": [say("A ship."), say("A ship in a storm.")],
            "evaluator": [
                data(response={"feedback": "More.", "score": "needs_improvement"}),
                data(response={"feedback": "Good.", "score": "pass"}),
            ],
        },
    ),
    Example(
        file="examples/agent_patterns/parallelization.py",
        covers="three runs of one agent at the same time",
        turns={"spanish_agent": [say("Hola."), say("Hola."), say("Hola.")], "translation_picker": [say("Hola.")]},
    ),
    Example(
        file="examples/agent_patterns/routing.py",
        covers="a handoff in a streamed run",
        turns={"triage_agent": [call(("transfer_to_french_agent", {}))], "french_agent": [say("Bonsoir.")]},
    ),
    Example(
        file="examples/agent_patterns/streaming_guardrails.py",
        covers="a check of the text while it is streamed",
        turns={
            "Assistant": [say("Words. " * 60)],
            "Checker": [data(reasoning="hard words", is_readable_by_ten_year_old=False)] * 2,
        },
    ),
    Example(file="examples/basic/agent_lifecycle_example.py", covers="hooks of agents, a handoff", turns=_NUMBERS),
    Example(
        file="examples/basic/lifecycle_example.py", covers="hooks of a run and of agents, a handoff", turns=_NUMBERS
    ),
    Example(
        file="examples/basic/dynamic_system_prompt.py",
        covers="instructions that follow from the context",
        turns={"Chat agent": [say("Rain.")]},
    ),
    Example(
        file="examples/basic/non_strict_output_type.py",
        covers="output schemas that are not strict, and a custom one",
        turns={
            "Assistant": [
                data(jokes={"1": "a", "2": "b", "3": "c"}),
                data(jokes={"1": "a", "2": "b", "3": "c"}),
            ]
        },
    ),
    Example(
        file="examples/basic/previous_response_id.py",
        covers="`previous_response_id`",
        turns={"Assistant": [say("Brazil."), say("Brasília.")]},
    ),
    Example(
        file="examples/basic/image_tool_output.py",
        covers="a tool that returns an image",
        turns={"Assistant": [call(("fetch_random_image", {})), say("A cat.")]},
    ),
    Example(
        file="examples/basic/remote_image.py",
        covers="an image in the input",
        turns={"Assistant": [say("A bridge.")]},
    ),
    Example(
        file="examples/basic/retry.py",
        covers="`ModelSettings.retry`",
        turns={"Assistant": [say("Once more.")]},
    ),
    Example(
        file="examples/basic/stream_items.py",
        covers="the items of a streamed run",
        turns={"Joker": [call(("how_many_jokes", {})), say("A joke.")]},
    ),
    Example(file="examples/basic/stream_text.py", covers="the text of a streamed run", turns={"Joker": [say("Ha.")]}),
    Example(
        file="examples/basic/stream_function_call_args.py",
        covers="the arguments of calls in a stream",
        turns={
            "CodeGenerator": [
                call(("write_file", {"filename": "a.py", "content": "print(1)"})),
                call(("create_config", {"project_name": "a", "version": "1", "dependencies": []})),
                say("Made."),
            ]
        },
    ),
    Example(
        file="examples/basic/tool_guardrails.py",
        covers="guardrails of a tool's input and output",
        turns={
            "Secure Assistant": [
                call(("send_email", {"to": "a@example.com", "subject": "Hi", "body": "Hello."})),
                say("Sent."),
                call(("send_email", {"to": "a@example.com", "subject": "ACME", "body": "password"})),
                say("Not sent."),
                call(("get_user_data", {"user_id": "user123"})),
                call(("get_contact_info", {"user_id": "user456"})),
                say("Not shown."),
            ]
        },
    ),
    Example(file="examples/basic/tools.py", covers="a tool with a typed output", turns={"Hello world": _WEATHER}),
    Example(file="examples/basic/usage_tracking.py", covers="the usage of a run", turns={"Usage Demo": _WEATHER}),
    Example(
        file="examples/customer_service/main.py",
        covers="handoffs with a hook that changes the context",
        turns={
            "Triage Agent": [call(("transfer_to_faq_agent", {}))],
            "FAQ Agent": [call(("faq_lookup_tool", {"question": "bags"})), say("One bag.")],
        },
    ),
    Example(
        file="examples/handoffs/message_filter.py",
        covers="a filter of the input of a handoff",
        turns={
            "Assistant": [*_FILTERED, say("Eight million."), call(("transfer_to_spanish_assistant", {}))],
            "Spanish Assistant": [say("No lo sé.")],
        },
    ),
    Example(
        file="examples/handoffs/message_filter_streaming.py",
        covers="the same, streamed",
        turns={
            "Assistant": [*_FILTERED, say("Eight million."), call(("transfer_to_spanish_assistant", {}))],
            "Spanish Assistant": [say("No lo sé.")],
        },
    ),
    Example(
        file="examples/memory/sqlite_session_example.py",
        covers="`SQLiteSession` in memory",
        turns={"Assistant": [say("San Francisco."), say("California."), say("39 million.")]},
    ),
)


def load(one: Example, checkout: Path, folder: Path) -> Program:
    """Import an example from an edited copy in a folder, and return its function."""
    copies = folder / "examples"
    if not copies.exists():
        os.environ |= {"EXAMPLES_INTERACTIVE_MODE": "auto", "OPENAI_API_KEY": "none"}
        shutil.copytree(checkout / "examples", copies)
        for path in copies.rglob("*.py"):
            path.write_text(make_durable(path.read_text()))
        sys.path.insert(0, str(folder))
    return getattr(importlib.import_module(one.file.removesuffix(".py").replace("/", ".")), one.program)


def make_durable(source: str) -> str:
    """Return the source of an example with the configuration of Callboard for each run of an agent."""
    edits: Edits = {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("Runner"), attr="run" | "run_streamed")):
                if not any(one.arg == "run_config" for one in node.keywords):
                    last: Any = max([*node.args, *node.keywords], key=lambda one: (one.end_lineno, one.end_col_offset))
                    edits[last.end_lineno, last.end_col_offset] = 0, ", run_config=callboard_run_config()"
            case ast.Call(func=ast.Name("RunConfig") as name):
                edits[name.lineno, name.col_offset] = len("RunConfig"), "callboard_run_config"
            case _:
                pass
    if edits:
        first = next(node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "agents")
        edits[first.lineno, 0] = 0, "from callboard.adapters.openai_agents import callboard_run_config\n"
    return edit(source, edits)


def patch(_perform: Perform) -> None:
    """Let each run of an agent have the configuration of Callboard, for the SDK's own tests."""
    for name in ("run", "run_streamed"):
        setattr(Runner, name, _configured(getattr(Runner, name)))


def _configured(run: Any) -> Any:
    signature = inspect.signature(run)

    def call(*given: Any, **named: Any) -> Any:
        if current_loop() is None:
            return run(*given, **named)
        bound = signature.bind(*given, **named)
        config = bound.arguments.get("run_config")
        if isinstance(config, dict):
            kept: dict[str, Any] = {**config}
        else:
            kept = {} if config is None else {one.name: getattr(config, one.name) for one in fields(config)}
        bound.arguments["run_config"] = callboard_run_config(**kept)
        return run(*bound.args, **bound.kwargs)

    return staticmethod(call)
