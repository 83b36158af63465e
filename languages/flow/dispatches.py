"""Dispatches: the requests of the interpreter to call providers, and their replies."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct, field

from callboard.bus.effects import Failure
from callboard.languages.flow.result import UNSET, Result, as_envelope, failure
from callboard.languages.language import Node, Ok, Stage
from callboard.languages.provider_contracts import Contract
from callboard.lib.json_types import JSON

MALFORMED = "provider.malformed"
"""The code of the failure of a provider whose answer is malformed."""

TIMING = frozenset({"enteredAt", "exitedAt"})
"""Members of a middleware's metadata that the engine sets."""


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
        """Return a failure with a code of the provider's catalog, given the code's last segment."""
        full = f"Provider.Call.{self.contract.code_prefix}.{code}"
        return failure(full, message, type=type, details=details, retryable=retryable, previous=previous)


class DispatchReply(Struct, frozen=True):
    """The Result of a provider, and the metadata that it reports."""

    result: Result
    metadata: dict[str, JSON] = field(default_factory=dict[str, JSON])


Native = Callable[[Dispatch], Awaitable[DispatchReply]]
"""A provider that consists of effects of the stage."""


async def carry_out(request: Dispatch, slot: str = "call") -> DispatchReply:
    """Have a worker carry out the dispatch, as one effect."""
    asked = {"provider": request.contract.uri, "with": request.arguments, "input": request.input}
    outcome = await request.node.call(slot, "provider", asked)
    if not isinstance(outcome, Ok):
        return DispatchReply(as_envelope(outcome.error))
    return reply_of(outcome.value, request.contract)


def reply_of(value: JSON, contract: Contract) -> DispatchReply:
    """Read a worker's report of a provider's work.

    If the report has no Result, the reply is the failure `MALFORMED`.
    """
    match value:
        case {"result": {"type": "success", "value": _} as result, "metadata": dict(metadata)}:
            return DispatchReply(result, expose_metadata(contract, metadata))
        case {"result": {"type": str(type), "code": str()} as result, "metadata": dict(metadata)} if type != "success":
            return DispatchReply(result, expose_metadata(contract, metadata))
        case _:
            return DispatchReply(failure(MALFORMED, f"the provider answered with no Result: {value!r:.200}"))


def expose_metadata(contract: Contract, metadata: dict[str, JSON]) -> dict[str, JSON]:
    """Return the members that the contract's metadata schema declares; by the specification, no others are visible.

    As everywhere in the language, a schema is closed unless it sets ``additionalProperties``.
    """
    if contract.metadata is None:
        return {}
    if contract.metadata.get("additionalProperties", False) is not False:
        return metadata
    declared = contract.metadata.get("properties", {})
    return {name: value for name, value in metadata.items() if name in declared}


def house_details(error: Failure) -> dict[str, Any]:
    """Return the details for a worker's failure: its code, and its own details."""
    match error.details:
        case None:
            return {"code": error.code}
        case dict(members):
            return {**members, "code": error.code}
        case other:
            return {"code": error.code, "details": other}


def translate_failure(
    request: Dispatch, error: Failure, codes: Mapping[str, tuple[str, str]], otherwise: str = "Failed"
) -> Result:
    """Return a worker's failure as a failure of the provider; ``codes`` has the new code and type for each code."""
    code, type = codes.get(error.code, (otherwise, "error"))
    previous = UNSET if error.previous is None else as_envelope(error.previous)
    return request.make_failure(
        code, error.message, type=type, details=house_details(error), retryable=error.retryable, previous=previous
    )
