"""Conversion functions: what a connection makes of a value on its way. One that fails leaves it as it is."""

from collections.abc import Sequence

from callboard.languages.graph.code import Returned, run_code
from callboard.languages.graph.topology import Wire
from callboard.languages.language import Node
from callboard.lib.json_types import JSON

FAILED = "graph.conversion_failed"
"""The code of the warning."""


async def convert(node: Node, wire: Wire, values: Sequence[JSON]) -> list[JSON]:
    """Return values as a connection's conversion function makes them, each by itself; one effect for all."""
    if wire.conversion is None or not values:
        return list(values)
    inputs = [_argument(value) for value in values]
    returned = await run_code(node, f"convert.{wire.index}", wire.conversion, inputs, wrap=True)
    failures = [one.error for one in returned if one.error is not None]
    if failures:
        what = f"{len(failures)} of {len(values)} values are" if len(values) > 1 else "the value is"
        node.warn(FAILED, f"the conversion function fails, {what} passed on as before: {failures[0]}", [wire.target])
    return [_result(value, one) for value, one in zip(values, returned, strict=True)]


def _argument(value: JSON) -> JSON:
    """Add to an object the members under which a function may look for it as a whole."""
    if not isinstance(value, dict):
        return value
    return {"value": value, "output": value, "data": {"result": value}, **value}


def _result(value: JSON, returned: Returned) -> JSON:
    if returned.error is not None:
        return value
    return returned.value if isinstance(returned.value, dict) else {"converted_data": returned.value}
