"""The runner of EXTERNAL_ACTION: one operation of a service, or a request to a URL if Callboard has no such service.

The request of an effect of kind ``service`` is::

    {"service": "slack" | "github" | "notion" | "google_calendar" | "firecrawl" | "discord" | "telegram" | "email",
     "action": "send_message" | …, "configurations": {…}, "input": <the input>,
     "user_id": "…", "workflow_id": "…"}

The answer is the node's payload. A service that refuses the operation answers ``{"success": false, "error_message": …,
"error_code": …, "error_details": {"reason", "solution", …}}``. The worker has the credentials, so a configuration that
is still ``{{$placeholder}}`` is left out.
"""

from msgspec.structs import replace

from callboard.bus.effects import ToolSpec
from callboard.languages.agent import Refusal
from callboard.languages.approvals.approvals import run_approvals
from callboard.languages.approvals.member import MEMBER, read_terms
from callboard.languages.approvals.question import ProposedCall
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.memory import request
from callboard.languages.graph.runners.http_requests import ANY_STATUS, TIMEOUT_S, send_request
from callboard.languages.graph.runners.passthrough import passthrough
from callboard.languages.graph.templates import is_placeholder
from callboard.languages.graph.times import seconds_between
from callboard.languages.graph.tools import resolve_tools
from callboard.languages.graph.work import NodeAttempt, NodeFailed, Outputs, failed_effect, result
from callboard.languages.language import Failed, Ok
from callboard.lib.json_types import JSON

SERVICES = {
    "SLACK": "slack",
    "GITHUB": "github",
    "NOTION": "notion",
    "GOOGLE_CALENDAR": "google_calendar",
    "FIRECRAWL": "firecrawl",
    "DISCORD_ACTION": "discord",
    "TELEGRAM_ACTION": "telegram",
    "EMAIL": "email",
}
"""The service of each subtype that has one."""


async def external(work: NodeAttempt) -> Outputs:
    """EXTERNAL_ACTION: perform one operation of a service; the payload is its answer."""
    service = SERVICES.get(work.spec.subtype)
    if service is None or (service == "email" and await work.compute(_url)):
        return await _call_url(work)
    request = await work.compute(_request, service)
    outcome = await work.node.call("service", "service", request)
    if isinstance(outcome, Failed):
        raise failed_effect(outcome.error)
    return result(outcome.value, service=service, action=request["action"])


def _request(work: NodeAttempt, service: str) -> dict[str, JSON]:
    """Make the request to the service."""
    declared = work.spec.spec.configurations if work.spec.spec is not None else {}
    configured = {**{name: field.default for name, field in declared.items()}, **work.spec.configurations}
    configurations = {name: value for name, value in configured.items() if value is not None}
    return {
        "service": service,
        "action": text_of(work.input_member("action_type")) or work.text("action_type", "action"),
        "configurations": {
            name: work.render(value)
            for name, value in configurations.items()
            if value == "" or not is_placeholder(value)
        },
        "input": work.inputs.get(RESULT),
        "user_id": work.context.user_id,
        "workflow_id": work.context.graph.id,
    }


async def _call_url(work: NodeAttempt) -> Outputs:
    """Send the message (EMAIL) or the input to the node's URL; without a URL pass the input on."""
    arguments = await work.compute(_arguments)
    if not arguments["url"]:
        return await passthrough(work)
    payload, details = await send_request(work, arguments)
    return Outputs(result(payload).ports, details)


def _arguments(work: NodeAttempt) -> dict[str, JSON]:
    """Make the arguments of the ``http`` provider."""
    headers = work.render(work.setting("headers"))
    arguments: dict[str, JSON] = {
        "method": work.text("method").upper() or "POST",
        "url": _url(work),
        "headers": {name: text_of(value) for name, value in headers.items()} if isinstance(headers, dict) else {},
        "timeout": f"PT{max(0.001, work.number('timeout_seconds', 'timeout', otherwise=TIMEOUT_S)):.3f}S",
        "expect": ANY_STATUS,
    }
    if arguments["method"] not in ("GET", "HEAD", "OPTIONS"):
        arguments["json"] = _message(work) if work.spec.subtype == "EMAIL" else _body(work)
    return arguments


def _url(work: NodeAttempt) -> str:
    return work.text("url", "webhook_url", "endpoint").strip()


def _message(work: NodeAttempt) -> dict[str, JSON]:
    """Return the parts of the mail, each from the input, else from the configuration."""
    parts = {name: work.input_member(name) for name in ("to", "subject", "text", "html")}
    found = {name: work.render(work.setting(name)) if value is None else value for name, value in parts.items()}
    return {name: value for name, value in found.items() if value is not None}


def _body(work: NodeAttempt) -> JSON:
    body = work.render(work.setting("body", "payload"))
    return work.inputs.get(RESULT) if body is None else body


async def tool(work: NodeAttempt) -> Outputs:
    """TOOL: call one tool; the payload has its result, or ``success: false`` if the call failed.

    :raises NodeFailed: if the call needs approval and is rejected
    """
    name, arguments = await work.compute(_tool_call)
    start = work.stage.now()
    async with work.node.toolbox(resolve_tools(work.spec, work.context).sources) as opened:
        if isinstance(opened, Failed):
            raise failed_effect(opened.error)
        if terms := read_terms(work.spec.given.get(MEMBER)):
            spec = next((spec for spec in opened.value if spec.name == name), ToolSpec(name))
            call = ProposedCall(spec, arguments, f"node {work.spec.name or work.spec.id}", work.node.path)
            match await run_approvals(work.stage).decide(work.node, "tool.0.0", call, terms):
                case Refusal(error):
                    # The node's retries would ask the same person again.
                    raise NodeFailed(error.code, error.message, final=True)
                case Ok(arguments):
                    pass
        outcome = await work.node.tool("tool.0.0", name, arguments, id=text_of(work.input_member("call_id")))
    failed = isinstance(outcome, Failed)
    payload: dict[str, JSON] = {
        "result": None if failed else outcome.value,
        "success": not failed,
        "error_message": outcome.error.message if failed else "",
        "execution_time": seconds_between(start, work.stage.now()),
        "cached": False,
    }
    return result(payload, tool_name=name, tool_parameters=arguments, tool_result=payload["result"])


def _tool_call(work: NodeAttempt) -> tuple[str, JSON]:
    """Return the tool's name and its arguments.

    :raises NodeFailed: if no tool is named
    """
    name = text_of(work.input_member("tool_name")) or work.text("tool_name")
    if not name:
        raise NodeFailed("graph.configuration", "no tool is named (tool_name)", final=True)
    arguments = next(
        (given for key in ("function_args", "args") if (given := work.input_member(key)) is not None), None
    )
    if arguments is None:
        arguments = work.render(work.setting("function_args", "args")) or {}
    return name, arguments


OPERATIONS = {
    "VECTOR_DATABASE": "search",
    "KEY_VALUE_STORE": "get",
    "CONVERSATION_BUFFER": "store",
}
"""The default operation of each subtype; that of all others is ``retrieve``."""


async def memory(work: NodeAttempt) -> Outputs:
    """MEMORY: perform one operation; the payload is the memory's answer."""
    given = text_of(work.setting("operation")) or text_of(work.input_member("operation"))
    operation = given or OPERATIONS.get(work.spec.subtype, "retrieve")
    asked = await work.compute(_memory_request, operation)
    outcome = await work.node.call("memory", "memory", asked)
    if isinstance(outcome, Failed):
        raise failed_effect(outcome.error)
    return result(outcome.value)


def _memory_request(work: NodeAttempt, operation: str) -> dict[str, JSON]:
    """Make the request to the memory, with the templates in the node's configurations filled in."""
    configured = {name: work.render(value) for name, value in work.spec.configurations.items()}
    return request(work, replace(work.spec, configurations=configured), operation, input=work.inputs.get(RESULT))
