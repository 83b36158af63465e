"""The runner of MEMORY nodes that are in the graph themselves: one operation."""

from msgspec.structs import replace

from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.memory import request
from callboard.languages.graph.rules import MEMORY_TEMPLATES
from callboard.languages.graph.work import Outputs, Work, failed_effect, result
from callboard.languages.language import Failed
from callboard.lib.json_types import JSON

OPERATIONS = {
    "VECTOR_DATABASE": "search",
    "KEY_VALUE_STORE": "get",
    "CONVERSATION_BUFFER": "store",
}
"""What is done where neither configuration nor input say; of other subtypes ``retrieve``."""


async def memory(work: Work) -> Outputs:
    """MEMORY: what a memory answers to an operation."""
    given = text_of(work.setting("operation")) or text_of(work.input_member("operation"))
    operation = given or OPERATIONS.get(work.spec.subtype, "retrieve")
    asked = await work.compute(_request, operation)
    outcome = await work.node.call("memory", "memory", asked)
    if isinstance(outcome, Failed):
        raise failed_effect(outcome.error)
    return result(outcome.value)


def _request(work: Work, operation: str) -> dict[str, JSON]:
    """Return what the memory is asked, with the templates of the node's configurations filled in."""
    spec = work.spec
    if work.rules >= MEMORY_TEMPLATES:
        configured = {name: work.render(value) for name, value in spec.configurations.items()}
        spec = replace(spec, configurations=configured)
    return request(work, spec, operation, input=work.inputs.get(RESULT))
