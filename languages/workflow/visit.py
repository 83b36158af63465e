"""One visit of a node, from its enter to its exit: preconditions, tools, attempts and evaluations.

The tools of a node are the sources of its skills' tools, and the tools that the model may call.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.bus.effects import (
    McpTools,
    ModelRequest,
    NatsTools,
    PythonTools,
    ScriptedTools,
    ToolLimits,
    ToolSource,
    ToolSpec,
)
from callboard.bus.paths import encode_id
from callboard.bus.tool_names import names_of
from callboard.languages.agent import ConversationLimits, Offer, converse
from callboard.languages.approvals.approvals import make_consent
from callboard.languages.approvals.member import read_terms
from callboard.languages.approvals.terms import ANY, Terms
from callboard.languages.computation import compute
from callboard.languages.language import Cancelled, Failed, Node, Stage, Toolbox
from callboard.languages.skills.skill import McpServer, Skill, SkillTool, config_variables
from callboard.languages.tool_names import DistinctTools
from callboard.languages.workflow import document as doc
from callboard.languages.workflow.document import ToolFilter
from callboard.languages.workflow.evaluation import evaluate, feedback
from callboard.languages.workflow.prompt import SEPARATOR, SYSTEM, NewestResult, instruction_of, task_message
from callboard.languages.workflow.provision import Lacks
from callboard.languages.workflow.result import (
    OUTCOMES,
    AttemptResult,
    add_evaluations,
    capture,
    make_failed,
    soften,
    unmet,
)
from callboard.languages.workflow.usage import Layers, instruction_field
from callboard.lib.durations import seconds_of


class Selection(Struct, frozen=True):
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
        tools = [tool for tool in skill.tools if tool.name not in taken and _passes([tool.name], allowed)]
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
    command = [server.command, *server.args] if server.command and server.is_program else []
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


def select(
    listed: Sequence[ToolSpec],
    skills: Sequence[Skill],
    allowed: ToolFilter | None,
    names: DistinctTools,
) -> Selection:
    """Select the tools in a toolbox that a model may call: filtered, each name once, as the skills describe them."""
    declarations = {tool.name: tool for skill in reversed(skills) for tool in skill.tools}
    tools: dict[str, ToolSpec] = {}
    doubled: list[str] = []
    own_schema: set[str] = set()
    passing = [spec for spec in listed if _passes(names_of(spec), allowed)]
    for spec in names.name(passing):
        if spec.name in tools:
            doubled.append(spec.name)
        else:
            declared = None if spec.own_name else declarations.get(spec.name)
            if declared and declared.python:
                own_schema.add(spec.name)
                spec = replace(spec, description=declared.description, input_schema=declared.input_schema)
            tools[spec.name] = spec
    known = {name for spec in listed for name in names_of(spec)} | set(declarations)
    warnings = [*_find_doubled(doubled), *_find_unmatched(known, allowed)]
    if allowed is None:
        # A filter may have removed a tool that needs approval.
        warnings += _find_unprotected(skills, known)
    return Selection(list(tools.values()), frozenset(own_schema), warnings, list(_terms(skills, list(tools.values()))))


def _terms(skills: Sequence[Skill], tools: Sequence[ToolSpec]) -> Iterable[Terms]:
    """Return the terms of the offered tools, each of which belongs to the first skill that declares or serves it."""
    servers = {skill.id: skill.mcp for skill in skills}
    declarations = {tool.name: tool for skill in reversed(skills) for tool in skill.tools}
    for tool in tools:
        server = servers.get(tool.server)
        declared = None if tool.own_name else declarations.get(tool.name)
        if declared is not None:
            yield from read_terms(declared.approve, tool.name)
        elif server is not None:
            given = (one for one in read_terms(server.approve) if one.cover(*names_of(tool)))
            yield from (replace(one, tools=frozenset({tool.name})) for one in given)


def _find_unprotected(skills: Sequence[Skill], names: set[str]) -> Iterable[tuple[str, str, list[str]]]:
    """Warn of tools that a server's ``approve`` names, but that no server has: the name may be misspelled."""
    named = {name for skill in skills if skill.mcp for one in read_terms(skill.mcp.approve) for name in one.tools}
    if unknown := sorted(named - names - {ANY}):
        yield "APPROVAL_UNMATCHED", f"`approve` names tools that nothing offers: {', '.join(unknown)}", unknown


def _passes(names: Collection[str], allowed: ToolFilter | None) -> bool:
    """Return whether a filter lets a tool with these names pass."""
    if allowed is None:
        return True
    is_allowed = allowed.allow is None or any(name in allowed.allow for name in names)
    return is_allowed and not any(name in (allowed.deny or []) for name in names)


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


MAX_TURNS = 20
"""How many model turns a node has by default."""


class RunSetup(Struct, frozen=True):
    """The state that holds for the whole run: the document, its input and sources, the skills.

    ``missing`` names the skills, and optional values as ``skill.KEY``, that the worker lacks. ``lacks`` has the
    warnings about skills that nodes run without.
    """

    document: doc.Workflow
    given: dict[str, object]
    contents: dict[str, str]
    layers: Layers
    skills: Mapping[str, Skill]
    missing: frozenset[str]
    lacks: Lacks
    config: dict[str, str]
    aliases: dict[str, frozenset[str]]


class LatestResults(Struct):
    """The results of the nodes so far: the newest of each, and the latest node execution that has ended."""

    former: dict[str, NewestResult] = field(default_factory=dict[str, NewestResult])
    last: str | None = None

    def remember(self, document: doc.Workflow, node_id: str, node: Node, result: AttemptResult) -> NewestResult:
        """Keep the newest result of a node."""
        self.last = f"{node.path}#{node.iteration}"
        keys = document.nodes[node_id].output_keys
        remembered = NewestResult(self.last, result.status, result.data, result.evals or [], keys)
        self.former[node_id] = remembered
        return remembered


async def visit(stage: Stage, setting: RunSetup, node_id: str, context: LatestResults) -> tuple[Node, AttemptResult]:
    """Execute a node and add its result to the context; return its ended execution and the result."""
    spec = setting.document.nodes[node_id]
    base = setting.contents[instruction_field(node_id)]
    node = stage.enter(encode_id(node_id), "node", node=node_id, name=spec.name, instruction=base)
    try:
        result = await _Visit(stage, setting, node_id, spec, node, context).result(base)
    except Cancelled as cancelled:
        node.exit("cancelled", error=cancelled.cause)
        raise
    remembered = context.remember(setting.document, node_id, node, result)
    node.exit(OUTCOMES[result.status], result.record(), result.error, remembered.to_recorded_context())
    return node, result


class _Visit(Struct, frozen=True):
    stage: Stage
    setting: RunSetup
    node_id: str
    spec: doc.Node
    node: Node
    context: LatestResults

    async def result(self, base: str) -> AttemptResult:
        if self.spec.requires:
            context = {
                "input": self.setting.given,
                **{name: one.to_context() for name, one in self.context.former.items()},
            }
            requires = self.spec.requires
            if refused := await compute(self.stage, lambda: unmet(requires, context)):
                return refused
        skills = self._skills()
        instruction = instruction_of(self.node_id, self.spec, skills, self.setting.layers, base)
        sources = tool_sources(skills, self._environments(skills), self.spec.tools)
        if not sources:
            return await self._attempts(instruction, _Tools(self, skills))
        toolbox = self.node.toolbox(sources)
        async with toolbox as opened:
            if isinstance(opened, Failed):
                return self._soften(make_failed({}, opened.error), gated=False)
            return await self._attempts(instruction, _Tools(self, skills, toolbox))

    def _skills(self) -> list[Skill]:
        """Return the node's skills that exist and are available, in its order, each once."""
        skills: list[Skill] = []
        for name in dict.fromkeys(self.spec.skills):
            skill = self.setting.skills.get(name)
            if skill and name not in self.setting.missing:
                skills.append(skill)
            elif name in self.setting.lacks:
                self.node.warn(*self.setting.lacks[name])
        return skills

    def _environments(self, skills: list[Skill]) -> dict[str, dict[str, str]]:
        """Map each skill's config keys to the variables that hold their values, without keys that have no value."""
        config, missing = self.setting.config, self.setting.missing
        return {skill.id: config_variables(skill, config, missing) for skill in skills}

    async def _attempts(self, instruction: str, tools: "_Tools") -> AttemptResult:
        """Attempt, evaluate, and retry with feedback, until the node passes or its retries are used up."""
        retries_max = self.spec.retry.max if self.spec.retry else 0
        prompt = instruction
        for retries in range(retries_max + 1):
            result = await self._attempt(prompt, tools, gated=retries > 0)
            if not result.failing or retries == retries_max:
                return result
            preamble = await feedback(self.node, self.spec, self._model, instruction, result)
            reason = result.error.message if result.error else ""
            self.node.retry(reason, attempt=retries + 1, preamble=preamble)
            prompt = f"{preamble}{SEPARATOR}{instruction}"
        raise AssertionError("the last attempt returns")

    async def _attempt(self, instruction: str, tools: "_Tools", *, gated: bool) -> AttemptResult:
        offer = tools.offer()
        request = ModelRequest(
            model=self._model,
            system=SYSTEM,
            messages=[task_message(instruction, self.setting.given, self.context.last)],
            tools=offer.tools,
            schema=self.spec.output,
        )
        said = await converse(self.stage, self.node, request, offer.policy, tools.offer)
        result = await compute(self.stage, lambda: capture(self.spec, said))
        if result.status == "failed":
            return self._soften(result, gated=gated)
        if not self.spec.eval:
            return result
        document, aliases = self.setting.document, self.setting.aliases
        return add_evaluations(result, await evaluate(self.stage, self.node, self.spec, document, result, aliases))

    def _soften(self, result: AttemptResult, *, gated: bool) -> AttemptResult:
        """Soften a failure of the agent if the node is ``fail_soft``, unless an evaluation failed in any attempt."""
        evaluation_failed = gated or bool(result.failing)
        return soften(result) if self.spec.fail_soft and not evaluation_failed else result

    @property
    def _model(self) -> str | None:
        return self.spec.model or self.setting.document.model


NO_TOOLS: Sequence[ToolSpec] = ()


class _Tools:
    """The tools of a visit, as its toolbox has them at the moment."""

    def __init__(self, visit: _Visit, skills: Sequence[Skill], toolbox: Toolbox | None = None) -> None:
        self._visit = visit
        self._skills = skills
        self._toolbox = toolbox
        self._listed: Sequence[ToolSpec] | None = None
        self._offer = Offer([], ConversationLimits(1))
        self._names = DistinctTools(visit.node)
        self._warned: list[tuple[str, str, list[str]]] = []
        self.offer()

    def offer(self) -> Offer:
        """Return what the model may call now; each warning about it is given once."""
        listed = self._toolbox.specs if self._toolbox is not None else NO_TOOLS
        if listed is self._listed:
            return self._offer
        visit, self._listed = self._visit, listed
        selection = select(listed, self._skills, visit.spec.tools, self._names)
        for warning in selection.warnings:
            if warning not in self._warned:
                self._warned.append(warning)
                visit.node.warn(*warning)
        consent = make_consent(visit.stage, selection.terms, f"node {visit.node_id}")
        policy = ConversationLimits(visit.spec.max_turns or MAX_TURNS, selection.declared, consent=consent)
        self._offer = Offer(selection.tools, policy)
        return self._offer
