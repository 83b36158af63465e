"""Reactions: decides which events a command to an active run results in. Pure; the run actor records the events.

Consumes: cancel, kill, pause, resume, answer, signal
Emits: cancel.requested, run.paused, run.resumed, human.answered, tool.result, signal.received, command.refused
"""

import datetime as dt

import msgspec
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.commands import TELLS, Answer, Cancel, Kill, Pause, Resume, Signal, Tell
from callboard.bus.effects import Failure
from callboard.bus.events import Payload
from callboard.bus.vouchers import read_roles
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.interpreter.stage import RunStage
from callboard.runtime.interpreter.waits import OpenQuestion

QUESTION_CHARS_MAX = 200
"""Maximum number of characters of a question that a refusal quotes."""


class Reaction(Struct, frozen=True):
    """An event that a command results in; with a key, an outcome of that effect."""

    payload: Payload
    key: str = ""


def parse_tell(verb: str, body: bytes) -> Tell:
    """Read the body of a command; an empty one has default values only.

    :raises KeyError: if the verb is unknown
    :raises msgspec.DecodeError: if the body does not have the verb's shape
    """
    try:
        return decode_json(body or b"{}", type=TELLS[verb])
    except RecursionError as error:
        raise msgspec.DecodeError("the command is nested too deep") from error


def is_late(stage: RunStage, verb: str, body: bytes, stored: dt.datetime) -> bool:
    """Whether the server stored a command after the deadline of its question or breakpoint.

    Such a command is refused, whether or not the deadline is recorded yet.
    """
    try:
        tell = parse_tell(verb, body)
    except (KeyError, *JSON_ERRORS):
        return False
    match tell:
        case Answer():
            question = stage.waits.questions.get(_find_question(stage, tell, stored)[0])
            return question is not None and _has_passed(stage, question.asked.timeout_at, stored)
        case Resume():
            ended = _resumable(stage, tell)
            return bool(ended) and all(_has_timed_out(stage, key, stored) for key in ended)
        case _:
            return False


def reactions(stage: RunStage, verb: str, body: bytes, stored: dt.datetime | None = None) -> list[Reaction]:
    """Return the events that a command results in; at least one, so that the command is recorded.

    Admission has checked the command, but one that was published without admission may have any content. ``stored`` is
    the time at which the server stored it: an answer or a resume after its deadline is refused.
    """
    try:
        tell = parse_tell(verb, body)
    except KeyError:
        return [Reaction(ev.CommandRefused(verb, "tell.verb", f"unknown verb {verb!r}"))]
    except JSON_ERRORS as error:
        return [Reaction(ev.CommandRefused(verb, "tell.malformed", str(error)))]
    match tell:
        case Cancel():
            if stage.cancelling:
                return _refuse(verb, tell, "cancel.already", "the run is being cancelled already")
            return [Reaction(ev.CancelRequested(tell.reason, tell.by, tell.message, tell.details))]
        case Kill():
            return [Reaction(kill_requested(tell))]
        case Pause():
            if stage.waits.paused:
                return _refuse(verb, tell, "pause.already", "the run is paused already")
            return [Reaction(ev.RunPaused(reason="command", by=tell.by, message=tell.reason))]
        case Resume():
            return _resume(stage, tell, stored)
        case Answer():
            return _answer(stage, tell, stored)
        case Signal():
            received = ev.SignalReceived(name=tell.name, data=tell.data, by=tell.by)
            return [Reaction(received, stage.waits.find_signal_wait(tell.name, tell.data) or "")]


def kill_requested(kill: Kill) -> ev.CancelRequested:
    """Return the event that records a kill, whatever the state of the run."""
    return ev.CancelRequested(kill.reason, kill.by, "killed", kill=True)


def _resume(stage: RunStage, resume: Resume, stored: dt.datetime | None) -> list[Reaction]:
    ended = _resumable(stage, resume)
    if not ended:
        return _refuse("resume", resume, "resume.not_paused", _with_open(stage, "the run is not paused"))
    in_time = [key for key in ended if stored is None or not _has_timed_out(stage, key, stored)]
    if not in_time:
        message = "the pause had timed out before this was sent"
        return _refuse("resume", resume, "resume.not_paused", _with_open(stage, message))
    if resume.variables and not stage.has_variables:
        return _refuse("resume", resume, "resume.variables", "the language of this run has no variables")
    if wrong := stage.check_variables(resume.variables):
        return _refuse("resume", resume, "resume.variables", "; ".join(str(problem) for problem in wrong))
    resumed = ev.RunResumed(variables=resume.variables, by=resume.by, step=resume.step)
    return [Reaction(resumed, key) for key in in_time]


def _resumable(stage: RunStage, resume: Resume) -> list[str]:
    """Keys of the pauses that a resume ends."""
    return stage.waits.step() if resume.step else stage.waits.pauses()


def _has_timed_out(stage: RunStage, key: str, stored: dt.datetime) -> bool:
    """Whether a pause had timed out when the server stored a command."""
    effect = stage.waits.effects.get(key)
    intent = effect.intent if effect is not None else None
    return isinstance(intent, ev.RunPaused) and _has_passed(stage, intent.timeout_at, stored)


def _has_passed(stage: RunStage, timeout_at: dt.datetime | None, stored: dt.datetime | None) -> bool:
    """Whether a deadline had passed when the server stored a command.

    In a fork the deadlines of its origin are postponed, so the earliest open deadline must have passed as well.
    """
    bound = stage.waits.next_deadline()
    if timeout_at is None or stored is None or bound is None:
        return False
    return timeout_at < stored and bound[0] < stored


def _answer(stage: RunStage, answer: Answer, stored: dt.datetime | None) -> list[Reaction]:
    key, waiting = _find_question(stage, answer, stored)
    question = stage.waits.questions.get(key)
    if question is not None and not question.closed:
        return _answer_question(stage, question, answer, stored)
    call = _caller_call(stage, key)
    if call is not None and stage.waits.is_open(key):
        return [Reaction(_tool_result(call, answer), key)]
    code, message = _explain_refusal(stage, key, waiting)
    return _refuse("answer", answer, code, _with_open(stage, message))


def _find_question(stage: RunStage, answer: Answer, stored: dt.datetime | None) -> tuple[str, list[str]]:
    """Return the key of the question or call that an answer is for, empty if that is ambiguous, and all candidates.

    An answer that names no question is for one that was open when the server stored the answer.
    """
    asked = {key: question.event.time for key, question in stage.waits.questions.items()}
    for key, effect in stage.waits.effects.items():
        if _caller_call(stage, key) and stage.waits.is_open(key):
            asked[key] = effect.event.time
    waiting = [key for key, since in asked.items() if stored is None or since <= stored]
    return answer.interaction or (waiting[0] if len(waiting) == 1 else ""), waiting


def _answer_question(
    stage: RunStage, question: OpenQuestion, answer: Answer, stored: dt.datetime | None
) -> list[Reaction]:
    if _has_passed(stage, question.asked.timeout_at, stored):
        return _refuse("answer", answer, "answer.late", _with_open(stage, f"{question.key} {_CLOSED['timeout']}"))
    if question.asked.refuses is not None:
        if question.count:
            return _refuse("answer", answer, "answer.late", _with_open(stage, f"{question.key} {_CLOSED['answered']}"))
        if why := question.asked.refuses(answer.user_response):
            return _refuse("answer", answer, "answer.not_understood", _with_open(stage, why))
    if question.asked.cancels is not None and (reason := question.asked.cancels(answer.user_response)):
        details = {"interaction": question.key, "user_response": answer.user_response}
        return [Reaction(ev.CancelRequested(reason, answer.by, details=details))]
    question.count += 1
    answered = ev.HumanAnswered(
        interaction=question.key,
        k=question.count,
        user_response=answer.user_response,
        response_data=answer.response_data,
        by=answer.by,
        channel=answer.channel,
        roles=read_roles(answer),
        proven=bool(answer.voucher),
    )
    return [Reaction(answered)]


def _caller_call(stage: RunStage, key: str) -> ev.ToolCall | None:
    """The tool call of a key that is answered from outside, if it is one."""
    effect = stage.waits.effects.get(key)
    intent = effect.intent if effect is not None else None
    return intent if isinstance(intent, ev.ToolCall) and intent.via == "caller" else None


def _explain_refusal(stage: RunStage, key: str, waiting: list[str]) -> tuple[str, str]:
    """Return code and message of the refusal of an answer that nothing waits for."""
    if not key and waiting:
        return "answer.ambiguous", f"{len(waiting)} questions are open, and the answer names none"
    if not key and (stage.waits.questions or "timeout" in stage.waits.answered.values()):
        return "answer.late", "every question that was open when this answer was sent has been closed since"
    if not key:
        return "answer.no_question", "no question is open"
    if key in stage.waits.answered or _caller_call(stage, key):
        return "answer.late", f"{key} {_CLOSED[stage.waits.answered.get(key, 'answered')]}"
    return "answer.no_question", f"no question {key!r} is open"


_CLOSED = {"answered": "has been answered already", "timeout": "has timed out", "cancelled": "was withdrawn"}


def _tool_result(call: ev.ToolCall, answer: Answer) -> ev.ToolResult:
    """Return the outcome of a call for an answer from outside; ``response_data`` may state that the tool failed."""
    match answer.response_data:
        case {"error": error}:
            message = error if isinstance(error, str) else msgspec.json.encode(error).decode()
            return ev.ToolResult(node=call.node, tool=call.tool, error=Failure("tool.failed", message))
        case _:
            return ev.ToolResult(node=call.node, tool=call.tool, output=answer.user_response)


def _with_open(stage: RunStage, message: str) -> str:
    """Append to a refusal everything that waits for a command: what it is, since when and until when."""
    bound = stage.waits.next_deadline()
    until = bound[0] if bound is not None else None
    waits = [
        _describe_wait(question.key, question.event.time, question.asked.timeout_at, question.asked.question)
        for question in stage.waits.questions.values()
    ]
    for key, effect in stage.waits.effects.items():
        match effect.intent:
            case ev.ToolCall(via="caller", tool=tool):
                waits.append(_describe_wait(key, effect.event.time, until, f"tool {tool}"))
            case ev.RunPaused(step=step, timeout_at=due):
                waits.append(_describe_wait("paused", effect.event.time, due, f"at {step}"))
            case _:
                pass
    if stage.waits.paused and stage.waits.paused_at is not None:
        waits.append(_describe_wait("paused", stage.waits.paused_at, until, "by command"))
    return f"{message} (open: {'; '.join(waits)})" if waits else message


def _describe_wait(name: str, since: dt.datetime, until: dt.datetime | None, what: str) -> str:
    shown = what if len(what) <= QUESTION_CHARS_MAX else f"{what[:QUESTION_CHARS_MAX]}…"
    bound = f", until {until.isoformat(timespec='seconds')}" if until is not None else ""
    return f"{name}, {shown!r}, since {since.isoformat(timespec='seconds')}{bound}"


def _refuse(verb: str, tell: Tell, code: str, message: str) -> list[Reaction]:
    return [Reaction(ev.CommandRefused(verb=verb, code=code, message=message, id=tell.id))]
