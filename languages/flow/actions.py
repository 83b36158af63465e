"""The checks of steps: which fields each action requires and allows, and the clauses of Match and catch.

Source: pages *Step mechanics* and *Step actions*.
"""

from functools import partial
from typing import Any

from callboard.languages.cel.template_strings import expression_body
from callboard.languages.flow.bindings import at_match, at_step
from callboard.languages.flow.clauses import check_matcher, warn_of_unreachable_matchers, warn_of_vain_retries
from callboard.languages.flow.inspection import (
    Check,
    Here,
    check_assign,
    check_boolean,
    check_comment,
    check_each,
    check_fields,
    check_literal_string,
    check_text,
    check_value,
    is_whole_number,
    of_type,
)
from callboard.languages.flow.targets import ENVELOPE_FIELDS, check_call, check_stack
from callboard.languages.flow.temporal import parse_duration, parse_instant
from callboard.languages.problems import hint_at, kind_of
from callboard.lib.json_types import JSON


def check_step(here: Here, name: str, value: JSON) -> None:
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


def check_route(here: Here, value: JSON, *, step: str | None) -> None:
    """Check the name of the next step, and record the route from a step (None: from the entry of the flow)."""
    if check_literal_string(here, value):
        here.node.routes.setdefault(step, []).append((here.location, str(value)))


def _check_after_action(check: Check, product: str) -> Check:
    """Return a check of a field that is evaluated after the step's action, and may read its ``product``."""
    return lambda here, value: check(here.reading(at_step(product=product)), value)


_COMMON: dict[str, Check] = {"action": lambda _here, _value: None, "comment": check_comment}


def _check_call_step(here: Here, name: str, value: dict[str, Any]) -> None:
    known: dict[str, Check] = {
        **_COMMON,
        "call": check_call,
        "input": check_value,
        "middleware": partial(check_stack, level="step"),
        **_checks_after_action(name, "result"),
    }
    check_fields(here, value, known, required=("call", "next"))
    warn_of_vain_retries(here.at("middleware"), value.get("middleware"), value.get("call"))


def _checks_after_action(name: str, product: str) -> dict[str, Check]:
    """Return the checks of the fields of a step that are evaluated after its calls."""
    return {
        "output": _check_after_action(check_value, product),
        "assign": _check_after_action(check_assign, product),
        "catch": _check_after_action(partial(_check_catch, step=name), product),
        "next": partial(check_route, step=name),
    }


def _check_gather_step(here: Here, name: str, value: dict[str, Any]) -> None:
    one = partial(check_call, gathered=True)
    known: dict[str, Check] = {
        **_COMMON,
        "over": of_type(list, expected="an array, or an expression that gives one"),
        "call": one,
        "calls": check_each(one, filled=True),
        "completion": _check_completion,
        "concurrency": _check_concurrency,
        **_checks_after_action(name, "results"),
    }
    if "middleware" in value:
        message = "a Gather has no middleware; let it call a flow that has"
        here.at("middleware").error("SCHEMA", message)
        known["middleware"] = lambda _here, _value: None
    form = {name for name in ("over", "call", "calls") if name in value}
    if form not in ({"over", "call"}, {"calls"}):
        has = f"has {' and '.join(sorted(form, reverse=True))}" if form else "has nothing to call"
        here.error("GATHER_FORM", has, "either over with call, or calls")
    check_fields(here, value, known, required=("next",))
    _warn_of_unreachable_completion(here, value)


def _warn_of_unreachable_completion(here: Here, value: dict[str, Any]) -> None:
    calls, completion = value.get("calls"), value.get("completion")
    wanted = completion.get("successes") if isinstance(completion, dict) else None
    if isinstance(calls, list) and is_whole_number(wanted) and isinstance(wanted, int | float) and wanted > len(calls):
        message = f"{len(calls)} calls cannot reach {wanted} successes"
        here.at("completion", "successes").warn("COMPLETION", message)


def _check_completion(here: Here, value: JSON) -> None:
    check_fields(here, value, {"successes": _check_successes, "wait": check_boolean}, required=("successes",))


def _check_successes(here: Here, value: JSON) -> None:
    if is_whole_number(value) or (isinstance(value, str) and expression_body(value) is not None):
        check_value(here, value)
    else:
        shown = str(value) if isinstance(value, float) else kind_of(value)
        here.error("SCHEMA", f"is {shown}", "a whole number, or an expression that gives one")


def _check_concurrency(here: Here, value: JSON) -> None:
    if value is None:
        return
    if not is_whole_number(value):
        here.wrong_kind(value, "a whole number of at least 1, or null")
    elif isinstance(value, int | float) and value < 1:
        here.error("SCHEMA", f"{value} is too small", "a whole number of at least 1, or null")


def _check_match_step(here: Here, name: str, value: dict[str, Any]) -> None:
    case = partial(_check_clause, step=name, required=("when", "next"))
    known: dict[str, Check] = {
        **_COMMON,
        "input": check_value,
        "cases": check_each(case),
        "default": partial(_check_clause, step=name, required=("next",)),
    }
    check_fields(here, value, known, required=("cases", "default"))
    _warn_of_cases_after_true(here.at("cases"), value.get("cases"))


def _check_clause(here: Here, value: JSON, *, step: str, required: tuple[str, ...]) -> None:
    known: dict[str, Check] = {
        "output": check_value,
        "assign": check_assign,
        "next": partial(check_route, step=step),
        "comment": check_comment,
    }
    if "when" in required:
        known = {"when": of_type(expected="an expression: {{ … }}"), **known}
    elif isinstance(value, dict) and "when" in value:
        here.at("when").error("SCHEMA", "the default has no condition: it is taken if no case holds")
        known["when"] = lambda _here, _value: None
    check_fields(here.reading(at_match()), value, known, required)


def _warn_of_cases_after_true(here: Here, cases: JSON) -> None:
    for index, case in enumerate(cases if isinstance(cases, list) else []):
        when = case.get("when") if isinstance(case, dict) else None
        if isinstance(when, str) and (expression_body(when) or "").strip() == "true" and index + 1 < len(cases or []):
            message = f"is never reached: case {index + 1} is always taken"
            here.at(index + 1).warn("UNREACHABLE_CLAUSE", message)
            return


def _check_catch(here: Here, value: JSON, *, step: str) -> None:
    known: dict[str, Check] = {
        "match": check_matcher,
        "output": check_value,
        "assign": check_assign,
        "next": partial(check_route, step=step),
        "comment": check_comment,
    }

    def clause(here: Here, value: JSON) -> None:
        check_fields(here, value, known, required=("match", "next"))

    check_each(clause)(here, value)
    clauses = value if isinstance(value, list) else []
    warn_of_unreachable_matchers(
        here, [one.get("match") if isinstance(one, dict) else None for one in clauses], "clause"
    )


def _check_pass_step(here: Here, name: str, value: dict[str, Any]) -> None:
    known: dict[str, Check] = {
        **_COMMON,
        "output": check_value,
        "assign": check_assign,
        "next": partial(check_route, step=name),
    }
    check_fields(here, value, known, required=("next",))


def _check_sleep_step(here: Here, name: str, value: dict[str, Any]) -> None:
    chosen = [field for field in ("for", "until") if field in value]
    if len(chosen) != 1:
        here.error("SLEEP_FORM", "has both for and until" if chosen else "has neither for nor until", "one of them")
    known: dict[str, Check] = {
        **_COMMON,
        "for": _check_duration,
        "until": _check_instant,
        "next": partial(check_route, step=name),
    }
    check_fields(here, value, known, required=("next",))


def _check_duration(here: Here, value: JSON) -> None:
    check_text(here, value)
    if isinstance(value, str) and expression_body(value) is None and parse_duration(value) is None:
        here.warn("TEMPORAL", f"{value!r} is not a duration, so this step fails", "ISO 8601, such as PT30S")


def _check_instant(here: Here, value: JSON) -> None:
    check_text(here, value)
    if isinstance(value, str) and expression_body(value) is None and parse_instant(value) is None:
        expected = "RFC 3339, such as 2030-01-31T09:30:00Z"
        here.warn("TEMPORAL", f"{value!r} is not an instant, so this step fails", expected)


def _check_return_step(here: Here, name: str, value: dict[str, Any]) -> None:
    _check_last_step(here, name, value, {"value": check_value})


def _check_raise_step(here: Here, name: str, value: dict[str, Any]) -> None:
    def result(here: Here, value: JSON) -> None:
        check_fields(here, value, ENVELOPE_FIELDS, required=("code",))

    _check_last_step(here, name, value, {"result": result})


def _check_last_step(here: Here, name: str, value: dict[str, Any], known: dict[str, Check]) -> None:
    """Check a step that ends the flow, and so must not have a next step."""
    action = value["action"]
    if "next" in value:
        here.at("next").error("SCHEMA", f"a {action} ends the flow, so step {name!r} has no next")
    check_fields(here, {field: held for field, held in value.items() if field != "next"}, {**_COMMON, **known})


_ACTIONS = {
    "Call": _check_call_step,
    "Gather": _check_gather_step,
    "Match": _check_match_step,
    "Pass": _check_pass_step,
    "Sleep": _check_sleep_step,
    "Return": _check_return_step,
    "Raise": _check_raise_step,
}
