"""Triggers of graphs: which of them accept requests, whether a request starts a run, and the data of that run."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from callboard.languages.graph.topology import Graph, GraphNode
from callboard.languages.triggers import Begun, Entrance, PassedOver, Proof, Received
from callboard.lib.json_types import JSON

# -- entrances ---------------------------------------------------------------------------------------------------------


_PROOFS: Mapping[str, Proof] = {
    "none": "none",
    "header_token": "header",
    "query_param": "query",
    "signature": "signature",
}
"""By the ``authentication`` of a webhook."""


def entrances(graph: Graph) -> list[Entrance]:
    """Return how requests from outside reach the triggers that a run begins with."""
    found = (graph.nodes[name] for name in graph.starts())
    return [_OPENED[node.subtype](node) for node in found if node.type == "TRIGGER" and node.subtype in _OPENED]


def _webhook_entrance(node: GraphNode) -> Entrance:
    # An unknown mode of authentication counts as the strictest one.
    proof = _PROOFS.get(str(node.setting("authentication")), "signature")
    methods = node.setting("allowed_methods")
    named = tuple(str(one).upper() for one in methods) if isinstance(methods, list) else ()
    wanted = node.setting("response_format")
    answer: Literal["json", "text", "html"] = "text" if wanted == "text" else "html" if wanted == "html" else "json"
    return Entrance(node.id, proof, str(node.setting("webhook_path") or ""), named or ("POST",), answer)


_OPENED: Mapping[str, Callable[[GraphNode], Entrance]] = {
    "WEBHOOK": _webhook_entrance,
    "GITHUB": lambda node: Entrance(node.id, "github"),
    "SLACK": lambda node: Entrance(node.id, "slack"),
    "EMAIL": lambda node: Entrance(node.id, "token"),
}


# -- starting runs -----------------------------------------------------------------------------------------------------


_BRANCH = "refs/heads/"
_ANY = ("", "*", "{{$placeholder}}")
"""Values of a configuration that accept everything."""

_Data = dict[str, Any]


class _NotMeant(Exception):
    """A trigger does not start a run for a request; the text says why."""


def match_triggers(graph: Graph, received: Received, trigger: str | None = None) -> list[Begun | PassedOver]:
    """Return for each trigger (or only those of one id or subtype) the start that a request leads to, or why none."""
    found = [node for name, node in graph.nodes.items() if node.type == "TRIGGER" and name in graph.starts()]
    chosen = [node for node in found if trigger is None or trigger in (node.id, node.subtype)]
    return [_match_trigger(node, received, alone=len(found) == 1) for node in chosen]


def _match_trigger(node: GraphNode, received: Received, *, alone: bool) -> Begun | PassedOver:
    try:
        data, id = _MAKERS[node.subtype](node, received)
    except _NotMeant as reason:
        return PassedOver(node.id, str(reason))
    at = int(received.at.timestamp() * 1000)
    trigger = {"trigger_type": node.subtype, "timestamp": at, **({"external_request_id": id} if id else {})}
    options: dict[str, Any] = {"trigger": trigger}
    if not alone:
        # The other triggers have no data, so the run begins at this one only.
        options["start_from_node"] = node.id
    return Begun(node.id, data, options, id)


# -- the subtypes -----------------------------------------------------------------------------------------------------


def _manual(node: GraphNode, received: Received) -> tuple[_Data, str]:
    given = received.body if isinstance(received.body, dict) else {"body": received.body}
    name = node.setting("trigger_name")
    return {"trigger_time": _time(received), "trigger_message": f"Started by {name}", **given}, ""


def _webhook(node: GraphNode, received: Received) -> tuple[_Data, str]:
    path = node.setting("webhook_path")
    if isinstance(path, str) and path.strip("/") != received.path.strip("/"):
        raise _NotMeant(f"its path is {path!r}, not {received.path!r}")
    _among(received.method.upper(), node.setting("allowed_methods"), "method")
    data = {
        "headers": dict(received.headers),
        "body": received.body,
        "query_params": dict(received.query),
        "method": received.method.upper(),
        "path": received.path,
        "timestamp": _time(received),
        "client_ip": received.client_ip,
    }
    return data, received.headers.get("webhook-id") or received.headers.get("idempotency-key", "")


def _github(node: GraphNode, received: Received) -> tuple[_Data, str]:
    body = _object(received)
    event = received.headers.get("x-github-event", "")
    repository = _text(body, "repository", "full_name")
    wanted = node.setting("repository")
    if wanted not in _ANY and str(wanted).lower() != repository.lower():
        raise _NotMeant(f"it is about the repository {wanted!r}, not {repository!r}")
    _among(event, node.setting("events"), "event")
    branch = _branch(body)
    branches = node.setting("branches")
    patterns = [str(one) for one in branches] if isinstance(branches, list) else []
    if branch and patterns and not any(fnmatchcase(branch, pattern) for pattern in patterns):
        raise _NotMeant(f"the branch {branch!r} is none of its branches")
    _check_conditions(node.setting("filter_conditions"), body)
    action = _text(body, "action")
    data = {
        "trigger_time": _time(received),
        "event_type": event,
        "repository": repository,
        "sender": _text(body, "sender", "login"),
        "branch": branch,
        "commit_sha": _commit(body),
        "trigger_message": f"GitHub: {event}{f' {action}' if action else ''} in {repository}",
        "github_payload": body if node.setting("include_payload") is not False else {},
    }
    return data, received.headers.get("x-github-delivery", "")


def _branch(body: _Data) -> str:
    ref = _text(body, "ref")
    if ref.startswith(_BRANCH):
        return ref.removeprefix(_BRANCH)
    return _text(body, "pull_request", "base", "ref") or _text(body, "workflow_run", "head_branch")


def _commit(body: _Data) -> str:
    places = (
        ("after",),
        ("pull_request", "head", "sha"),
        ("workflow_run", "head_sha"),
        ("release", "target_commitish"),
    )
    return next((found for place in places if (found := _text(body, *place))), "")


def _slack(node: GraphNode, received: Received) -> tuple[_Data, str]:
    body = _object(received)
    event = body.get("event")
    if not isinstance(event, dict):
        raise _NotMeant("the request has no event")
    workspace = node.setting("workspace_id")
    if workspace not in _ANY and workspace != _text(body, "team_id"):
        raise _NotMeant(f"it is about the workspace {workspace!r}, not {_text(body, 'team_id')!r}")
    if event.get("bot_id") or event.get("subtype") == "bot_message":
        # Otherwise the message that a workflow sends would start the next run.
        raise _NotMeant("its author is a bot")
    kind, text = _text(event, "type"), _text(event, "text")
    _among(kind, node.setting("events"), "event")
    item = event.get("channel") or (event["item"].get("channel") if isinstance(event.get("item"), dict) else None)
    channel = _read_id_and_name(item)
    channels = node.setting("channels")
    if isinstance(channels, list) and channels and not {f"#{channel[1]}", *channel} & {str(one) for one in channels}:
        raise _NotMeant(f"the channel {channel[0]!r} is none of its channels")
    _check_mention(text, node.setting("keywords"))
    user = _read_id_and_name(event.get("user"))
    data = {
        "trigger_time": _time(received),
        "event_type": kind,
        "channel_id": channel[0],
        "channel_name": channel[1],
        "user_id": user[0],
        "user_name": user[1],
        "message_text": text,
        "thread_ts": _text(event, "thread_ts") or _text(event, "ts"),
        "trigger_message": f"Slack: {kind}{f' in {channel[0]}' if channel[0] else ''}",
        "slack_payload": body,
    }
    return data, _text(body, "event_id")


def _email(node: GraphNode, received: Received) -> tuple[_Data, str]:
    mail = _object(received)
    sender, subject = _text(mail, "from"), _text(mail, "subject")
    allowed = node.setting("sender_whitelist")
    address = sender.rpartition("<")[2].rstrip(">").strip().lower()
    if isinstance(allowed, list) and allowed:
        names = {str(one).lower().removeprefix("@") for one in allowed}
        if not {address, address.rpartition("@")[2]} & names:
            raise _NotMeant(f"the sender {address!r} is none of its senders")
    _check_mention(subject, node.setting("subject_keywords"))
    _check_conditions(node.setting("filter_criteria"), mail)
    id = _text(mail, "id")
    data = {
        "trigger_time": _time(received),
        "email_id": id,
        "sender": sender,
        "recipient": _text(mail, "to"),
        "subject": subject,
        "body_text": _text(mail, "text"),
        "body_html": _text(mail, "html"),
        "attachments": _attachments(node, mail),
        "received_date": _text(mail, "date") or _time(received),
        "trigger_message": f"Mail from {address}: {subject}",
        "email_headers": mail.get("headers") if isinstance(mail.get("headers"), dict) else {},
    }
    return data, id


def _attachments(node: GraphNode, mail: _Data) -> list[JSON]:
    """Return the attachments of a mail whose type and size the trigger accepts."""
    given = mail.get("attachments")
    if node.setting("process_attachments") is False or not isinstance(given, list):
        return []
    types, largest = node.setting("attachment_types"), node.setting("max_attachment_size")
    endings = {str(one).lower().lstrip(".") for one in types} if isinstance(types, list) else set[str]()
    taken: list[JSON] = []
    for one in given:
        if not isinstance(one, dict):
            continue
        size = one.get("size")
        fits = not isinstance(size, int) or not isinstance(largest, int) or size <= largest
        if fits and (not endings or _text(one, "name").lower().rpartition(".")[2] in endings):
            taken.append(one)
    return taken


def _cron(_node: GraphNode, _received: Received) -> tuple[_Data, str]:
    raise _NotMeant("it starts runs by a schedule only: `callboard schedule add`")


_MAKERS: Mapping[str, Callable[[GraphNode, Received], tuple[_Data, str]]] = {
    "MANUAL": _manual,
    "WEBHOOK": _webhook,
    "GITHUB": _github,
    "SLACK": _slack,
    "EMAIL": _email,
    "CRON": _cron,
}


# -- conditions -------------------------------------------------------------------------------------------------------


def _among(found: str, wanted: JSON, what: str) -> None:
    if isinstance(wanted, list) and wanted and found not in wanted:
        raise _NotMeant(f"the {what} {found!r} is none of {', '.join(map(str, wanted))}")


def _check_mention(text: str, words: JSON) -> None:
    if isinstance(words, list) and words and not any(str(word).lower() in text.lower() for word in words):
        raise _NotMeant(f"none of {', '.join(map(str, words))} is mentioned")


def _check_conditions(conditions: JSON, data: _Data) -> None:
    """Compare members, by dotted path, with a value, or with a list of accepted values."""
    for path, wanted in conditions.items() if isinstance(conditions, dict) else ():
        found = _at(data, path.split("."))
        if found not in (wanted if isinstance(wanted, list) else [wanted]):
            raise _NotMeant(f"{path} is {found!r}")


# -- reading ----------------------------------------------------------------------------------------------------------


def _object(received: Received) -> _Data:
    if not isinstance(received.body, dict):
        raise _NotMeant("what came in is no JSON object")
    return received.body


def _at(data: JSON, path: Sequence[str]) -> JSON:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _text(data: JSON, *path: str) -> str:
    """Return the text at a path; empty if none exists."""
    found = _at(data, path)
    return found if isinstance(found, str) else ""


def _read_id_and_name(given: JSON) -> tuple[str, str]:
    """Return the id and the name of a value that is an id, or an object with both."""
    if isinstance(given, dict):
        return _text(given, "id"), _text(given, "name")
    return (given if isinstance(given, str) else ""), ""


def _time(received: Received) -> str:
    return received.at.astimezone(dt.UTC).isoformat()
