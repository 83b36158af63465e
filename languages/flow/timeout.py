"""Timeout: bounds the time that what is inside may take, over all its runs."""

from callboard.languages.flow.frame import duration_of
from callboard.languages.flow.result import Result, as_envelope, as_failure, failure
from callboard.languages.flow.stack import Around, Inner, Plain
from callboard.languages.flow.temporal import format_instant
from callboard.languages.language import Expired, Instant, Ok, Unwound
from callboard.lib.json_types import JSON


class Timeout(Plain):
    """Bounds the time that what is inside may take, over all its runs."""

    def __init__(self) -> None:
        self._due: Instant | None = None
        self._duration = ""

    async def enter(self, around: Around, arguments: dict[str, JSON] | None) -> None:
        if arguments is not None:
            self._duration = arguments["duration"]
            self._due = duration_of(self._duration).after(around.frame.stage.now())
            around.contributed["deadline"] = format_instant(self._due)

    async def run(self, around: Around, down: JSON, inner: Inner) -> Result:
        if self._due is None:
            return await around.ascend(await inner(down))
        message = f"no result within {self._duration}"
        exceeded = failure("Provider.Middleware.Timeout.Exceeded", message, type="timeout")
        if self._due <= around.frame.stage.now():
            return exceeded
        imposed = as_failure(failure("System.Cancelled", type="cancellation", previous=exceeded))
        bounded = _await_inner(inner, down)
        raced = await around.frame.stage.within(self._due, bounded, node=around.place.node, slot="bound", cause=imposed)
        match raced:
            case Ok(result):
                return await around.ascend(result)
            case Expired(Unwound(cause)) if cause != imposed:
                # A clean-up failed on the way out: it stays at the head, with all that happened beneath it.
                return as_envelope(cause)
            case Expired():
                return exceeded


async def _await_inner(inner: Inner, down: JSON) -> Result:
    return await inner(down)
