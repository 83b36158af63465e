"""Code of the document's author: RUN_CODE, EXECUTE_SCRIPT, and the conversion functions of connections.

The sandbox runs the code. The request of an effect of kind ``code`` is::

    {"language": "python", "source": "<text>", "function": "<name>" | null, "inputs": [<value>, …], "wrap": <bool>,
     "limits": {"wall_s": …, "cpu_s": …, "memory_bytes": …, "output_bytes": …}}

The sandbox calls ``function`` of the source once for each input; null means that the source is a ``lambda``. With
``wrap``, an input that is not an object also answers to ``["value"]``, ``["output"]`` and ``["data"]["result"]``, and
to ``get`` of these. The effect's value is ``{"results": [{"value": …} | {"error": "…", "code": "code.…"}, …]}``, with
one result for each input.
"""

import re
from collections.abc import Sequence
from textwrap import indent
from typing import Any

from msgspec import Struct

from callboard.languages.graph.document import RESULT
from callboard.languages.graph.topology import Wire
from callboard.languages.graph.work import NodeAttempt, NodeFailed, Outputs, result
from callboard.languages.language import Failed, Node
from callboard.lib.json_types import JSON

PYTHON = "python"

LIMITS: dict[str, JSON] = {
    "wall_s": 10.0,
    "cpu_s": 5.0,
    "memory_bytes": 256 * 1024 * 1024,
    "output_bytes": 4 * 1024 * 1024,
}
"""The limits of the code of one effect, for all its inputs together."""

PREFERRED = "convert"
"""The function that is called if a source defines several."""

_FUNCTION = re.compile(r"^def\s+(\w+)\s*\(", re.MULTILINE)
_LAMBDA = re.compile(r"\s*\(?\s*lambda\b")
_RETURN = re.compile(r"^return\b", re.MULTILINE)


class CodeResult(Struct, frozen=True):
    """The result for one input: a value, or an error text and its code."""

    value: JSON = None
    error: str | None = None
    code: str = ""

    @property
    def details(self) -> JSON:
        """The details of the failure that reports this error."""
        return {"code": self.code} if self.code else None


async def run_code(
    node: Node, slot: str, source: str, inputs: Sequence[JSON], *, language: str = PYTHON, wrap: bool = False
) -> list[CodeResult]:
    """Have the sandbox run code once per input. If the sandbox itself fails, every input has that error."""
    request: dict[str, Any] = {
        "language": language,
        **prepare_source(source, language),
        "inputs": list(inputs),
        "wrap": wrap,
        "limits": LIMITS,
    }
    outcome = await node.call(slot, "code", request)
    if isinstance(outcome, Failed):
        return [CodeResult(error=outcome.error.message or outcome.error.code, code=outcome.error.code)] * len(inputs)
    results: Any = outcome.value.get("results") if isinstance(outcome.value, dict) else None
    if not isinstance(results, list) or len(results) != len(inputs):
        return [CodeResult(error="the sandbox did not answer for each input")] * len(inputs)
    return [_to_returned(one) for one in results]


def _to_returned(result: Any) -> CodeResult:
    match result:
        case {"error": str(reason), "code": str(code)}:
            return CodeResult(error=reason, code=code)
        case {"error": str(reason)}:
            return CodeResult(error=reason)
        case {"value": value}:
            return CodeResult(value)
        case _:
            return CodeResult(error="the sandbox gave no result")


def prepare_source(source: str, language: str = PYTHON) -> dict[str, JSON]:
    """Return ``source`` and ``function`` of a request; statements without a function become the body of one."""
    if language != PYTHON or _LAMBDA.match(source):
        return {"source": source, "function": None}
    names: list[str] = _FUNCTION.findall(source)
    if names:
        return {"source": source, "function": PREFERRED if PREFERRED in names else names[0]}
    end = "" if _RETURN.search(source) else "\n    return result"
    body = indent(source.strip("\n"), "    ") or "    result = None"
    return {"source": f"def {PREFERRED}(input_data):\n{body}{end}\n", "function": PREFERRED}


# -- conversion functions of connections -------------------------------------------------------------------------------

CONVERSION_FAILED = "graph.conversion_failed"
"""The code of the warning that a conversion function failed; the value is then passed on unchanged."""


async def convert(node: Node, wire: Wire, values: Sequence[JSON]) -> list[JSON]:
    """Apply a connection's conversion function to each value; one effect converts them all."""
    if wire.conversion is None or not values:
        return list(values)
    inputs = [_conversion_argument(value) for value in values]
    returned = await run_code(node, f"convert.{wire.index}", wire.conversion, inputs, wrap=True)
    failures = [one.error for one in returned if one.error is not None]
    if failures:
        what = f"{len(failures)} of {len(values)} values are" if len(values) > 1 else "the value is"
        node.warn(
            CONVERSION_FAILED,
            f"the conversion function fails, {what} passed on as before: {failures[0]}",
            [wire.target],
        )
    return [_conversion_result(value, one) for value, one in zip(values, returned, strict=True)]


def _conversion_argument(value: JSON) -> JSON:
    """Add members to an object under which a function may look for the whole object."""
    if not isinstance(value, dict):
        return value
    return {"value": value, "output": value, "data": {"result": value}, **value}


def _conversion_result(value: JSON, returned: CodeResult) -> JSON:
    if returned.error is not None:
        return value
    return returned.value if isinstance(returned.value, dict) else {"converted_data": returned.value}


# -- RUN_CODE and EXECUTE_SCRIPT ---------------------------------------------------------------------------------------

SOURCES = ("code", "source", "script", "script_content")
"""The configurations that may hold the source."""


async def code(work: NodeAttempt) -> Outputs:
    """Call the source's function with the input; the result is its return value."""
    source = work.setting(*SOURCES)
    if not isinstance(source, str) or not source.strip():
        raise NodeFailed("graph.configuration", f"no code is given (in {', '.join(SOURCES)})", final=True)
    language = work.text("language") or PYTHON
    [returned] = await run_code(work.node, "code", source, [work.inputs.get(RESULT)], language=language)
    if returned.error is not None:
        raise NodeFailed("graph.code", returned.error, details=returned.details)
    return result(returned.value)
