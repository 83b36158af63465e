"""The playbook interpreter: runs the steps one by one, each as a new model call that sees the results of earlier steps.

A step that fails ends the run. The run expires if a question, a call or a breakpoint waits for too long.
"""

import datetime as dt
from collections.abc import Awaitable
from typing import Literal

from msgspec.structs import replace

from callboard.bus.effects import Failure
from callboard.bus.paths import child, encode_id
from callboard.languages.language import Cancelled, End, Expired, Node, Stage
from callboard.languages.plan import Plan
from callboard.languages.playbook.admit import plan_options
from callboard.languages.playbook.context import StepOutput
from callboard.languages.playbook.document import ARTIFACT_TYPES, Branch, Condition, Playbook, Step
from callboard.languages.playbook.interpolation import TextTooLong, render
from callboard.languages.playbook.names import Names
from callboard.languages.playbook.outcome import Broken, Lapsed, Outcome, Skipped, StepDone
from callboard.languages.playbook.outline import condition_text
from callboard.languages.playbook.record import StepRecords, StepStatus
from callboard.languages.playbook.state import SavedState
from callboard.languages.playbook.visit import SharedState, Visit


async def interpret(plan: Plan[Playbook], stage: Stage) -> End:
    """Execute a playbook.

    The End's ``output`` is the output of the last step that ran. The codes of its error are ``playbook.step_failed``,
    with the step's failure as the previous one, and ``playbook.expired``.
    """
    return await _Run(plan, stage).end()


class _Run:
    """One execution of a playbook, with its results so far."""

    def __init__(self, plan: Plan[Playbook], stage: Stage) -> None:
        playbook = plan.definition.document
        options = plan_options(plan.options)
        self._stage = stage
        self._playbook = playbook
        self._expires = dt.timedelta(seconds=options.expires_after)
        self._state = SavedState.model_validate(stage.info.state or {})
        self._first: int = plan.options["first_step"]
        self._names = Names(plan.input, self._state.named_texts())
        self._record = StepRecords(playbook, self._state, self._first)
        before = zip(playbook.steps, self._record.steps, strict=True)
        context = [StepOutput(step, standing.output) for step, standing in before if standing.output is not None]
        self._setting = SharedState(stage, self._names, context, options, plan.options["system_prompt"])
        self._gates = 0

    async def end(self) -> End:
        try:
            for place in range(self._first, len(self._playbook.steps)):
                match await self._step(place):
                    case Broken() as broken:
                        return self._end_run("failed", _step_failed(broken))
                    case Lapsed(message):
                        return self._end_run("expired", _expiry_failure(message))
                    case _:
                        pass
            return self._end_run("completed")
        except Cancelled as cancelled:
            return self._end_run("cancelled", cancelled.cause)

    async def _step(self, place: int) -> Outcome:
        """Execute a step; then pause if it is a breakpoint, or if the run executes step by step."""
        step, standing = self._playbook.steps[place], self._record.steps[place]
        await self._stage.breathe()
        if lapsed := await self._wait_at_gate():
            return lapsed
        path = encode_id(step.label)
        node = self._stage.enter(path, "step", node=step.label, name=step.title, input={"place": place})
        # If the saved state has a response, the question is not asked again.
        known = self._state.response(step.number) if place == self._first else None
        visit = Visit(self._setting, node, step, standing, known)
        outcome = await self._run_node(visit, self._carry_out(visit))
        if isinstance(outcome, StepDone) and self._stage.pauses_at(step.label):
            standing.status = "paused"
            if lapsed := await self._wait_at_gate(node, step.label):
                return lapsed
            standing.status = "completed"
        return outcome

    async def _carry_out(self, visit: Visit) -> Outcome:
        """Execute a step, including the branch that it takes, if any."""
        step = visit.step
        if step.tool_call is not None or not step.is_branching:
            return await visit.carry_out()
        if lapsed := await visit.ask():
            return lapsed
        taken = _choose_branch(step, self._names)
        if taken is None:
            return Skipped()
        place, branch = taken
        if not branch.steps:
            return await visit.produce_output() if visit.says or step.elicitation else Skipped()
        visit.node.route(branch.steps[0].label, condition_text(branch), f"branch.{place}")
        above = await visit.texts()
        if isinstance(above, Broken):
            return above
        outcome: Outcome = Skipped()
        for one in branch.steps:
            outcome = await self._wait_at_gate() or await self._sub_step(visit, one, above)
            if not isinstance(outcome, StepDone):
                break
        return outcome

    async def _sub_step(self, around: Visit, step: Step, above: list[str]) -> Outcome:
        path = child(around.node.path, encode_id(step.label))
        node = self._stage.enter(path, "substep", node=step.label, name=step.title)
        standing = StepStatus(step.label)
        around.standing.inner.append(standing)
        answers = list(around.answers)
        visit = Visit(self._setting, node, step, standing, inner=True, above=tuple(above), answers=answers)
        return await self._run_node(visit, visit.carry_out())

    async def _run_node(self, visit: Visit, work: Awaitable[Outcome]) -> Outcome:
        """Do the work of a step or sub-step, and exit its node with the outcome."""
        node, step, standing = visit.node, visit.step, visit.standing
        standing.status = "running"
        try:
            outcome = await work
        except Cancelled as cancelled:
            node.exit("cancelled", visit.result(None), cancelled.cause)
            raise
        match outcome:
            case StepDone(text):
                await visit.capture(text)
                self._record.record_output(standing, text, None if visit.inner else step.number)
                if not standing.inner:
                    # The sub-steps of a step that took a branch have added their outputs already.
                    self._setting.context.append(StepOutput(step, text, f"{node.path}#{node.iteration}"))
                node.exit("ok", visit.result(text), kept=not standing.inner)
            case Skipped():
                standing.status = "skipped"
                node.exit("skipped", visit.result(None))
            case Broken(error):
                standing.status = "failed"
                node.exit("failed", visit.result(None), error)
                return outcome if outcome.label else replace(outcome, label=step.label, path=node.path)
            case Lapsed(message):
                node.exit("cancelled", visit.result(None), _expiry_failure(message))
        return outcome

    async def _wait_at_gate(self, node: Node | None = None, label: str = "") -> Lapsed | None:
        """Wait while the run is paused or at a breakpoint, until a resume; return `Lapsed` if none comes in time."""
        stage = self._stage
        due = stage.now() + self._expires
        self._gates += 1
        gate = stage.gate(node, label, "after", path=node.path if node else "", due=due)
        raced = await stage.within(due, gate, node=node or stage.root, slot=f"gate.{self._gates}.expiry")
        if isinstance(raced, Expired):
            return Lapsed(f"nobody resumed the run in time{f', after step {label}' if label else ''}")
        if raced.value is not None:
            self._names.override(raced.value.variables)
        return None

    def _end_run(
        self, status: Literal["completed", "failed", "cancelled", "expired"], error: Failure | None = None
    ) -> End:
        record = self._record
        return End(status, record.last, record.results(self._names.outputs, self._artifact(status)), error)

    def _artifact(self, status: str) -> str:
        """Return the artifact type with its values; warn if the result is not a known type."""
        declared = self._playbook.artifact_type
        try:
            kind = render(declared, self._names.find).text
        except TextTooLong as error:
            self._stage.root.warn("ARTIFACT_TYPE", f"{declared}: {error}")
            return declared
        if kind == declared:
            return kind
        kind = kind.strip().lower()
        if kind not in ARTIFACT_TYPES and status == "completed":
            reason = f"{declared} is {kind!r}, which is none of {', '.join(ARTIFACT_TYPES)}"
            self._stage.root.warn("ARTIFACT_TYPE", reason)
        return kind


def _step_failed(broken: Broken) -> Failure:
    error = broken.error
    message = f"step {broken.label} failed: {error.message or error.code}"
    details = {"step": broken.label}
    return Failure("playbook.step_failed", message, details=details, previous=error, path=broken.path)


def _expiry_failure(message: str) -> Failure:
    return Failure("playbook.expired", message, type="timeout")


def _choose_branch(step: Step, names: Names) -> tuple[int, Branch] | None:
    """Return the index of the first branch whose condition holds, and the branch; else ``else``; None without one.

    Texts are compared verbatim; the value of an unknown name is the empty text.
    """
    otherwise: tuple[int, Branch] | None = None
    for place, branch in enumerate(step.branches):
        if branch.condition is None:
            otherwise = otherwise or (place, branch)
        elif _holds(branch.condition, names):
            return place, branch
    return otherwise


def _holds(condition: Condition, names: Names) -> bool:
    equal = (names.find(condition.variable) or "") == condition.value
    return equal if condition.operator == "==" else not equal
