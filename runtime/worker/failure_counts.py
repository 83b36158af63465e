"""Failure counts: how often the admission of each message has failed at this worker.

The server's delivery count cannot be used: a message that waits for the log is redelivered too, and a reset of the
consumer resets the count.
"""

from collections import OrderedDict

MESSAGES_MAX = 10_000
"""Maximum number of messages with a count. The oldest count is dropped first."""


class FailureCounts:
    """Counts failures by the stream sequence of a message."""

    def __init__(self) -> None:
        self._counts: OrderedDict[int, int] = OrderedDict()

    def count(self, sequence: int) -> int:
        """Count one more failure of a message and return its number, from 1."""
        number = self._counts.pop(sequence, 0) + 1
        self._counts[sequence] = number
        if len(self._counts) > MESSAGES_MAX:
            self._counts.popitem(last=False)
        return number

    def pop(self, sequence: int) -> None:
        """Forget a message that is admitted or rejected."""
        self._counts.pop(sequence, None)
