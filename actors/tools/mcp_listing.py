"""Lists of tools of MCP servers: a malformed entry affects that tool, or its malformed member, and not the server.

Tools that are left out or changed are reported by name, because otherwise the operator would not notice.
"""

from collections.abc import Callable, Sequence
from typing import Any

from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import ListToolsResult, methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from callboard.actors.tools.oddities import ADAPTED, LEFT_OUT
from callboard.lib.text import normalise_json

NESTING_MAX = 100
"""How deep an entry of a list of tools may be nested."""

REPAIRS_MAX = 10
"""How many members of one entry are repaired before it is left out."""

Warn = Callable[[str, str, str], None]
"""Takes the code of a warning, the name of the tool if it has one, and the text."""


def usable_entries(result: dict[str, Any], version: str, warn: Warn) -> dict[str, Any]:
    """Return the result of ``tools/list`` with the entries that the protocol version allows, repaired if possible."""
    listed: Any = result.get("tools")
    if not isinstance(listed, list):
        return result
    envelope = normalise_json({key: value for key, value in result.items() if key != "tools"})
    tools: list[Any] = []
    for number, entry in enumerate(listed, 1):
        usable = _usable(entry, number, envelope, version, warn)
        if usable is not None:
            tools.append(usable)
    return {**envelope, "tools": tools}


def _usable(entry: Any, number: int, envelope: dict[str, Any], version: str, warn: Warn) -> dict[str, Any] | None:
    name = entry.get("name") if isinstance(entry, dict) else None
    who = f"tool {name}" if isinstance(name, str) else f"entry {number} of the list of tools"
    if not isinstance(entry, dict) or not isinstance(name, str) or not name:
        warn(LEFT_OUT, "", f"{who} is left out: it is listed without a name")
        return None
    if _is_deep(entry):
        warn(LEFT_OUT, name, f"{who} is left out: its entry is nested more than {NESTING_MAX} levels deep")
        return None
    tool: dict[str, Any] = normalise_json(entry)
    for _ in range(REPAIRS_MAX):
        fault = _fault(tool, envelope, version)
        if fault is None:
            return _with_valid_headers(tool, who, version, warn)
        where, why = fault
        if not _repair(tool, where):
            warn(LEFT_OUT, name, f"{who} is left out: its {where} is malformed: {why}")
            return None
        warn(ADAPTED, name, f"{who} is listed with a malformed {where}, which is ignored: {why}")
    warn(LEFT_OUT, name, f"{who} is left out: it has more than {REPAIRS_MAX} malformed members")
    return None


def _with_valid_headers(tool: dict[str, Any], who: str, version: str, warn: Warn) -> dict[str, Any] | None:
    """Leave out, with a warning, a tool with invalid header annotations (protocol 2026-07-28): the SDK only logs it."""
    why = find_invalid_x_mcp_header(tool.get("inputSchema")) if version in MODERN_PROTOCOL_VERSIONS else None
    if why is None:
        return tool
    warn(LEFT_OUT, tool["name"], f"{who} is left out: its inputSchema has an invalid x-mcp-header: {why}")
    return None


def _fault(tool: dict[str, Any], envelope: dict[str, Any], version: str) -> tuple[str, str] | None:
    """Return the first malformed member of an entry and the fault in it."""
    try:
        try:
            methods.validate_server_result("tools/list", version, {**envelope, "tools": [tool]})
        except (KeyError, ValueError) as error:
            if isinstance(error, ValidationError):
                raise
        ListToolsResult.model_validate({"tools": [tool]}, by_name=False)
    except ValidationError as error:
        for one in error.errors(include_url=False, include_context=False, include_input=False):
            if one["loc"][:1] == ("tools",):
                return _member(one["loc"], tool), one["msg"]
    return None


def _member(loc: Sequence[int | str], tool: dict[str, Any]) -> str:
    named = [str(step) for step in loc[2:]]
    return next((step for step in named if step in tool), named[0] if named else "entry")


def _repair(tool: dict[str, Any], member: str) -> bool:
    """Remove or replace a malformed member of an entry; return False if the member is required."""
    if member != "inputSchema":
        return member != "name" and tool.pop(member, None) is not None
    schema = tool.get(member)
    if schema is None:
        tool[member] = {"type": "object"}
        return True
    if not isinstance(schema, dict) or "type" in schema:
        return False
    tool[member] = {"type": "object", **schema}
    return True


def _is_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(NESTING_MAX):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
