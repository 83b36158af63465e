"""The dialogue of HUMAN_IN_THE_LOOP: the message, the answers until one counts, the warning, and the timeout."""

from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any, Literal

from callboard.bus.effects import Failure
from callboard.bus.paths import interaction_id
from callboard.languages.graph.document import RESULT, TIMEOUT
from callboard.languages.graph.human.classification import classify
from callboard.languages.graph.human.decisions import (
    Decided,
    FreeText,
    Reading,
    Unfit,
    label_of_default,
    read,
)
from callboard.languages.graph.human.forms import schema_of
from callboard.languages.graph.human.interaction import Interaction, interaction_of
from callboard.languages.graph.human.review import VoteTally
from callboard.languages.graph.times import after, iso, ms
from callboard.languages.graph.work import NodeAttempt, NodeFailed, Outcome, Outputs, Suspend
from callboard.languages.language import Answered, Ask, Failed, Instant, Ok, Question
from callboard.lib.json_types import JSON

WARNING_S = 15 * 60.0
"""How long before the timeout the node warns the person, once."""

DECIDED = Failure("graph.decided", "the question is closed", type="cancellation")
"""The cause with which the activities of a closed question are cancelled."""

UNSENT = "graph.message_unsent"
"""The code of the warning that a message was not sent."""

UNLINKED = "graph.message_without_link"
"""The code of the warning that a message offers no way to answer."""

_TEXTS = {
    "approved": "Your approval has been recorded. Thank you.",
    "rejected": "Your decision has been recorded. Thank you.",
    "completed": "Your response has been recorded. Thank you.",
    "timeout": "No response came in time; the request is closed.",
    "warning": "This request is still open and will time out in 15 minutes.",
}
"""The texts of messages for which the node has no text."""

_NAMES: dict[str, tuple[str, ...]] = {
    "confirmed": ("confirmed", "approved"),
    "rejected": ("rejected",),
    "unrelated": ("unrelated", "completed"),
    "timeout": ("timeout",),
}
"""The names under which a node may have the text that confirms an answer, by label."""

Purpose = Literal["request", "warning", "confirmation"]


async def ask(work: NodeAttempt, interaction: Interaction) -> Outputs:
    """Ask, and wait for the first answer that counts or the timeout; return the outputs of either.

    :raises NodeFailed: if no answer counted in time and the ``timeout_action`` is ``fail``
    """
    stage, node = work.stage, work.node
    asked_at = stage.now()
    due = after(asked_at, interaction.timeout_s)
    key = node.key("ask")
    async with node.question("ask", _question(interaction, due)) as question:
        beside = [stage.spawn(one) for one in _open_activities(work, interaction, asked_at, key)]
        tally = VoteTally(interaction.review)
        answers = _answer(work, interaction, question, asked_at, tally)
        raced = await stage.within(due, answers, node=node, slot="expiry")
        answered, label = raced.value if isinstance(raced, Ok) else (None, TIMEOUT)
        if answered is None:
            question.close("timeout", None, TIMEOUT)
        else:
            question.close("answered", answered.k, label)
        for task in beside:
            stage.cancel(task, DECIDED)
        await stage.join(*beside)
    if interaction.confirms:
        await _send(work, interaction, "confirmation", "confirmation", _confirmation(interaction, label), due, key)
    id = interaction_id(stage.info.execution_id, key)
    if answered is None:
        return _handle_expiry(work, interaction, id, asked_at)
    response = _all_members(answered)
    if interaction.review.names_people:
        own = response if isinstance(response, dict) else {}
        response = {**own, "reviews": list(tally.votes.values())}
    return _outputs(work, interaction, label, answered.user_response, response, id, asked_at)


def _question(interaction: Interaction, due: Instant) -> Ask:
    return Ask(
        question=interaction.message,
        type=interaction.type,
        options=interaction.options,
        channel_type=interaction.channel,
        request_data=interaction.request_data,
        timeout_at=due,
        timeout_action=interaction.timeout_action,
        schema=schema_of(interaction),
    )


async def _answer(
    work: NodeAttempt, interaction: Interaction, question: Question, asked_at: Instant, tally: VoteTally
) -> tuple[Answered, str]:
    """Wait for the answer that decides, and return it with its label.

    Record of every other that it counts, or why it does not.
    """
    while True:
        answered = await question.answer()
        found = await _read_answer(work, interaction, answered, asked_at)
        if isinstance(found, Decided):
            if tally.take(answered, found.label):
                return answered, found.label
            question.count_answer(answered.k, f"answer {answered.k} of {answered.by} counts: {tally.missing}")
            continue
        reasons = found.reasons if isinstance(found, Unfit) else ()
        question.not_understood(f"answer {answered.k} does not count: {'; '.join(reasons)}")


async def _read_answer(work: NodeAttempt, interaction: Interaction, answered: Answered, asked_at: Instant) -> Reading:
    """Read an answer; a model classifies free text, but only of a person whose answer can count."""
    response = _all_members(answered)
    if faults := interaction.review.find_faults(answered, response):
        return Unfit(tuple(faults))
    found = read(interaction, response)
    if isinstance(found, FreeText):
        found = await classify(work, interaction, answered, asked_at)
    return Decided(interaction.review.label_by_score(response, found.label)) if isinstance(found, Decided) else found


def _all_members(answered: Answered) -> JSON:
    """Return the members of the response together with those that its channel adds."""
    response, data = answered.user_response, answered.response_data
    if isinstance(data, dict) and (response is None or isinstance(response, dict)):
        return {**data, **(response or {})}
    return response


# -- messages ----------------------------------------------------------------------------------------------------------


def _open_activities(
    work: NodeAttempt, interaction: Interaction, asked_at: Instant, key: str
) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield the activities that run while the question is open: the message and the warning."""
    due = after(asked_at, interaction.timeout_s)
    yield _send(work, interaction, "request", "request", interaction.message, due, key)
    if interaction.timeout_s > WARNING_S:
        yield _warn(work, interaction, asked_at, due, key)


async def _warn(work: NodeAttempt, interaction: Interaction, asked_at: Instant, due: Instant, key: str) -> None:
    await work.node.sleep("warning", after(asked_at, interaction.timeout_s - WARNING_S), "warning")
    text = interaction.responses.get("warning", _TEXTS["warning"])
    await _send(work, interaction, "warning.message", "warning", text, due, key)


async def _send(
    work: NodeAttempt, interaction: Interaction, slot: str, purpose: Purpose, text: str, due: Instant, key: str
) -> None:
    """Send a message through the question's channel; the channel ``app`` needs none, since apps show the question."""
    if interaction.channel == "app":
        return
    request: dict[str, JSON] = {
        "purpose": purpose,
        "channel_type": interaction.channel,
        "channel_config": interaction.channel_config,
        "interaction": key,
        "interaction_type": interaction.type,
        "user_id": interaction.user_id,
        "message": text,
        "options": interaction.options,
        "timeout_at": iso(due),
    }
    outcome = await work.node.call(slot, "channel", request)
    if isinstance(outcome, Ok) and isinstance(outcome.value, dict) and outcome.value.get("answer_link") is False:
        reason = (
            f"the {purpose} went by {interaction.channel} without a link to answer by: set `http_url` for the worker"
        )
        work.node.warn(UNLINKED, f"{reason}; the page and `callboard answer` take the answer all the same")
    if isinstance(outcome, Failed):
        work.node.warn(UNSENT, f"the {purpose} was not sent by {interaction.channel}: {outcome.error.message}")


def _confirmation(interaction: Interaction, label: str) -> str:
    names = _NAMES[label] if interaction.type == "approval" or label == TIMEOUT else ("completed", *_NAMES[label])
    own = next((interaction.responses[name] for name in names if name in interaction.responses), None)
    if own is not None:
        return own
    return next((_TEXTS[name] for name in names if name in _TEXTS), _TEXTS["completed"])


# -- outputs -----------------------------------------------------------------------------------------------------------


def _outputs(
    work: NodeAttempt, interaction: Interaction, label: str, raw: JSON, response: JSON, id: str, asked_at: Instant
) -> Outputs:
    payload: dict[str, JSON] = {
        **(response if isinstance(response, dict) else {}),
        "content": work.inputs.get(RESULT),
        "ai_classification": label,
        "user_response": raw,
        "interaction_id": id,
    }
    return Outputs({RESULT: payload, label: payload}, _details(interaction, raw, asked_at))


def _handle_expiry(work: NodeAttempt, interaction: Interaction, id: str, asked_at: Instant) -> Outputs:
    """Carry out the node's ``timeout_action``."""
    match interaction.timeout_action:
        case "continue":
            more: dict[str, JSON] = {"timeout": True, "timeout_action": "continue"}
            made = _outputs(work, interaction, TIMEOUT, None, more, id, asked_at)
        case "default_response":
            response = interaction.default_response
            label = label_of_default(interaction, response)
            made = _outputs(work, interaction, label, response, response, id, asked_at)
        case _:
            message = f"no response within {interaction.timeout_s:g} seconds"
            details = {"reason": "timeout", "timeout": True, "timeout_action": "fail", "interaction_id": id}
            raise NodeFailed("graph.human_timeout", message, details=details, final=True)
    return made


def _details(interaction: Interaction, response: JSON, asked_at: Instant) -> dict[str, JSON]:
    return {"user_prompt": interaction.message, "user_response": response, "waiting_since": ms(asked_at)}


async def human(work: NodeAttempt) -> Outcome:
    """HUMAN_IN_THE_LOOP: check the configuration like any work, then ask while the execution waits."""
    return Suspend(partial(ask, work, await work.compute(interaction_of)))
