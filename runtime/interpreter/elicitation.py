"""Elicitation: a tool that asks a person for input before it answers, and the answers with which it is called again.

The outcome of such a call has ``asks``: the requests in MCP's format (MCP specification, *Elicitation*), keyed by the
names that the server gave them, and the server's own state. Each request becomes a question of the node. Its answer is
an object that fits the requested schema, or one of the words `DECLINE` and `CANCEL`.
"""

from functools import partial
from typing import Any

import msgspec

from callboard.languages.language import Ask, Node
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_schema import check
from callboard.lib.json_schema.violation_messages import violation_message
from callboard.lib.json_types import JSON

ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"

PROBLEMS_MAX = 5
"""Maximum number of problems listed for one answer."""


async def elicit_responses(node: Node, slot: str, tool: str, asks: dict[str, Any]) -> dict[str, JSON]:
    """Ask a person everything that a tool requests, one question after the other; return the responses."""
    responses: dict[str, JSON] = {}
    for k, (name, request) in enumerate(asks["requests"].items()):
        params: dict[str, Any] = request["params"]
        schema = _schema(params)
        async with node.question(f"{slot}.{k}", _ask(tool, params, schema)) as question:
            answered = await question.answer()
            question.close("answered", answered.k, None)
        responses[name] = response_of(schema, answered.user_response)
    return responses


def _schema(params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the requested input; None if the request only asks whether the person agrees."""
    schema = params.get("requestedSchema")
    return schema if isinstance(schema, dict) and schema.get("properties") else None


def _ask(tool: str, params: dict[str, Any], schema: dict[str, Any] | None) -> Ask:
    message, url = str(params.get("message", "")), params.get("url")
    return Ask(
        question=f"{message}\n{url}" if url else message,
        type="select" if schema is None else "input",
        options=[ACCEPT, DECLINE] if schema is None else [],
        request_data={"tool": tool, **{name: params[name] for name in ("url", "requestedSchema") if name in params}},
        schema=schema,
        refuses=partial(refusal, schema),
    )


def refusal(schema: dict[str, Any] | None, response: JSON) -> str | None:
    """Return why a response is not a valid answer; None if it is valid."""
    if _word(response) in (DECLINE, CANCEL):
        return None
    if schema is None:
        return None if _word(response) == ACCEPT or response is True else f"the answer must be {ACCEPT} or {DECLINE}"
    try:
        found = check.violations({"type": "object", **schema}, _value(schema, response))
    except check.Inapplicable:
        return None  # the server checks the answer against its schema
    if not found:
        return None
    problems = "; ".join(violation_message(one) for one in found[:PROBLEMS_MAX])
    return f"the answer must be {DECLINE}, or an object that fits the requested schema: {problems}"


def response_of(schema: dict[str, Any] | None, response: JSON) -> dict[str, JSON]:
    """Return the response that the tool receives for an answer."""
    if (word := _word(response)) in (DECLINE, CANCEL):
        return {"action": word}
    return {"action": ACCEPT} if schema is None else {"action": ACCEPT, "content": _value(schema, response)}


def _word(response: JSON) -> str:
    return response.strip().casefold() if isinstance(response, str) else ""


def _value(schema: dict[str, Any], response: JSON) -> JSON:
    """Read a response: an object, the JSON text of one, or the value of the only property."""
    value: Any = response
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except JSON_ERRORS:
            value = response
    if not isinstance(value, dict) and len(names := list(schema["properties"])) == 1:
        wants_text = schema["properties"][names[0]].get("type") == "string"
        return {names[0]: response if wants_text else value}
    return value
