"""Definitions: finding a text's language, and its meaning, parsed once and remembered for a while."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.events import Problem
from callboard.bus.subjects import token
from callboard.languages.language import STRICT, Definition, End, Language, Plan, Stage
from callboard.languages.problems import kind_of
from callboard.languages.titles import title_of

REMEMBERED_MAX = 256
"""Definitions of each language that are kept parsed."""


class Remembering:
    """A language that remembers what it parsed: many runs of one definition cost one parse."""

    def __init__(self, spoken: Language[Any]) -> None:
        self.name = spoken.name
        self._spoken = spoken
        self._parse = lru_cache(maxsize=REMEMBERED_MAX)(spoken.parse)

    def parse(self, source: str) -> Definition[Any] | list[Problem]:
        return self._parse(source)

    def admit(self, definition: Definition[Any], start: StartRun) -> Plan[Any] | list[Problem]:
        return self._spoken.admit(definition, start)

    async def interpret(self, plan: Plan[Any], stage: Stage) -> End:
        return await self._spoken.interpret(plan, stage)


class Definitions:
    """The languages of this process, each with its memory."""

    def __init__(self) -> None:
        self._languages: dict[str, Remembering] = {}

    def language(self, name: str) -> Language[Any]:
        """Return a language by name.

        :raises KeyError: if there is none of that name
        """
        from callboard.languages import registry

        found = self._languages.get(name)
        if found is None:
            found = self._languages[name] = Remembering(registry.language(name))
        return found

    def plan(self, source: DefinitionSource, start: StartRun) -> Plan[Any] | list[Problem]:
        """Make the plan of a start whose definition's text is known."""
        from callboard.languages import registry

        text = source.source
        assert text is not None
        name = source.language or registry.detect(text)
        if isinstance(name, list):
            return name
        if name not in registry.LANGUAGES:
            message = f"there is no language {name!r}"
            expected = " | ".join(registry.LANGUAGES)
            return [Problem(code="start.language", message=message, where="definition.language", expected=expected)]
        spoken = self.language(name)
        parsed = spoken.parse(text)
        if isinstance(parsed, list):
            return parsed
        plan = planned(spoken, called(parsed, start.name or source.name), start)
        if isinstance(plan, list) or start.name in (None, plan.definition.name):
            return plan
        message = f"the definition has a name of its own, {plan.definition.name!r}, which holds"
        unused = Problem("start.name", message, "name", severity="warning")
        return replace(plan, warnings=(*plan.warnings, unused))


def planned(spoken: Language[Any], definition: Definition[Any], start: StartRun) -> Plan[Any] | list[Problem]:
    """Admit a start in its language. ``options.strict`` is the same in all of them: none sees it, every plan has it."""
    strict: object = start.options.get(STRICT, False)
    others = {name: value for name, value in start.options.items() if name != STRICT}
    plan = spoken.admit(definition, msgspec.structs.replace(start, options=others))
    problems: list[Problem] = []
    if not isinstance(strict, bool):
        where = f"options.{STRICT}"
        problems = [Problem("start.strict", f"is {kind_of(strict)}", where, expected="true or false")]
    if isinstance(plan, list) or problems:
        return [*problems, *(plan if isinstance(plan, list) else [])]
    return replace(plan, options={**plan.options, STRICT: strict})


def called(definition: Definition[Any], name: str | None) -> Definition[Any]:
    """Call a definition that has no name of its own by this one, or else by the title that its comment gives it."""
    name = definition.name or name or title_of(definition.comment)
    try:
        token(name)
    except ValueError:
        return definition
    return definition if name == definition.name else replace(definition, name=name)
