"""The stream: its required configuration, and the handling of a stream with a different one.

The stream must never drop messages. The server cannot refuse new messages at a stream's limits (``discard: new``) if
the stream has schedules (error 10052), and the alarms of parked runs are schedules. So the stream must not have limits.
A quota of its account or server limits it without loss, because quotas refuse new messages.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import structlog

from callboard.bus.errors import StreamBounded, StreamMismatch
from callboard.bus.events import FORMAT
from callboard.bus.nats.commit import no_room
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.requests import Requests
from callboard.bus.subjects import Subjects

log = structlog.get_logger(__name__)

DESCRIPTION = "Callboard: every event of every run, what was said to them, their alarms and large values"

UNBOUNDED: Mapping[str, int] = {"max_bytes": -1, "max_msgs": -1, "max_msgs_per_subject": -1, "max_age": 0}
"""The limits at which a stream drops its oldest messages, each with the value that means unlimited."""

FAST_SINCE = (2, 14)
"""First version of the server with fast batches."""

_EXISTS_OTHERWISE = 10058
_PARTITIONS = "callboard_partitions"
_FORMAT = "callboard_format"


class OpenedStream(NamedTuple):
    """When a stream was created, and whether it takes fast batches.

    The time is the same after restarts, on every server of a cluster, and after a restore from a backup.
    """

    created: str
    fast: bool


def stream_of(subjects: Subjects) -> str:
    """Return the name of the stream for a prefix."""
    return subjects.prefix.replace(".", "_").upper() + "_CALLBOARD"


def store_of(stream: str, made: str) -> str:
    """Return a unique identifier of a stream: 16 hexadecimal digits, derived from its name and time of creation."""
    return sha256(f"{stream}/{made}".encode()).hexdigest()[:16]


def bucket_of(subjects: Subjects, what: str = "MEMORY") -> str:
    """Return the name of a bucket that belongs to the stream, such as the one for memories."""
    return f"{subjects.prefix.replace('.', '_').upper()}_{what}"


def bounds_of(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits in a stream's configuration."""
    return {name: config[name] for name in UNBOUNDED if config.get(name, 0) > 0}


async def ensure_stream(
    requests: Requests, subjects: Subjects, *, partitions: int, replicas: int = 1, ours: bool = False
) -> OpenedStream:
    """Create the stream if it does not exist, and check its configuration.

    With ``ours`` the server is the embedded one, and a different configuration is corrected.

    :raises StreamMismatch: if it was created for another number of partitions, or cannot be used
    :raises StreamBounded: if it is not ours, and has limits
    :raises StoreFull: if the server has no space for a stream
    :raises NoAnswer: if JetStream does not answer
    """
    name = stream_of(subjects)
    wanted: dict[str, Any] = {
        "name": name,
        "description": DESCRIPTION,
        "subjects": subjects.stored_subjects(),
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
        "metadata": {_PARTITIONS: str(partitions), _FORMAT: str(FORMAT)},
    }
    version = requests.nc.connected_server_version
    if replicas == 1 and (version.major, version.minor) >= FAST_SINCE:
        wanted["allow_batched"] = True
    answer = await api(requests, f"STREAM.CREATE.{name}", wanted)
    if answer.get("error", {}).get("err_code") == _EXISTS_OTHERWISE:
        # A stream of an older version, or with another number of partitions, or one that an operator has changed.
        answer = await api(requests, f"STREAM.INFO.{name}", {})
    config = _usable(name, answer)
    found = config.get("metadata", {}).get(_PARTITIONS)
    if found != str(partitions):
        raise StreamMismatch(name, f"it has {found} partitions, not {partitions}")
    if ours and any(config.get(member) != value for member, value in wanted.items() if member != "metadata"):
        config = _usable(name, await api(requests, f"STREAM.UPDATE.{name}", {**wanted, "metadata": config["metadata"]}))
        log.warning("the configuration of the stream was corrected", stream=name)
    config = await _note_format(requests, name, config)
    if bounds := bounds_of(config):
        raise StreamBounded(name, bounds)
    if missing := sorted(set(wanted["subjects"]) - set(config.get("subjects") or ())):
        # The server is not ours, and an older version created the stream.
        remedy = f"nats stream edit {name} --subjects with them added"
        log.warning("the stream lacks subjects; messages on them are not stored", missing=missing, remedy=remedy)
    # A stream with several replicas compares the guards of messages in flight only with those of the same subject.
    return OpenedStream(answer["created"], bool(config.get("allow_batched")) and config["num_replicas"] == 1)


async def _note_format(requests: Requests, name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Note the number of this version's vocabulary in the stream; warn if a newer version has worked on it.

    Return the stream's configuration.
    """
    found = config.get("metadata", {}).get(_FORMAT, "0")
    stored = int(found) if found.isascii() and found.isdigit() else 0
    if stored > FORMAT:
        remedy = "Update Callboard here. Runs with events that this version does not know wait for a newer worker."
        log.warning("a newer version has worked on this store", stream=name, format=stored, own=FORMAT, remedy=remedy)
    if stored >= FORMAT:
        return config
    wanted = {**config, "metadata": {**config["metadata"], _FORMAT: str(FORMAT)}}
    answer = await api(requests, f"STREAM.UPDATE.{name}", wanted)
    if "error" in answer:
        log.warning("the stream does not say which version wrote it", stream=name, error=answer["error"])
        return config
    return answer["config"]


def _usable(name: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stream's configuration from an answer of the JetStream API."""
    if "error" not in answer:
        return answer["config"]
    if full := no_room(answer["error"]):
        raise full.store_full_error()
    raise StreamMismatch(name, answer["error"].get("description", "unknown error"))


DELETED_MAX = 50_000
"""With more deleted messages, the lost bytes are not requested, because the answer would list every deleted message."""


async def lost_bytes(requests: Requests, stream: str) -> int:
    """Return how many bytes of damaged files the server dropped when it started, 0 if it does not report that.

    :raises NoAnswer: if no answer came
    """
    answer = await api(requests, f"STREAM.INFO.{stream}", {})
    if (answer.get("state") or {}).get("num_deleted", 0) > DELETED_MAX:
        return 0
    answer = await api(requests, f"STREAM.INFO.{stream}", {"deleted_details": True})
    lost = (answer.get("state") or {}).get("lost") or {}
    return int(lost.get("bytes") or 0)
