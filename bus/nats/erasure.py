"""Erasing of messages: a single message, which the server overwrites, or all messages that match a filter."""

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api

_NO_MESSAGE = (10037, 10043, 10057)
"""Error codes of the server for a message that does not exist or was deleted before."""


async def erase(log: JetStreamLog, sequence: int) -> bool:
    """Erase a message; return whether it existed.

    :raises NoAnswer: if no answer came
    """
    answer = await api(log.requests, f"STREAM.MSG.DELETE.{log.stream}", {"seq": sequence})
    if "error" in answer and answer["error"].get("err_code") not in _NO_MESSAGE:
        raise NoAnswer(str(answer["error"]))
    return "error" not in answer


async def erase_all(log: JetStreamLog, filter: str, before: int | None = None) -> int:
    """Erase all messages that match a filter, only those ``before`` a sequence if one is given; return their number.

    :raises NoAnswer: if no answer came
    """
    bound = {} if before is None else {"seq": before}
    answer = await api(log.requests, f"STREAM.PURGE.{log.stream}", {"filter": filter, **bound})
    if "error" in answer:
        raise NoAnswer(str(answer["error"]))
    return answer["purged"]
