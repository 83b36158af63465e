"""Interpreters of parents and children for worker processes; `tests.support.worker_interpreters` has them too.

Effects are of kind ``code``, as `tests.support.worker_process` carries them out.
"""

import hmac
import uuid
from collections.abc import Mapping
from typing import Any

from callboard.bus.paths import effect_key
from callboard.languages.language import Cancelled, End, Node, Ok, Stage
from callboard.lib.json_types import JSON
from tests.support.run_harness import Interpreter


async def _effect(node: Node, slot: str, **request: Any) -> JSON:
    outcome = await node.call(slot, "code", {"value": slot, **request})
    return outcome.value if isinstance(outcome, Ok) else outcome.error.code


async def keeps(stage: Stage) -> End:
    """Starts a child run with part of the input, repeatedly if the input says so; an effect before and after."""
    given: dict[str, Any] = stage.info.input
    done: list[JSON] = []
    for i in range(given.get("times", 1)):
        node = stage.enter(f"keep[{i}]")
        try:
            before = await _effect(node, "before")
            definition = given.get("definition", {"language": "play", "source": "kept"})
            end = await node.child("call", definition, given.get("child", {}), **given.get("start", {}))
            done += [before, end.status, end.output, end.error.code if end.error else None]
            done.append(await _effect(node, "behind"))
        except Cancelled as cancelled:
            node.exit("cancelled", error=cancelled.cause)
            raise
        node.exit("ok")
    return End("completed", done)


async def kept(stage: Stage) -> End:
    """One effect as the input says; a clean-up after it if it is cancelled."""
    node = stage.enter("work")
    outcome = "cancelled"
    try:
        done = await _effect(node, "do", **stage.info.input)
        outcome = "ok"
    finally:
        async with stage.shield():
            await _effect(node, "tidy")
        node.exit("ok" if outcome == "ok" else "cancelled")
    return End("completed", done)


async def keeps_itself(stage: Stage) -> End:
    """Starts itself."""
    node = stage.enter("again")
    end = await node.child("call", {"language": "play", "source": "keeps_itself"}, stage.info.input + 1)
    node.exit("ok" if end.status == "completed" else "failed", error=end.error)
    return End("completed", end.output if end.error is None else [stage.info.input, end.error.code])


INTERPRETERS: Mapping[str, Interpreter] = {"keeps": keeps, "kept": kept, "keeps_itself": keeps_itself}

KEY = effect_key("keep[0]", 1, 1, "call")
"""Key of the first child that `keeps` starts."""


def child_of(run: str, key: str = KEY) -> str:
    """The run id of a child, as it has always been: children of runs in old logs are found by it."""
    namespace = uuid.UUID(hmac.digest(b"callboard", run.encode(), "sha256").hex()[:32])
    return str(uuid.uuid5(namespace, key))
