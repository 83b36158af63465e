"""Models in a workflow: one turn, whose answer is converted to a type."""

from typing import TYPE_CHECKING, Any, TypeVar, overload

from callboard.bus.effects import Failure, ModelRequest, user
from callboard.languages.agent import read_structured_answer
from callboard.languages.language import Failed
from callboard.languages.patience import patient_turn
from callboard.languages.python.errors import ModelFailed
from callboard.languages.python.likeness import turns_alike
from callboard.languages.python.loop import current_loop
from callboard.languages.python.runs import RunOnly
from callboard.languages.python.values import codec
from callboard.languages.python.workflows import problems_of

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")


@overload
async def generate(
    prompt: str, output: "TypeForm[T]", *, model: str | None = None, system: str = "", temperature: float | None = None
) -> T: ...
@overload
async def generate(
    prompt: str, output: None = None, *, model: str | None = None, system: str = "", temperature: float | None = None
) -> str: ...
async def generate(
    prompt: str, output: Any = None, *, model: str | None = None, system: str = "", temperature: float | None = None
) -> Any:
    """Ask a model once, and return its answer: its text, or a value of the type ``output``.

    ``model`` defaults to the run's model.

    :raises ModelFailed: if the model does not answer, or the answer does not fit the type
    """
    loop = current_loop()
    if loop is None:
        raise RunOnly("generate asks a model of the run's worker: callboard run FILE.py:NAME --model MODEL")
    reading = None if output is None or output is str else codec(output)
    request = ModelRequest(
        model=model,
        system=system,
        messages=[user(prompt)],
        schema=reading.schema if reading is not None else None,
        temperature=temperature,
    )
    node = loop.place("generate", loop.where())
    node.compares_by(turns_alike)
    _slot, outcome = await loop.effect(node, patient_turn(node, "turn.1", request))
    if isinstance(outcome, Failed):
        raise ModelFailed(outcome.error)
    if reading is None:
        return outcome.value.text
    try:
        return reading.decode(read_structured_answer(outcome.value, asked=True))
    except (ValueError, TypeError) as error:
        problems = "; ".join(f"{at}: {what}" if at else what for at, what in problems_of(error))
        raise ModelFailed(Failure("model.bad_output", f"the answer does not fit: {problems}")) from error
