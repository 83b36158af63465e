"""What is in progress in a run, in words for the live view: what an open effect does, and who or what is waited for."""

import datetime as dt
from typing import NamedTuple

from callboard.bus import events as ev
from callboard.bus.events import Payload
from callboard.projections.trace.text_renderings import duration_text
from callboard.service.operations.narration import describe_call, describe_pause, local, question_text

AT_WORK = "work"
PERSON = "?"
ELSEWHERE = "◌"
PAUSED = "‖"


class Doing(NamedTuple):
    """What is open: a mark, `AT_WORK` for what the worker itself is at, and words for it."""

    mark: str
    text: str


def doing(intent: Payload, key: str, label: str, now: dt.datetime) -> Doing:
    """Say what an open effect does; ``label`` is its name in trees."""
    match intent:
        case ev.HumanAsked():
            return Doing(PERSON, f"waits for a person: {question_text(intent)}")
        case ev.SignalAwaited():
            return Doing(ELSEWHERE, f"waits for signal {intent.name}{_until(intent.due, now)}")
        case ev.ChildStart():
            return Doing(ELSEWHERE, f"waits for run {intent.child}")
        case ev.TimerSet():
            return Doing(ELSEWHERE, f"{intent.purpose}{_until(intent.due, now)}")
        case ev.RunPaused():
            return Doing(PAUSED, describe_pause(intent))
        case ev.ToolCall(via="caller"):
            return Doing(ELSEWHERE, f"waits for its caller: {describe_call(intent, key)}")
        case ev.ToolCall():
            return Doing(AT_WORK, f"tool {describe_call(intent, key)}")
        case _:
            return Doing(AT_WORK, label)


def clock_text(since: dt.datetime, now: dt.datetime) -> str:
    """How long something has been in progress, in whole seconds."""
    return _seconds((now - since).total_seconds())


def _seconds(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole} s" if whole < 60 else duration_text(whole)


def _until(due: dt.datetime | None, now: dt.datetime) -> str:
    if due is None:
        return ""
    left = (due - now).total_seconds()
    return f" until {local(due)}" + (f", {_seconds(left)} left" if left > 0 else "")


def quoted_end(text: str, chars_max: int) -> str:
    """The end of what is being said, on one line."""
    line = " ".join(text.split())
    return f"“{line}" if len(line) <= chars_max else f"“…{line[-chars_max:]}"
