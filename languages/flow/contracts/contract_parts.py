"""Parts of the contracts of Callboard's call providers: schemas, and failures with descriptions of when they occur.

Names in these contracts are in snake_case, except for ``details.retryAfter``, which is spelled as in the
specification's example of Retry.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from callboard.languages.provider_contracts import CALL, Contract
from callboard.lib.json_types import JsonSchema

NAMESPACE = "callboard"

DURATION: JsonSchema = {"type": "string", "format": "duration"}
TEXT: JsonSchema = {"type": "string"}
NAME: JsonSchema = {"type": "string", "minLength": 1}
COUNT: JsonSchema = {"type": "integer", "minimum": 0}
TEXTS: JsonSchema = {"type": "object", "additionalProperties": {"type": "string"}}


class Shipped(Struct, frozen=True):
    """A contract, with a description of when each failure occurs, by code, and the codes of final failures.

    A retry after a final failure cannot succeed.
    """

    contract: Contract
    failures: Mapping[str, str]
    final: tuple[str, ...] = ()


def members(properties: dict[str, Any], *required: str, **more: Any) -> JsonSchema:
    """Return the schema of an object with exactly these members; ``required`` are the names of mandatory ones."""
    schema: JsonSchema = {"type": "object", "additionalProperties": False, "properties": properties, **more}
    return {**schema, "required": list(required)} if required else schema


def describe(schema: JsonSchema, description: str, **more: Any) -> JsonSchema:
    """Return a schema with a description and further keywords."""
    return {**schema, **more, "description": description}


def call_uri(name: str) -> str:
    """Return the URI of a call provider of Callboard, version 1."""
    return f"{CALL}{NAMESPACE}/{name}/v1"


def define_provider(
    name: str,
    code_prefix: str,
    description: str,
    *,
    parameters: JsonSchema,
    metadata: JsonSchema,
    failures: Mapping[str, str],
    final: Sequence[str] = (),
) -> Shipped:
    """Return a call provider with its contract.

    ``failures`` has the last segments of its codes, each with a description of when it occurs; ``final`` are those
    after which a retry cannot succeed.
    """
    prefix = f"Provider.Call.{code_prefix}"
    described = {f"{prefix}.{code}": when for code, when in failures.items()}
    contract = Contract(
        uri=call_uri(name),
        code_prefix=code_prefix,
        description=description,
        parameters=parameters,
        metadata=metadata,
        closed=tuple(described),
    )
    return Shipped(contract, described, tuple(f"{prefix}.{code}" for code in final))
