"""The plan of a start: its definition is looked up if it is registered, and checked where its code is."""

from functools import partial
from typing import Any, Protocol

import msgspec

from callboard.bus.commands import DefinitionSource, Registration, StartRun
from callboard.bus.events import Problem
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.languages.hosting import CODE_UNKNOWN
from callboard.languages.plan import Plan
from callboard.languages.registry import hosting
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.versions import find_registration
from callboard.runtime.interpreter.code import code_in
from callboard.runtime.run.bundles import with_registered


class CodeLocations(Protocol):
    """The workers by the code that they have."""

    def code_home(self, entry: str, digest: str) -> str:
        """Return the other worker that is to perform runs of an entry point; empty if this one is, or no worker is."""
        ...

    def had_last(self, entry: str) -> str:
        """Return the worker that had the code of an entry point last; empty if none is known."""
        ...


class CodeElsewhere(Exception):
    """The code that a start names is at another worker, which is to admit it. ``problems`` are those of this worker."""

    def __init__(self, worker: str, problems: list[Problem]) -> None:
        super().__init__(worker)
        self.worker = worker
        self.problems = problems


class StartPlans:
    """Makes the plans of starts."""

    def __init__(self, log: JetStreamLog, definitions: Definitions) -> None:
        self._log = log
        self._definitions = definitions
        self._hosts: CodeLocations | None = None

    def set_hosts(self, hosts: CodeLocations) -> None:
        """Have ``hosts`` say which worker has the code of a start that this one does not have."""
        self._hosts = hosts

    async def resolve(
        self, tenant: str, start: StartRun, size: int, *, goes_on: bool
    ) -> tuple[StartRun, Plan[Any] | list[Problem]]:
        """Return a start and its plan. The start includes the files, skills and children of a registered definition.

        ``size`` is the size of the start in bytes. A run that ``goes_on`` from another one may do so with other code.
        """
        wanted = start.definition
        if wanted.source is not None:
            return start, await self._plan(wanted, start, size, goes_on=goes_on)
        kept = await self._find_registered(tenant, wanted)
        if isinstance(kept, list):
            return start, kept
        start = with_registered(start, kept)
        source = DefinitionSource(wanted.language or kept.language, kept.source, name=kept.name)
        return start, await self._plan(source, start, size, goes_on=goes_on)

    async def _plan(
        self, source: DefinitionSource, start: StartRun, size: int, *, goes_on: bool
    ) -> Plan[Any] | list[Problem]:
        plan = partial(self._definitions.plan, source, start)
        planned = await self._definitions.offload(plan, size=size, source=source.source)
        if not isinstance(planned, list) or self._hosts is None:
            return planned
        missing = next((problem for problem in planned if problem.code == CODE_UNKNOWN), None)
        if missing is None or source.source is None:
            return planned
        code = code_in(source.source)
        if code is None:
            return planned
        if worker := self._hosts.code_home(code.entry, code.digest):
            raise CodeElsewhere(worker, planned)
        if code.digest and goes_on:
            # No worker has the code of the previous run, so the run continues with today's code.
            today = msgspec.structs.replace(source, source=hosting().name_code(code.entry))
            return await self._plan(today, start, size, goes_on=goes_on)
        if last := self._hosts.had_last(code.entry):
            known = msgspec.structs.replace(missing, message=f"{missing.message}; worker {last} had it last")
            return [known if problem is missing else problem for problem in planned]
        return planned

    async def _find_registered(self, tenant: str, wanted: DefinitionSource) -> Registration | list[Problem]:
        """Find a registered definition."""
        name = wanted.name or wanted.hash
        assert name is not None
        found = await find_registration(self._log, tenant, name)
        if found is None:
            where = "definition.name" if wanted.name else "definition.hash"
            message = f"no definition {name!r} is registered"
            expected = "the name, NAME@VERSION or hash of a registered definition (`callboard push` registers one)"
            _, colon, workflow = name.rpartition(":")
            if colon and await find_registration(self._log, tenant, workflow) is not None:
                # A worker registers FILE.py:NAME as NAME.
                expected = f"{workflow!r}, the name under which that code is registered"
            return [Problem(code="definition.unknown", message=message, where=where, expected=expected)]
        return found
