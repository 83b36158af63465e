"""Killing without an interpreter: ends a run that has not begun, or that this worker cannot perform, by its log alone.

It writes the same events as the kill of a run that can be performed (the interpreter's `ending`), so a version that can
replay the run finds no difference.

Emits: run.claimed, cancel.requested, effect.cancelled, node.exit, run.end
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import structlog

from callboard.bus import events as ev
from callboard.bus.commands import Cancel, Kill
from callboard.bus.effects import Failure
from callboard.bus.events import Event
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.encryption import Key, is_encrypted
from callboard.bus.log.port import EventLog, RunMessage, whole
from callboard.bus.log.recorded import Recorded, guard_of
from callboard.bus.log.successors import find_newest, successor_of
from callboard.bus.run_ids import child_id
from callboard.bus.subjects import RunRef
from callboard.lib.installed import own_version
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON
from callboard.lib.processes import own_process
from callboard.projections.run.warnings import WarnedFold
from callboard.runtime.interpreter.usage import UsageFold
from callboard.runtime.run.activation import Command, RunServices
from callboard.runtime.run.log import RunLog
from callboard.runtime.run.messages import stop_of, wake_of
from callboard.runtime.run.reactions import kill_requested, parse_tell

logger = structlog.get_logger(__name__)


LOOKED_INTO = frozenset(
    kind.type for kind in (ev.RunAccepted, ev.RunStart, ev.NodeWarning, ev.ChildEnd, ev.CancelRequested)
)
"""Events whose large values are read if they exist. A missing one may be the reason why the run cannot be performed."""

M = TypeVar("M")


class _Requested(msgspec.Struct):
    """The members of ``cancel.requested`` that are decoded here; a marker may replace a large value."""

    kill: bool = False
    reason: JSON = ""
    message: JSON = ""


class _Forked(msgspec.Struct):
    n: int = 0


class _Born(msgspec.Struct):
    """The members of ``run.accepted`` that are decoded here."""

    parent: ev.Parent | None = None
    forked_from: _Forked | None = None


class _Admitted(msgspec.Struct):
    """The warnings of ``run.accepted``."""

    warnings: list[ev.Problem] = []


class _Child(msgspec.Struct):
    """The members of ``child.start`` that are decoded here."""

    child: str = ""


class _Warning(msgspec.Struct):
    """The members of ``node.warning`` that are decoded here; a marker may replace a large value."""

    code: str = ""
    reason: JSON = ""


class _Ended(msgspec.Struct):
    """The members of ``child.end`` that are decoded here."""

    warnings: list[ev.Warned] = []


async def end_killed(log: EventLog, services: RunServices, ref: RunRef, command: Command | None) -> bool:
    """End a run if this command or a recorded one kills it; return whether there is such a command.

    :raises RunLost: if another worker has taken the run
    :raises LogUnavailable: if the log does not answer
    """
    stored = await log.read(ref)
    # Messages that are not events are ignored, but the guard counts them.
    recorded = [item for item in stored if item.readable]
    events = [await _with_large_values(log, item) for item in recorded]
    if not events:
        return False
    if ev.recorded_type(events[-1]) == ev.RunEnd.type:
        # A command for a run that another one continues is passed on to that one. Only a newer worker can do so if
        # this one cannot read the end.
        return command is not None and events[-1].type == ev.RunEnd.type and successor_of(events[-1]) is None
    killed = next((cause for event in events if (cause := _kill_cause(event)) is not None), None)
    if killed is None and command is None:
        return False
    runlog = RunLog(log, ref, writer=services.worker, inline_bytes_max=services.inline_bytes_max)
    runlog.keep_secret(await _secrets(log, services, recorded[0]))
    runlog.continue_from(recorded, after=guard_of(stored, await log.last(ref)))
    runlog.epoch += 1
    runlog.state(ev.RunClaimed(services.worker, runlog.epoch, own_version(), own_process()))
    # From now on no other worker performs the run, and no further child of it can be started.
    await runlog.append_queued()
    if killed is None and command is not None:
        begun = any(event.type == ev.RunStart.type for event in events)
        requested = _cancel_event(command.verb, runlog.command(command.body), begun=begun)
        killed = _kill_cause(runlog.state(requested, cause=command.sequence))
    assert killed is not None
    _end(runlog, events, killed)
    everything = [*events, *(queued.event for queued in runlog.queue)]
    run_messages = await _run_messages(log, ref, everything, killed, runlog.key)
    for queued in runlog.queue:
        queued.beside = run_messages.get(queued.event.n)
    while runlog.queue:
        await runlog.append_queued()
    return True


async def _with_large_values(log: EventLog, item: Recorded) -> Event:
    """Return an event with its large values, if they are needed and exist."""
    event = await whole(log, item) if item.event.type in LOOKED_INTO else item.event
    return event if event.type != UNREADABLE else item.event


def _members(event: Event, kind: type[M]) -> M:
    """Decode some members of an event; use their defaults if a marker replaces one of them."""
    try:
        return decode_json(event.payload, type=kind)
    except msgspec.ValidationError:
        return kind()


def _cancel_event(verb: str, body: bytes, *, begun: bool) -> ev.CancelRequested:
    """Return the event that records a kill, or a cancellation that cannot clean up or has nothing to clean up.

    Its texts are left out if the command is malformed or encrypted with a missing key.
    """
    try:
        tell = Kill() if is_encrypted(body) else parse_tell(verb, body)
    except JSON_ERRORS:
        tell = Kill()
    if isinstance(tell, Cancel):
        message = "cancelled without clean-up, because this version of Callboard cannot replay the run"
        return ev.CancelRequested(tell.reason, tell.by, message if begun else tell.message, kill=True)
    assert isinstance(tell, Kill)
    return kill_requested(tell)


def _kill_cause(event: Event) -> Failure | None:
    """The failure with which a kill closes open effects and nodes; None for any other event."""
    if event.type != ev.CancelRequested.type:
        return None
    requested = _members(event, _Requested)
    if not requested.kill:
        return None
    return Failure(code="cancelled", message=str(requested.message or requested.reason), type="cancellation")


def _end(runlog: RunLog, events: Sequence[Event], cause: Failure) -> None:
    """Close every open intent, leave every open node, innermost first, and end the run."""
    for intent in _open_intents(events):
        node = (intent.path, intent.iteration, intent.attempt)
        runlog.state(ev.EffectCancelled(of=intent.type, cause=cause), key=intent.key, node=node)
    for node in reversed(_open_nodes(events)):
        runlog.state(ev.NodeExit(outcome="cancelled", error=cause), node=node)
    usage = UsageFold(_shared_n(events[0]))
    for event in events:
        usage.count(event)
    warnings, models = _warnings(events), usage.models.view()
    runlog.state(ev.RunEnd("cancelled", error=cause, usage=usage.total, warnings=warnings, models=models))


async def _run_messages(
    log: EventLog, ref: RunRef, events: Sequence[Event], cause: Failure, key: Key | None
) -> dict[int, RunMessage]:
    """The messages to the run's parent and children, by the number of the event that they belong to."""
    run_messages: dict[int, RunMessage] = {}
    children: dict[str, RunRef] = {}
    for event in events:
        if event.type == ev.ChildStart.type:
            children[event.key] = RunRef(ref.tenant, child_id(ref.run, event.key))
        elif event.type == ev.EffectCancelled.type and event.key in children:
            child, last = await find_newest(log, children[event.key])
            # A run that continues the child may not be admitted yet.
            if last.event.type != ev.RunEnd.type if last is not None else child != children[event.key]:
                run_messages[event.n] = stop_of(child, ref, cause, kill=True, key=key)
    parent = _members(events[0], _Born).parent
    if parent is not None:
        run_messages[events[-1].n] = wake_of(parent, ref)
    return run_messages


def _shared_n(first: Event) -> int:
    """The number of the last event that a run shares with its origin, if it is a fork."""
    forked = _members(first, _Born).forked_from
    return forked.n if forked is not None else 0


def _open_intents(events: Sequence[Event]) -> list[Event]:
    found: dict[str, Event] = {}
    for event in events:
        kind = ev.TYPES[event.type].kind if event.type in ev.TYPES else ""
        if event.key and kind == "intent":
            found[event.key] = event
        elif kind == "outcome":
            found.pop(event.key, None)
    return list(found.values())


def _open_nodes(events: Sequence[Event]) -> list[tuple[str, int, int]]:
    """Path, iteration and attempt of the nodes that have been entered but not left."""
    found: dict[tuple[str, int], int] = {}
    for event in events:
        node = (event.path, event.iteration)
        if event.type == ev.NodeEnter.type:
            found[node] = 1
        elif event.type == ev.NodeRetry.type and node in found:
            found[node] += 1
        elif event.type == ev.NodeExit.type:
            found.pop(node, None)
    return [(path, iteration, attempt) for (path, iteration), attempt in found.items()]


def _warnings(events: Sequence[Event]) -> list[ev.Warned]:
    """The warnings of the run."""
    found = WarnedFold()
    shared = _shared_n(events[0])
    children: dict[str, str] = {}
    for event in events:
        match event.type:
            case ev.RunAccepted.type:
                found.add_admission(_members(event, _Admitted).warnings)
            case ev.NodeWarning.type:
                warning = _members(event, _Warning)
                found.add_warning(event.path, warning.code, str(warning.reason))
            case ev.ChildStart.type:
                children[event.key] = _members(event, _Child).child
            case ev.ChildEnd.type:
                ended = _members(event, _Ended)
                child = children.get(event.key, "") if event.n <= shared else child_id(event.run, event.key)
                found.add_child_warnings(event.path, child, ended.warnings)
            case _:
                pass
    return found.view()


async def _secrets(log: EventLog, services: RunServices, first: Recorded) -> dict[str, str]:
    """The run's secrets, if its start can be read. An unreadable start may be why the run cannot be performed."""
    try:
        return services.secrets(await services.read_admission(await whole(log, first)))
    except Exception as error:
        logger.warning("killing a run whose start cannot be read", run=first.ref.run, error=str(error))
        return {}
