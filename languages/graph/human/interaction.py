"""The question of a HUMAN_IN_THE_LOOP node, read from its configurations; all their errors are reported together."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.human.review import CONTROLS, Review, review_of
from callboard.languages.graph.templates import is_placeholder
from callboard.languages.graph.work import NodeAttempt, NodeFailed, number
from callboard.lib.json_types import JSON

INTERACTION_TYPES = ("approval", "input", "selection", "review")
CHANNEL_TYPES = ("slack", "email", "webhook", "app")
TIMEOUT_ACTIONS = ("fail", "continue", "default_response")

TIMEOUT_S = 3600.0
TIMEOUT_MIN_S, TIMEOUT_MAX_S = 60, 86_400
"""The bounds of ``timeout_seconds``; the configurations that other subtypes use instead may exceed them."""

OWN_CHANNELS = {
    "SLACK_INTERACTION": "slack",
    "GMAIL_INTERACTION": "email",
    "OUTLOOK_INTERACTION": "email",
    "DISCORD_INTERACTION": "discord",
    "TELEGRAM_INTERACTION": "telegram",
    "TEAMS_INTERACTION": "teams",
    "IN_APP_APPROVAL": "app",
    "FORM_SUBMISSION": "app",
    "MANUAL_REVIEW": "app",
}
"""The channel of a subtype, if the node does not name one."""

TOKENS = ("bot_token", "telegram_bot_token", "discord_bot_token")
"""The configurations that hold the credential of a channel."""

_ALIASES = {"in_app": "app"}
_MESSAGES = (
    "message",
    "message_template",
    "clarification_question_template",
    "email_template",
    "review_description",
    "description",
)


class Interaction(Struct, frozen=True):
    """A question: its user, channel, message, timeout, and what happens after the timeout."""

    type: str
    channel: str
    message: str
    user_id: str
    timeout_s: float
    timeout_action: str
    options: list[JSON]
    default_response: dict[str, JSON]
    request_data: dict[str, JSON]
    channel_config: dict[str, JSON]
    responses: dict[str, str]
    analysis_model: str | None
    analysis_prompt: str
    confirms: bool
    review: Review


def interaction_of(work: NodeAttempt) -> Interaction:
    """Read a node's question.

    :raises NodeFailed: ``graph.invalid_configuration`` with all errors, ``graph.missing_user_id``
    """
    errors: list[str] = []
    type = _one_of(work, errors, "interaction_type", _own_type(work), INTERACTION_TYPES)
    channel = _channel(work, errors)
    action = _one_of(work, errors, "timeout_action", "fail", TIMEOUT_ACTIONS)
    timeout_s = _timeout(work, errors)
    listed = {name: _list(work, errors, name) for name in ("input_fields", "selection_options", "approval_options")}
    for wanted, name in (("input", "input_fields"), ("selection", "selection_options")):
        if type == wanted and not listed[name]:
            errors.append(f"{name} is required for the interaction type {wanted}")
    default = work.setting("default_response")
    if default is not None and not isinstance(default, dict):
        errors.append("default_response is no object")
    review = _review(work, errors)
    if errors:
        message = f"invalid_configuration: {'; '.join(errors)}"
        details = {"error_code": "invalid_configuration", "validation_errors": errors}
        raise NodeFailed("graph.invalid_configuration", message, details=details, final=True)
    if not work.context.user_id:
        message = "missing_user_id: neither trigger nor workflow say on whose behalf the execution is"
        raise NodeFailed("graph.missing_user_id", message, details={"error_code": "missing_user_id"}, final=True)
    text = _message(work)
    options = listed["selection_options"] if type == "selection" else listed["approval_options"]
    return Interaction(
        type=type,
        channel=channel,
        message=text,
        user_id=work.context.user_id,
        timeout_s=timeout_s,
        timeout_action=action,
        options=options if type in ("approval", "selection", "review") else [],
        default_response=dict(default) if isinstance(default, dict) else {},
        request_data=_request_data(work, type, text, listed, timeout_s, review),
        channel_config=_channel_config(work),
        responses=_responses(work),
        analysis_model=_text_or_none(work.spec.configurations.get("ai_analysis_model")),
        analysis_prompt=work.text("custom_analysis_prompt", "response_analysis_prompt"),
        confirms=work.setting("auto_reply_enabled") is not False,
        review=review,
    )


def _review(work: NodeAttempt, errors: list[str]) -> Review:
    """Return the conditions of the node's review."""
    given = work.spec.configurations
    rendered = {name: work.render(given[name]) for name in CONTROLS if name in given}
    review, faults = review_of(replace(work.spec, configurations={**given, **rendered}))
    errors += faults
    return review


def _own_type(work: NodeAttempt) -> str:
    return "review" if work.spec.subtype == "MANUAL_REVIEW" else "approval"


def _one_of(work: NodeAttempt, errors: list[str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = work.setting(name)
    if value is None:
        return default
    if value not in allowed:
        errors.append(f"{name} is {text_of(value)!r}, not one of {', '.join(allowed)}")
        return default
    return str(value)


def _channel(work: NodeAttempt, errors: list[str]) -> str:
    named = work.spec.configurations.get("channel_type")
    if named is None:
        return OWN_CHANNELS.get(work.spec.subtype, "slack")
    own = OWN_CHANNELS.get(work.spec.subtype)
    channel = _ALIASES.get(text_of(named), text_of(named))
    if channel not in (*CHANNEL_TYPES, own):
        errors.append(f"channel_type is {text_of(named)!r}, not one of {', '.join(CHANNEL_TYPES)}")
    return channel


def _timeout(work: NodeAttempt, errors: list[str]) -> float:
    given = work.spec.configurations
    if (seconds := given.get("timeout_seconds")) is not None:
        found = number(seconds, -1)
        if not TIMEOUT_MIN_S <= found <= TIMEOUT_MAX_S:
            errors.append(f"timeout_seconds is {text_of(seconds)}, not from {TIMEOUT_MIN_S} to {TIMEOUT_MAX_S}")
        return found
    for name, unit in (("timeout_minutes", 60.0), ("response_timeout", 1.0), ("review_deadline", 1.0)):
        if given.get(name) is not None:
            found = number(given[name]) * unit
            if found <= 0:
                errors.append(f"{name} is {text_of(given[name])}, not more than 0")
            return found
    return TIMEOUT_S


def _list(work: NodeAttempt, errors: list[str], name: str) -> list[JSON]:
    value = work.setting(name)
    if value is None:
        return ["approve", "reject"] if name == "approval_options" else []
    if not isinstance(value, list):
        errors.append(f"{name} is no list")
        return []
    return value


def _message(work: NodeAttempt) -> str:
    """Return the text of the question. ``{{content}}`` in it represents the content that the question is about."""
    given = next((name for name in _MESSAGES if work.spec.configurations.get(name)), None)
    written = work.setting(given) if given else work.setting(*_MESSAGES)
    variables = work.setting("template_variables")
    names: dict[str, Any] = work.render(variables) if isinstance(variables, dict) else {}
    text = text_of(work.render_with(written, {**_content(work), **names}))
    return text or work.text("title", "review_title", "email_subject") or "Please respond."


def _content(work: NodeAttempt) -> dict[str, JSON]:
    """Return the names by which a text refers to its content: ``content``, and the members of that."""
    data = work.data
    if not isinstance(data, dict) or "content" not in data:
        return {"content": data}
    content = data["content"]
    members = content if isinstance(content, dict) else {}
    return {**{name: value for name, value in members.items() if name not in data}, "content": content}


def _request_data(
    work: NodeAttempt, type: str, message: str, listed: dict[str, list[JSON]], timeout_s: float, review: Review
) -> dict[str, JSON]:
    fields = [one for one in listed["input_fields"] if isinstance(one, dict)]
    data: dict[str, JSON] = {
        "title": work.text("title", "review_title", "email_subject"),
        "description": work.text("description", "review_description"),
        "message": message,
        "user_id": work.context.user_id,
        "timeout_seconds": timeout_s,
        "required_fields": [one["name"] for one in fields if one.get("required") and one.get("name")],
    }
    if kind := work.spec.configurations.get("review_type"):
        data["review_type"] = kind
    if review.names_people:
        data |= {"reviewers": list(review.reviewers), "reviewer_roles": list(review.roles)}
        data["approvals"] = review.approvals
    if review.evidence:
        data["require_evidence"] = True
    if review.score is not None:
        data["score"] = dict(zip(("min", "max", "passing"), review.score, strict=True))
    match type:
        case "input":
            data["input_fields"] = listed["input_fields"]
        case "selection":
            data["selection_options"] = listed["selection_options"]
        case "review":
            data["review_criteria"] = work.setting("review_criteria") or []
        case _:
            data["approval_options"] = listed["approval_options"]
    return data


def _channel_config(work: NodeAttempt) -> dict[str, JSON]:
    """Return the destination of a message: the subtype's own configurations, overridden by ``channel_config``."""
    names = work.spec.spec.configurations if work.spec.spec is not None else {}
    own = {name: value for name, value in work.spec.configurations.items() if name in names}
    # A token counts also if the subtype's table does not declare it.
    own |= {name: work.spec.configurations[name] for name in TOKENS if name in work.spec.configurations}
    given = work.setting("channel_config")
    found = work.render({**own, **(given if isinstance(given, dict) else {})})
    for name in _MESSAGES:
        found.pop(name, None)
    unset = [name for name in TOKENS if name in found and is_placeholder(found[name])]
    return {name: value for name, value in found.items() if name not in unset}


def _responses(work: NodeAttempt) -> dict[str, str]:
    """Return the texts that confirm an answer, by its label."""
    found: dict[str, str] = {}
    for name in ("confirmation_messages", "response_messages"):
        given = work.setting(name)
        if isinstance(given, dict):
            found |= {str(key): text_of(work.render_with(text, _content(work))) for key, text in given.items()}
    return found


def _text_or_none(value: JSON) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
