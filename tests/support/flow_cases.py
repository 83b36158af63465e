"""Cases of flows: a definition, an input, and the Result that it must have."""

from dataclasses import dataclass, field
from typing import Any

from callboard.languages.flow.authoring import find_differences
from callboard.lib.json_types import JSON
from tests.support.flows import LOOP, RETRY, Performance, call, caught, cleanup, entry, flow, mock, perform, returned

INVALID = "System.ParameterValidationFailed"
FAULT = "System.ExpressionEvaluationError"
UNMET = "System.GatherCompletionUnmet"
EXHAUSTED = "Provider.Middleware.Retry.Exhausted"
EXCEEDED = "Provider.Middleware.Timeout.Exceeded"
NEVER = {"match": {"codes": ["Never.Happens"]}, "attempts": 1}


@dataclass(frozen=True)
class Case:
    """One flow, one execution of it, and its Result."""

    definition: dict[str, Any]
    expected: dict[str, Any]
    input: JSON = None
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


def play(case: Case) -> Performance:
    """Perform a case; its Result must be the expected one."""
    done = perform(case.definition, case.input, case.arguments)
    found = find_differences(case.expected, done.result)
    assert not found, "\n".join([*found, str(done.result)])
    return done


def ok(value: JSON) -> dict[str, Any]:
    """The Result of a success."""
    return {"type": "success", "value": value}


def bad(code: str, **more: Any) -> dict[str, Any]:
    """The Result of a failure; None is for a member that is null or absent."""
    return {"type": "error", "code": code, **more}


def parameters(**defaults: JSON) -> dict[str, Any]:
    """A flow's parameters, with their defaults."""
    return {
        "parameters": {"type": "object", "properties": {name: {"default": value} for name, value in defaults.items()}}
    }


def shaper(on_entry: dict[str, Any] | None = None, **phases: Any) -> dict[str, Any]:
    """An entry without an effect (a Retry whose policy never matches), to shape and assign at its phases."""
    return entry(RETRY, onEntry={"with": {"policies": [NEVER]}, **(on_entry or {})}, **phases)


# -- flows of one call -------------------------------------------------------------------------------------------------

UNKNOWN = "{{ nothing.there }}"


def one_step(step: dict[str, Any], then: JSON = None, **fields: Any) -> dict[str, Any]:
    """A flow of one step, followed by a Return of ``then`` or of the step's value."""
    return flow({"s": step, "done": returned(then)}, **fields)


def handling(target: dict[str, Any], *handler: dict[str, Any], clause: Any = None, **fields: Any) -> dict[str, Any]:
    """A flow whose first step calls, and whose handler steps ``h0``, ``h1`` … follow on a failure."""
    steps: dict[str, Any] = {
        "s": call(target, catch=[caught("h0", **(clause or {}))], **fields),
        **{f"h{index}": step for index, step in enumerate(handler)},
        "done": returned(),
    }
    return flow(steps)


def raising(**result: Any) -> dict[str, Any]:
    return {"action": "Raise", **({"result": result} if result else {})}


def passed(next: str = "done", **fields: Any) -> dict[str, Any]:
    return {"action": "Pass", "next": next, **fields}


# -- stacks ------------------------------------------------------------------------------------------------------------

TICK = {"n": "{{ vars.n + 1.0 }}"}
LOGGED = parameters(log="")


def stack(*entries: Any, target: Any = None, then: Any = None, **fields: Any) -> dict[str, Any]:
    """A flow of one call inside a stack at its step; a failure is caught and returned, unless ``catch`` is given."""
    steps: dict[str, Any] = {
        "s": call(target or mock(), "done", middleware=list(entries), **{"catch": [caught("failed")], **fields}),
        "done": returned(then) if then is not None else returned(),
        "failed": returned("{{ failure }}") if then is None else returned(then),
    }
    return flow(steps, **parameters(n=0, log=""))


def uncaught(*entries: Any, target: Any = None, **fields: Any) -> dict[str, Any]:
    return stack(*entries, target=target, catch=[], **fields)


def around(*entries: Any, steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A flow with a stack around its graph."""
    return flow(steps, middleware=list(entries), **{**parameters(n=0, log=""), **fields})


def policies(*found: Any, **phases: Any) -> dict[str, Any]:
    return entry(RETRY, onEntry={"with": {"policies": list(found)}}, **phases)


def policy(codes: list[str], attempts: Any, **more: Any) -> dict[str, Any]:
    return {"match": {"codes": codes}, "attempts": attempts, **more}


def fails_until(tries: float, code: str = "X") -> dict[str, Any]:
    """A call that fails until the variable ``n`` has a value."""
    return mock(failure=f"{{{{ vars.n < {tries} ? {{'code': '{code}'}} : null }}}}", value="{{ vars.n }}")


def logs(letter: str) -> dict[str, Any]:
    """An assignment that appends a letter to a variable."""
    return {"assign": {"log": f"{{{{ vars.log + '{letter}' }}}}"}}


def logging(letter: str, **more: Any) -> dict[str, Any]:
    """An entry that appends each of its phases to a variable."""
    phases = {name: {**logs(letter + short), **more.get(name, {})} for name, short in PHASES.items()}
    return shaper(phases.pop("onEntry"), **phases)


PHASES = {"onEntry": "e", "onSuccess": "s", "onFailure": "f", "onAlways": "a"}


def noting(letter: str) -> dict[str, Any]:
    """A clean-up that appends a letter to a variable."""
    return cleanup({**mock(), "onSuccess": logs(letter)})


def loop(when: str, **phases: Any) -> dict[str, Any]:
    return entry(LOOP, **{**phases, "onSuccess": {"when": when, **phases.get("onSuccess", {})}})


SLOW = mock(delay="PT1H")
LATE = {"type": "timeout", "code": EXCEEDED}
