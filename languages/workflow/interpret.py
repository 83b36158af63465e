"""The workflow interpreter: it resolves the sources, then visits nodes one by one until no edge leads on.

A failed node does not stop a run. Its edges are followed as usual, so conditions can refer to the failure. The run
fails if the last result of any node is a failure.
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

    The End's ``output`` is the data of the last node, ``results`` the last result of each. The codes of its error are
    ``SOURCE_…``, ``workflow.node_failed``, ``workflow.step_budget``, ``workflow.routing_failed``, ``workflow.strict``.
    """
    if plan.options.get(STRICT) and (missed := _lacks(plan, stage)):
        # This worker lacks skills that the worker that admitted the run had.
        reasons = "; ".join(reason for _code, reason in missed.values())
        return End("failed", error=Failure("workflow.strict", reasons, details={"skills": list(missed)}))
    sources, _problems = declared_sources(plan.definition.document, plan.input)
    offline = bool(plan.options["offline"] or stage.info.environment.offline)
    try:
        resolved = await resolve(stage, sources, offline=offline)
    except Cancelled as cancelled:
        return End("cancelled", error=cancelled.cause)
    if isinstance(resolved, Failure):
        return End("failed", error=resolved)
    stage.record_sources(resolved)
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
    """Read a plan's skills, by id. Ids are not checked again, since those of a workflow's own skills are free."""
    skills = [Skill.model_validate({**raw, "id": "checked"}).model_copy(update={"id": raw["id"]}) for raw in recorded]
    return {skill.id: skill for skill in skills}


class _Walk:
    """One execution of a workflow: the results of its nodes so far, and the choice of the next node."""

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
        """Visit nodes until the end; return the failure that ended the walk, None if no edge was left."""
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
