"""The workflow interpreter: resolve the sources, then visit one node after the other until no edge leads on.

A failed node does not stop a run: its edges are followed like any other's, so that conditions can ask for the failure;
the run ends failed if any node's last result failed.
"""

from typing import Any

from callboard.bus.effects import Failure
from callboard.bus.paths import encode_id
from callboard.languages.language import STRICT, Cancelled, End, Plan, Stage
from callboard.languages.skills.skill import Skill, aliases
from callboard.languages.workflow.document import Workflow
from callboard.languages.workflow.provision import Lacks, lacks, resolve_skills
from callboard.languages.workflow.result import Result
from callboard.languages.workflow.routes import END, Onward, Router, Terminal
from callboard.languages.workflow.sources import resolve
from callboard.languages.workflow.usage import declared_sources, group_layers
from callboard.languages.workflow.visit import Context, Setting, visit


async def interpret(plan: Plan[Workflow], stage: Stage) -> End:
    """Execute a workflow.

    The End's ``output`` is the data of the last node, ``results`` the last result of each. Codes of its error:
    ``SOURCE_…``, ``workflow.node_failed``, ``workflow.step_budget``, ``workflow.routing_failed``, ``workflow.strict``.
    """
    if plan.options.get(STRICT) and (missed := _lacks(plan, stage)):
        # Another worker than the one that admitted it.
        told = "; ".join(reason for _code, reason in missed.values())
        return End("failed", error=Failure("workflow.strict", told, details={"skills": list(missed)}))
    sources, _problems = declared_sources(plan.definition.document, plan.input)
    offline = bool(plan.options["offline"] or stage.info.environment.offline)
    try:
        resolved = await resolve(stage, sources, offline=offline)
    except Cancelled as cancelled:
        return End("cancelled", error=cancelled.cause)
    if isinstance(resolved, Failure):
        return End("failed", error=resolved)
    stage.resolved(resolved)
    contents: dict[str, str] = {field: one["content"] for field, one in resolved.items()}
    return await _Walk(plan, stage, contents).end()


def _setting(plan: Plan[Workflow], stage: Stage, contents: dict[str, str]) -> Setting:
    config: dict[str, str] = plan.options["config"]
    offered = stage.info.environment.skills
    own, shipped = _skills(plan.options["skills"]), _skills(plan.options.get("shipped", []))
    skills, missing = resolve_skills(own, shipped, config, offered)
    return Setting(
        document=plan.definition.document,
        given=plan.input,
        contents=contents,
        layers=group_layers(contents),
        skills=skills,
        missing=missing,
        lacks=_lacks(plan, stage) if stage.info.tells else {},
        config=config,
        aliases=aliases(list(skills.values()))[0],
    )


def _lacks(plan: Plan[Workflow], stage: Stage) -> Lacks:
    own, shipped = _skills(plan.options["skills"]), _skills(plan.options.get("shipped", []))
    return lacks(plan.definition.document, own, shipped, plan.options["config"], stage.info.environment)


def _skills(recorded: list[dict[str, Any]]) -> dict[str, Skill]:
    """Read a plan's skills, by id; the ids of a workflow's own are free, so they are not checked again."""
    skills = [Skill.model_validate({**raw, "id": "checked"}).model_copy(update={"id": raw["id"]}) for raw in recorded]
    return {skill.id: skill for skill in skills}


class _Walk:
    """The way through a workflow: what has come of each node so far, and where it goes next."""

    def __init__(self, plan: Plan[Workflow], stage: Stage, contents: dict[str, str]) -> None:
        self._plan = plan
        self._stage = stage
        self._document = plan.definition.document
        self._setting = _setting(plan, stage, contents)
        self._router = Router(self._document, stage.info.rules)
        self._context = Context()
        self._results: dict[str, Result] = {}
        self._last: str | None = None

    async def end(self) -> End:
        try:
            return self._end_run(await self._walk())
        except Cancelled as cancelled:
            return End("cancelled", self._output(), self._records(), cancelled.cause)

    async def _walk(self) -> Failure | None:
        """Visit nodes until the end; return why it is not a proper one."""
        current = self._document.entry
        steps_max: int = self._plan.options["max_steps"]
        for _step in range(steps_max):
            await self._stage.gate(None, current, "before")
            node, result = await visit(self._stage, self._setting, current, self._context)
            self._last = current
            self._results[current] = result
            if self._plan.input.get("dryRun") is True and self._router.decides(current):
                node.route(END, "dry run")
                return None
            match await self._router.onward(node, current, self._plan.input, self._context.former):
                case Onward(target):
                    current = target
                case Terminal(failure):
                    return failure
        message = f"step budget exceeded: workflow {self._document.id!r} made {steps_max} node visits without an end"
        return Failure("workflow.step_budget", message, details={"max_steps": steps_max, "next": current})

    def _end_run(self, failure: Failure | None) -> End:
        failed = {name: result for name, result in self._results.items() if result.status == "failed"}
        if failure is None and failed:
            name, result = next(reversed(failed.items()))
            message = f"failed nodes: {', '.join(failed)}"
            failure = Failure("workflow.node_failed", message, previous=result.error, path=encode_id(name))
        return End("failed" if failure else "completed", self._output(), self._records(), failure)

    def _output(self) -> Any:
        return self._results[self._last].data if self._last is not None else None

    def _records(self) -> dict[str, Any]:
        return {name: result.record() for name, result in self._results.items()}
