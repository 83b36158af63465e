"""Dispatches: what a call provider is asked by the interpreter, and what it answers."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, field

from callboard.bus.effects import Failure
from callboard.languages.flow.result import UNSET, Result, as_envelope, failure
from callboard.languages.language import Node, Ok, Stage
from callboard.languages.provider_contracts import Contract
from callboard.lib.json_types import JSON

MALFORMED = "provider.malformed"
"""Code of the failure that represents an answer that is none."""

TIMING = frozenset({"enteredAt", "exitedAt"})
"""Members of a middleware's metadata that are the engine's own."""


class Dispatch(Struct, frozen=True):
    """A request to a call provider; ``arguments`` fit the contract's parameters."""

    contract: Contract
    input: JSON
    arguments: dict[str, Any]
    node: Node
    stage: Stage

    def make_failure(
        self,
        code: str,
        message: str,
        *,
        type: str = "error",
        details: JSON = UNSET,
        retryable: bool | None = None,
        previous: JSON = UNSET,
    ) -> Result:
        """Make a failure with a code of the provider's own catalog, given its last segment."""
        full = f"Provider.Call.{self.contract.code_prefix}.{code}"
        return failure(full, message, type=type, details=details, retryable=retryable, previous=previous)


class Reply(Struct, frozen=True):
    """What a provider came to, and what it reports of itself."""

    result: Result
    metadata: dict[str, JSON] = field(default_factory=dict[str, JSON])


Native = Callable[[Dispatch], Awaitable[Reply]]
"""A provider that is made of the stage's own effects."""


async def carry_out(request: Dispatch, slot: str = "call") -> Reply:
    """Have a worker carry the dispatch out, as one effect."""
    asked = {"provider": request.contract.uri, "with": request.arguments, "input": request.input}
    outcome = await request.node.call(slot, "provider", asked)
    if not isinstance(outcome, Ok):
        return Reply(as_envelope(outcome.error))
    return reply_of(outcome.value, request.contract)


def reply_of(value: JSON, contract: Contract) -> Reply:
    """Read what a worker reports of a provider's work.

    A provider that answers with something else than a Result has failed.
    """
    match value:
        case {"result": {"type": "success", "value": _} as result, "metadata": dict(metadata)}:
            return Reply(result, expose_metadata(contract, metadata))
        case {"result": {"type": str(type), "code": str()} as result, "metadata": dict(metadata)} if type != "success":
            return Reply(result, expose_metadata(contract, metadata))
        case _:
            return Reply(failure(MALFORMED, f"the provider answered with no Result: {value!r:.200}"))


def expose_metadata(contract: Contract, metadata: dict[str, JSON]) -> dict[str, JSON]:
    """Return the members that the contract's metadata schema declares; the specification allows no others to be seen.

    A schema is closed unless it says otherwise, as everywhere in the language.
    """
    if contract.metadata is None:
        return {}
    if contract.metadata.get("additionalProperties", False) is not False:
        return metadata
    declared = contract.metadata.get("properties", {})
    return {name: value for name, value in metadata.items() if name in declared}


def house_details(error: Failure) -> dict[str, Any]:
    """Return a worker's failure as details: its code, and what it says beyond its message."""
    match error.details:
        case None:
            return {"code": error.code}
        case dict(members):
            return {**members, "code": error.code}
        case other:
            return {"code": error.code, "details": other}
