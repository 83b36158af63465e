"""Configurations without effect: each key of the tables is read by the code of its node type, or is declared as unread.

Values that are set and have no effect are named by `validate`, at the start and in the run.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import callboard
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.languages.graph.language import LANGUAGE
from callboard.languages.graph.node_specs import NODE_TYPES, Field, NodeSpec, node_type
from callboard.languages.plan import Plan
from callboard.runtime.admission.definitions import Definitions
from tests.support.graphs import flow, graph, node, parsed, perform, webhook

ROOT = Path(callboard.__file__).parent

GRAPH = "languages/graph"

OF_EVERY_NODE = (f"{GRAPH}/visit.py", f"{GRAPH}/validate.py")

READERS: dict[str, tuple[str, ...]] = {
    "TRIGGER": (f"{GRAPH}/triggers.py",),
    "TRIGGER.CRON": (f"{GRAPH}/authoring.py",),
    "AI_AGENT": (
        f"{GRAPH}/runners/agent.py",
        f"{GRAPH}/turn_parameters.py",
        f"{GRAPH}/memory.py",
        "bus/model_names.py",
    ),
    "ACTION.HTTP_REQUEST": (f"{GRAPH}/runners/http_requests.py",),
    "ACTION.DATA_TRANSFORMATION": (f"{GRAPH}/runners/transformation.py",),
    "EXTERNAL_ACTION.SLACK": (f"{GRAPH}/runners/external.py", "actors/services/slack.py"),
    "EXTERNAL_ACTION.GITHUB": (f"{GRAPH}/runners/external.py", "actors/services/github.py"),
    "EXTERNAL_ACTION.NOTION": (f"{GRAPH}/runners/external.py", "actors/services/notion.py"),
    "EXTERNAL_ACTION.GOOGLE_CALENDAR": (f"{GRAPH}/runners/external.py", "actors/services/google.py"),
    "EXTERNAL_ACTION.FIRECRAWL": (f"{GRAPH}/runners/external.py", "actors/services/firecrawl.py"),
    "EXTERNAL_ACTION.DISCORD_ACTION": (f"{GRAPH}/runners/external.py", "actors/services/discord.py"),
    "EXTERNAL_ACTION.TELEGRAM_ACTION": (f"{GRAPH}/runners/external.py", "actors/services/telegram.py"),
    "FLOW": (f"{GRAPH}/runners/control_flow.py",),
    "FLOW.FILTER": (f"{GRAPH}/runners/item_filter.py",),
    "FLOW.SORT": (f"{GRAPH}/runners/sort_order.py",),
    "FLOW.WAIT": (f"{GRAPH}/runners/waiting.py",),
    "HUMAN_IN_THE_LOOP": (
        f"{GRAPH}/human/interaction.py",
        f"{GRAPH}/human/dialogue.py",
        f"{GRAPH}/human/review.py",
        "actors/kinds/channel.py",
    ),
    "MEMORY": (
        f"{GRAPH}/memory.py",
        f"{GRAPH}/runners/external.py",
        "actors/memory/conversation.py",
        "actors/memory/embedders.py",
        "actors/memory/keyvalue.py",
        "actors/memory/text_store.py",
    ),
    "TOOL": (f"{GRAPH}/tools.py", f"{GRAPH}/runners/external.py"),
}
"""The modules that read the configurations of a type of node, or of a subtype."""

COINCIDENCES = {
    ("FLOW", "MERGE", "timeout_seconds"): "control_flow.py reads it for TIMEOUT, and visit.py leaves MERGE out",
    ("TRIGGER", "WEBHOOK", "auth_token"): "validate.py refuses it if no request needs to be authenticated",
}
"""Keys without effect whose names occur in the code for another node."""

BUILT_NAMES = {("EXTERNAL_ACTION", "GOOGLE_CALENDAR", key) for key in ("start_datetime", "end_datetime")}
"""Keys whose names the code concatenates."""


def list_fields() -> Iterator[tuple[NodeSpec, str, Field]]:
    for name in NODE_TYPES:
        for spec in node_type(name).subtypes.values():
            for key, field in spec.configurations.items():
                yield spec, key, field


@cache
def find_texts(module: str) -> frozenset[str]:
    """Return all texts in the code of a module, without its docstrings."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    docstrings = {one.value for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    constants = (one for one in ast.walk(tree) if isinstance(one, ast.Constant) and one not in docstrings)
    return frozenset(one.value for one in constants if isinstance(one.value, str))


def is_read(spec: NodeSpec, key: str) -> bool:
    modules = READERS.get(f"{spec.type}.{spec.subtype}") or READERS[spec.type]
    return any(key in find_texts(module) for module in (*modules, *OF_EVERY_NODE))


def test_every_key_of_the_tables_is_read_or_declared_as_unread() -> None:
    unread = [
        f"{spec.type}.{spec.subtype}.{key}"
        for spec, key, field in list_fields()
        if field.effect == "" and not is_read(spec, key) and (spec.type, spec.subtype, key) not in BUILT_NAMES
    ]
    assert not unread, "read these keys, or declare `effect: none` (a control: `refused`) in spec_files/"


def test_no_key_that_is_read_is_declared_as_unread() -> None:
    read = {
        (spec.type, spec.subtype, key)
        for spec, key, field in list_fields()
        if field.effect in ("none", "refused") and is_read(spec, key)
    }
    assert read == COINCIDENCES.keys()


def test_the_members_that_are_read_or_refused_exist() -> None:
    for spec, key, field in list_fields():
        members = field.default if isinstance(field.default, dict) else field.options
        assert {*field.reads, *field.refused, *field.actual, *field.idle} <= {*members}, (spec.subtype, key)
        assert all(member in find_texts(f"{GRAPH}/runners/agent.py") for member in field.reads)


def agent(subtype: str = "OPENAI_CHATGPT", **configurations: Any) -> dict[str, Any]:
    own = {"model": "gpt-5-nano", "system_prompt": "Look.", "user_prompt": "What is it?", **configurations}
    return node("a", "AI_AGENT", subtype, **own)


def person(subtype: str, **configurations: Any) -> dict[str, Any]:
    return node("h", "HUMAN_IN_THE_LOOP", subtype, message="?", **configurations)


STORE: dict[str, Any] = {
    "database_provider": "supabase_pgvector",
    "database_url": "",
    "table_name": "",
    "vector_dimension": 1536,
}

SENT: dict[str, Any] = {"action_type": "send_message", "server_id": "1"}


def find_warnings(*nodes: dict[str, Any]) -> list[str]:
    found = parsed(graph([*nodes], triggers=[])).warnings
    return [one.message for one in found if one.code == "NO_EFFECT"]


@pytest.mark.parametrize(
    ("own", "names"),
    [
        (agent(multimodal_config={"enable_vision": True, "max_images": 5}), "multimodal_config.enable_vision"),
        (agent("ANTHROPIC_CLAUDE", output_processing={"parse_json": True}), "output_processing.parse_json"),
        (flow("l", "LOOP", loop_type="for_range", break_on_error=False), "break_on_error"),
        (flow("w", "WAIT", wait_type="webhook"), "wait_type"),
        (
            flow("f", "FILTER", conditions=[], filter_mode="include", filter_type="fuzzy_match"),
            "filter_type: fuzzy_match",
        ),
        (
            node("m", "MEMORY", "VECTOR_DATABASE", **STORE, embedding_model="text-embedding-3-small"),
            "embedding_model: text-embedding-3-small",
        ),
        (
            node("d", "EXTERNAL_ACTION", "DISCORD_ACTION", **SENT, retry_config={"max_retries": 9}),
            "retry_config.max_retries",
        ),
        (person("MANUAL_REVIEW", allow_delegation=True), "allow_delegation"),
        (person("IN_APP_APPROVAL", priority_level="high"), "priority_level"),
    ],
)
def test_a_configuration_without_effect_is_warned_of(own: dict[str, Any], names: str) -> None:
    [message] = find_warnings(own)
    assert f"): {names} " in message
    assert "no effect" in message
    assert f"{own['type']}.{own['subtype']}" in message


@pytest.mark.parametrize(
    "own",
    [
        agent(multimodal_config={"enable_vision": False, "max_images": 5}),
        flow("l", "LOOP", loop_type="for_range", break_on_error="true"),
        flow("w", "WAIT", wait_type="signal"),
        flow("f", "FILTER", conditions=[], filter_mode="include", filter_type="range_filter"),
        node("m", "MEMORY", "VECTOR_DATABASE", **STORE, embedding_model="openai/text-embedding-3-small"),
        webhook(auth_token=""),
        node("s", "TRIGGER", "SLACK", workspace_id="w", events=["message"], bot_token="{{$placeholder}}"),
        node("e", "TRIGGER", "EMAIL", email_provider="webhook", server_config={}, credentials={}),
        node("x", "TOOL", "EMAIL_TOOL", timezone="UTC+1", tool_name="t", args={"zone": "{{ $config.timezone }}"}),
        flow("i", "IF", condition_expression="true", timeout_seconds=7, threshold=3),
    ],
)
def test_defaults_and_values_that_templates_read_are_not_reported(own: dict[str, Any]) -> None:
    assert find_warnings(own) == []


@pytest.mark.parametrize(
    ("own", "name", "advice"),
    [
        (agent("ANTHROPIC_CLAUDE", safety_config={"pii_detection": True}), "safety_config.pii_detection", ""),
        (webhook(enabled=False), "enabled", "remove the node"),
        (webhook(auth_token="s3cret"), "auth_token", "authentication"),
        (flow("w", "WAIT", wait_type="approval"), "wait_type", "HUMAN_IN_THE_LOOP"),
        (person("TELEGRAM_INTERACTION", target_users=["7"]), "target_users", "reviewers"),
        (person("IN_APP_APPROVAL", allow_text_responses=False), "allow_text_responses", "selection"),
    ],
)
def test_a_control_that_nothing_enforces_refuses_the_start(own: dict[str, Any], name: str, advice: str) -> None:
    definition = parsed(graph([own], triggers=[]))
    plan = LANGUAGE.admit(definition, StartRun(DefinitionSource("graph")))
    assert isinstance(plan, Plan), "a run that was started before can still be replayed"
    found = Definitions().plan(DefinitionSource("graph", definition.source), StartRun(DefinitionSource("graph")))
    [problem] = definition.objections
    assert found == [problem]
    assert (problem.code, problem.severity) == ("UNENFORCED", "error")
    assert problem.where == f"nodes[0].configurations.{name.partition('.')[0]}"
    assert name in problem.message
    assert advice in problem.message


def test_a_run_warns_once_of_settings_without_effect_of_a_node_and_its_attached_nodes() -> None:
    tool = node("mcp", "TOOL", "SLACK_MCP_TOOL", mcp_server_url="http://localhost:1", use_oauth=False)
    one = {**agent(multimodal_config={"enable_vision": True}), "attached_nodes": ["mcp"]}
    nodes = [flow("each", "FOR_EACH"), one, tool]
    script = {"turns": {"a": [{"text": "a cat"}] * 2}}
    done = perform(graph(nodes, "each.iteration -> a", triggers=[]), ["x", "y"], script=script, start_from_node="each")
    warned = [(one.reason, one.fields) for one in done.of_type("node.warning") if one.code == "graph.no_effect"]
    assert [fields for _reason, fields in warned] == [["multimodal_config.enable_vision"], ["use_oauth"]]
    assert "of mcp" in warned[1][0]


def test_images_that_are_not_sent_are_warned_of_at_the_start_and_in_the_run() -> None:
    written = graph([node("t", "TRIGGER", "MANUAL"), agent()], "t -> a")
    given = {"images": ["data:image/png;base64,iVBORw0KGgo="]}
    plan = LANGUAGE.admit(parsed(written), StartRun(DefinitionSource("graph"), input=given))
    assert isinstance(plan, Plan)
    assert [(one.code, one.where) for one in plan.warnings] == [("NO_EFFECT", "input.images")]
    done = perform(written, given, script={"turns": {"a": [{"text": "nothing"}]}})
    assert [one.fields for one in done.of_type("node.warning")] == [["images"]]


def test_the_documentation_lists_the_configurations_without_effect() -> None:
    page = (Path(__file__).parents[3] / "docs" / "languages" / "graph.md").read_text(encoding="utf-8")
    section = page.partition("### Configurations without effect")[2].partition("\n### ")[0]
    listed = {
        (row[0], key)
        for line in section.splitlines()
        if (row := re.findall(r"`(\w+)`", line.partition("| no effect")[0])) and line.startswith("| ")
        for key in row[1:]
    }
    declared = {
        (spec.subtype, key)
        for spec, name, field in list_fields()
        for key in ((name,) if field.effect in ("none", "refused") else (name, *field.reads) if field.reads else ())
    }
    assert listed == declared
