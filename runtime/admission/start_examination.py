"""Examination of starts: completes a start message, and checks everything in it that needs neither plan nor code.

A message is completed with its detached parts, and from the run that it forks or continues.
"""

from functools import partial
from typing import Any

import anyio
import msgspec

from callboard.bus.events import Problem
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.forks import Forks
from callboard.runtime.admission.large_starts import BLOBS, START_BYTES_MAX, insert_parts
from callboard.runtime.admission.start_message import CONTINUES, Examined, Inherited, examine_object, named_run
from callboard.runtime.admission.successors import complete_successor

GATHERED_AT_ONCE = 2
"""Maximum number of starts with large values that are held in memory at the same time before they are admitted."""


class StartExaminer:
    """Examines the starts that one worker admits."""

    def __init__(self, log: JetStreamLog, definitions: Definitions, forks: Forks) -> None:
        self._log = log
        self._definitions = definitions
        self._forks = forks
        self._gathering = anyio.CapacityLimiter(GATHERED_AT_ONCE)

    async def examine(self, tenant: str, document: dict[str, Any] | list[Problem], size: int) -> Examined:
        """Examine a decoded start message of ``size`` bytes together with its detached parts.

        :raises NoAnswer: if the log does not answer
        """
        if isinstance(document, list):
            return Examined(document)
        if BLOBS not in document:
            return await self.examine_complete(tenant, document, size)
        async with self._gathering:
            whole = await insert_parts(self._log, tenant, document)
            if isinstance(whole, list):
                return Examined(whole, run_id=named_run(document))
            return await self.examine_complete(tenant, whole, START_BYTES_MAX)

    async def examine_complete(self, tenant: str, document: dict[str, Any], size: int) -> Examined:
        """Examine a start message without detached parts. Raises as `examine`."""
        inherited: Inherited | None = None
        if document.get(CONTINUES) is not None:
            found = await complete_successor(self._log, tenant, document)
            if isinstance(found, list):
                return Examined(found, run_id=named_run(document))
            # The size of the predecessor was checked when it was admitted.
            (document, inherited), size = found, START_BYTES_MAX
        elif document.get("fork") is not None:
            completed = await self._forks.complete(tenant, document)
            if isinstance(completed, list):
                return Examined(completed, run_id=named_run(document))
            # The size of the origin was checked when the origin was admitted.
            document, size = completed, START_BYTES_MAX
        examined = await self._definitions.offload(partial(examine_object, document, size), size=size)
        return msgspec.structs.replace(examined, inherited=inherited)
