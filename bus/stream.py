"""The stream: how it has to be made, and what is done about one that is made otherwise.

It must never drop anything by itself. That a full one refuses what is new (``discard: new``) cannot be had together
with schedules, which the alarms of parked runs are (the server's error 10052); so it must have no bounds of its own. A
quota of its account or its server bounds it without loss: those refuse.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import structlog

from callboard.bus.asking import api
from callboard.bus.commit import no_room
from callboard.bus.errors import StreamBounded, StreamMismatch
from callboard.bus.requests import Requests
from callboard.bus.subjects import Subjects

log = structlog.get_logger(__name__)

DESCRIPTION = "Callboard: every event of every run, what was said to them, their alarms and large values"

UNBOUNDED: Mapping[str, int] = {"max_bytes": -1, "max_msgs": -1, "max_msgs_per_subject": -1, "max_age": 0}
"""The bounds beyond which a stream drops its oldest messages, each with the value that is none."""

_EXISTS_OTHERWISE = 10058
_PARTITIONS = "callboard_partitions"


def stream_of(subjects: Subjects) -> str:
    """The name of the stream below a prefix."""
    return subjects.prefix.replace(".", "_").upper() + "_CALLBOARD"


def store_of(stream: str, made: str) -> str:
    """A mark of one stream among all: 16 hexadecimal digits, of its name and of when it was made."""
    return sha256(f"{stream}/{made}".encode()).hexdigest()[:16]


def bucket_of(subjects: Subjects, what: str = "MEMORY") -> str:
    """The name of a bucket that belongs to the stream: that of memories, or of something else."""
    return f"{subjects.prefix.replace('.', '_').upper()}_{what}"


def bounds_of(config: Mapping[str, Any]) -> dict[str, int]:
    """The bounds in a stream's configuration."""
    return {name: config[name] for name in UNBOUNDED if config.get(name, 0) > 0}


async def ensure_stream(
    requests: Requests, subjects: Subjects, *, partitions: int, replicas: int = 1, ours: bool = False
) -> str:
    """See to it that there is a stream that holds everything; ``ours`` says that its server is, and we may mend it.

    Returns when it was made, which is its own: it is the same after any restart, at every server of a cluster, and in
    what is restored from a backup.

    :raises StreamMismatch: if it was made for another number of partitions, or cannot be used
    :raises StreamBounded: if it is not ours, and has bounds
    :raises StoreFull: if there is no room for a stream
    :raises NoAnswer: if JetStream does not answer
    """
    name = stream_of(subjects)
    wanted: dict[str, Any] = {
        "name": name,
        "description": DESCRIPTION,
        "subjects": subjects.stored(),
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "discard": "old",
        **UNBOUNDED,
        "max_consumers": -1,
        "allow_direct": True,
        "allow_atomic": True,
        "allow_msg_schedules": True,
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": True,
        "metadata": {_PARTITIONS: str(partitions)},
    }
    answer = await api(requests, f"STREAM.CREATE.{name}", wanted)
    if answer.get("error", {}).get("err_code") == _EXISTS_OTHERWISE:
        # An older one of ours, one with another number of partitions, or one that somebody has changed.
        answer = await api(requests, f"STREAM.INFO.{name}", {})
    config = _usable(name, answer)
    found = config.get("metadata", {}).get(_PARTITIONS)
    if found != str(partitions):
        raise StreamMismatch(name, f"it has {found} partitions, not {partitions}")
    if ours and any(config.get(member) != value for member, value in wanted.items() if member != "metadata"):
        config = _usable(name, await api(requests, f"STREAM.UPDATE.{name}", {**wanted, "metadata": config["metadata"]}))
        log.warning("the stream was brought up to date", stream=name)
    if bounds := bounds_of(config):
        raise StreamBounded(name, bounds)
    if missing := sorted(set(wanted["subjects"]) - set(config.get("subjects") or ())):
        # Somebody else's server, and a stream that an older version made.
        remedy = f"nats stream edit {name} --subjects with them added"
        log.warning("the stream lacks subjects: what is said there is not kept", missing=missing, remedy=remedy)
    return answer["created"]


def _usable(name: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration in an answer about the stream."""
    if "error" not in answer:
        return answer["config"]
    if full := no_room(answer["error"]):
        raise full.told()
    raise StreamMismatch(name, answer["error"].get("description", "unknown error"))


DELETED_MAX = 50_000
"""With more deleted messages the server is not asked what it has lost, because its answer names each of them."""


async def lost_bytes(requests: Requests, stream: str) -> int:
    """Return how many bytes of damaged files the server has dropped when it started, 0 if it does not say.

    :raises NoAnswer: if no answer came
    """
    answer = await api(requests, f"STREAM.INFO.{stream}", {})
    if (answer.get("state") or {}).get("num_deleted", 0) > DELETED_MAX:
        return 0
    answer = await api(requests, f"STREAM.INFO.{stream}", {"deleted_details": True})
    lost = (answer.get("state") or {}).get("lost") or {}
    return int(lost.get("bytes") or 0)
