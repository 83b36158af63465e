"""Middlewares of users, whose actions a worker carries out.

Each action is one effect in its own node. It is accepted when its outcome is in the log; an outer Timeout that elapses
earlier cancels it. The kind of the action decides the meaning of its answer:

* a *side-effect* changes nothing;
* a *transform* replaces the value before the author's shaping: at ``onEntry`` the input, at ``onSuccess`` the value of
  the Result, at ``onFailure`` the failure envelope, with the former one as its ``previous``;
* a *control* replaces the Result. At ``onEntry`` it replaces the wrapped operation, which then does not run, and passes
  through the entry's own phases. At ``onSuccess`` a failure is emitted without shaping; at ``onFailure`` the new Result
  must be a failure too.

An action that fails makes its phase fail. `middleware_stack` has the middlewares that the interpreter implements.
"""

from msgspec import Struct

from callboard.languages.computation import compute
from callboard.languages.flow.depth import DEPTH_MAX, TOO_DEEP, too_deep
from callboard.languages.flow.dispatches import MALFORMED, TIMING, expose_metadata
from callboard.languages.flow.frame import aspect, outcome_of
from callboard.languages.flow.middleware import Around, Inner, PlainMiddleware
from callboard.languages.flow.result import (
    CHAIN_DEPTH_MAX,
    Fault,
    Result,
    as_envelope,
    as_failure,
    failure,
    is_success,
    success,
    supersede,
)
from callboard.languages.flow.template import ExpressionScope
from callboard.languages.language import Cancelled, Node, Ok
from callboard.languages.provider_contracts import Contract, Phase
from callboard.lib.json_types import JSON


class _Action(Struct, frozen=True):
    """The result of a middleware's action: a new Result, or None to keep the present one."""

    result: Result | None


class WorkerMiddleware(PlainMiddleware):
    """One participation of a user's middleware."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._substitute: Result | None = None

    async def enter(self, around: Around, arguments: dict[str, JSON] | None) -> None:
        declared = self._contract.phases.get("onEntry")
        if declared is None or arguments is None:
            return
        given = (await self._act(around, "onEntry", arguments, None)).result
        if given is None:
            return
        if declared.kind == "control":
            self._substitute = given
        elif not is_success(given):
            raise Fault(given)
        elif declared.kind == "transform":
            around.descending = given["value"]

    async def run(self, around: Around, down: JSON, inner: Inner) -> Result:
        rising = await inner(down) if self._substitute is None else self._substitute
        name: Phase = "onSuccess" if is_success(rising) else "onFailure"
        try:
            scope = around.scope(name, rising)
            arguments = await around.acts(name, scope)
            risen = rising
            if arguments is not None and name in self._contract.phases:
                risen = await self._act_on_way_up(around, name, arguments, rising)
                scope = around.with_metadata(around.with_result(scope, risen))
            if is_success(risen) == is_success(rising):
                risen = await around.shape_result(name, scope, risen)
            await around.frame.assign(around.phase(name).assign, scope)
        except Fault as fault:
            return supersede(fault.result, rising)
        return risen

    async def leave(self, around: Around, scope: ExpressionScope, arguments: dict[str, JSON]) -> None:
        if "onAlways" in self._contract.phases:
            given = (await self._act(around, "onAlways", arguments, scope.roots["middleware"]["result"])).result
            if given is not None and not is_success(given):
                raise Fault(given)

    # -- actions ------------------------------------------------------------------------------------------------------

    async def _act_on_way_up(self, around: Around, name: Phase, arguments: dict[str, JSON], rising: Result) -> Result:
        """Act at ``onSuccess`` or ``onFailure``; return the Result after the action.

        :raises Fault: if the action fails
        """
        given = (await self._act(around, name, arguments, rising)).result
        kind = self._contract.phases[name].kind
        if given is None:
            return rising
        if kind == "control":
            if name == "onFailure" and is_success(given):
                raise Fault(failure(MALFORMED, f"{self._contract.uri} cannot make a success of a failure"))
            return supersede(given, rising)
        if not is_success(given):
            raise Fault(given)
        if kind == "side-effect":
            return rising
        if name == "onSuccess":
            return success(given["value"])
        return supersede(self._envelope(given["value"]), rising)

    def _envelope(self, value: JSON) -> Result:
        match value:
            case {"type": str(type), "code": str()} if type != "success":
                return value
            case _:
                raise Fault(failure(MALFORMED, f"{self._contract.uri} made no failure of one: {value!r:.200}"))

    async def _act(self, around: Around, name: Phase, arguments: dict[str, JSON], in_flight: Result | None) -> _Action:
        """Have a worker carry an action out, and keep the metadata that the middleware contributes.

        :raises Fault: if the action failed, or could not be carried out
        """
        node = around.frame.stage.enter(aspect(around.path, name), "phase", node=self._contract.code_prefix)
        try:
            value = await self._carry_out(around, node, name, arguments, in_flight)
        except Cancelled as cancelled:
            node.exit("cancelled", error=cancelled.cause)
            raise
        except Fault as fault:
            node.exit("failed", error=as_failure(fault.result))
            raise
        given = value.result
        node.exit("ok" if given is None else outcome_of(given))
        return value

    async def _carry_out(
        self, around: Around, node: Node, name: Phase, arguments: dict[str, JSON], in_flight: Result | None
    ) -> _Action:
        asked: dict[str, JSON] = {
            "provider": self._contract.uri,
            "phase": name,
            "with": arguments,
            "input": around.input,
            "result": in_flight,
            "metadata": around.contributed,
        }
        outcome = await node.call("act", "provider", asked)
        if not isinstance(outcome, Ok):
            raise Fault(as_envelope(outcome.error))
        depth_max = DEPTH_MAX + CHAIN_DEPTH_MAX
        if await compute(around.frame.stage, lambda: too_deep(outcome.value, depth_max)):
            raise Fault(failure(MALFORMED, f"the answer of {self._contract.uri} {TOO_DEEP}"))
        match outcome.value:
            case {"failed": {"type": str(type), "code": str()} as failed} if type != "success":
                raise Fault(failed)
            case {"result": None, "metadata": dict(metadata)}:
                action = _Action(None)
            case {"result": {"type": "success", "value": _} as result, "metadata": dict(metadata)}:
                action = _Action(result)
            case {"result": {"type": str(type), "code": str()} as result, "metadata": dict(metadata)} if (
                type != "success"
            ):
                action = _Action(result)
            case other:
                raise Fault(failure(MALFORMED, f"{self._contract.uri} answered with no Result: {other!r:.200}"))
        shown = expose_metadata(self._contract, metadata)
        around.contributed = {
            **around.contributed,
            **{member: value for member, value in shown.items() if member not in TIMING},
        }
        return action
