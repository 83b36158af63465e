"""The toolbox of a node: its tools from all sources; the input and output of each call are checked."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import msgspec
import structlog
from msgspec import Struct

from callboard.actors.tools.failures import describe_error, shorten, tool_failed
from callboard.actors.tools.held import Held, open_source, server_of
from callboard.actors.tools.limits import call_with_retries, limits_of, with_timeout
from callboard.actors.tools.run_scoped_servers import RunScopedServers, is_of_the_run, is_reached_over_http
from callboard.actors.tools.scripted import scripted_answer, scripts
from callboard.actors.tools.tool import (
    ADAPTED,
    LEFT_OUT,
    Opens,
    ToolCallContext,
    ToolEnvironment,
    ToolFailed,
    ToolTransport,
    refresh,
    top_combinators,
)
from callboard.bus.effects import McpTools, ToolSource, ToolSpec
from callboard.bus.tool_names import passes
from callboard.lib.concurrency import background_tasks
from callboard.lib.finite_json import NotFinite, encode_finite
from callboard.lib.json_schema import check as checking
from callboard.lib.json_schema.violation_messages import violation_message
from callboard.lib.json_types import JSON

PROBLEMS_MAX = 50
"""How many problems of one input are listed."""

PROBLEM_CHARS_MAX = 300
"""How much of one problem's text is kept: it quotes the input."""

CLOSE_TIMEOUT_S = 30.0
"""How long all transports together may take to close before they are cancelled; the slowest are MCP servers."""

_log: Any = structlog.get_logger("callboard.tools")


@asynccontextmanager
async def open_toolbox(
    sources: Sequence[ToolSource], environment: ToolEnvironment, standing: RunScopedServers | None = None
) -> AsyncGenerator["NodeToolbox"]:
    """Open all sources, at the same time, for the length of the block; those of the run (``standing``) outlive it.

    :raises ToolFailed: if a source cannot be opened (usually ``tool.unavailable``; several failures become one), two
        tools have the same name, or a tool's schema is not a JSON Schema
    """
    closing = anyio.Event()
    async with background_tasks(CLOSE_TIMEOUT_S) as tasks:
        own = RunScopedServers(partial(tasks.start_soon, _perform))
        held = [Held(source, _opener(source, own, standing)) for source in sources]
        try:
            for one in held:
                tasks.start_soon(one.hold, environment, closing)
            for one in held:
                await one.settled.wait()
            yield NodeToolbox(held, environment)
        finally:
            closing.set()
            own.close()


async def _perform(body: Callable[[], Awaitable[None]]) -> None:
    await body()


def _opener(source: ToolSource, own: RunScopedServers, standing: RunScopedServers | None) -> Opens:
    """Return the function that opens a source. ``own`` has the sessions of the toolbox, ``standing`` those of the
    run."""
    if standing is not None and is_of_the_run(source):
        return standing.lent
    return own.lent if is_reached_over_http(source) else open_source


class NodeToolbox:
    """The open tools of a node. ``specs`` name their transport in ``server``; `call` may come from several tasks.

    ``warnings`` has the codes and texts of the faults of tools that servers list.
    """

    def __init__(self, held: Sequence[Held], environment: ToolEnvironment) -> None:
        self._held = held
        self._environment = environment
        self._listed = self._listings()
        self._tools, self.specs, self.warnings = _assemble(held)

    async def renew(self) -> None:
        """List the tools of servers again that say that their tools have changed.

        If the tools cannot be offered together any longer, they stay as they were.
        """
        for one in self._held:
            if one.transport is not None:
                await refresh(one.transport)
        listed = self._listings()
        if all(one is other for one, other in zip(listed, self._listed, strict=True)):
            return
        self._listed = listed
        try:
            self._tools, self.specs, self.warnings = _assemble(self._held)
        except ToolFailed as failed:
            _log.warning("tool.list.unusable", error=failed.failure.message)

    def _listings(self) -> list[list[ToolSpec] | None]:
        return [one.transport.specs if one.transport is not None else None for one in self._held]

    def has(self, tool: str, server: str = "") -> bool:
        """Return whether there is a tool, or whether a server has it; also one that may not be offered."""
        return any(spec.name == tool and server in ("", spec.server) for spec in self.specs)

    def _find(self, tool: str, server: str) -> "_Tool":
        """Return a tool. One of an MCP server may share its name with others; then its server distinguishes them.

        :raises ToolFailed: ``tool.unknown``
        """
        found = [one for one in self._tools if one.spec.name == tool and server in ("", one.spec.server)]
        found = [one for one in found if not one.spec.own_name] or found
        if len(found) == 1:
            return found[0]
        if found:
            owners = ", ".join(one.spec.server for one in found)
            raise tool_failed("tool.unknown", f"several servers have a tool {tool}, and the call names none: {owners}")
        known = ", ".join(sorted({one.spec.name for one in self._tools})) or "none"
        where = f" at server {server}" if server else ""
        raise tool_failed("tool.unknown", f"tool {tool} not found{where}; the tools here: {known}")

    async def call(
        self, tool: str, input: JSON, context: ToolCallContext, *, server: str = "", alias: str = ""
    ) -> JSON:
        """Call a tool: check the input against its schema, have the script or the transport answer, check the output.

        ``server`` says whose tool it is. ``alias`` is another name of it, by which a script may know it.

        :raises ToolFailed: without usable output
        """
        entry = self._find(tool, server)
        scripted = next((name for name in (alias, tool) if name and scripts(name, self._environment.script)), None)
        try:
            entry.check(input)
            if scripted is not None:
                output = scripted_answer(scripted, self._environment.script, context)
            else:
                limited = with_timeout(limits_of(entry.source, tool), context)
                again = partial(entry.transport.call, tool, input, limited)
                output = await call_with_retries(entry.source, tool, limited, again)
            self._measure(tool, output)
        except ToolFailed:
            raise
        except Exception as error:
            _log.exception("tool.failed", tool=tool, run=context.run, path=context.path)
            raise tool_failed("tool.failed", f"tool {tool} failed: {describe_error(error)}") from error
        return output

    def _measure(self, tool: str, output: JSON) -> None:
        try:
            size = len(encode_finite(output))
        except NotFinite as error:
            message = f"the output of tool {tool} contains {error}, which is not a number of JSON"
            raise tool_failed("tool.bad_output", message, {"at": error.at}) from error
        except Exception as error:
            message = f"the output of tool {tool} is not JSON: {describe_error(error)}"
            raise tool_failed("tool.bad_output", message) from error
        limit = self._environment.output_bytes_max
        if size > limit:
            raise tool_failed(
                "tool.output_too_large", f"the output of tool {tool} has {size} bytes, the limit is {limit}"
            )


class _Tool(Struct, frozen=True):
    spec: ToolSpec
    source: ToolSource
    transport: ToolTransport

    def check(self, input: JSON) -> None:
        """Validate an input; report every problem with its JSON pointer."""
        try:
            found = checking.violations(self.spec.input_schema, input)
        except checking.Inapplicable as error:
            # The schema has a remote or an endless reference: the tool's own server can check the input.
            _log.warning("tool.schema.unusable", tool=self.spec.name, server=self.spec.server, error=_brief(str(error)))
            return
        if not found:
            return
        found.sort(key=lambda violation: [str(step) for step in violation.path])
        problems = [
            {"at": "".join(f"/{_escape_step(step)}" for step in one.path), "message": _brief(violation_message(one))}
            for one in found[:PROBLEMS_MAX]
        ]
        listed = "; ".join(f"{problem['at'] or '/'}: {problem['message']}" for problem in problems)
        more = f"; and {len(found) - PROBLEMS_MAX} more" if len(found) > PROBLEMS_MAX else ""
        message = f"the input of tool {self.spec.name} does not fit its schema: {listed}{more}"
        raise tool_failed("tool.invalid_input", message, problems)


def _escape_step(step: object) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")


def _brief(message: str) -> str:
    return shorten(message, PROBLEM_CHARS_MAX)


def _assemble(held: Sequence[Held]) -> tuple[list[_Tool], list[ToolSpec], list[tuple[str, str]]]:
    """Return the tools of all sources, their specifications with those that may not be offered, and warnings.

    :raises ToolFailed: if a source is not open, or tools cannot be distinguished
    """
    failures = [one.failure for one in held if one.failure is not None]
    if len(failures) == 1:
        raise ToolFailed(failures[0])
    if failures:
        details = [{"code": failure.code, "message": failure.message} for failure in failures]
        raise tool_failed(failures[0].code, "; ".join(failure.message for failure in failures), details)
    warnings = [warning for one in held for warning in _warnings(one)]
    tools = [tool for one in held for tool in _tools_of(one, warnings)]
    # Tools of servers with different names can be distinguished.
    counts = Counter((tool.spec.server if tool.spec.own_name else "", tool.spec.name) for tool in tools)
    for (_, name), count in counts.items():
        if count > 1:
            owners = ", ".join(tool.spec.server for tool in tools if tool.spec.name == name)
            message = f"more than one tool is named {name} (from {owners}); a node's tools need different names"
            raise tool_failed("tool.unavailable", message)
    filtered = [spec for one in held for spec in _list_filtered(one)]
    return tools, [*(tool.spec for tool in tools), *filtered], warnings


def _tools_of(one: Held, warnings: list[tuple[str, str]]) -> Iterable[_Tool]:
    """Yield the usable tools of a source.

    :raises ToolFailed: if a tool's schema is not a JSON Schema, unless it is that of an MCP server
    """
    if one.transport is None:
        return
    server, is_mcp = server_of(one.source), isinstance(one.source, McpTools)
    for spec in _usable(one, warnings):
        named = msgspec.structs.replace(spec, server=server, own_name=spec.name if is_mcp else "")
        if fault := _fault(named):
            raise tool_failed("tool.unavailable", fault)
        yield _Tool(named, one.source, one.transport)


def _warnings(one: Held) -> list[tuple[str, str]]:
    """Return what is odd about the tools of a source that may be offered."""
    found = one.transport.warnings if one.transport is not None else []
    return [
        (code, text) for code, tool, text in found if not isinstance(one.source, McpTools) or passes(one.source, tool)
    ]


def _list_filtered(one: Held) -> list[ToolSpec]:
    """Return the tools of a source that may not be offered, by their names only: someone may ask whether there are
    such tools, and no one whether their schemas are sound."""
    source = one.source
    if one.transport is None or not isinstance(source, McpTools):
        return []
    listed = [spec.name for spec in one.transport.specs] + [tool for _code, tool, _text in one.transport.warnings]
    filtered = [name for name in dict.fromkeys(listed) if name and not passes(source, name)]
    return [ToolSpec(name, server=source.name, own_name=name) for name in filtered]


def _usable(one: Held, warnings: list[tuple[str, str]]) -> list[ToolSpec]:
    """Return the tools of a source. An unusable tool of an MCP server, whose list has another author, is left out, so
    that the other tools can be used."""
    assert one.transport is not None
    if not isinstance(one.source, McpTools):
        return one.transport.specs
    usable: dict[str, ToolSpec] = {}
    for spec in one.transport.specs:
        who = f"MCP server {one.source.name}: tool {spec.name}"
        if not passes(one.source, spec.name):
            continue
        if spec.name in usable:
            warnings.append((LEFT_OUT, f"{who} is listed twice; the first one is used"))
        elif fault := _fault(msgspec.structs.replace(spec, server=one.source.name)):
            warnings.append((LEFT_OUT, f"{who} is left out: {fault}"))
        else:
            usable[spec.name] = spec
            if words := top_combinators(spec.input_schema):
                where = "for models that do not accept such a schema, the description quotes it"
                warnings.append((ADAPTED, f"{who} has {words} at the top of its input schema; {where}"))
    return list(usable.values())


def _fault(spec: ToolSpec) -> str:
    """Return the fault of a tool's input schema, or an empty text."""
    try:
        faults = checking.faults(spec.input_schema, formats=checking.NO_FORMATS, most=1)
        fault = _brief(violation_message(faults[0])) if faults else ""
    except checking.Inapplicable as error:
        fault = str(error)
    return f"the input schema of tool {spec.name} ({spec.server}) is not a JSON Schema: {fault}" if fault else ""
