"""Erasing: single messages of the stream, which the server overwrites, or all that match a filter."""

from callboard.bus.asking import api
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.log import NoAnswer

_NO_MESSAGE = (10037, 10043, 10057)
"""What the server says of a message that is not there (any more)."""


async def erase(log: JetStreamLog, sequence: int) -> bool:
    """Erase a message; say whether it was there.

    :raises NoAnswer: if no answer came
    """
    answer = await api(log.requests, f"STREAM.MSG.DELETE.{log.stream}", {"seq": sequence})
    if "error" in answer and answer["error"].get("err_code") not in _NO_MESSAGE:
        raise NoAnswer(str(answer["error"]))
    return "error" not in answer


async def erase_all(log: JetStreamLog, filter: str, before: int | None = None) -> int:
    """Erase all messages that match a filter, those ``before`` a sequence if there is one; return how many there were.

    :raises NoAnswer: if no answer came
    """
    bound = {} if before is None else {"seq": before}
    answer = await api(log.requests, f"STREAM.PURGE.{log.stream}", {"filter": filter, **bound})
    if "error" in answer:
        raise NoAnswer(str(answer["error"]))
    return answer["purged"]
