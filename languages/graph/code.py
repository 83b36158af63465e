"""Code of the document's author: what is asked of the sandbox, and what it answers. Nothing is run here.

The request of an effect of kind ``code`` is::

    {"language": "python", "source": "<text>", "function": "<name>" | null, "inputs": [<value>, …], "wrap": <bool>,
     "limits": {"wall_s": …, "cpu_s": …, "memory_bytes": …, "output_bytes": …}}

``function`` names the function of the source that is called with each input, by itself; null says that the source is
a ``lambda``. ``wrap`` asks that an input which is not an object also answers to ``["value"]``, ``["output"]`` and
``["data"]["result"]``, and to ``get`` of these. The effect's value is ``{"results": [{"value": …} | {"error": "…",
"code": "code.…"}, …]}``, one for each input.
"""

import re
from collections.abc import Sequence
from textwrap import indent
from typing import Any

from msgspec import Struct

from callboard.languages.language import Failed, Node
from callboard.lib.json_types import JSON

PYTHON = "python"

LIMITS: dict[str, JSON] = {
    "wall_s": 10.0,
    "cpu_s": 5.0,
    "memory_bytes": 256 * 1024 * 1024,
    "output_bytes": 4 * 1024 * 1024,
}
"""What the code of one effect may use, whatever the number of its inputs."""

PREFERRED = "convert"
"""The function that is called where a source has several."""

_FUNCTION = re.compile(r"^def\s+(\w+)\s*\(", re.MULTILINE)
_LAMBDA = re.compile(r"\s*\(?\s*lambda\b")
_RETURN = re.compile(r"^return\b", re.MULTILINE)


class Returned(Struct, frozen=True):
    """What became of one input: a value, or why there is none, and the code of that."""

    value: JSON = None
    error: str | None = None
    code: str = ""

    @property
    def details(self) -> JSON:
        """What a failure says of it besides its text."""
        return {"code": self.code} if self.code else None


async def run_code(
    node: Node, slot: str, source: str, inputs: Sequence[JSON], *, language: str = PYTHON, wrap: bool = False
) -> list[Returned]:
    """Have code run over inputs; a failure of the whole is one of each."""
    request: dict[str, Any] = {
        "language": language,
        **prepare_source(source, language),
        "inputs": list(inputs),
        "wrap": wrap,
        "limits": LIMITS,
    }
    outcome = await node.call(slot, "code", request)
    if isinstance(outcome, Failed):
        return [Returned(error=outcome.error.message or outcome.error.code, code=outcome.error.code)] * len(inputs)
    results: Any = outcome.value.get("results") if isinstance(outcome.value, dict) else None
    if not isinstance(results, list) or len(results) != len(inputs):
        return [Returned(error="the sandbox did not answer for each input")] * len(inputs)
    return [_to_returned(one) for one in results]


def _to_returned(result: Any) -> Returned:
    match result:
        case {"error": str(reason), "code": str(code)}:
            return Returned(error=reason, code=code)
        case {"error": str(reason)}:
            return Returned(error=reason)
        case {"value": value}:
            return Returned(value)
        case _:
            return Returned(error="the sandbox gave no result")


def prepare_source(source: str, language: str = PYTHON) -> dict[str, JSON]:
    """Return source and function as the sandbox wants them; statements without a function become the body of one."""
    if language != PYTHON or _LAMBDA.match(source):
        return {"source": source, "function": None}
    names: list[str] = _FUNCTION.findall(source)
    if names:
        return {"source": source, "function": PREFERRED if PREFERRED in names else names[0]}
    end = "" if _RETURN.search(source) else "\n    return result"
    body = indent(source.strip("\n"), "    ") or "    result = None"
    return {"source": f"def {PREFERRED}(input_data):\n{body}{end}\n", "function": PREFERRED}
