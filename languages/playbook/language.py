"""The playbook language as the runtime sees it."""

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages.language import End, Stage
from callboard.languages.plan import Definition, Plan
from callboard.languages.playbook.admit import admit
from callboard.languages.playbook.document import Playbook, to_vector_form
from callboard.languages.playbook.findings import UNREADABLE
from callboard.languages.playbook.near_misses import near_misses
from callboard.languages.playbook.parse import parse
from callboard.lib.canonical_json import canonical


class PlaybookLanguage:
    """PLAYBOOK.md 0.1.0; the modules `parse`, `admit` and `interpret` do the work.

    The canonical form of a playbook is the JSON of the specification's vectors, without line numbers.
    """

    name = "playbook"
    rules = 0

    def parse(self, source: str) -> Definition[Playbook] | list[Problem]:
        parsed = parse(source)
        if parsed.playbook is None:
            unreadable = any(one.code in UNREADABLE for one in parsed.problems)
            return parsed.problems if unreadable else [*parsed.problems, *near_misses(source, None)]
        form = canonical(to_vector_form(parsed.playbook, lines=False))
        return Definition("playbook", parsed.playbook.title, source, form, parsed.playbook, tuple(parsed.warnings))

    def admit(self, definition: Definition[Playbook], start: StartRun) -> Plan[Playbook] | list[Problem]:
        return admit(definition, start)

    async def interpret(self, plan: Plan[Playbook], stage: Stage) -> End:
        # Most programs that read definitions perform none.
        from callboard.languages.playbook.interpret import interpret

        return await interpret(plan, stage)


LANGUAGE = PlaybookLanguage()
