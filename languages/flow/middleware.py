"""Middleware: entries around an operation, entered from the outside in and left from the inside out.

An `Around` is one entry's participation: it enters (``onEntry``), lets its behaviour run what is inside, shapes the
Result on its way up (``onSuccess`` or ``onFailure``) and cleans up (``onAlways``), which happens exactly once however
the entry is left (specification: *Middleware mechanics*).
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from callboard.languages.flow.document import Entry, Phase
from callboard.languages.flow.frame import (
    Frame,
    Place,
    aspect,
    calculate,
    chain_of,
    check_arguments,
    checked_envelope,
    evaluate_field,
    object_of,
    predicate,
)
from callboard.languages.flow.result import (
    UNSET,
    Fault,
    Result,
    as_failure,
    bound_chain,
    is_success,
    success,
    supersede,
)
from callboard.languages.flow.template import Scope
from callboard.languages.flow.temporal import format_instant
from callboard.languages.language import Cancelled
from callboard.lib.json_types import JSON

Inner = Callable[[JSON], Awaitable[Result]]
"""Runs what is inside an entry with the value that is passed down, to its Result."""


class Behaviour(Protocol):
    """What a middleware does, in one participation. Its methods may raise `Fault`."""

    async def enter(self, around: "Around", arguments: dict[str, JSON] | None) -> None:
        """Act at ``onEntry``; ``arguments`` is None if the phase is gated off."""
        ...

    async def run(self, around: "Around", down: JSON, inner: Inner) -> Result:
        """Run what is inside, as often as it takes, and bring its Result up through the entry's own phase."""
        ...

    async def leave(self, around: "Around", scope: Scope, arguments: dict[str, JSON]) -> None:
        """Act at ``onAlways``."""
        ...


class Around:
    """One entry's participation in one descent and ascent."""

    def __init__(self, frame: Frame, entry: Entry, path: str, input: JSON, roots: dict[str, JSON]) -> None:
        self.frame = frame
        self.entry = entry
        self.path = path
        self.input = input
        self.descending = input
        """The value on its way down, before the author shapes it; an action may put another in its place."""
        self.contributed: dict[str, JSON] = {}
        """Members that the middleware adds to ``middleware.metadata``, in every phase from now on."""
        self.roots = roots
        self.place = Place(frame.stage, path)
        self._contract = frame.execution.contract(entry.provider)

    # -- what behaviours build on -------------------------------------------------------------------------------------

    def scope(self, phase: str, result: JSON = UNSET) -> Scope:
        """Begin a phase: its bindings, pinned to this instant."""
        pin = self.frame.stage.now()
        middleware: dict[str, JSON] = {
            "input": self.input,
            "metadata": {"enteredAt": format_instant(pin), **self.contributed},
        }
        if result is not UNSET:
            middleware["result"] = result
        place = Place(self.frame.stage, aspect(self.path, phase))
        return Scope({**self.frame.roots(), **self.roots, "middleware": middleware}, pin, place.wall_time)

    def with_result(self, scope: Scope, result: Result) -> Scope:
        """The same phase, after its action has put another Result in place."""
        return scope.having(middleware={**scope.roots["middleware"], "result": result})

    def with_metadata(self, scope: Scope) -> Scope:
        """The same phase, after its action has contributed metadata."""
        middleware = scope.roots["middleware"]
        return scope.having(middleware={**middleware, "metadata": {**middleware["metadata"], **self.contributed}})

    async def acts(self, name: str, scope: Scope) -> dict[str, JSON] | None:
        """Decide whether the phase's action runs; return its arguments, or None if it is gated off.

        :raises Fault: of ``when``, or of ``with``
        """
        phase, stage = self.phase(name), self.frame.stage
        await stage.breathe()
        if not await predicate(stage, phase.when, scope):
            return None
        declared = self._contract.phases.get(name)
        if declared is not None and declared.structural:
            return {}
        await stage.breathe()
        arguments = await object_of(stage, phase.arguments, scope)
        schema = self.frame.execution.schema(self.entry.provider, name)
        await check_arguments(stage, schema, arguments, f"{name}.with")
        return arguments

    def phase(self, name: str) -> Phase:
        return self.entry.phase(name)

    async def shape_result(self, name: str, scope: Scope, rising: Result) -> Result:
        """Apply what the author wrote at an ascending phase to the Result that leaves it."""
        shape = self.phase(name).shape
        if not shape:
            return rising
        if name == "onSuccess":
            return success(await evaluate_field(self.frame.stage, shape["value"], scope, None))
        written = await calculate(self.frame.stage, scope, lambda: checked_envelope(shape, scope))
        return bound_chain({**rising, "previous": rising, **written})

    async def ascend(self, rising: Result) -> Result:
        """Bring a Result up through ``onSuccess`` or ``onFailure``, for a middleware that does not act there."""
        name = "onSuccess" if is_success(rising) else "onFailure"
        try:
            scope = self.scope(name, rising)
            await self.acts(name, scope)
            await self.frame.stage.breathe()
            risen = await self.shape_result(name, scope, rising)
            await self.frame.assign(self.phase(name).assign, scope)
        except Fault as fault:
            return supersede(fault.result, rising)
        return risen

    # -- the passage --------------------------------------------------------------------------------------------------

    async def pass_through(self, behaviour: Behaviour, inner: Inner) -> Result:
        """Enter, run, and leave."""
        try:
            down = await self._enter(behaviour)
        except Fault as fault:
            # Never established: nothing below begins, and there is nothing to clean up.
            return fault.result
        try:
            result = await behaviour.run(self, down, inner)
        except Cancelled as cancelled:
            chain = chain_of(cancelled)
            async with self.frame.stage.shield():
                after = await self._always(behaviour, chain)
            if after is chain:
                raise
            raise Cancelled(as_failure(after), cancelled.owner) from None
        if "onAlways" not in self.entry.phases and "onAlways" not in self._contract.phases:
            return result
        async with self.frame.stage.shield():
            result = await self._always(behaviour, result)
        # What came while the clean-up ran takes effect now, and this entry has done its part.
        await self.frame.stage.checkpoint()
        return result

    async def _enter(self, behaviour: Behaviour) -> JSON:
        scope = self.scope("onEntry")
        await behaviour.enter(self, await self.acts("onEntry", scope))
        await self.frame.stage.breathe()
        scope = self.with_metadata(scope)
        if self.descending is not self.input:
            scope = scope.having(middleware={**scope.roots["middleware"], "input": self.descending})
        phase = self.phase("onEntry")
        down = await evaluate_field(self.frame.stage, phase.shape.get("output"), scope, self.descending)
        await self.frame.stage.breathe()
        await self.frame.assign(phase.assign, scope)
        return down

    async def _always(self, behaviour: Behaviour, in_flight: Result) -> Result:
        try:
            scope = self.scope("onAlways", in_flight)
            arguments = await self.acts("onAlways", scope)
            if arguments is not None:
                await behaviour.leave(self, scope, arguments)
                # A clean-up's arms may have assigned, and the block reads the variables as they are before it.
                scope = self.with_metadata(scope).having(vars=self.frame.vars)
            await self.frame.assign(self.phase("onAlways").assign, scope)
        except Fault as fault:
            return supersede(fault.result, in_flight)
        return in_flight


class Plain:
    """A middleware that does nothing of its own at a phase, beyond letting the author shape."""

    async def enter(self, around: Around, arguments: dict[str, JSON] | None) -> None:
        return None

    async def run(self, around: Around, down: JSON, inner: Inner) -> Result:
        return await around.ascend(await inner(down))

    async def leave(self, around: Around, scope: Scope, arguments: dict[str, JSON]) -> None:
        return None
