"""The runner of MEMORY nodes that stand in the graph themselves: one operation."""

from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.memory import request
from callboard.languages.graph.work import Outputs, Work, failed_effect, result
from callboard.languages.language import Failed

OPERATIONS = {
    "VECTOR_DATABASE": "search",
    "KEY_VALUE_STORE": "get",
    "CONVERSATION_BUFFER": "store",
}
"""What is done where neither configuration nor input say; of other subtypes ``retrieve``."""


async def memory(work: Work) -> Outputs:
    """MEMORY: what a memory answers to an operation."""
    given = text_of(work.setting("operation")) or text_of(work.given("operation"))
    operation = given or OPERATIONS.get(work.spec.subtype, "retrieve")
    asked = request(work, work.spec, operation, input=work.inputs.get(RESULT))
    outcome = await work.node.call("memory", "memory", asked)
    if isinstance(outcome, Failed):
        raise failed_effect(outcome.error)
    return result(outcome.value)
