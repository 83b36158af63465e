"""The evaluation of a result, by judges too, and the feedback of a failed evaluation for the retry."""

from functools import partial

from callboard.bus.effects import Message, ModelRequest, user
from callboard.bus.paths import encode_id
from callboard.languages.computation import compute
from callboard.languages.language import Failed, Node, Ok, Stage, Unwound
from callboard.languages.questions import JUDGE_TRIES_MAX, Judgement, ask, judge
from callboard.languages.workflow import document as doc
from callboard.languages.workflow.evaluators import (
    Evaluation,
    FunctionEvaluator,
    JudgeEvaluator,
    ToolUsed,
    ValueEvaluator,
    evaluate_function,
    evaluate_value,
    shorten,
    verdict,
)
from callboard.languages.workflow.prompt import json_text
from callboard.languages.workflow.result import AttemptResult

PREVIEW_CHARS_MAX = 200
"""How many characters of a tool call's input and output a judge sees."""

PARSE_FAILURE = "judge parse failure"
DEFAULT_ADVICE = "Fix and try again."

_JUDGE = """\
Judge a piece of work by a rubric, from its result and the tool calls that led to it, and from nothing else.

## Rubric

{rubric}

## Result data

{data}

## Tool calls

{calls}

## Your answer

Two lines and nothing else:

VERDICT: <{passing} or {failing}>
REASONING: <why, in three sentences at most>

{passing} means that the rubric is met, also where it does not apply to this result.
"""

_REFLECT = """\
A step of a workflow was done, and its evaluation failed.

## The step's instruction

{instruction}

## What failed

{failures}

## Tools called

{calls}

## Result data

{data}

## Your task

{question}
"""

_DEFAULT_QUESTION = (
    "Say what went wrong and what should be done differently in the next try. Be short and concrete; your answer is "
    "put before the instruction."
)


async def evaluate(
    stage: Stage,
    node: Node,
    spec: doc.Node,
    workflow: doc.Workflow,
    result: AttemptResult,
    aliases: dict[str, frozenset[str]],
) -> list[Evaluation]:
    """Run every evaluator of a node on its result, judges concurrently; return evaluations in the declared order."""
    used = [ToolUsed(call.use.tool, call.error is None) for call in result.calls]
    evaluators = spec.eval or []
    names = [evaluator.name for evaluator in evaluators]
    asked = {
        index: stage.spawn(_ask_judge(node, evaluator, spec, workflow, result, names[:index].count(evaluator.name)))
        for index, evaluator in enumerate(evaluators)
        if isinstance(evaluator, JudgeEvaluator)
    }
    answers = dict(zip(asked, await stage.join(*asked.values()), strict=True)) if asked else {}
    evaluations: list[Evaluation] = []
    for index, evaluator in enumerate(evaluators):
        match evaluator:
            case ValueEvaluator():
                evaluations.append(await compute(stage, partial(evaluate_value, evaluator, result.data)))
            case FunctionEvaluator():
                evaluations.append(evaluate_function(evaluator, used, aliases))
            case JudgeEvaluator():
                match answers[index]:
                    case Ok(evaluation):
                        evaluations.append(evaluation)
                    case Unwound(cause):
                        evaluations.append(Evaluation(evaluator.name, "judge", False, cause.message or cause.code))
    return evaluations


async def _ask_judge(
    node: Node, evaluator: JudgeEvaluator, spec: doc.Node, workflow: doc.Workflow, result: AttemptResult, earlier: int
) -> Evaluation:
    """Ask one judge. ``earlier`` is the number of earlier evaluators with the same name, which have used its slots."""
    passing = evaluator.pass_when
    text = _JUDGE.format(
        rubric=evaluator.rubric,
        data=json_text(result.data),
        calls=_calls(result, previews=True),
        passing=passing,
        failing="no" if passing.lower() == "yes" else f"not_{passing}",
    )
    model = evaluator.model or spec.judge_model or workflow.judge_model or doc.JUDGE_MODEL
    request = ModelRequest(model=model, messages=[user(text)])
    first = 1 + earlier * JUDGE_TRIES_MAX
    slot = f"judge.{encode_id(evaluator.name)}"
    return _read(evaluator, await judge(node, slot, request, evaluator.name, first, passing=passing))


def _read(evaluator: JudgeEvaluator, answer: Judgement) -> Evaluation:
    if answer.word is None:
        why = f": {answer.failure.message}" if answer.failure else ""
        return verdict(evaluator.name, "judge", [f"{PARSE_FAILURE}{why}"])
    passed = answer.word.lower() == evaluator.pass_when.lower()
    reasoning = answer.reasoning or (None if passed else f"the verdict is {answer.word!r}")
    return Evaluation(evaluator.name, "judge", passed, shorten(reasoning) if reasoning else None)


def _calls(result: AttemptResult, *, previews: bool) -> str:
    if not result.calls:
        return "(none)"
    lines: list[str] = []
    for call in result.calls:
        line = f"- {call.use.tool} [{'error' if call.error else 'success'}]"
        if previews:
            answer = call.error.message if call.error else json_text(call.output)
            line += f" input={_preview(json_text(call.use.input))} output={_preview(answer)}"
        lines.append(line)
    return "\n".join(lines)


def _preview(text: str) -> str:
    return text if len(text) <= PREVIEW_CHARS_MAX else f"{text[:PREVIEW_CHARS_MAX]}…"


async def feedback(node: Node, spec: doc.Node, model: str | None, instruction: str, result: AttemptResult) -> str:
    """Make the preamble of a retry: the failures, with the author's text or a model's reflection if there is one."""
    failures = "\n".join(evaluation.line() for evaluation in result.failing)
    plain = f"{failures}\n\n{DEFAULT_ADVICE}"
    match spec.retry.instruction if spec.retry else None:
        case None:
            return plain
        case str(text):
            return f"{text}\n\n{failures}"
        case doc.AutoFeedback():
            question = _DEFAULT_QUESTION
        case doc.ReflectFeedback(reflect=reflect):
            question = reflect
    text = _REFLECT.format(
        instruction=instruction,
        failures=failures,
        calls=_calls(result, previews=False),
        data=json_text(result.data),
        question=question,
    )
    messages: list[Message] = [user(text)]
    outcome = await ask(node, "reflect", ModelRequest(purpose="reflect", model=model, messages=messages))
    if isinstance(outcome, Failed):
        node.warn("REFLECTION_FAILED", f"reflection failed, the plain list is used: {outcome.error.message}")
        return plain
    if not outcome.value:
        node.warn("REFLECTION_EMPTY", "reflection gave no text, the plain list is used")
        return plain
    return f"{outcome.value}\n\n{failures}"
