"""The flow language's implementation of the contract with the runtime."""

from typing import Any

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages.flow.admit import admit
from callboard.languages.flow.build import build
from callboard.languages.flow.document import Flow
from callboard.languages.flow.shipped_providers import CONTRACTS
from callboard.languages.flow.structure import find_problems
from callboard.languages.language import End, Stage
from callboard.languages.plan import Definition, Plan
from callboard.languages.problems import Tree
from callboard.languages.source_text import read_object
from callboard.lib.canonical_json import canonical


class FlowLanguage:
    """Metolia Workflow Language v0.1: `structure` checks documents, `interpret` executes them."""

    name = "flow"
    rules = 0

    def parse(self, source: str) -> Definition[Flow] | list[Problem]:
        tree = read_object(source, "flow", "$schema, entrypoint and steps")
        if not isinstance(tree, Tree):
            return tree
        found = find_problems(tree, CONTRACTS)
        if any(problem.severity == "error" for problem in found):
            return found
        document: dict[str, Any] = tree.value
        comment: str = document.get("comment") or ""
        return Definition("flow", "", source, canonical(document), build(document), tuple(found), comment)

    def admit(self, definition: Definition[Flow], start: StartRun) -> Plan[Flow] | list[Problem]:
        return admit(definition, start)

    async def interpret(self, plan: Plan[Flow], stage: Stage) -> End:
        # Most programs that read definitions perform none.
        from callboard.languages.flow.interpret import interpret

        return await interpret(plan, stage)


LANGUAGE = FlowLanguage()
