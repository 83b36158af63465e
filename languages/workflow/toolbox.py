"""The tools of a node: the sources of its skills' tools, and the tools that the model may call."""

from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.bus.effects import McpTools, NatsTools, PythonTools, ScriptedTools, ToolLimits, ToolSource, ToolSpec
from callboard.languages.approvals.member import read_terms
from callboard.languages.approvals.terms import ANY, Terms
from callboard.languages.skills.skill import McpServer, Skill, SkillTool
from callboard.languages.workflow.document import ToolFilter
from callboard.lib.durations import seconds_of


class Offer(Struct, frozen=True):
    """The tools that a model may call at a node, with warnings about them.

    ``declared`` names the tools whose declared schema may differ from the one with which their transport checks input.
    ``terms`` says which of their calls need approval.
    """

    tools: list[ToolSpec]
    declared: frozenset[str]
    warnings: list[tuple[str, str, list[str]]]
    terms: list[Terms] = field(default_factory=list[Terms])


def tool_sources(
    skills: Sequence[Skill], config: dict[str, dict[str, str]], allowed: ToolFilter | None
) -> list[ToolSource]:
    """Return the tool sources of a node, without tools that its filter removes, as far as they are known here.

    ``config`` has, by skill, the variables that hold the values of its config keys. If several skills have a tool of
    the same name, that of the first listed skill counts.
    """
    taken: set[str] = set()
    sources: list[ToolSource] = []
    for skill in skills:
        tools = [tool for tool in skill.tools if tool.name not in taken and _passes(tool.name, allowed)]
        taken |= {tool.name for tool in tools}
        sources += _tool_sources(tools, config.get(skill.id, {}))
        if skill.mcp:
            sources.append(_mcp(skill.id, skill.mcp, allowed))
    return sources


def _tool_sources(tools: list[SkillTool], variables: dict[str, str]) -> Iterable[ToolSource]:
    if functions := {tool.name: tool.python for tool in tools if tool.python}:
        lent = {key: f"${{{variable}}}" for key, variable in variables.items()}
        yield PythonTools(functions, lent, limits=_limits(tool for tool in tools if tool.python))
    for subject in dict.fromkeys(tool.nats for tool in tools if tool.nats):
        served = [tool for tool in tools if tool.nats == subject]
        yield NatsTools(subject, [_spec(tool) for tool in served], limits=_limits(served))
    if scripted := [tool for tool in tools if not tool.python and not tool.nats]:
        yield ScriptedTools([_spec(tool) for tool in scripted], limits=_limits(scripted))


def _limits(tools: Iterable[SkillTool]) -> dict[str, ToolLimits]:
    """Return the limits of the tools that have any, by name."""
    said = {tool.name: tool.limits() for tool in tools}
    return {name: limits for name, limits in said.items() if limits != ToolLimits()}


def _mcp(skill_id: str, server: McpServer, allowed: ToolFilter | None) -> McpTools:
    command = [server.command, *server.args] if server.command and server.type != "http" else []
    return McpTools(
        name=skill_id,
        command=command,
        url="" if command else server.url or "",
        headers=dict(server.headers),
        env={name: name for name in server.env},
        timeout_s=seconds_of(server.timeout) if server.timeout else None,
        limits={name: limits.limits() for name, limits in (server.limits or {}).items()},
        scope=server.scope or "node",
        allow=allowed.allow if allowed else None,
        deny=list(allowed.deny or []) if allowed else [],
    )


def _spec(tool: SkillTool) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, tool.input_schema)


def offer(listed: Sequence[ToolSpec], skills: Sequence[Skill], allowed: ToolFilter | None) -> Offer:
    """Select the tools in a toolbox that a model may call: filtered, each name once, as the skills describe them."""
    declarations = {tool.name: tool for skill in reversed(skills) for tool in skill.tools}
    tools: dict[str, ToolSpec] = {}
    doubled: list[str] = []
    own_schema: set[str] = set()
    for spec in listed:
        if spec.name in tools:
            doubled.append(spec.name)
        elif _passes(spec.name, allowed):
            declared = declarations.get(spec.name)
            if declared and declared.python:
                own_schema.add(spec.name)
                spec = replace(spec, description=declared.description, input_schema=declared.input_schema)
            tools[spec.name] = spec
    names = {spec.name for spec in listed} | set(declarations)
    warnings = [*_find_doubled(doubled), *_find_unmatched(names, allowed)]
    if allowed is None:
        # A filter may have removed a tool that needs approval.
        warnings += _find_unprotected(skills, names)
    return Offer(list(tools.values()), frozenset(own_schema), warnings, list(_terms(skills, list(tools.values()))))


def _terms(skills: Sequence[Skill], tools: Sequence[ToolSpec]) -> Iterable[Terms]:
    """Return the terms of the offered tools, each of which belongs to the first skill that declares or serves it."""
    servers = {skill.id: skill.mcp for skill in skills}
    declarations = {tool.name: tool for skill in reversed(skills) for tool in skill.tools}
    for tool in tools:
        server = servers.get(tool.server)
        if (declared := declarations.get(tool.name)) is not None:
            yield from read_terms(declared.approve, tool.name)
        elif server is not None:
            given = (one for one in read_terms(server.approve) if one.cover(tool.name))
            yield from (replace(one, tools=frozenset({tool.name})) for one in given)


def _find_unprotected(skills: Sequence[Skill], names: set[str]) -> Iterable[tuple[str, str, list[str]]]:
    """Warn of tools that a server's ``approve`` names, but that no server has: the name may be misspelled."""
    named = {name for skill in skills if skill.mcp for one in read_terms(skill.mcp.approve) for name in one.tools}
    if unknown := sorted(named - names - {ANY}):
        yield "APPROVAL_UNMATCHED", f"`approve` names tools that nothing offers: {', '.join(unknown)}", unknown


def _passes(name: str, allowed: ToolFilter | None) -> bool:
    if allowed is None:
        return True
    return (allowed.allow is None or name in allowed.allow) and name not in (allowed.deny or [])


def _find_doubled(names: list[str]) -> Iterable[tuple[str, str, list[str]]]:
    if names:
        yield "DUPLICATE_TOOL", f"several skills offer {', '.join(names)}; the first listed one is used", names


def _find_unmatched(names: set[str], allowed: ToolFilter | None) -> Iterable[tuple[str, str, list[str]]]:
    listed = [*(allowed.allow or []), *(allowed.deny or [])] if allowed else []
    if unmatched := [name for name in listed if name not in names]:
        yield (
            "TOOL_FILTER_UNMATCHED",
            f"the tool filter names tools that nothing offers: {', '.join(unmatched)}",
            unmatched,
        )
