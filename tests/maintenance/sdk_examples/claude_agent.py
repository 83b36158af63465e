"""The examples of the Claude Agent SDK: `query` and the client are imported from the adapter.

A process that speaks the protocol of the SDK's program replaces it, so that permissions, hooks and tools are asked
for as by the program.
"""

import ast
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claude_agent_sdk._internal.transport import subprocess_cli

from tests.maintenance.sdk_examples.examples import Edits, Example, Program, edit
from tests.support.claude_agent_cli import Block, Cli, text, use

_CLI = Cli()

_CLAUDE = {"query", "ClaudeSDKClient"}

CALLS: dict[str, list[Block]] = {
    "Create a file called hello.txt": [use("w1", "Write", file_path="hello.txt", content="Hello, World!")],
    "Use the code-reviewer agent": [use("a1", "Task", subagent_type="code-reviewer", prompt="Review it.")],
    "Use the doc-writer agent": [use("a2", "Task", subagent_type="doc-writer", prompt="Explain it.")],
    "Calculate 15 + 27": [use("c1", "mcp__calc__add", a=15, b=27)],
    "What is 100 divided by 7?": [use("c2", "mcp__calc__divide", a=100, b=7)],
    "Calculate the square root of 144": [use("c3", "mcp__calc__sqrt", n=144)],
    "2 raised to the power of 8": [use("c4", "mcp__calc__power", base=2, exponent=8)],
    "Calculate (12 + 8) * 3 - 10": [
        use("c5", "mcp__calc__add", a=12, b=8),
        use("c6", "mcp__calc__multiply", a=20, b=3),
        use("c7", "mcp__calc__subtract", a=60, b=10),
    ],
    "Please do the following": [
        use("p1", "Glob", pattern="*"),
        use("p2", "Write", file_path="hello.py", content="print('hello')"),
        use("p3", "Bash", command="python hello.py"),
    ],
    "./foo.sh --help": [use("h1", "Bash", command="./foo.sh --help")],
    "echo 'Hello from hooks example!'": [use("h2", "Bash", command="echo 'Hello from hooks example!'")],
    "ls /nonexistent_directory": [use("h3", "Bash", command="ls /nonexistent_directory")],
    "important_config.txt": [use("h4", "Write", file_path="important_config.txt", content="test data")],
    "regular_file.txt": [use("h5", "Write", file_path="regular_file.txt", content="test data")],
    "echo 'CRITICAL ERROR": [use("h6", "Bash", command="echo 'CRITICAL ERROR: system failure'")],
    "Create a simple hello.txt": [use("s1", "Write", file_path="hello.txt", content="Hi.")],
    "Run a bash echo command": [use("s2", "Bash", command="echo 'Hello from bash!'")],
}
"""The calls of the model, by words of the prompt; then, and after any other prompt, it answers with a text."""

EXAMPLES: Sequence[Example] = (
    Example(file="examples/quick_start.py", covers="`query` with and without options, a tool of the program"),
    Example(file="examples/system_prompt.py", covers="the forms of `system_prompt`"),
    Example(file="examples/tools_option.py", covers="the forms of `tools`"),
    Example(file="examples/agents.py", covers="`agents`: subagents"),
    Example(file="examples/mcp_calculator.py", covers="Python tools, three calls in a turn, several clients"),
    Example(file="examples/max_budget_usd.py", covers="`max_budget_usd`"),
    Example(file="examples/stderr_callback_example.py", covers="`stderr`"),
    Example(file="examples/tool_permission_callback.py", covers="`can_use_tool` that permits, and changes an input"),
    Example(file="examples/include_partial_messages.py", covers="`include_partial_messages`"),
    Example(file="examples/setting_sources.py", program="example_project_and_user", covers="`setting_sources`"),
    Example(file="examples/filesystem_agents.py", covers="agents of a project"),
    Example(file="examples/plugin_example.py", program="plugin_example", covers="`plugins`"),
    *(
        Example(file="examples/hooks.py", program=program, covers=covers)
        for program, covers in (
            ("example_pretooluse", "a `PreToolUse` hook that denies a call"),
            ("example_userpromptsubmit", "a `UserPromptSubmit` hook"),
            ("example_posttooluse", "a `PostToolUse` hook"),
            ("example_decision_fields", "`PreToolUse` hooks that allow and deny"),
            ("example_continue_control", "a hook that stops the agent"),
        )
    ),
    *(
        Example(file="examples/streaming_mode.py", program=program, covers=covers)
        for program, covers in (
            ("example_basic_streaming", "a client"),
            ("example_multi_turn_conversation", "several queries of one client"),
            ("example_concurrent_responses", "a task that receives while another one sends"),
            ("example_manual_message_handling", "`receive_messages` until the result"),
            ("example_with_options", "options with a tool of the program"),
            ("example_async_iterable_prompt", "a prompt that is an asynchronous iterable"),
            ("example_bash_command", "blocks with calls and results"),
            ("example_error_handling", "a timeout while messages are received"),
        )
    ),
)


def load(one: Example, checkout: Path, folder: Path) -> Program:
    """Import an example from an edited copy in a folder, and return its function."""
    _CLI.model = _answer
    transport: Any = _CLI.transport
    subprocess_cli.SubprocessCLITransport = transport
    os.environ["CLAUDE_CONFIG_DIR"] = str(folder / "config")
    path = folder / Path(one.file).name
    path.write_text(make_durable((checkout / one.file).read_text()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(checkout / one.file)
    spec.loader.exec_module(module)
    return getattr(module, one.program)


def _answer(messages: list[Any]) -> list[Block]:
    """Return the next message of the model."""
    told = messages[-1]["content"]
    said = " ".join(block["text"] for block in told if block["type"] == "text")
    if any(block["type"] == "tool_result" for block in told):
        return [text("Done.")]
    found = next((calls for words, calls in CALLS.items() if words in said), [])
    return [text("Let me see."), *found] if found else [text("Good.")]


def make_durable(source: str) -> str:
    """Return the source of an example that imports what runs an agent from the adapter."""
    edits: Edits = {}
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "claude_agent_sdk":
            names = ", ".join(one.name for one in node.names if one.name in _CLAUDE)
            if names:
                end = node.end_lineno or node.lineno
                indent = " " * node.col_offset
                added = f"{indent}from callboard.adapters.claude_agent import {names}\n"
                edits[end, len(lines[end - 1].encode())] = 0, added
    return edit(source, edits)
