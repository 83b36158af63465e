"""Secret starts: those of runs with a key. What they say stands in the log encrypted or is refused; then it is erased.

The message that asked for the run, and the large values beside it, were published before anybody had the key at hand.
"""

from typing import Any

import msgspec

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem, RunAccepted
from callboard.bus.log.encryption import HIDDEN, Key, Lack
from callboard.bus.log.port import NoAnswer, Recorded
from callboard.bus.nats.erasure import erase, erase_all
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef, is_name
from callboard.runtime.admission.large_starts import BLOB_MISSING, beside
from callboard.runtime.admission.verdicts import Verdict

_MEMBER = b'"encryption_key"'


async def is_secret(log: JetStreamLog, tenant: str, body: bytes, document: dict[str, Any] | list[Problem]) -> bool:
    """Whether a start, right or wrong, is one of a run with a key: it names one, or goes on from a run that has one, or
    from one that is not there, of which nobody can say it any more.

    :raises NoAnswer: if the log does not answer
    """
    if isinstance(document, list):
        # It cannot be read; then it is enough that it seems to name one.
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
    """The key that a start names, a new one if there never was one; None if it has been destroyed.

    :raises NoAnswer: if the run takes it over from another one, and it is not there just now; or no answer came
    """
    name = start.encryption_key
    assert name
    if not child and start.fork is None:
        return await log.keys.make(tenant, name)
    key = await log.keys.get(tenant, name)
    if key is Lack.MISSING:
        # Another one of that name would make all that is encrypted illegible.
        raise NoAnswer(f"the key {name!r} is not there")
    return key if isinstance(key, Key) else None


async def taken_in(log: JetStreamLog, ref: RunRef, sequence: int, problems: list[Problem]) -> Verdict | None:
    """The verdict of a start whose large values are gone since its run was admitted; None if they are gone otherwise.

    Whoever admitted it died before they could say so, or has admitted another start of the same run.

    :raises NoAnswer: if the log does not answer
    """
    if not problems or {problem.code for problem in problems} != {BLOB_MISSING}:
        return None
    first = await log.last_of_type(ref, RunAccepted.type)
    if first is None or not _has_key(first):
        return None
    return Verdict("accepted", ref.run, duplicate=first.event.cause != sequence)


async def erase_start(log: JetStreamLog, ref: RunRef, sequence: int, document: dict[str, Any] | list[Problem]) -> None:
    """Erase what stands beside a start message, unless a run without a key has it, and then the message.

    :raises NoAnswer: if the log does not answer; done again, it goes on
    """
    digests = beside(document) if isinstance(document, dict) else set[str]()
    first = await log.last_of_type(ref, RunAccepted.type) if digests else None
    if first is None or _has_key(first):
        for digest in sorted(digests):
            await erase_all(log, f"{log.subjects.blob(ref, digest)}.*")
    await erase(log, sequence)


def withheld(verdict: Verdict) -> Verdict:
    """What is put on record of a refusal: where, and by which code. Its texts quote what was to be encrypted."""
    problems = [msgspec.structs.replace(one, message=HIDDEN, expected=None) for one in verdict.problems]
    return msgspec.structs.replace(verdict, problems=problems)


def _has_key(first: Recorded) -> bool:
    return first.encrypted or first.key is not None
