"""Tells: checks each command to a run completely and routes it to the run's worker.

A command to an unknown run waits until the starts before it have been admitted.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import ROUTING_BYTES, TELLS, Answer
from callboard.bus.errors import KeyMissing, LogNewer, LogUnreadable
from callboard.bus.events import Event, Problem
from callboard.bus.log.encryption import Key, encryptable
from callboard.bus.log.recorded import Recorded, unreadable
from callboard.bus.log.successors import Stop, successor_of
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import erase, find_newest_run, purge_mark
from callboard.bus.nats.queue import Delivery, ack_floor
from callboard.bus.subjects import RunRef
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.admission.chains import mark_stopped
from callboard.runtime.admission.command_routing import (
    TOLD_APART_NS,
    Routed,
    TellNote,
    digest_of,
    find_command,
    find_command_of_id,
    find_routed,
    id_in,
    route_tell,
)
from callboard.runtime.admission.refusals import record_refusal, refusal_of_start
from callboard.runtime.admission.start_message import CONTINUES, decode_start, too_deep
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.run.inbox import ENDING

DIVERGED_REMEDY = "Run a worker of the version that recorded the run, or end the run with `callboard cancel`."

NEWER_REMEDY = "Run a worker of a newer version, or end the run without clean-up with `callboard kill`."

KEY_DELIVERIES_MAX = 60
"""Number of deliveries, over about a minute, before a command to a run whose key is missing is refused."""


Vouched = Callable[[RunRef, Answer], Awaitable[bool]]
"""Says whether the voucher of an answer to a run is valid; raises `NoAnswer` if the key for it cannot be read now."""


class Tells:
    """Admits commands to runs.

    ``consumer`` is the name of the consumer that delivers starts and commands. ``vouched`` says whether the voucher of
    an answer is valid.
    """

    def __init__(self, log: JetStreamLog, consumer: str, vouched: Vouched) -> None:
        self._log = log
        self._consumer = consumer
        self._vouched = vouched

    async def admit(self, ref: RunRef, verb: str, delivery: Delivery) -> Verdict | None:
        """Route a command or refuse it. Return None if it must be tried again, because its run may still start or lacks
        its key.

        A command to a run that another one continues is routed to that one.

        :raises NoAnswer: if the log does not answer
        :raises Full: if the store is full
        """
        last = await self._log.last(ref)
        verdict = await self._admit_for_newest(ref, ref, verb, delivery, last)
        if isinstance(verdict, RunRef):
            assert last is not None
            verdict, last = await self._admit_for_chain(ref, verb, delivery, last)
        if verdict is not None and verdict.status == "rejected":
            await record_refusal(self._log, ref.tenant, verb, verdict, delivery)
        if verdict is not None and last is not None and (last.key is not None or last.encrypted):
            # The message is no longer needed: its command is routed, encrypted, or it was refused.
            await erase(self._log, delivery.sequence)
        return verdict

    async def _admit_for_chain(
        self, named: RunRef, verb: str, delivery: Delivery, end: Recorded
    ) -> tuple[Verdict | None, Recorded | None]:
        """Route a command to the newest run that continues the one it has ``named``, which has ended with ``end``.

        Return the verdict as `admit`, and the last event of that run.
        """
        if (before := await find_routed(self._log, named, verb, delivery)) is not None:
            return _verdict_on(before, delivery, []), end
        if verb in ENDING and (verb == "kill" or not end.missing):
            # A cancellation of an encrypted run whose key is missing may be refused. Then the chain continues.
            header = f"{delivery.sequence} {delivery.time_ns}"
            await mark_stopped(self._log, named, Stop(verb, _body(delivery, end), header))
        while True:
            ref, last = await find_newest_run(self._log, named)
            verdict = await self._admit_for_newest(named, ref, verb, delivery, last)
            if not isinstance(verdict, RunRef):
                return verdict, last

    async def _admit_for_newest(
        self, named: RunRef, ref: RunRef, verb: str, delivery: Delivery, last: Recorded | None
    ) -> Verdict | RunRef | None:
        """Route a command to a run, or refuse it; None if it must be tried again.

        If the run has ended and another one continues it, return that one, which gets the command.
        """
        if last is None:
            return await self._admit_without_run(ref, verb, delivery, continues=ref != named)
        return await self._admit_for_run(named, ref, verb, delivery, last)

    async def _admit_without_run(
        self, ref: RunRef, verb: str, delivery: Delivery, *, continues: bool
    ) -> Verdict | None:
        problems = self._find_problems(verb, delivery, None)
        if not problems and continues and await _may_be_admitted(self._log, ref):
            return None
        if not problems and not continues and await self._start_may_be_before(ref, delivery.sequence):
            return None
        problem = Problem(code="run.unknown", message=f"there is no run {ref.run!r}", where="run")
        return Verdict("rejected", ref.run, problems=problems or [problem])

    async def _admit_for_run(
        self, named: RunRef, ref: RunRef, verb: str, delivery: Delivery, last: Recorded
    ) -> Verdict | RunRef | None:
        """Route a command to an existing run, or refuse it; None if the run's key is missing and may appear soon.

        If the run has ended and another one continues it, return that one, which gets the command.
        """
        problems = self._find_problems(verb, delivery, last.key)
        problems = problems or await self._check_voucher(ref, verb, delivery)
        if problems:
            return Verdict("rejected", ref.run, problems=problems)
        id, ended = id_in(delivery.data), last.event.type == ev.RunEnd.type
        if id and (first := await find_command_of_id(self._log, ref, verb, id)) is not None:
            return _verdict_on(first, delivery, [] if ended else _obstacle_warnings(verb, last))
        passed_on = named != ref and verb in ENDING
        if ended or passed_on or self._log.now().timestamp() * 1e9 - delivery.time_ns > TOLD_APART_NS:
            # It may be a redelivery, and its command may even have ended the run. Or admission of the run has found the
            # mark of this command.
            before = await find_command(self._log, ref, verb, delivery.sequence)
            if before is not None:
                return Verdict("accepted", ref.run, cause=before)
        if ended:
            if (successor := successor_of(last.event)) is not None:
                return RunRef(ref.tenant, successor)
            message = f"the run has ended; {verb} comes too late"
            return Verdict("rejected", ref.run, problems=[Problem(code="run.finished", message=message, where="run")])
        if last.missing and verb != "kill":
            lacking = Verdict("rejected", ref.run, problems=[key_missing_problem(ref.run, "run_id")])
            return lacking if delivery.deliveries >= KEY_DELIVERIES_MAX else None
        if (last.event.type == ev.RunQuarantined.type or last.encrypted) and verb != "kill":
            return Verdict("rejected", ref.run, problems=[_quarantine_problem(last)])
        note = TellNote(delivery.sequence, "" if last.key is not None or last.encrypted else digest_of(delivery.data))
        on_its_way = await route_tell(self._log, ref, verb, _body(delivery, last), delivery, note, named)
        return _verdict_on(on_its_way, delivery, _obstacle_warnings(verb, last))

    async def _check_voucher(self, ref: RunRef, verb: str, delivery: Delivery) -> list[Problem]:
        """Return the problem of an answer whose voucher is not valid: roles that nothing proves are never recorded.

        :raises NoAnswer: if the key for it cannot be read now
        """
        tell = decode_json(delivery.data or b"{}", type=TELLS[verb])
        if not isinstance(tell, Answer) or not tell.voucher or await self._vouched(ref, tell):
            return []
        message = "the voucher is not valid for this answer to this run"
        return [Problem("tell.voucher", message, "voucher", expected="no voucher: `callboard http` adds it")]

    def _find_problems(self, verb: str, delivery: Delivery, key: Key | None) -> list[Problem]:
        largest = self._log.nc.max_payload - ROUTING_BYTES
        largest = largest if key is None else encryptable(largest)
        return [*_check_size(delivery.data, largest), *check_tell(verb, delivery.data)]

    async def _start_may_be_before(self, ref: RunRef, sequence: int) -> bool:
        """Whether the start of a run may be stored before a stream sequence, and still be in admission."""
        async with aclosing(waiting_starts(self._log, ref.tenant, self._consumer, sequence)) as starts:
            async for start in starts:
                # The start of a run that continues another one may wait for its code for days.
                if CONTINUES not in start or start.get("run_id") == ref.run:
                    return True
        return False


async def waiting_starts(log: JetStreamLog, tenant: str, consumer: str, until: int) -> AsyncGenerator[dict[str, Any]]:
    """Yield the start messages before a stream sequence that a consumer may not have admitted yet, {} if unreadable.

    :raises NoAnswer: if the log does not answer
    """
    subject = log.subjects.start(tenant)
    found = await log.next_message(subject, await ack_floor(log.requests, log.stream, consumer) + 1)
    while found is not None and found.sequence < until:
        document = decode_start(found.data)
        yield document if isinstance(document, dict) else {}
        found = await log.next_message(subject, found.sequence + 1)


async def _may_be_admitted(log: JetStreamLog, ref: RunRef) -> bool:
    """Whether a run that continues another one is neither refused nor purged, and so waits for its admission."""
    return await refusal_of_start(log, ref) is None and await purge_mark(log, ref) is None


def _verdict_on(found: Routed, delivery: Delivery, obstacles: list[Problem]) -> Verdict:
    """The verdict on a routed command: accepted, or a duplicate of an earlier command with the same id."""
    if found.note.tell == delivery.sequence:
        return Verdict("accepted", found.run, cause=found.cause, warnings=obstacles)
    warnings = obstacles
    if found.note.digest and found.note.digest != digest_of(delivery.data):
        message = "an earlier command with this id had another body; that one counts, and this one has no effect"
        warnings = [*obstacles, Problem("tell.differs", message, "id", expected="another id", severity="warning")]
    return Verdict("accepted", found.run, duplicate=True, cause=found.cause, warnings=warnings)


def _body(delivery: Delivery, last: Recorded) -> bytes:
    """The body of a command, encrypted if the run is; empty if the run's key cannot be used."""
    if last.encrypted:
        return b"{}"
    return delivery.data if last.key is None else last.key.command(delivery.data)


def key_missing_problem(run: str, where: str) -> Problem:
    """The problem of a run whose key is missing at the moment."""
    message = f"run {run} is encrypted, and its key is missing at the moment"
    return Problem(KeyMissing.CODE, message, where, expected="a retry when the bucket of keys has the key again")


def _obstacle_warnings(verb: str, last: Recorded) -> list[Problem]:
    """Return a warning if the run's state prevents it from following a routed command."""
    if not last.readable and verb != "kill":
        return [msgspec.structs.replace(illegible_problem(unreadable(last).reason), severity="warning")]
    if last.event.type == ev.RunDiverged.type:
        warning = _divergence_warning(verb, last.event)
        # A run that only a newer version knows is not cancelled by this one, since that may need clean-up.
        ends = ("kill",) if warning.code == LogNewer.CODE else ENDING
        return [warning] if verb not in ends else []
    return []


def _quarantine_problem(last: Recorded) -> Problem:
    """Return the problem of a command to a run that no worker performs."""
    found = ev.payload_of(last.event) if last.event.type == ev.RunQuarantined.type else None
    if isinstance(found, ev.RunQuarantined) and found.code != LogUnreadable.CODE:
        message = f"the run is quarantined: {found.message}"
        return Problem(found.code, message, "run", expected="`kill`, which ends the run")
    return illegible_problem("the run's log cannot be read")


def divergence_remedy(code: str) -> str:
    """Return what to do about a run that no worker can continue for this reason."""
    return NEWER_REMEDY if code == LogNewer.CODE else DIVERGED_REMEDY


def kept_message(verb: str, diverged: ev.RunDiverged) -> str:
    """Return the message that a command is kept until a worker can continue its run."""
    state = "is waiting for code (waiting:code)" if diverged.entry else "has diverged"
    return (
        f"the {verb} is kept, and need not be repeated: it takes effect when a worker can continue the run, which "
        f"{state}: {diverged.message}"
    )


def _divergence_warning(verb: str, event: Event) -> Problem:
    """Return the warning that a command waits for a worker that can replay its run."""
    found = ev.payload_of(event)
    assert isinstance(found, ev.RunDiverged)
    message = kept_message(verb, found)
    return Problem(found.code, message, "run", expected=divergence_remedy(found.code), severity="warning")


def illegible_problem(why: str) -> Problem:
    """The problem of a run whose log cannot be read."""
    return Problem(LogUnreadable.CODE, why, "run_id", expected="another run; `kill` ends this one")


def _check_size(body: bytes, bytes_max: int) -> list[Problem]:
    if len(body) <= bytes_max:
        return []
    message = f"the message has {len(body)} bytes"
    return [Problem(code="tell.too_large", message=message, where="message", expected=f"at most {bytes_max} bytes")]


def check_tell(verb: str, body: bytes) -> list[Problem]:
    """Check verb and body of a command."""
    if verb not in TELLS:
        expected = " | ".join(TELLS)
        return [Problem(code="tell.verb", message=f"unknown verb {verb!r}", where="subject", expected=expected)]
    try:
        decode_json(body or b"{}", type=TELLS[verb])
        deep = too_deep(decode_json(body or b"{}"), "tell")
    except JSON_ERRORS as error:
        expected = f"a JSON object with {', '.join(TELLS[verb].__struct_encode_fields__)}"
        return [Problem(code="tell.malformed", message=str(error), where="message", expected=expected)]
    return deep
