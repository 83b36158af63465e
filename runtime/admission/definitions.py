"""Definitions: finding a text's language, and its meaning, parsed once and remembered for a while.

What takes long is done in a thread beside the event loop: reading a definition that is new here, and checking a start
that is large. Each has a thread to itself, so that whoever reads has one processor's worth of time at most.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
from anyio import to_thread
from msgspec.structs import replace

from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.events import Problem
from callboard.bus.subjects import token
from callboard.languages.kit import kits
from callboard.languages.language import Definition, End, Language, Plan, Stage
from callboard.languages.plans import planned
from callboard.languages.problems import hints_within
from callboard.languages.titles import title_of
from callboard.lib.threads import quick_turns

T = TypeVar("T")

REMEMBERED_MAX = 256
"""Definitions of each language that are kept parsed."""

SOURCE_CHARS_MAX = 1_000_000
"""Longest text of a definition."""

AT_ONCE_BYTES_MAX = 16 * 1024
"""A start, or a definition that is known here, larger than this is looked at in a thread."""


class Remembering:
    """A language that remembers what it parsed: many runs of one definition cost one parse."""

    def __init__(self, spoken: Language[Any]) -> None:
        self.name = spoken.name
        self._spoken = spoken
        self._parsed: OrderedDict[str, Definition[Any] | list[Problem]] = OrderedDict()

    def parse(self, source: str) -> Definition[Any] | list[Problem]:
        parsed = self._parsed.pop(source, None)
        if parsed is None:
            with hints_within():
                parsed = self._spoken.parse(source)
        # The newest last. Threads may get in each other's way here, but no more than so that one parses again.
        self._parsed[source] = parsed
        while len(self._parsed) > REMEMBERED_MAX:
            self._parsed.popitem(last=False)
        return parsed

    def knows(self, source: str) -> bool:
        """Whether a text has been parsed, and costs nothing."""
        return source in self._parsed

    def admit(self, definition: Definition[Any], start: StartRun) -> Plan[Any] | list[Problem]:
        with hints_within():
            return self._spoken.admit(definition, start)

    async def interpret(self, plan: Plan[Any], stage: Stage) -> End:
        return await self._spoken.interpret(plan, stage)


class Definitions:
    """The languages of this process, each with its memory."""

    def __init__(self) -> None:
        self._languages: dict[str, Remembering] = {}
        self._reading = anyio.Lock()

    async def apart(self, work: Callable[[], T], *, size: int = 0, source: str | None = None) -> T:
        """Do work that looks at so many bytes, and parses a source: at once, or in a thread if it may take long."""
        known = source is None or any(spoken.knows(source) for spoken in self._languages.values())
        if known and size + len(source or "") <= AT_ONCE_BYTES_MAX:
            return work()
        async with self._reading:
            with quick_turns():
                return await to_thread.run_sync(work)

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
        if len(text) > SOURCE_CHARS_MAX:
            expected = f"at most {SOURCE_CHARS_MAX} characters"
            message = f"the definition has {len(text)} characters"
            return [Problem("definition.too_large", message, "definition.source", expected=expected)]
        name = source.language or registry.detect_nearly(text)
        if isinstance(name, list):
            return name
        if name not in kits():
            message = f"there is no language {name!r}"
            expected = " | ".join(kits())
            return [Problem(code="start.language", message=message, where="definition.language", expected=expected)]
        spoken = self.language(name)
        parsed = spoken.parse(text)
        if isinstance(parsed, list):
            return parsed
        plan = planned(spoken, called(parsed, start.name or source.name), start)
        if not isinstance(plan, list) and plan.objections:
            return list(plan.objections)
        if isinstance(plan, list) or start.name in (None, plan.definition.name):
            return plan
        message = f"the definition has a name of its own, {plan.definition.name!r}, which holds"
        unused = Problem("start.name", message, "name", severity="warning")
        return replace(plan, warnings=(*plan.warnings, unused))


def called(definition: Definition[Any], name: str | None) -> Definition[Any]:
    """Call a definition that has no name of its own by this one, or else by the title that its comment gives it."""
    name = definition.name or name or title_of(definition.comment)
    try:
        token(name)
    except ValueError:
        return definition
    return definition if name == definition.name else replace(definition, name=name)
