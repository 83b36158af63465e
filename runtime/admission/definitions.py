"""Definitions: find the language of a text, parse it, and cache the parsed definition.

Parsing a definition that is new to this worker and checking a large start take long, so they are done in a thread
beside the event loop. Only one such thread runs at a time, so this work uses at most one processor.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
from anyio import to_thread
from msgspec.structs import replace

from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.events import Problem
from callboard.languages.kit import find_kit, kits
from callboard.languages.language import End, Language, Stage
from callboard.languages.plan import Definition, Plan
from callboard.languages.problems import hints_within
from callboard.languages.registry import give_name, plan_start
from callboard.lib.threads import quick_turns

T = TypeVar("T")

REMEMBERED_MAX = 256
"""Number of parsed definitions that are cached per language."""

SOURCE_CHARS_MAX = 1_000_000
"""Longest text of a definition."""

AT_ONCE_BYTES_MAX = 16 * 1024
"""A start, or a cached definition, larger than this is checked in a thread."""


class Remembering:
    """A language with a cache of parsed definitions: many runs of one definition need one parse."""

    def __init__(self, spoken: Language[Any]) -> None:
        self.name = spoken.name
        self._spoken = spoken
        self._parsed: OrderedDict[str, Definition[Any] | list[Problem]] = OrderedDict()

    @property
    def rules(self) -> int:
        return self._spoken.rules

    def parse(self, source: str) -> Definition[Any] | list[Problem]:
        parsed = self._parsed.pop(source, None)
        if parsed is None:
            with hints_within():
                parsed = self._spoken.parse(source)
        # The newest comes last. If two threads do this at the same time, at worst a definition is parsed twice.
        self._parsed[source] = parsed
        while len(self._parsed) > REMEMBERED_MAX:
            self._parsed.popitem(last=False)
        return parsed

    def knows(self, source: str) -> bool:
        """Whether a text has been parsed already."""
        return source in self._parsed

    def admit(self, definition: Definition[Any], start: StartRun) -> Plan[Any] | list[Problem]:
        with hints_within():
            return self._spoken.admit(definition, start)

    async def interpret(self, plan: Plan[Any], stage: Stage) -> End:
        return await self._spoken.interpret(plan, stage)


class Definitions:
    """The languages of this process, each with its cache."""

    def __init__(self) -> None:
        self._languages: dict[str, Remembering] = {}
        self._reading = anyio.Lock()

    async def offload(self, work: Callable[[], T], *, size: int = 0, source: str | None = None) -> T:
        """Do work that reads ``size`` bytes and parses ``source``: directly, or in a thread if it may take long."""
        known = source is None or any(spoken.knows(source) for spoken in self._languages.values())
        if known and size + len(source or "") <= AT_ONCE_BYTES_MAX:
            return work()
        async with self._reading:
            with quick_turns():
                return await to_thread.run_sync(work)

    def language(self, name: str) -> Language[Any]:
        """Return a language by name.

        :raises KeyError: if no language has this name
        """
        from callboard.languages import registry

        found = self._languages.get(name)
        if found is None:
            found = self._languages[name] = Remembering(registry.language(name))
        return found

    def plan(self, source: DefinitionSource, start: StartRun) -> Plan[Any] | list[Problem]:
        """Make the plan of a start whose definition has its text."""
        from callboard.languages import registry

        text = source.source
        assert text is not None
        if len(text) > SOURCE_CHARS_MAX:
            expected = f"at most {SOURCE_CHARS_MAX} characters"
            message = f"the definition has {len(text)} characters"
            return [Problem("definition.too_large", message, "definition.source", expected=expected)]
        name = source.language or registry.detect_nearly(text)
        if isinstance(name, list):
            return name
        if find_kit(name) is None:
            message = f"there is no language {name!r}"
            expected = " | ".join(kits())
            return [Problem(code="start.language", message=message, where="definition.language", expected=expected)]
        spoken = self.language(name)
        parsed = spoken.parse(text)
        if isinstance(parsed, list):
            return parsed
        plan = plan_start(spoken, give_name(parsed, start.name or source.name), start)
        if not isinstance(plan, list) and (objections := (*plan.definition.objections, *plan.objections)):
            return list(objections)
        if isinstance(plan, list) or start.name in (None, plan.definition.name):
            return plan
        message = f"the definition already has the name {plan.definition.name!r}, which is used instead"
        unused = Problem("start.name", message, "name", severity="warning")
        return replace(plan, warnings=(*plan.warnings, unused))
