"""Telling: what becomes of a command that reaches an active run. Pure decisions; the run actor records them.

Consumes: cancel, kill, pause, resume, answer, signal
Emits: cancel.requested, run.paused, run.resumed, human.answered, tool.result, signal.received, command.refused
"""

from dataclasses import dataclass

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import TELLS, Answer, Cancel, Kill, Pause, Resume, Signal, Tell
from callboard.bus.events import Payload
from callboard.runtime.stage import Stage


@dataclass(frozen=True, slots=True)
class Reaction:
    """An event that a command becomes; with a key, an outcome of that effect."""

    payload: Payload
    key: str = ""


def parse_tell(verb: str, body: bytes) -> Tell:
    """Read a tell's body; an empty one is all defaults.

    :raises KeyError: if there is no such verb
    :raises msgspec.DecodeError: if it is not of the verb's shape
    """
    return msgspec.json.decode(body or b"{}", type=TELLS[verb])


def reactions(stage: Stage, verb: str, body: bytes) -> list[Reaction]:
    """Decide what a command becomes; at least one event, so that the command is recorded.

    Admission has checked it; one that was published past admission may be anything.
    """
    try:
        tell = parse_tell(verb, body)
    except KeyError:
        return [Reaction(ev.CommandRefused(verb, "tell.verb", f"there is no verb {verb!r}"))]
    except (msgspec.DecodeError, RecursionError) as error:
        return [Reaction(ev.CommandRefused(verb, "tell.malformed", str(error)))]
    match tell:
        case Cancel():
            if stage.cancelling:
                return _refused(verb, tell, "cancel.already", "the run is being cancelled already")
            return [Reaction(ev.CancelRequested(tell.reason, tell.by, tell.message, tell.details))]
        case Kill():
            return [Reaction(kill_requested(tell))]
        case Pause():
            if stage.paused:
                return _refused(verb, tell, "pause.already", "the run is paused already")
            return [Reaction(ev.RunPaused(reason="command", by=tell.by, message=tell.reason))]
        case Resume():
            resumed = ev.RunResumed(variables=tell.variables, by=tell.by)
            found = [Reaction(resumed, key) for key in stage.pauses()]
            return found or _refused(verb, tell, "resume.not_paused", "the run is not paused")
        case Answer():
            return _answer(stage, tell)
        case Signal():
            received = ev.SignalReceived(name=tell.name, data=tell.data, by=tell.by)
            return [Reaction(received, stage.awaits_signal(tell.name, tell.data) or "")]


def kill_requested(kill: Kill) -> ev.CancelRequested:
    """What a kill is recorded as, whatever the run is at."""
    return ev.CancelRequested(kill.reason, kill.by, "killed", kill=True)


def _answer(stage: Stage, answer: Answer) -> list[Reaction]:
    waiting = [*stage.questions, *(key for key in stage.open if _callers(stage, key) and stage.is_open(key))]
    key = answer.interaction or (waiting[0] if len(waiting) == 1 else "")
    question = stage.questions.get(key)
    if question is not None and not question.closed:
        question.count += 1
        answered = ev.HumanAnswered(
            interaction=key,
            k=question.count,
            user_response=answer.user_response,
            response_data=answer.response_data,
            by=answer.by,
            channel=answer.channel,
        )
        return [Reaction(answered)]
    call = _callers(stage, key)
    if call is not None and stage.is_open(key):
        return [Reaction(ev.ToolResult(node=call.node, tool=call.tool, output=answer.user_response), key)]
    return _refused("answer", answer, *_unanswerable(stage, key, waiting))


def _callers(stage: Stage, key: str) -> ev.ToolCall | None:
    """The tool call of a key that is answered from outside, if it is one."""
    effect = stage.open.get(key)
    intent = effect.intent if effect is not None else None
    return intent if isinstance(intent, ev.ToolCall) and intent.via == "caller" else None


def _unanswerable(stage: Stage, key: str, waiting: list[str]) -> tuple[str, str]:
    """Why nothing takes an answer: code and message."""
    open_now = ", ".join(waiting) or "none"
    if not key and waiting:
        return "answer.ambiguous", f"{len(waiting)} questions are open, and the answer names none: {open_now}"
    if not key:
        return "answer.no_question", "no question is open"
    if key in stage.answered or _callers(stage, key):
        return "answer.late", f"{key} {_CLOSED[stage.answered.get(key, 'answered')]}"
    return "answer.no_question", f"no question {key!r} is open (open: {open_now})"


_CLOSED = {"answered": "has been answered already", "timeout": "has timed out", "cancelled": "was withdrawn"}


def _refused(verb: str, tell: Tell, code: str, message: str) -> list[Reaction]:
    return [Reaction(ev.CommandRefused(verb=verb, code=code, message=message, id=tell.id))]
