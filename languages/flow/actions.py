"""The checks of steps: which fields each action requires and allows, and the clauses of Match and catch.

Source: pages *Step mechanics* and *Step actions*.
"""

from functools import partial
from typing import Any

from callboard.languages.cel.template_strings import expression_body
from callboard.languages.flow.bindings import at_match, at_step
from callboard.languages.flow.clauses import first_wins, matcher, vain_retries
from callboard.languages.flow.inspection import (
    Check,
    Here,
    anything,
    assign,
    boolean,
    comment,
    fields,
    items,
    of_type,
    structural,
    text,
    whole_number,
)
from callboard.languages.flow.targets import ENVELOPE_FIELDS, call, stack
from callboard.languages.flow.temporal import parse_duration, parse_instant
from callboard.languages.problems import hint_at, kind_of
from callboard.lib.json_types import JSON


def step(here: Here, name: str, value: JSON) -> None:
    """Check a step by its action."""
    if not isinstance(value, dict):
        here.wrong_kind(value, "an object: a step")
        return
    action = value.get("action")
    look = _ACTIONS.get(action) if isinstance(action, str) else None
    if look is not None:
        look(here.reading(at_step()), name, value)
    elif isinstance(action, str) and expression_body(action) is None:
        hint = hint_at(action, _ACTIONS)
        here.at("action").error("SCHEMA", f"there is no action {action!r}{hint}", f"one of {', '.join(_ACTIONS)}")
    elif "action" in value:
        here.at("action").wrong_kind(action, f"one of {', '.join(_ACTIONS)}")
    else:
        here.at("action").error("SCHEMA", "is required", f"one of {', '.join(_ACTIONS)}")


def route(here: Here, value: JSON, *, step: str | None) -> None:
    """Check the name of the next step, and record the route from a step (None: from the entry of the flow)."""
    if structural(here, value):
        here.node.routes.setdefault(step, []).append((here.location, str(value)))


def _after(check: Check, product: str) -> Check:
    """Return a check of a field that is evaluated after the step's action, and may read its ``product``."""
    return lambda here, value: check(here.reading(at_step(product=product)), value)


_COMMON: dict[str, Check] = {"action": lambda _here, _value: None, "comment": comment}


def _call_step(here: Here, name: str, value: dict[str, Any]) -> None:
    known: dict[str, Check] = {
        **_COMMON,
        "call": call,
        "input": anything,
        "middleware": partial(stack, level="step"),
        **_tail(name, "result"),
    }
    fields(here, value, known, required=("call", "next"))
    vain_retries(here.at("middleware"), value.get("middleware"), value.get("call"))


def _tail(name: str, product: str) -> dict[str, Check]:
    """Return the checks of the fields of a step that are evaluated after its calls."""
    return {
        "output": _after(anything, product),
        "assign": _after(assign, product),
        "catch": _after(partial(_catch, step=name), product),
        "next": partial(route, step=name),
    }


def _gather_step(here: Here, name: str, value: dict[str, Any]) -> None:
    one = partial(call, gathered=True)
    known: dict[str, Check] = {
        **_COMMON,
        "over": of_type(list, expected="an array, or an expression that gives one"),
        "call": one,
        "calls": items(one, filled=True),
        "completion": _completion,
        "concurrency": _concurrency,
        **_tail(name, "results"),
    }
    if "middleware" in value:
        message = "a Gather has no middleware; let it call a flow that has"
        here.at("middleware").error("SCHEMA", message)
        known["middleware"] = lambda _here, _value: None
    form = {name for name in ("over", "call", "calls") if name in value}
    if form not in ({"over", "call"}, {"calls"}):
        has = f"has {' and '.join(sorted(form, reverse=True))}" if form else "has nothing to call"
        here.error("GATHER_FORM", has, "either over with call, or calls")
    fields(here, value, known, required=("next",))
    _reachable_completion(here, value)


def _reachable_completion(here: Here, value: dict[str, Any]) -> None:
    calls, completion = value.get("calls"), value.get("completion")
    wanted = completion.get("successes") if isinstance(completion, dict) else None
    if isinstance(calls, list) and whole_number(wanted) and isinstance(wanted, int | float) and wanted > len(calls):
        message = f"{len(calls)} calls cannot reach {wanted} successes"
        here.at("completion", "successes").warn("COMPLETION", message)


def _completion(here: Here, value: JSON) -> None:
    fields(here, value, {"successes": _successes, "wait": boolean}, required=("successes",))


def _successes(here: Here, value: JSON) -> None:
    if whole_number(value) or (isinstance(value, str) and expression_body(value) is not None):
        anything(here, value)
    else:
        shown = str(value) if isinstance(value, float) else kind_of(value)
        here.error("SCHEMA", f"is {shown}", "a whole number, or an expression that gives one")


def _concurrency(here: Here, value: JSON) -> None:
    if value is None:
        return
    if not whole_number(value):
        here.wrong_kind(value, "a whole number of at least 1, or null")
    elif isinstance(value, int | float) and value < 1:
        here.error("SCHEMA", f"{value} is too small", "a whole number of at least 1, or null")


def _match_step(here: Here, name: str, value: dict[str, Any]) -> None:
    case = partial(_clause, step=name, required=("when", "next"))
    known: dict[str, Check] = {
        **_COMMON,
        "input": anything,
        "cases": items(case),
        "default": partial(_clause, step=name, required=("next",)),
    }
    fields(here, value, known, required=("cases", "default"))
    _cases_after_true(here.at("cases"), value.get("cases"))


def _clause(here: Here, value: JSON, *, step: str, required: tuple[str, ...]) -> None:
    known: dict[str, Check] = {
        "output": anything,
        "assign": assign,
        "next": partial(route, step=step),
        "comment": comment,
    }
    if "when" in required:
        known = {"when": of_type(expected="an expression: {{ … }}"), **known}
    elif isinstance(value, dict) and "when" in value:
        here.at("when").error("SCHEMA", "the default has no condition: it is taken if no case holds")
        known["when"] = lambda _here, _value: None
    fields(here.reading(at_match()), value, known, required)


def _cases_after_true(here: Here, cases: JSON) -> None:
    for index, case in enumerate(cases if isinstance(cases, list) else []):
        when = case.get("when") if isinstance(case, dict) else None
        if isinstance(when, str) and (expression_body(when) or "").strip() == "true" and index + 1 < len(cases or []):
            message = f"is never reached: case {index + 1} is always taken"
            here.at(index + 1).warn("UNREACHABLE_CLAUSE", message)
            return


def _catch(here: Here, value: JSON, *, step: str) -> None:
    known: dict[str, Check] = {
        "match": matcher,
        "output": anything,
        "assign": assign,
        "next": partial(route, step=step),
        "comment": comment,
    }

    def clause(here: Here, value: JSON) -> None:
        fields(here, value, known, required=("match", "next"))

    items(clause)(here, value)
    clauses = value if isinstance(value, list) else []
    first_wins(here, [one.get("match") if isinstance(one, dict) else None for one in clauses], "clause")


def _pass_step(here: Here, name: str, value: dict[str, Any]) -> None:
    known: dict[str, Check] = {**_COMMON, "output": anything, "assign": assign, "next": partial(route, step=name)}
    fields(here, value, known, required=("next",))


def _sleep_step(here: Here, name: str, value: dict[str, Any]) -> None:
    chosen = [field for field in ("for", "until") if field in value]
    if len(chosen) != 1:
        here.error("SLEEP_FORM", "has both for and until" if chosen else "has neither for nor until", "one of them")
    known: dict[str, Check] = {**_COMMON, "for": _duration, "until": _instant, "next": partial(route, step=name)}
    fields(here, value, known, required=("next",))


def _duration(here: Here, value: JSON) -> None:
    text(here, value)
    if isinstance(value, str) and expression_body(value) is None and parse_duration(value) is None:
        here.warn("TEMPORAL", f"{value!r} is not a duration, so this step fails", "ISO 8601, such as PT30S")


def _instant(here: Here, value: JSON) -> None:
    text(here, value)
    if isinstance(value, str) and expression_body(value) is None and parse_instant(value) is None:
        expected = "RFC 3339, such as 2030-01-31T09:30:00Z"
        here.warn("TEMPORAL", f"{value!r} is not an instant, so this step fails", expected)


def _return_step(here: Here, name: str, value: dict[str, Any]) -> None:
    _ends(here, name, value, {"value": anything})


def _raise_step(here: Here, name: str, value: dict[str, Any]) -> None:
    def result(here: Here, value: JSON) -> None:
        fields(here, value, ENVELOPE_FIELDS, required=("code",))

    _ends(here, name, value, {"result": result})


def _ends(here: Here, name: str, value: dict[str, Any], known: dict[str, Check]) -> None:
    """Check a step that ends the flow, and so must not have a next step."""
    action = value["action"]
    if "next" in value:
        here.at("next").error("SCHEMA", f"a {action} ends the flow, so step {name!r} has no next")
    fields(here, {field: held for field, held in value.items() if field != "next"}, {**_COMMON, **known})


_ACTIONS = {
    "Call": _call_step,
    "Gather": _gather_step,
    "Match": _match_step,
    "Pass": _pass_step,
    "Sleep": _sleep_step,
    "Return": _return_step,
    "Raise": _raise_step,
}
