"""Steps that call a tool: the arguments with their values, the call, and the result as a text."""

import datetime as dt
import json
from collections.abc import Callable, Sequence

from callboard.bus.effects import Failure, ScriptedTools, ToolSpec
from callboard.bus.paths import last_id
from callboard.languages.agent import Refusal
from callboard.languages.approvals.desk import desk_of
from callboard.languages.approvals.question import Call
from callboard.languages.approvals.terms import Terms
from callboard.languages.computation import compute
from callboard.languages.language import Expired, Failed, Node, Ok, Stage
from callboard.languages.playbook.document import ToolCall
from callboard.languages.playbook.interpolation import Rendered, TooMuchText, render_json
from callboard.languages.playbook.names import Names, text_of
from callboard.languages.playbook.options import CALLER, Options
from callboard.languages.playbook.outcome import Broken, Done, Lapsed, Outcome
from callboard.lib.json_types import JSON

SLOT = "tool.0.0"


async def call_tool(
    stage: Stage,
    node: Node,
    call: ToolCall,
    names: Names,
    options: Options,
    warn_unresolved: Callable[[tuple[str, ...]], None],
    terms: Sequence[Terms],
) -> Outcome:
    """Call the tool of a step; ``warn_unresolved`` gets the names of the placeholders without a value.

    ``terms`` says whether the call needs approval. The step fails if a person rejects it.
    """
    try:
        made, arguments = await compute(stage, lambda: _render_arguments(call, names, stage.info.rules))
    except TooMuchText as error:
        return Broken(Failure("playbook.too_much_text", str(error)))
    warn_unresolved(made.missing)
    if isinstance(arguments, Failure):
        return Broken(arguments)
    source = options.source(call.connection_name)
    if source == CALLER:
        allowed = await _approve(stage, node, ToolSpec(call.tool_name), arguments, terms)
        if isinstance(allowed, Refusal):
            return Broken(allowed.error)
        return await _by_caller(stage, node, call, allowed.value, options)
    # If the start names no source for the connection, the run's script may answer the call.
    async with node.toolbox([source or ScriptedTools([ToolSpec(call.tool_name)])]) as opened:
        if isinstance(opened, Failed):
            return Broken(opened.error)
        spec = next((one for one in opened.value if one.name == call.tool_name), ToolSpec(call.tool_name))
        allowed = await _approve(stage, node, spec, arguments, terms)
        if isinstance(allowed, Refusal):
            return Broken(allowed.error)
        outcome = await node.tool(SLOT, call.tool_name, allowed.value, server=call.connection_name)
    return _outcome(outcome)


async def _approve(
    stage: Stage, node: Node, tool: ToolSpec, arguments: JSON, terms: Sequence[Terms]
) -> Ok[JSON] | Refusal:
    """Return the arguments with which the call of a step may be made, or why it must not be made."""
    if not terms:
        return Ok(arguments)
    call = Call(tool, arguments, f"step {last_id(node.path)}", node.path)
    return await desk_of(stage).decide(node, SLOT, call, terms)


def _render_arguments(call: ToolCall, names: Names, rules: int) -> tuple[Rendered, JSON | Failure]:
    """Return the text of a call's arguments, and its value, or why it has none."""
    made = render_json(call.arguments, names.find, rules)
    return made, _arguments(made.text)


def _arguments(text: str) -> JSON | Failure:
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        return Failure("playbook.tool_arguments", f"the arguments are no JSON: {error}", details={"arguments": text})
    if not isinstance(found, dict):
        message = "the arguments are JSON, but no object"
        return Failure("playbook.tool_arguments", message, details={"arguments": text})
    return found


async def _by_caller(stage: Stage, node: Node, call: ToolCall, arguments: JSON, options: Options) -> Outcome:
    due = stage.now() + dt.timedelta(seconds=options.expires_after)
    made = node.tool(SLOT, call.tool_name, arguments, server=call.connection_name, via="caller")
    raced = await stage.within(due, made, node=node, slot=f"{SLOT}.expiry")
    if isinstance(raced, Expired):
        return Lapsed(f"nobody answered the call of {call.tool_name} in time")
    return _outcome(raced.value)


def _outcome(outcome: Ok[JSON] | Failed) -> Outcome:
    return Done(text_of(outcome.value)) if isinstance(outcome, Ok) else Broken(outcome.error)
