"""The graph language as the runtime sees it."""

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages.graph import admit, parse
from callboard.languages.graph.rules import LATEST
from callboard.languages.graph.topology import Graph
from callboard.languages.language import End, Stage
from callboard.languages.plan import Definition, Plan


class GraphLanguage:
    """Workflows of the Workflow Engine V2; the modules `parse`, `admit` and `interpret` do the work."""

    name = "graph"
    rules = LATEST

    def parse(self, source: str) -> Definition[Graph] | list[Problem]:
        return parse.parse(source)

    def admit(self, definition: Definition[Graph], start: StartRun) -> Plan[Graph] | list[Problem]:
        return admit.admit(definition, start)

    async def interpret(self, plan: Plan[Graph], stage: Stage) -> End:
        # Most programs that read definitions perform none.
        from callboard.languages.graph.interpret import interpret

        return await interpret(plan, stage)


LANGUAGE = GraphLanguage()
"""The registry reads this name."""
