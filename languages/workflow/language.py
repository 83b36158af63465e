"""The workflow language as the runtime sees it."""

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages.language import End, Stage
from callboard.languages.plan import Definition, Plan
from callboard.languages.workflow import admit, parse
from callboard.languages.workflow.document import Workflow


class WorkflowLanguage:
    """SWEny workflows, specification v1; the modules `parse`, `admit` and `interpret` do the work."""

    name = "workflow"
    rules = 0

    def parse(self, source: str) -> Definition[Workflow] | list[Problem]:
        return parse.parse(source)

    def admit(self, definition: Definition[Workflow], start: StartRun) -> Plan[Workflow] | list[Problem]:
        return admit.admit(definition, start)

    async def interpret(self, plan: Plan[Workflow], stage: Stage) -> End:
        # Most programs that read definitions perform none.
        from callboard.languages.workflow.interpret import interpret

        return await interpret(plan, stage)


LANGUAGE = WorkflowLanguage()
