"""What the contracts of Callboard's own call providers are made of: schemas, and failures that say when they occur.

Names in these contracts are written in snake_case, as everywhere in the house. Only ``details.retryAfter`` is spelled
as the specification's own example of Retry has it.
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
    """A contract, when each of its failures occurs, by code, and which of them are final: no other run mends them."""

    contract: Contract
    failures: Mapping[str, str]
    final: tuple[str, ...] = ()


def members(properties: dict[str, Any], *required: str, **more: Any) -> JsonSchema:
    """Return the schema of an object with these members and no others."""
    schema: JsonSchema = {"type": "object", "additionalProperties": False, "properties": properties, **more}
    return {**schema, "required": list(required)} if required else schema


def describe(schema: JsonSchema, description: str, **more: Any) -> JsonSchema:
    """Return a schema with its description."""
    return {**schema, **more, "description": description}


def call_uri(name: str) -> str:
    """Return the URI of the first version of a call provider of ours."""
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
    """Make a call provider's contract; ``failures`` are the last segments of its codes, ``final`` some of them."""
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
