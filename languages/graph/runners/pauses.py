"""Runners that wait: WAIT, DELAY and TIMEOUT."""

from callboard.languages.graph.document import RESULT
from callboard.languages.graph.times import iso, seconds_between
from callboard.languages.graph.work import Await, Delay, NodeFailed, Outcome, Outputs, Work, number
from callboard.languages.language import Instant
from callboard.lib.json_types import JSON


async def delay(work: Work) -> Outcome:
    """DELAY: pass the data on after a pause; ``delay_config`` of the input overrides its length."""
    override = work.input_member("delay_config")
    seconds = _seconds(override if isinstance(override, dict) else {})
    if seconds is None:
        seconds = _seconds(work.spec.configurations)
    planned = number(work.setting("duration_seconds")) if seconds is None else seconds

    def after(start: Instant, end: Instant) -> Outputs:
        info = {
            "planned_delay_seconds": planned,
            "actual_delay_seconds": seconds_between(start, end),
            "delay_start_time": iso(start),
            "delay_end_time": iso(end),
            "delay_type_used": "fixed",
            "was_cancelled": False,
        }
        return Outputs({RESULT: {"data": work.inputs.get(RESULT), "delay_info": info}})

    return Delay(planned, after)


def _seconds(given: dict[str, JSON]) -> float | None:
    for name, unit in (("duration_seconds", 1.0), ("delay_seconds", 1.0), ("delay_ms", 0.001)):
        if given.get(name) is not None:
            return number(given[name]) * unit
    return None


async def wait(work: Work) -> Outcome:
    """WAIT: continue if the condition holds at once; else wait for a signal whose name is the node's id."""
    condition = work.setting("wait_condition")
    attempts = 1 if condition else 0
    now = work.stage.now()
    if isinstance(condition, str) and await work.compute(_is_met, condition):
        return _run_pause(work, ["completed"], now, now, attempts, met=True)
    if (event := work.input_member("trigger_event")) is not None:
        return _run_pause(work, ["completed"], now, now, attempts, met=True, data=event)
    if work.input_member("cancel_signal"):
        return _run_pause(work, ["cancelled"], now, now, attempts, cancelled=True)
    return Await(
        work.spec.id,
        number(work.setting("timeout_seconds")) or None,
        lambda data, start, end: _run_pause(work, ["completed", RESULT], start, end, attempts, met=True, data=data),
        lambda start, end: _run_pause(work, ["timeout", RESULT], start, end, attempts, expired=True),
    )


def _is_met(work: Work, condition: str) -> bool:
    """Whether a condition holds; one that is not an expression does not."""
    try:
        return work.holds(condition)
    except NodeFailed:
        return False


def _run_pause(
    work: Work,
    ports: list[str],
    start: Instant,
    end: Instant,
    attempts: int,
    *,
    met: bool = False,
    expired: bool = False,
    cancelled: bool = False,
    data: JSON = None,
) -> Outputs:
    account = {
        "condition_met": met,
        "wait_duration_seconds": seconds_between(start, end),
        "attempts_made": attempts,
        "wait_start_time": iso(start),
        "wait_end_time": iso(end),
        "timeout_occurred": expired,
        "was_cancelled": cancelled,
    }
    payload = {"data": work.inputs.get(RESULT), "wait_result": account, "trigger_data": {} if data is None else data}
    return Outputs(dict.fromkeys(ports, payload))


async def timeout(work: Work) -> Outcome:
    """TIMEOUT: pass the data on at ``completed`` if the condition holds at once, else at ``timeout`` after the time."""
    data = work.inputs.get(RESULT)
    condition = work.setting("condition_expression", "expression")
    if isinstance(condition, str) and await work.compute(Work.holds, condition):
        port = "timeout" if work.setting("immediate_timeout") is True else "completed"
        return Outputs({port: data, RESULT: data})
    seconds = number(work.setting("timeout_seconds")) or number(work.setting("timeout_ms")) / 1000
    return Delay(seconds, lambda _start, _end: Outputs({"timeout": data, RESULT: data}))
