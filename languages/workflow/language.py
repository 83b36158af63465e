"""The workflow language as the runtime sees it."""

from pydantic import ValidationError

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages.language import End, Stage
from callboard.languages.plan import Definition, Plan
from callboard.languages.problems import Tree, from_pydantic, in_order
from callboard.languages.source_text import read_object
from callboard.languages.workflow.admit import admit
from callboard.languages.workflow.document import Workflow
from callboard.languages.workflow.validate import beyond_schema, structure
from callboard.lib.canonical_json import canonical


class WorkflowLanguage:
    """SWEny workflows, specification v1; the modules `admit` and `interpret` do most of the work.

    The canonical form of a workflow is the canonical JSON of the document as written.
    """

    name = "workflow"
    rules = 0

    def parse(self, source: str) -> Definition[Workflow] | list[Problem]:
        tree = read_object(source, "workflow", "id, name, entry, nodes and edges")
        if not isinstance(tree, Tree):
            return tree
        problems = structure(tree)
        try:
            document = Workflow.model_validate(tree.value)
        except ValidationError as error:
            places = {problem.where for problem in problems}
            schema = from_pydantic(error, Workflow, tree)
            return in_order([*(problem for problem in schema if problem.where not in places), *problems])
        problems += beyond_schema(document, tree)
        if any(problem.severity == "error" for problem in problems):
            return in_order(problems)
        warnings = tuple(in_order(problems))
        return Definition("workflow", document.id, source, canonical(tree.value), document, warnings)

    def admit(self, definition: Definition[Workflow], start: StartRun) -> Plan[Workflow] | list[Problem]:
        return admit(definition, start)

    async def interpret(self, plan: Plan[Workflow], stage: Stage) -> End:
        # Most programs that read definitions perform none.
        from callboard.languages.workflow.interpret import interpret

        return await interpret(plan, stage)


LANGUAGE = WorkflowLanguage()
