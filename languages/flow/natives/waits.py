"""The providers that wait for something outside of the run.

``human`` asks a person: the question is open until an answer fits it or the time has passed. ``signal`` waits for a
signal whose data matches. ``definition`` runs another definition as a child run.
"""

from typing import Any

from callboard.bus.answer_schemas import answer_schema
from callboard.languages.flow.dispatches import Dispatch, DispatchReply
from callboard.languages.flow.frame import duration_of
from callboard.languages.flow.result import UNSET, Result, as_envelope, success
from callboard.languages.language import Answered, Ask, End, Instant, Ok, Question, SignalArrived
from callboard.lib.json_types import JSON

_YES = frozenset({"yes", "y", "true", "ok", "1"})
_NO = frozenset({"no", "n", "false", "0"})


async def ask_human(request: Dispatch) -> DispatchReply:
    """Ask, and wait for an answer that fits the question."""
    arguments, stage, node = request.arguments, request.stage, request.node
    timeout = arguments.get("timeout")
    due = None if timeout is None else duration_of(timeout).after(stage.now())
    async with node.question("ask", _ask(arguments, request.input, due)) as question:
        work = _answer(question, arguments)
        if due is None:
            return await work
        raced = await stage.within(due, work, node=node, slot="bound")
        if isinstance(raced, Ok):
            return raced.value
        question.close("timeout", None, None)
    message = f"nobody answered within {timeout}: {arguments['question']}"
    return DispatchReply(request.make_failure("Timeout", message, type="timeout"))


def _ask(arguments: dict[str, Any], input: JSON, due: Instant | None) -> Ask:
    return Ask(
        question=arguments["question"],
        type=arguments.get("type", "input"),
        options=_options(arguments),
        channel_type=arguments.get("channel"),
        request_data=arguments.get("data", input),
        timeout_at=due,
        timeout_action=None if due is None else "fail",
        schema=answer_schema(["yes", "no"]) if arguments.get("type") == "confirm" else None,
    )


def _options(arguments: dict[str, Any]) -> list[Any]:
    if arguments.get("type") == "confirm":
        return arguments.get("options", ["yes", "no"])
    return arguments.get("options", [])


async def _answer(question: Question, arguments: dict[str, Any]) -> DispatchReply:
    kind: str = arguments.get("type", "input")
    while True:
        answered = await question.answer()
        value = read_answer(kind, _options(arguments), answered.user_response)
        if value is not UNSET:
            question.close("answered", answered.k, None)
            return DispatchReply(success(value), _metadata(answered))
        reason = f"answer {answered.k} is none to this question of type {kind}: {answered.user_response!r:.200}"
        question.not_understood(reason)


def read_answer(kind: str, options: list[Any], response: JSON) -> JSON:
    """Return the value of an answer to a question of a kind; `UNSET` if the answer does not fit.

    ``confirm`` accepts true and false, and words for them. ``select`` accepts an option's value or label, or its number
    in the list, from 1, if no option is a number. ``input`` accepts everything.
    """
    match kind, response:
        case "confirm", bool():
            return response
        case "confirm", str():
            word = response.strip().casefold()
            return True if word in _YES else False if word in _NO else UNSET
        case "confirm", _:
            return UNSET
        case "select", _:
            return _select_option(options, response)
        case _:
            return response


def _select_option(options: list[Any], response: JSON) -> JSON:
    choices = [_choice(option) for option in options]
    for value, _label in choices:
        if _same(value, response):
            return value
    if not isinstance(response, str):
        return UNSET
    said = response.strip().casefold()
    for value, label in choices:
        if said == label.strip().casefold():
            return value
    numbered = said.isdecimal() and 1 <= int(said) <= len(choices) and not any(_is_number(v) for v, _ in choices)
    return choices[int(said) - 1][0] if numbered else UNSET


def _choice(option: JSON) -> tuple[JSON, str]:
    match option:
        case {"value": value, **rest}:
            return value, str(rest.get("label", value))
        case _:
            return option, str(option)


def _same(value: JSON, response: JSON) -> bool:
    return value == response and isinstance(value, bool) == isinstance(response, bool)


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and value.strip().isdecimal())


def _metadata(answered: Answered) -> dict[str, JSON]:
    found = {"by": answered.by, "channel": answered.channel, "data": answered.response_data, "answers": answered.k}
    return {name: value for name, value in found.items() if value is not None}


async def await_signal(request: Dispatch) -> DispatchReply:
    """Wait for a signal."""
    stage, node = request.stage, request.node
    timeout = request.arguments.get("timeout")
    if timeout is None:
        return _signal_to_reply(await _signal(request, None))
    due = duration_of(timeout).after(stage.now())
    raced = await stage.within(due, _signal(request, due), node=node, slot="bound")
    if isinstance(raced, Ok):
        return _signal_to_reply(raced.value)
    message = f"no signal {request.arguments['name']!r} within {timeout}"
    return DispatchReply(request.make_failure("Timeout", message, type="timeout"))


async def _signal(request: Dispatch, due: Instant | None) -> SignalArrived:
    return await request.node.signal("signal", request.arguments["name"], request.arguments.get("match"), due)


def _signal_to_reply(signal: SignalArrived) -> DispatchReply:
    metadata: dict[str, JSON] = {"name": signal.name}
    if signal.by is not None:
        metadata["by"] = signal.by
    return DispatchReply(success(signal.data), metadata)


_NAMES = ("name", "hash", "file", "source", "language")
_START = ("arguments", "options", "model")


async def run_definition(request: Dispatch) -> DispatchReply:
    """Run another definition and wait for its end."""
    given = request.arguments
    definition = {name: given[name] for name in _NAMES if name in given}
    start: dict[str, Any] = {name: given[name] for name in _START if name in given}
    end = await request.node.child("child", definition, request.input, **start)
    metadata = {"status": end.status, "results": end.results}
    return DispatchReply(
        success(end.output) if end.status == "completed" else _failure_of_child(request, end), metadata
    )


def _failure_of_child(request: Dispatch, end: End) -> Result:
    """Return the failure for a child run that did not complete; the child's own failure is ``previous``."""
    error = end.error
    given = request.arguments
    named = given.get("name") or given.get("file") or given.get("hash") or "the definition"
    reason = f": {error.message or error.code}" if error is not None else ""
    previous = UNSET if error is None else as_envelope(error)
    retryable = None if error is None else error.retryable
    match end.status:
        case "cancelled":
            code, type, message = "Cancelled", "cancellation", f"the run of {named} was cancelled"
        case "expired":
            code, type, message = "Expired", "timeout", f"the run of {named} expired"
        case _ if error is not None and error.code in REJECTED:
            code, type, message = "Rejected", "error", f"{named} was refused{reason}"
        case _:
            code, type, message = "Failed", "error", f"the run of {named} failed{reason}"
    details = {"status": end.status}
    if code == "Rejected" and error is not None and isinstance(error.details, dict):
        details |= error.details
    return request.make_failure(code, message, type=type, details=details, retryable=retryable, previous=previous)


REJECTED = frozenset({"child.refused"})
"""Failure codes of child runs whose start was refused."""
