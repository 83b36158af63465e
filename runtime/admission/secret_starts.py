"""Secret starts: the starts of runs with an encryption key; their messages are erased after the verdict.

The start message and its detached large values are published unencrypted. Once the run is admitted, the log has their
content in encrypted form; if the start is refused, the content is not kept.
"""

from typing import Any

import msgspec

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem, RunAccepted
from callboard.bus.log.encryption import HIDDEN, Key, Lack
from callboard.bus.log.port import NoAnswer
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import erase, erase_all
from callboard.bus.subjects import RunRef, is_name
from callboard.runtime.admission.large_starts import BLOB_MISSING, part_digests
from callboard.runtime.admission.verdicts import Verdict

_MEMBER = b'"encryption_key"'


async def is_secret(log: JetStreamLog, tenant: str, body: bytes, document: dict[str, Any] | list[Problem]) -> bool:
    """Whether a start, valid or not, is for a run with a key.

    It is if it names a key or forks a run with a key. A fork of an unknown run counts too: that run may have had one.

    :raises NoAnswer: if the log does not answer
    """
    if isinstance(document, list):
        # The message cannot be read; it counts as secret if it seems to name a key.
        return _MEMBER in body
    fork = document.get("fork")
    if document.get("encryption_key") or fork is None:
        return bool(document.get("encryption_key"))
    origin: Any = fork.get("run") if isinstance(fork, dict) else None
    if not isinstance(origin, str) or not is_name(origin):
        return True
    first = await log.last_of_type(RunRef(tenant, origin), RunAccepted.type)
    return first is None or _has_key(first)


async def key_of(log: JetStreamLog, tenant: str, start: StartRun, *, child: bool) -> Key | None:
    """Return the key that a start names, creating it if it never existed; None if it has been destroyed.

    :raises NoAnswer: if the run shares the key of another run and it is missing now, or if the log does not answer
    """
    name = start.encryption_key
    assert name
    if not child and start.fork is None:
        return await log.keys.make(tenant, name)
    key = await log.keys.get(tenant, name)
    if key is Lack.MISSING:
        # A new key of that name could not decrypt the existing events.
        raise NoAnswer(f"the key {name!r} is missing")
    return key if isinstance(key, Key) else None


async def find_admitted(log: JetStreamLog, ref: RunRef, sequence: int, problems: list[Problem]) -> Verdict | None:
    """Return the verdict of a start whose large values were erased after its run was admitted; None for others.

    Either a worker crashed between admitting and answering the start, or another start of the run was admitted.

    :raises NoAnswer: if the log does not answer
    """
    if not problems or {problem.code for problem in problems} != {BLOB_MISSING}:
        return None
    first = await log.last_of_type(ref, RunAccepted.type)
    if first is None or not _has_key(first):
        return None
    return Verdict("accepted", ref.run, duplicate=first.event.cause != sequence)


async def erase_start(log: JetStreamLog, ref: RunRef, sequence: int, document: dict[str, Any] | list[Problem]) -> None:
    """Erase the detached parts of a start message, unless a run without a key uses them, and then the message.

    :raises NoAnswer: if the log does not answer; a repeated call continues
    """
    digests = part_digests(document) if isinstance(document, dict) else set[str]()
    first = await log.last_of_type(ref, RunAccepted.type) if digests else None
    if first is None or _has_key(first):
        for digest in sorted(digests):
            await erase_all(log, f"{log.subjects.blob(ref, digest)}.*")
    await erase(log, sequence)


def withhold_texts(verdict: Verdict) -> Verdict:
    """Return a refusal with codes and places only: its texts may quote content that was to be encrypted."""
    problems = [msgspec.structs.replace(one, message=HIDDEN, expected=None) for one in verdict.problems]
    return msgspec.structs.replace(verdict, problems=problems)


def _has_key(first: Recorded) -> bool:
    return first.encrypted or first.key is not None
