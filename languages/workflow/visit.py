"""One visit of a node, from its enter to its exit: preconditions, tools, attempts and evaluations."""

from collections.abc import Mapping

from msgspec import Struct, field

from callboard.bus.effects import ModelRequest
from callboard.bus.paths import encode_id
from callboard.languages.agent import Policy, converse
from callboard.languages.approvals.desk import make_consent
from callboard.languages.computation import compute
from callboard.languages.language import Cancelled, Failed, Node, Stage
from callboard.languages.skills.skill import Skill, config_variables
from callboard.languages.workflow import document as doc
from callboard.languages.workflow.evaluation import evaluate, feedback
from callboard.languages.workflow.prompt import SEPARATOR, SYSTEM, Remembered, instruction_of, task_message
from callboard.languages.workflow.provision import Lacks
from callboard.languages.workflow.result import OUTCOMES, Result, add_evaluations, capture, make_failed, soften, unmet
from callboard.languages.workflow.toolbox import Offer, offer, tool_sources
from callboard.languages.workflow.usage import Layers, instruction_field

MAX_TURNS = 20
"""How many model turns a node has by default."""


class Setting(Struct, frozen=True):
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


class Context(Struct):
    """The results of the nodes so far: the newest of each, and the latest node execution that has ended."""

    former: dict[str, Remembered] = field(default_factory=dict[str, Remembered])
    last: str | None = None

    def remember(self, document: doc.Workflow, node_id: str, node: Node, result: Result) -> Remembered:
        """Keep the newest result of a node."""
        self.last = f"{node.path}#{node.iteration}"
        keys = document.nodes[node_id].output_keys
        remembered = Remembered(self.last, result.status, result.data, result.evals or [], keys)
        self.former[node_id] = remembered
        return remembered


async def visit(stage: Stage, setting: Setting, node_id: str, context: Context) -> tuple[Node, Result]:
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
    setting: Setting
    node_id: str
    spec: doc.Node
    node: Node
    context: Context

    async def result(self, base: str) -> Result:
        if self.spec.requires:
            context = {
                "input": self.setting.given,
                **{name: one.to_context() for name, one in self.context.former.items()},
            }
            requires, rules = self.spec.requires, self.stage.info.rules
            if refused := await compute(self.stage, lambda: unmet(requires, context, rules)):
                return refused
        skills = self._skills()
        instruction = instruction_of(self.node_id, self.spec, skills, self.setting.layers, base)
        sources = tool_sources(skills, self._environments(skills), self.spec.tools)
        if not sources:
            return await self._attempts(instruction, self._make_offer(offer([], skills, self.spec.tools)))
        async with self.node.toolbox(sources) as opened:
            if isinstance(opened, Failed):
                return self._soften(make_failed({}, opened.error), gated=False)
            return await self._attempts(instruction, self._make_offer(offer(opened.value, skills, self.spec.tools)))

    def _skills(self) -> list[Skill]:
        """Return the node's skills that exist and are available, in its order, each once."""
        skills: list[Skill] = []
        for name in dict.fromkeys(self.spec.skills):
            skill = self.setting.skills.get(name)
            if skill and name not in self.setting.missing:
                skills.append(skill)
            elif name in self.setting.lacks:
                self.node.warn(*self.setting.lacks[name])
            elif skill:
                # Older logs have this text instead of one that names what is lacking.
                self.node.warn("SKILL_UNAVAILABLE", f"the skill {name!r} lacks configuration; the node runs without it")
        return skills

    def _environments(self, skills: list[Skill]) -> dict[str, dict[str, str]]:
        """Map each skill's config keys to the variables that hold their values, without keys that have no value."""
        config, missing = self.setting.config, self.setting.missing
        return {skill.id: config_variables(skill, config, missing) for skill in skills}

    def _make_offer(self, offered: Offer) -> Offer:
        for code, reason, names in offered.warnings:
            self.node.warn(code, reason, names)
        return offered

    async def _attempts(self, instruction: str, offered: Offer) -> Result:
        """Attempt, evaluate, and retry with feedback, until the node passes or its retries are used up."""
        retries_max = self.spec.retry.max if self.spec.retry else 0
        prompt = instruction
        for retries in range(retries_max + 1):
            result = await self._attempt(prompt, offered, gated=retries > 0)
            if not result.failing or retries == retries_max:
                return result
            preamble = await feedback(self.node, self.spec, self._model, instruction, result)
            reason = result.error.message if result.error else ""
            self.node.retry(reason, attempt=retries + 1, preamble=preamble)
            prompt = f"{preamble}{SEPARATOR}{instruction}"
        raise AssertionError("the last attempt returns")

    async def _attempt(self, instruction: str, offered: Offer, *, gated: bool) -> Result:
        request = ModelRequest(
            model=self._model,
            system=SYSTEM,
            messages=[task_message(instruction, self.setting.given, self.context.last)],
            tools=offered.tools,
            schema=self.spec.output,
        )
        consent = make_consent(self.stage, offered.terms, f"node {self.node_id}")
        policy = Policy(self.spec.max_turns or MAX_TURNS, offered.declared, consent=consent)
        said = await converse(self.stage, self.node, request, policy)
        result = await compute(self.stage, lambda: capture(self.spec, said))
        if result.status == "failed":
            return self._soften(result, gated=gated)
        if not self.spec.eval:
            return result
        document, aliases = self.setting.document, self.setting.aliases
        return add_evaluations(result, await evaluate(self.stage, self.node, self.spec, document, result, aliases))

    def _soften(self, result: Result, *, gated: bool) -> Result:
        """Soften a failure of the agent if the node is ``fail_soft``, unless an evaluation failed in any attempt."""
        evaluation_failed = gated or bool(result.failing)
        return soften(result) if self.spec.fail_soft and not evaluation_failed else result

    @property
    def _model(self) -> str | None:
        return self.spec.model or self.setting.document.model
