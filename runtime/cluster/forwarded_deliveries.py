"""Forwarding: pass a delivery from the worker that read it to the worker that has its run, on a plain subject.

The receiving worker acknowledges the delivery. If the message is lost on the way, the server delivers it again.
"""

from nats.aio.msg import Msg

from callboard.bus.commands import REPLY_HEADER, TOLD_HEADER, WORKER_HEADER
from callboard.bus.nats.queue import Delivery, Replies
from callboard.bus.tracecontext import TRACEPARENT, TRACESTATE

_KEPT = (REPLY_HEADER, WORKER_HEADER, TOLD_HEADER, TRACEPARENT, TRACESTATE)
"""Headers that are passed on with the body."""

_ACKNOWLEDGED = "$JS.ACK."
"""Prefix of the subjects on which deliveries are acknowledged."""


def headers_of(delivery: Delivery) -> dict[str, str]:
    """Return the headers under which a delivery's body is passed on."""
    kept = {name: delivery.headers[name] for name in _KEPT if name in delivery.headers}
    return {
        **kept,
        "Cb-Subject": delivery.subject,
        "Cb-Reply": delivery.reply,
        "Cb-Sequence": str(delivery.sequence),
        "Cb-Deliveries": str(delivery.deliveries),
        "Cb-Time": str(delivery.time_ns),
    }


def delivery_of(message: Msg, send: Replies) -> Delivery:
    """Return the delivery that was passed on.

    :raises KeyError, ValueError: if the message is not a forwarded delivery
    """
    headers = message.headers or {}
    if not headers["Cb-Reply"].startswith(_ACKNOWLEDGED):
        raise ValueError("its reply subject does not acknowledge a message of a stream")
    return Delivery(
        subject=headers["Cb-Subject"],
        data=message.data,
        headers={name: headers[name] for name in _KEPT if name in headers},
        sequence=int(headers["Cb-Sequence"]),
        deliveries=int(headers["Cb-Deliveries"]),
        time_ns=int(headers["Cb-Time"]),
        reply=headers["Cb-Reply"],
        _send=send,
    )
