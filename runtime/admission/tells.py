"""Tells: what a run is told is checked whole and routed to it; who comes too early waits for the starts before."""

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import ROUTING_BYTES, TELLS
from callboard.bus.errors import KeyMissing, LogUnreadable
from callboard.bus.events import Event, Problem
from callboard.bus.log.encryption import Key, encryptable
from callboard.bus.log.port import Recorded, unreadable
from callboard.bus.nats.erasure import erase
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import Delivery, ack_floor
from callboard.bus.subjects import RunRef
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.admission.command_routing import Note, Routed, digest_of, id_in, route_tell, routed, routed_as
from callboard.runtime.admission.refusals import record_refusal
from callboard.runtime.admission.start_message import too_deep
from callboard.runtime.admission.verdicts import Verdict

TOLD_APART_NS = 60 * 1_000_000_000
"""The server knows a message that is published again for longer than that, by its id (two minutes, if nobody has
configured the stream otherwise)."""

ENDS_DIVERGED = frozenset({"cancel", "kill"})
"""Verbs that end a run which no worker can replay."""

DIVERGED_REMEDY = "Run a worker of the version that recorded the run, or end the run with `callboard cancel`."

KEY_DELIVERIES_MAX = 60
"""So often, for about a minute, a tell is looked at again while the key of its run is missing."""


class Tells:
    """Admits what runs are told. ``consumer`` is the one that starts and tells are admitted from."""

    def __init__(self, log: JetStreamLog, consumer: str) -> None:
        self._log = log
        self._consumer = consumer

    async def admit(self, ref: RunRef, verb: str, delivery: Delivery) -> Verdict | None:
        """Route a tell or refuse it; None if it is too early to say whether there is such a run, or its key is missing.

        :raises NoAnswer: if the log does not answer
        :raises Full: if it has no room
        """
        last = await self._log.last(ref)
        verdict = await (
            self._told_nobody(ref, verb, delivery) if last is None else self._told(ref, verb, delivery, last)
        )
        if verdict is not None and verdict.status == "rejected":
            await record_refusal(self._log, ref.tenant, verb, verdict, delivery)
        if verdict is not None and last is not None and (last.key is not None or last.encrypted):
            # It is on its way to the run, encrypted, or is not wanted.
            await erase(self._log, delivery.sequence)
        return verdict

    async def _told_nobody(self, ref: RunRef, verb: str, delivery: Delivery) -> Verdict | None:
        problems = self._wrong(verb, delivery, None)
        if not problems and await self._start_may_be_before(ref.tenant, delivery.sequence):
            return None
        problem = Problem(code="run.unknown", message=f"there is no run {ref.run!r}", where="run")
        return Verdict("rejected", ref.run, problems=problems or [problem])

    async def _told(self, ref: RunRef, verb: str, delivery: Delivery, last: Recorded) -> Verdict | None:
        """Route a tell to a run that is there, or refuse it; None if its key is missing, and may be there soon."""
        problems = self._wrong(verb, delivery, last.key)
        if problems:
            return Verdict("rejected", ref.run, problems=problems)
        id, ended = id_in(delivery.data), last.event.type == ev.RunEnd.type
        if id and (first := await routed_as(self._log, ref, verb, id)) is not None:
            return _verdict_on(ref, first, delivery, [] if ended else _obstacles(verb, last))
        if ended or self._log.now().timestamp() * 1e9 - delivery.time_ns > TOLD_APART_NS:
            # Delivered once more, it may have been routed before, and be what has ended the run.
            before = await routed(self._log, ref, verb, delivery.sequence)
            if before is not None:
                return Verdict("accepted", ref.run, cause=before)
        if ended:
            message = f"the run has ended; {verb} comes too late"
            return Verdict("rejected", ref.run, problems=[Problem(code="run.finished", message=message, where="run")])
        if last.missing and verb != "kill":
            lacking = Verdict("rejected", ref.run, problems=[key_missing(ref.run, "run_id")])
            return lacking if delivery.deliveries >= KEY_DELIVERIES_MAX else None
        if (last.event.type == ev.RunQuarantined.type or last.encrypted) and verb != "kill":
            return Verdict("rejected", ref.run, problems=[_quarantined(last)])
        note = Note(delivery.sequence, "" if last.key is not None or last.encrypted else digest_of(delivery.data))
        on_its_way = await route_tell(self._log, ref, verb, _body(delivery, last), delivery, id, note)
        return _verdict_on(ref, on_its_way, delivery, _obstacles(verb, last))

    def _wrong(self, verb: str, delivery: Delivery, key: Key | None) -> list[Problem]:
        largest = self._log.nc.max_payload - ROUTING_BYTES
        largest = largest if key is None else encryptable(largest)
        return [*_check_size(delivery.data, largest), *check_tell(verb, delivery.data)]

    async def _start_may_be_before(self, tenant: str, sequence: int) -> bool:
        """Whether admission, at whatever worker, may still be busy with a start that came before a stream sequence."""
        floor = await ack_floor(self._log.requests, self._log.stream, self._consumer)
        start = await self._log.next_sequence(self._log.subjects.start(tenant), floor + 1)
        return start is not None and start < sequence


def _verdict_on(ref: RunRef, found: Routed, delivery: Delivery, obstacles: list[Problem]) -> Verdict:
    """The verdict of a tell that has been routed: as this very message, or as an earlier one with the same id."""
    if found.note.tell == delivery.sequence:
        return Verdict("accepted", ref.run, cause=found.cause, warnings=obstacles)
    warnings = obstacles
    if found.note.digest and found.note.digest != digest_of(delivery.data):
        message = "the run was told something else under this id before; that counts, and this does nothing"
        warnings = [*obstacles, Problem("tell.differs", message, "id", expected="another id", severity="warning")]
    return Verdict("accepted", ref.run, duplicate=True, cause=found.cause, warnings=warnings)


def _body(delivery: Delivery, last: Recorded) -> bytes:
    """What a run is told, encrypted as it is; one that has lost its key is told no words."""
    if last.encrypted:
        return b"{}"
    return delivery.data if last.key is None else last.key.command(delivery.data)


def key_missing(run: str, where: str) -> Problem:
    """The key of a run is not there just now."""
    message = f"run {run} is encrypted, and its key is not there just now"
    return Problem(KeyMissing.CODE, message, where, expected="to be tried again when the bucket of keys has it")


def _obstacles(verb: str, last: Recorded) -> list[Problem]:
    """Warn of what keeps the run from following a command that has been routed to it."""
    if not last.readable and verb != "kill":
        return [msgspec.structs.replace(illegible(unreadable(last).reason), severity="warning")]
    if last.event.type == ev.RunDiverged.type and verb not in ENDS_DIVERGED:
        return [_diverged(last.event)]
    return []


def _quarantined(last: Recorded) -> Problem:
    """Make the refusal of a command for a run that no worker performs."""
    found = ev.payload_of(last.event) if last.event.type == ev.RunQuarantined.type else None
    if isinstance(found, ev.RunQuarantined) and found.code != LogUnreadable.CODE:
        message = f"the run is quarantined: {found.message}"
        return Problem(found.code, message, "run", expected="`kill`, which ends the run")
    return illegible("the run's log cannot be read")


def _diverged(event: Event) -> Problem:
    """Make the warning that a command waits for a worker that can replay its run."""
    found = ev.payload_of(event)
    assert isinstance(found, ev.RunDiverged)
    message = f"the run has diverged, so the command waits: {found.code}: {found.message}"
    return Problem(found.code, message, "run", expected=DIVERGED_REMEDY, severity="warning")


def illegible(why: str) -> Problem:
    """The run of this id has a log that cannot be read."""
    return Problem(LogUnreadable.CODE, why, "run_id", expected="another run; `kill` ends this one")


def _check_size(body: bytes, bytes_max: int) -> list[Problem]:
    if len(body) <= bytes_max:
        return []
    message = f"the message has {len(body)} bytes"
    return [Problem(code="tell.too_large", message=message, where="message", expected=f"at most {bytes_max} bytes")]


def check_tell(verb: str, body: bytes) -> list[Problem]:
    """Check verb and body of a tell."""
    if verb not in TELLS:
        expected = " | ".join(TELLS)
        return [Problem(code="tell.verb", message=f"there is no verb {verb!r}", where="subject", expected=expected)]
    try:
        decode_json(body or b"{}", type=TELLS[verb])
        deep = too_deep(decode_json(body or b"{}"), "tell")
    except JSON_ERRORS as error:
        return [Problem(code="tell.malformed", message=str(error), where="message")]
    return deep
