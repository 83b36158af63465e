"""Admission: takes the starts, and the commands to runs, that clients publish, and answers each with a verdict.

A message is acknowledged after its verdict is stored. So every step may be repeated after a crash.
"""

import msgspec
import structlog

from callboard.bus.commands import REPLY_HEADER
from callboard.bus.errors import StoreFull
from callboard.bus.events import Problem
from callboard.bus.log.port import Full, NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import Delivery, Outbox
from callboard.bus.nats.tenant_requests import TenantRequests
from callboard.bus.run_ids import named_run_id
from callboard.bus.subjects import TOKEN_BYTES_MAX, RunRef, token
from callboard.runtime.admission.command_routing import ADMISSION
from callboard.runtime.admission.refusals import record_refusal
from callboard.runtime.admission.start_message import decode_start
from callboard.runtime.admission.starts import Starts
from callboard.runtime.admission.tells import Tells, Vouched
from callboard.runtime.admission.verdicts import Verdict, fit_message

log = structlog.get_logger(__name__)

USABLE = f"names whose tokens have at most {TOKEN_BYTES_MAX} bytes and are UTF-8"

ROOM_RETRY_S = 1.0
ROOM_RETRY_MAX_S = 10.0
"""First and longest delay before a message that waits for space in a full store is tried again."""

UNKNOWN_RUN_RETRY_S = 0.05
UNKNOWN_RUN_RETRY_MAX_S = 1.0
"""First and longest delay before a command to an unknown run is retried: the start of that run may still be waiting."""


class Admission:
    """Admits the messages that arrive at one worker."""

    def __init__(
        self, log: JetStreamLog, outbox: Outbox, starts: Starts, outgoing: TenantRequests, vouched: Vouched
    ) -> None:
        self.starts = starts
        self._tells = Tells(log, ADMISSION, vouched)
        self._outgoing = outgoing
        self._log = log
        self._outbox = outbox

    async def admit(self, delivery: Delivery) -> None:
        """Admit or refuse one message, answer, and acknowledge it.

        :raises CodeElsewhere: if another worker is to do that, because it has the code that the start names
        """
        try:
            tenant, run, verb = self._log.subjects.parse_inbound(delivery.subject)
            for name in (tenant, run or ""):
                token(name)
        except ValueError as error:
            # Neither a run nor a refusal can have this name, so nothing is recorded; only the sender gets an answer.
            problem = Problem(code="subject.unusable", message=str(error), where="subject", expected=USABLE)
            self._answer(Verdict("rejected", problems=[problem]), delivery)
            return
        try:
            if (full := self._log.room.shut()) is not None:
                raise full
            if run is None:
                verdict = await self.starts.admit(tenant, delivery)
            else:
                verdict = await self._tells.admit(RunRef(tenant, run), verb, delivery)
        except (Full, StoreFull) as error:
            self._put_off(error if isinstance(error, StoreFull) else error.store_full_error(), run, verb, delivery)
            return
        except NoAnswer as error:
            log.warning("admission is waiting for the log", error=str(error))
            delivery.nak(1.0)
            return
        if verdict is None:
            delivery.nak(min(UNKNOWN_RUN_RETRY_S * delivery.deliveries, UNKNOWN_RUN_RETRY_MAX_S))
            return
        self._answer(verdict, delivery)

    async def give_up(self, delivery: Delivery, error: BaseException) -> None:
        """Reject a message after several attempts to admit it have failed with an unexpected error.

        The sender gets a verdict, and ``cb.reject`` keeps the reason.

        :raises NoAnswer: if the log does not answer
        :raises Full: if the store is full
        """
        message = f"admission failed with {type(error).__name__}: {error}"
        problem = Problem("internal", message, expected="a report of this error; the worker's log has the traceback")
        tenant, run, verb = self._log.subjects.parse_inbound(delivery.subject)
        verdict = Verdict("rejected", run or named_run_id(delivery.data), problems=[problem])
        await record_refusal(self._log, tenant, "start" if run is None else verb, verdict, delivery)
        if run is None and verdict.run_id:
            await self.starts.wake_parent(
                RunRef(tenant, verdict.run_id), decode_start(delivery.data), delivery.sequence
            )
        self._answer(verdict, delivery)

    def _put_off(self, error: StoreFull, run: str | None, verb: str, delivery: Delivery) -> None:
        """Report that the store is full. The message stays in the queue and is tried again later."""
        expected = f"space in the store; the {verb} is retried automatically"
        problem = Problem(error.code, error.reason, expected=expected)
        self._send(Verdict("waiting", run or named_run_id(delivery.data), problems=[problem]), delivery)
        delivery.nak(min(ROOM_RETRY_S * delivery.deliveries, ROOM_RETRY_MAX_S))

    def _answer(self, verdict: Verdict, delivery: Delivery) -> None:
        self._send(fit_message(verdict), delivery)
        delivery.ack()

    def _send(self, verdict: Verdict, delivery: Delivery) -> None:
        """Publish a verdict to the sender's reply subjects, if answers may be sent there."""
        reply = delivery.headers.get(REPLY_HEADER, "")
        for subject in self._outgoing.answer_subjects(self._tenant_of(delivery), reply):
            self._outbox.send(subject, msgspec.json.encode(verdict))

    def _tenant_of(self, delivery: Delivery) -> str:
        """Return the tenant of a message; empty if its subject names none."""
        try:
            tenant, _, _ = self._log.subjects.parse_inbound(delivery.subject)
            token(tenant)
        except ValueError:
            return ""
        return tenant
