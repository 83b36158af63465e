"""Vouchers of one tenant: they prove the roles of a person who answers over HTTP (`callboard.bus.vouchers`)."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from callboard.bus.commands import Answer
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.bus.vouchers import Voucher, digest_of, join_parts, split_parts
from callboard.features.access.signing import SigningKey
from callboard.features.access.store import StoreSilent
from callboard.features.access.subject import Subject

_PURPOSE = b"callboard voucher 1\0"


class Vouchers:
    """Makes and checks vouchers."""

    def __init__(self, log: JetStreamLog, tenant: str, replicas: int = 1) -> None:
        self._key = SigningKey(log, tenant, replicas, _PURPOSE)
        self._tenant = tenant

    async def made(self, run: str, answer: Answer, roles: Iterable[str]) -> str:
        """Return the voucher of an answer to a run.

        :raises StoreSilent: if the store does not answer
        """
        said = msgspec.json.encode(Voucher(self._tenant, run, digest_of(answer), sorted(roles)))
        return join_parts(said, await self._key.sign(said))

    async def holds(self, run: str, answer: Answer) -> bool:
        """Whether the voucher of an answer is valid for this answer to this run.

        :raises StoreSilent: if the store does not answer
        """
        parts = split_parts(answer.voucher)
        if parts is None or not answer.interaction or not await self._key.has_signed(*parts):
            return False
        told = msgspec.json.decode(parts[0], type=Voucher)
        return (told.tenant, told.run, told.digest) == (self._tenant, run, digest_of(answer))


async def is_vouched(log: JetStreamLog, replicas: int, ref: RunRef, answer: Answer) -> bool:
    """Whether the voucher of an answer is valid.

    :raises NoAnswer: if the store of keys does not answer
    """
    try:
        return await Vouchers(log, ref.tenant, replicas).holds(ref.run, answer)
    except StoreSilent as error:
        raise NoAnswer(str(error)) from error


async def with_voucher(vouchers: Vouchers, run: str, answer: Mapping[str, Any], subject: Subject) -> dict[str, Any]:
    """Return the body of an answer with a voucher for its author and the author's roles, if it names its question.

    A caller who may name another person as the author gets none.

    :raises StoreSilent: if the store does not answer
    """
    body = {name: value for name, value in answer.items() if name != "voucher"}
    try:
        read = msgspec.convert(body, Answer)
    except msgspec.ValidationError:
        return body  # it is refused anyway
    if not subject.name or subject.speaks_for_others or read.by != subject.name or not read.interaction:
        return body
    return {**body, "voucher": await vouchers.made(run, read, subject.roles)}
