"""Middleware: entries that wrap an operation, entered from the outermost to the innermost and left in reverse order.

An `Around` is one participation of an entry. It enters (``onEntry``), lets its behaviour run the inner operation,
shapes the Result (``onSuccess`` or ``onFailure``) and cleans up (``onAlways``) exactly once, however the operation ends
(specification: *Middleware mechanics*).
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from callboard.languages.flow.document import MiddlewareEntry, PhaseBlock
from callboard.languages.flow.frame import (
    ConstructNode,
    Frame,
    aspect,
    calculate,
    chain_of,
    check_arguments,
    evaluate_envelope,
    evaluate_field,
    evaluate_object,
    evaluate_predicate,
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
from callboard.languages.flow.template import ExpressionScope
from callboard.languages.flow.temporal import format_instant
from callboard.languages.language import Cancelled
from callboard.lib.json_types import JSON

Inner = Callable[[JSON], Awaitable[Result]]
"""Runs the operation inside an entry with an input, and returns its Result."""


class Behaviour(Protocol):
    """The behaviour of a middleware in one participation. Its methods may raise `Fault`."""

    async def enter(self, around: "Around", arguments: dict[str, JSON] | None) -> None:
        """Act at ``onEntry``; ``arguments`` is None if the phase's ``when`` is false."""
        ...

    async def run(self, around: "Around", down: JSON, inner: Inner) -> Result:
        """Run the inner operation as often as needed, and pass its Result through ``onSuccess`` or ``onFailure``."""
        ...

    async def leave(self, around: "Around", scope: ExpressionScope, arguments: dict[str, JSON]) -> None:
        """Act at ``onAlways``."""
        ...


class Around:
    """One participation of an entry: one pass through its phases."""

    def __init__(self, frame: Frame, entry: MiddlewareEntry, path: str, input: JSON, roots: dict[str, JSON]) -> None:
        self.frame = frame
        self.entry = entry
        self.path = path
        self.input = input
        self.descending = input
        """The input of the inner operation before the author's shaping; an action may replace it."""
        self.contributed: dict[str, JSON] = {}
        """Members that the middleware adds to ``middleware.metadata`` in all following phases."""
        self.roots = roots
        self.place = ConstructNode(frame.stage, path)
        self._contract = frame.execution.contract(entry.provider)

    # -- operations for behaviours ------------------------------------------------------------------------------------

    def scope(self, phase: str, result: JSON = UNSET) -> ExpressionScope:
        """Return the scope of a phase that begins now."""
        pin = self.frame.stage.now()
        middleware: dict[str, JSON] = {
            "input": self.input,
            "metadata": {"enteredAt": format_instant(pin), **self.contributed},
        }
        if result is not UNSET:
            middleware["result"] = result
        place = ConstructNode(self.frame.stage, aspect(self.path, phase))
        return ExpressionScope({**self.frame.roots(), **self.roots, "middleware": middleware}, pin, place.wall_time)

    def with_result(self, scope: ExpressionScope, result: Result) -> ExpressionScope:
        """Return the scope of the same phase with another Result."""
        return scope.having(middleware={**scope.roots["middleware"], "result": result})

    def with_metadata(self, scope: ExpressionScope) -> ExpressionScope:
        """Return the scope of the same phase with the metadata that the middleware has contributed."""
        middleware = scope.roots["middleware"]
        return scope.having(middleware={**middleware, "metadata": {**middleware["metadata"], **self.contributed}})

    async def acts(self, name: str, scope: ExpressionScope) -> dict[str, JSON] | None:
        """Return the arguments of the phase's action, or None if its ``when`` is false.

        :raises Fault: if ``when`` or ``with`` fails, or the arguments do not fit
        """
        phase, stage = self.phase(name), self.frame.stage
        await stage.breathe()
        if not await evaluate_predicate(stage, phase.when, scope):
            return None
        declared = self._contract.phases.get(name)
        if declared is not None and declared.structural:
            return {}
        await stage.breathe()
        arguments = await evaluate_object(stage, phase.arguments, scope)
        schema = self.frame.execution.schema(self.entry.provider, name)
        await check_arguments(stage, schema, arguments, f"{name}.with")
        return arguments

    def phase(self, name: str) -> PhaseBlock:
        return self.entry.phase(name)

    async def shape_result(self, name: str, scope: ExpressionScope, rising: Result) -> Result:
        """Return the Result after the author's shaping at ``onSuccess`` or ``onFailure``."""
        shape = self.phase(name).shape
        if not shape:
            return rising
        if name == "onSuccess":
            return success(await evaluate_field(self.frame.stage, shape["value"], scope, None))
        written = await calculate(self.frame.stage, scope, lambda: evaluate_envelope(shape, scope))
        return bound_chain({**rising, "previous": rising, **written})

    async def ascend(self, rising: Result) -> Result:
        """Pass a Result through ``onSuccess`` or ``onFailure``, for a middleware without an action there."""
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

    # -- the pass through the phases ----------------------------------------------------------------------------------

    async def pass_through(self, behaviour: Behaviour, inner: Inner) -> Result:
        """Enter, run the inner operation, and leave; return the Result."""
        try:
            down = await self._enter(behaviour)
        except Fault as fault:
            # The entry was not entered: the inner operation does not begin, and nothing needs a clean-up.
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
        # A cancellation that arrived during the clean-up takes effect now, after this entry has finished.
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
                # The arms of a clean-up call may have assigned variables, which the block must read.
                scope = self.with_metadata(scope).having(vars=self.frame.vars)
            await self.frame.assign(self.phase("onAlways").assign, scope)
        except Fault as fault:
            return supersede(fault.result, in_flight)
        return in_flight


class PlainMiddleware:
    """A middleware without actions: at each phase it only applies the author's shaping."""

    async def enter(self, around: Around, arguments: dict[str, JSON] | None) -> None:
        return None

    async def run(self, around: Around, down: JSON, inner: Inner) -> Result:
        return await around.ascend(await inner(down))

    async def leave(self, around: Around, scope: ExpressionScope, arguments: dict[str, JSON]) -> None:
        return None
