"""Starts a run with a single request on `cb.api.<tenant>.start`, for users without permission for JetStream.

Such a user must be allowed to publish on that one subject, and to subscribe to its inboxes.
"""

from typing import Any

import anyio
import msgspec
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from callboard.bus import tracecontext
from callboard.bus.commands import ROUTING_BYTES
from callboard.bus.errors import CallboardError, OperatorError, PermissionDenied
from callboard.bus.events import Problem
from callboard.bus.nats.client import ReconnectingClient
from callboard.bus.nats.connection import ConnectionWatch, connect, disconnect
from callboard.bus.subjects import Subjects
from callboard.lib.text import encode_json
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.client import VERDICT_WAIT_S, new_run_id
from callboard.runtime.settings.config import Config

ANSWER_WAIT_S = VERDICT_WAIT_S + 2.0
"""Longer than a worker waits for its verdict."""


class NoWorker(OperatorError):
    """No worker answers requests."""

    def __init__(self, subject: str, reason: str, further: str) -> None:
        remedy = f"Start a worker (`callboard up` or `callboard worker`), or correct the prefix and tenant.{further}"
        super().__init__("server.no_worker", reason, subject, remedy)


async def start_by_request(message: dict[str, Any], config: Config, name: str) -> Verdict:
    """Ask a worker to start a run, and return its verdict.

    :raises PermissionDenied: if the user may not make the request either
    :raises CallboardError: if the worker answers with an error, or no worker answers
    """
    message = {**message, "run_id": message.get("run_id") or new_run_id()}
    denied: list[PermissionDenied] = []
    waiting = anyio.CancelScope()

    def deny(denial: PermissionDenied) -> None:
        denied.append(denial)
        waiting.cancel()

    client = await connect(
        config.nats_url or "",
        name=name,
        credentials=config.credentials(),
        watch=ConnectionWatch(name, deny),
        inbox_prefix=config.nats_inbox_prefix,
        probe=False,
    )
    answer = b""
    try:
        with waiting:
            answer = await _request_start(client, Subjects(config.prefix).api(config.tenant, "start"), message)
    finally:
        await disconnect(client)
    if denied:
        raise denied[0]
    return _verdict(answer)


async def _request_start(client: ReconnectingClient, subject: str, message: dict[str, Any]) -> bytes:
    body = encode_json(message)
    most = client.max_payload - ROUTING_BYTES
    if len(body) > most:
        problem = Problem(
            "start.too_large",
            f"the message has {len(body)} bytes, and this user may not store parts of it separately",
            "message",
            expected=f"at most {most} bytes, or a user with permission for JetStream",
        )
        return encode_json({"status": "rejected", "problems": [msgspec.to_builtins(problem)]})
    try:
        answer = await client.request(subject, body, timeout=ANSWER_WAIT_S, headers=tracecontext.headers() or None)
    except NoRespondersError:
        raise NoWorker(subject, "no worker answers, and the start is not stored", "") from None
    except NatsTimeoutError:
        again = f" Then start it again with the run id {message['run_id']}: one run is started, not two."
        raise NoWorker(subject, f"no answer within {ANSWER_WAIT_S:g} s; the start may be stored", again) from None
    return answer.data


def _verdict(answer: bytes) -> Verdict:
    """Decode a worker's answer.

    :raises CallboardError: if the answer is an error
    """
    said = msgspec.json.decode(answer)
    if error := said.get("error"):
        if problems := error.get("problems"):
            return Verdict("rejected", problems=msgspec.convert(problems, list[Problem]))
        raise CallboardError(error["code"], error["message"], remedy=error.get("remedy", ""))
    return msgspec.convert(said, Verdict)
