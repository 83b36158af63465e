"""The Python language as the runtime sees it: a definition names a workflow, and the digest of its sources."""

import re
from typing import Any

from msgspec.structs import replace

from callboard.bus.commands import StartRun
from callboard.bus.effects import Failure
from callboard.bus.events import Outline, OutlineNode, Problem
from callboard.languages.hosting import CODE_UNKNOWN
from callboard.languages.language import Continuation, End, Stage
from callboard.languages.plan import Definition, Needs, Plan
from callboard.languages.problems import Tree, kind_of
from callboard.languages.python.errors import ContinueAsNew, WorkflowFault
from callboard.languages.python.failures import failure_of
from callboard.languages.python.frames import where
from callboard.languages.python.hosted import HOSTING, Hosted, Named, find_hosted
from callboard.languages.python.inspection import WorkflowInspection
from callboard.languages.python.likeness import alike_in_type
from callboard.languages.python.loop import WorkflowLoop
from callboard.languages.python.workflows import InputMisfit, WorkflowFunction
from callboard.languages.source_text import read_document
from callboard.lib.json_types import JSON
from callboard.lib.text import without_addresses

_ENTRY = re.compile(r"[\w.]+:[\w.<>]+")

NONDETERMINISTIC = "python.nondeterministic"


class PythonLanguage:
    """Workflows as ordinary Python; the module `loop` performs them."""

    name = "python"
    rules = 0

    def parse(self, source: str) -> Definition[Named] | list[Problem]:
        tree = read_document(source)
        if not isinstance(tree, Tree):
            return tree
        match tree.value:
            case {"python": str(entry), **rest} if _ENTRY.fullmatch(entry):
                pass
            case dict():
                message = "python is missing or not the entry point of a workflow"
                return [tree.problem("python.entry", message, ("python",), expected='"module:name"')]
            case value:
                message = f"expected an object, got {kind_of(value)}"
                return [tree.problem("python.entry", message, expected='{"python": "module:name"}')]
        digest = rest.pop("code", "")
        problems = [
            tree.problem(
                "python.field", f"a definition of this language has no {name}", (name,), expected="python, code"
            )
            for name in rest
        ]
        if not isinstance(digest, str) or not re.fullmatch("([0-9a-f]{64})?", digest):
            message = "code is not the digest of sources"
            problems.append(tree.problem("python.code", message, ("code",), expected="64 hexadecimal digits"))
        if problems:
            return problems
        named = Named(entry, digest)
        return Definition(self.name, entry.rpartition(":")[2], source, named.canonical, named)

    def admit(self, definition: Definition[Named], start: StartRun) -> Plan[Named] | list[Problem]:
        named = definition.document
        found = find_hosted(named.entry, named.digest)
        if found is None:
            known = ", ".join(HOSTING.entries()) or "none"
            message = f"this worker was not given the code of {named.entry}; it has: {known}"
            expected = "a worker that has it: callboard worker --code MODULE"
            return [Problem(CODE_UNKNOWN, message, "definition", expected=expected)]
        problems = _misfits(found, start)
        if problems:
            return problems
        if not named.digest:
            named = Named(named.entry, found.code.digest)
            text = named.canonical
            definition = replace(definition, source=text.decode(), canonical=text, document=named)
        same = named.digest == found.code.digest
        outline = Outline([OutlineNode(found.workflow.name, found.workflow.name, "workflow")])
        return Plan(
            definition,
            start.input,
            {},
            {},
            outline,
            needs=Needs(model=False),
            diverged=NONDETERMINISTIC if same else "",
            adopts="" if same else found.code.digest,
            objections=() if same else (_other_code(named, found),),
        )

    async def interpret(self, plan: Plan[Named], stage: Stage) -> End:
        named = plan.definition.document
        found = find_hosted(named.entry, named.digest)
        assert found is not None, "admission has found it"
        return await perform(found, plan.input, stage)


def _other_code(named: Named, found: Hosted) -> Problem:
    """Make the problem of a start that names sources that this worker does not have."""
    message = f"this worker has {named.entry} with the sources {found.code.digest[:12]}, not {named.digest[:12]}"
    expected = "a definition without code, or a worker that was given these sources"
    return Problem(CODE_UNKNOWN, message, "definition.code", expected=expected)


def _misfits(found: Hosted, start: StartRun) -> list[Problem]:
    """Return the problems of a start's options, arguments and input."""
    message = "a workflow in Python takes no such option"
    problems = [Problem("python.option", message, f"options.{name}") for name in start.options]
    if start.arguments:
        message = "a workflow in Python takes no arguments beside its input"
        problems.append(Problem("python.arguments", message, "arguments"))
    try:
        found.workflow.arguments(start.input)
    except InputMisfit as error:
        expected = str(found.workflow.parameters.signature)
        for at, what in error.problems:
            problems.append(Problem("python.input", what, f"input.{at}" if at else "input", expected=expected))
    return problems


async def perform(found: Hosted, given: Any, stage: Stage) -> End:
    """Perform a workflow on a stage, and return how it ended."""
    root = found.code.root
    loop = WorkflowLoop(stage, lambda frame: where(root, frame))
    loop.root = root
    loop.locals["hosted"] = found
    stage.inspection = WorkflowInspection(loop, root)
    try:
        performed = await loop.perform(_call(found.workflow, given))
    except WorkflowFault as fault:
        return End("failed", error=fault.failure)
    if performed.task.cancelled():
        if performed.cancelled is not None:
            return End("cancelled", error=performed.cancelled.cause)
        return End("failed", error=Failure("python.failed", "the workflow has cancelled itself"))
    error = performed.task.exception()
    if error is not None and (again := _continuation_in(error)) is not None:
        if performed.cancelled is not None:
            return End("cancelled", error=performed.cancelled.cause)
        return End("completed", continuation=Continuation(again.input))
    if isinstance(error, BadOutput):
        return End("failed", error=Failure("python.bad_output", without_addresses(str(error))))
    if error is not None:
        return End("failed", error=failure_of(error, found.code))
    output = performed.task.result()
    stage.root.compares_by(alike_in_type(found.workflow.parameters.result, "output"))
    if performed.cancelled is not None:
        stage.root.warn("python.cancel_swallowed", "the workflow has caught its cancellation, and returned")
        return End("cancelled", output, error=performed.cancelled.cause)
    return End("completed", output)


class BadOutput(Exception):
    """A workflow has returned a value that does not fit its type."""


async def _call(workflow: WorkflowFunction[..., Any], given: JSON) -> JSON:
    """Call a workflow, and return the JSON of its output. Code of types, such as validators, belongs to the run."""
    returned = await workflow.function(**workflow.arguments(given))
    try:
        return workflow.parameters.result.encode(returned)
    except (ValueError, TypeError) as misfit:
        raise BadOutput(f"{workflow.name} returned what does not fit: {misfit}") from misfit


def _continuation_in(error: BaseException) -> ContinueAsNew | None:
    """Return the request to continue as a new run, if a workflow has ended because of it, perhaps in a task group."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, ContinueAsNew) else None


LANGUAGE = PythonLanguage()
