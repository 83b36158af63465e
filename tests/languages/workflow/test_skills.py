"""Skills: definitions, configuration, files, servers and the tools of a node (checklist 30–43, 50, 51)."""

import json
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.languages.plan import Needs
from callboard.languages.skills.skill import Skill, aliases
from callboard.languages.skills.skill_files import discover, read_skill_file
from callboard.runtime.client.errors import RequestRefused
from callboard.testing import Scenario, ToolSpec, fails
from tests.support.workflows import LOOK, admitted, document, run, scripted_skill

ONCE = {
    "turns": {"a": [{"tool_calls": [{"tool": "look", "input": {}}]}, {"text": "done"}]},
    "tools": {"look": [{"output": 1}]},
}


def skill_file(name: str = "standards", body: str = "Be tidy.", **front: Any) -> str:
    lines = "".join(f"{key}: {value}\n" for key, value in front.items())
    return f"---\nname: {name}\n{lines}---\n\n{body}\n"


def test_33_only_tools_of_the_listed_skills_are_offered() -> None:
    skills = [scripted_skill("s", "look", "find"), scripted_skill("t", "write")]
    ran = run(document({"a": {"skills": ["s"]}, "b": {}}, [("a", "b")]), options={"skills": skills})
    assert ran.tools() == ["look", "find"]
    assert ran.tools("b#1.1!turn.1") == []
    assert len(ran.toolboxes()) == 1


def test_32_a_run_continues_without_a_skill_whose_configuration_is_missing() -> None:
    needy = scripted_skill(
        "needy", "look", instruction="Expert.", config={"KEY": {"description": "d", "required": True, "env": "API_KEY"}}
    )
    raw = document({"a": {"skills": ["needy", "s"]}})
    options = {"skills": [needy, scripted_skill("s", "find")]}
    assert admitted(raw, options=options).needs == Needs(skills={"needy": ["API_KEY"]}, environment=["API_KEY"])

    without = run(raw, options=options, env={})
    assert without.end.status == "completed"
    assert without.tools() == ["find"]
    assert "Expert." not in without.text("a#1.1!turn.1")
    assert without.warnings() == ["SKILL_UNAVAILABLE"]

    there = run(raw, options=options, env={"API_KEY": "k"})
    assert there.tools() == ["look", "find"]


def test_31_an_override_comes_before_the_environment_and_an_empty_one_does_not_count() -> None:
    config = {"KEY": {"description": "d", "required": True, "env": "API_KEY"}}
    raw = document({"a": {"skills": ["s"]}})
    skills = [scripted_skill("s", "look", config=config)]
    given = admitted(raw, options={"skills": skills, "config": {"KEY": "secret"}})
    assert given.needs.skills == {}
    assert "secret" not in str(given.options)
    empty = {"skills": skills, "config": {"KEY": ""}}
    assert [warning.code for warning in admitted(raw, options=empty).warnings] == ["SKILL_UNAVAILABLE"]
    assert run(raw, options=empty).tools() == []


def test_32_a_skill_with_a_value_that_nothing_can_provide_is_unavailable() -> None:
    skills = [scripted_skill("s", "look", config={"KEY": {"description": "d", "required": True}})]
    assert run(document({"a": {"skills": ["s"]}}), options={"skills": skills}).tools() == []


def test_35_python_tools_get_the_variables_of_their_configuration() -> None:
    tool = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}, "python": LOOK}
    config = {
        "KEY": {"description": "d", "required": True, "env": "API_KEY"},
        "URL": {"description": "d", "env": "API_URL"},
        "OTHER": {"description": "d"},
    }
    raw = document({"a": {"skills": ["s"]}})
    options = {"skills": [scripted_skill("s", tools=[tool], config=config)], "config": {"OTHER": "o"}}
    wanted = {"type": "python", "functions": {"look": LOOK}}
    ran = run(raw, options=options)
    assert ran.toolboxes() == [[{**wanted, "config": {"KEY": "${API_KEY}", "URL": "${API_URL}", "OTHER": "${OTHER}"}}]]
    lacking = run(raw, options=options, env={"API_KEY": "k"})
    assert lacking.toolboxes() == [[{**wanted, "config": {"KEY": "${API_KEY}", "OTHER": "${OTHER}"}}]]
    assert admitted(raw, options=options).needs.skills == {"s": ["API_KEY"], "s.URL": ["API_URL"]}


def test_34_a_declared_schema_holds_for_python_tools() -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    tool = {"name": "look", "description": "Look closely.", "input_schema": schema, "python": LOOK}
    turns = [
        {"tool_calls": [{"tool": "look", "input": {"q": 3}}, {"tool": "look", "input": {"q": "x"}}]},
        {"text": "done"},
    ]
    options = {"skills": [scripted_skill("s", tools=[tool])]}
    script = {"turns": {"a": turns}, "tools": {"look": [{"output": {"hits": 1}}]}}
    ran = run(document({"a": {"skills": ["s"]}}), script, options=options)
    [offered] = ran.calls["a#1.1!turn.1"].tools
    assert (offered.description, offered.input_schema) == ("Look closely.", schema)
    assert [call.input for call in ran.of(ev.ToolCall)] == [{"q": "x"}]
    assert ran.told("a#1.1!turn.2") == ["tool.invalid_input", {"hits": 1}]
    assert ran.end.results["a"]["toolCalls"] == [
        {"tool": "look", "input": {"q": 3}},
        {"tool": "look", "input": {"q": "x"}, "output": {"hits": 1}},
    ]


def test_36_the_model_reads_the_failure_of_a_tool_and_the_node_continues() -> None:
    script = {**ONCE, "tools": {"look": [{"error": "rate limited"}]}}
    ran = run(document({"a": {"skills": ["s"]}}), script, options={"skills": [scripted_skill("s", "look")]})
    assert ran.status("a") == "success"
    assert ran.end.results["a"]["toolCalls"] == [{"tool": "look", "input": {}}]
    assert ran.told("a#1.1!turn.2") == ["tool.failed"]


def test_38_a_custom_skill_replaces_expertise_and_server_but_not_tools() -> None:
    registered = scripted_skill("s", "look", instruction="Old.", mcp={"command": "old"})
    files = {".claude/skills/s/SKILL.md": skill_file("s", "New.", mcp="{command: new, args: [-x]}")}
    raw = document({"a": {"skills": ["s"]}})
    ran = run(raw, options={"skills": [registered]}, files=files, servers={"s": [ToolSpec("m")]})
    assert ran.tools() == ["look", "m"]
    assert ran.toolboxes()[0][1] == {"type": "mcp", "name": "s", "command": ["new", "-x"]}
    assert "New." in ran.text("a#1.1!turn.1")
    assert "Old." not in ran.text("a#1.1!turn.1")


def test_an_inline_skill_does_not_replace_a_registered_one() -> None:
    raw = document(
        {"a": {"skills": ["s", "mine"]}}, skills={"s": {"instruction": "Inline."}, "mine": {"instruction": "Mine."}}
    )
    ran = run(raw, options={"skills": [scripted_skill("s", "look", instruction="Registered.")]})
    text = ran.text("a#1.1!turn.1")
    assert "## Skill: S\n\nRegistered." in text
    assert "## Skill: mine\n\nMine." in text
    assert "Inline." not in text


def test_39_a_skill_file_is_preferred_by_its_folder() -> None:
    files = {
        ".gemini/skills/s/SKILL.md": skill_file("s", "Gemini."),
        ".agents/skills/s/SKILL.md": skill_file("s", "Agents."),
        "./.sweny/skills/s/SKILL.md": skill_file("s", "Sweny."),
        ".claude/skills/t/SKILL.md": skill_file("t", "Claude."),
        ".claude/skills/t/notes/SKILL.md": "not a skill",
        "skills/u/SKILL.md": skill_file("u"),
    }
    skills, warnings = discover(files)
    assert [(skill.id, skill.instruction) for skill in skills] == [("s", "Sweny."), ("t", "Claude.")]
    assert [warning.code for warning in warnings] == ["DUPLICATE_SKILL", "DUPLICATE_SKILL"]


def test_40_fields_of_a_skill_file_and_their_defaults() -> None:
    skill, problems = read_skill_file(skill_file(), "x")
    assert problems == []
    assert skill is not None
    assert skill.model_dump(exclude_none=True, exclude_defaults=True) == {
        "id": "standards",
        "name": "standards",
        "description": "Custom skill: standards",
        "category": "general",
        "instruction": "Be tidy.",
    }
    full = skill_file(
        description="Ours.",
        category="git",
        config="{TOKEN: {description: A token., required: true}}",
        mcp="{url: 'https://x.test/mcp', headers: {Authorization: 'Bearer ${TOKEN}'}}",
    )
    skill, problems = read_skill_file(full, "x")
    assert skill is not None
    assert (skill.description, skill.category, skill.config["TOKEN"].env) == ("Ours.", "git", "TOKEN")
    assert read_skill_file(skill_file(category="fun"), "x")[0] is not None


def test_40_an_invalid_skill_file_is_ignored_with_a_warning() -> None:
    for text in (
        "no front matter",
        "---\n- a\n---\nbody",
        "---\ndescription: nameless\n---\nbody",
        skill_file("Not An Id"),
        skill_file("empty", ""),
        "---\nname: x\nname: y\n---\nbody",
        skill_file(mcp="{args: [x]}"),
    ):
        skill, [problem] = read_skill_file(text, ".sweny/skills/x/SKILL.md")
        assert skill is None
        assert (problem.code, problem.severity) == ("INVALID_SKILL_FILE", "warning")


def test_41_and_42_an_mcp_server_is_opened_for_its_node_only_with_variables_by_name() -> None:
    raw = document(
        {"a": {"skills": ["books"]}, "b": {}},
        [("a", "b")],
        skills={"books": {"mcp": {"command": "books", "args": ["-v"], "env": {"BOOKS_KEY": "the key"}}}},
    )
    ran = run(raw, servers={"books": [ToolSpec("look_up"), ToolSpec("list")]})
    wanted = {"type": "mcp", "name": "books", "command": ["books", "-v"], "env": {"BOOKS_KEY": "BOOKS_KEY"}}
    assert ran.toolboxes() == [[wanted]]
    assert ran.tools() == ["look_up", "list"]
    assert admitted(raw).needs.skills == {"books": ["BOOKS_KEY"]}


def test_a_server_that_cannot_be_opened_fails_the_node_like_its_agent() -> None:
    down = {"books": fails("tool.unavailable", "books is down")}
    skills = {"books": {"mcp": {"command": "books"}}}
    ran = run(document({"a": {"skills": ["books"]}}, skills=skills), servers=down)
    assert (ran.status("a"), ran.data("a")) == ("failed", {"error": "books is down"})
    soft = run(document({"a": {"skills": ["books"], "fail_soft": True}}, skills=skills), servers=down)
    assert (soft.status("a"), soft.data("a")) == ("success", {"error": "books is down", "fail_soft": True})


def test_51_tools_are_filtered_by_allow_and_then_by_deny() -> None:
    skills = [scripted_skill("s", "look", "find", "write")]

    def offer(tools: dict[str, Any]) -> tuple[list[str], list[str]]:
        raw = document({"a": {"skills": ["s", "books"], "tools": tools}}, skills=books)
        ran = run(raw, options={"skills": skills}, servers=servers)
        assert ran.end.status == "completed"
        return ran.tools(), ran.warnings()

    books = {"books": {"mcp": {"command": "books"}}}
    servers = {"books": [ToolSpec("look_up"), ToolSpec("burn")]}
    assert offer({"deny": ["write", "burn"]}) == (["look", "find", "look_up"], [])
    assert offer({"allow": ["look", "find", "burn"], "deny": ["find"]}) == (["look", "burn"], [])
    assert offer({"allow": ["look", "lok"]}) == (["look"], ["TOOL_FILTER_UNMATCHED"])
    assert offer({"deny": ["look", "find", "write", "look_up", "burn"]}) == ([], [])


def test_51_a_filtered_tool_cannot_be_called() -> None:
    books = {"books": {"mcp": {"command": "books"}}}
    turns = [{"tool_calls": [{"tool": "burn", "input": {}}]}, {"text": "done"}]
    raw = document({"a": {"skills": ["books"], "tools": {"deny": ["burn"]}}}, skills=books)
    ran = run(raw, {"turns": {"a": turns}}, servers={"books": [ToolSpec("look_up"), ToolSpec("burn")]})
    assert ran.of(ev.ToolCall) == []
    assert ran.told("a#1.1!turn.2") == ["tool.unknown"]


def test_50_disallowed_tools_do_not_touch_skills() -> None:
    raw = document({"a": {"skills": ["s"], "disallowed_tools": ["look", "Bash"]}})
    assert run(raw, ONCE, options={"skills": [scripted_skill("s", "look")]}).tools() == ["look"]


def test_the_first_listed_skill_provides_a_tool_of_several_skills() -> None:
    skills = [scripted_skill("s", "look"), scripted_skill("t", "look", "find")]
    ran = run(document({"a": {"skills": ["t", "s", "t"]}}), options={"skills": skills})
    assert ran.tools() == ["look", "find"]
    assert [len(source["tools"]) for source in ran.toolboxes()[0]] == [2]


def test_nats_tools_are_grouped_by_subject() -> None:
    tools = [
        {"name": name, "description": name, "input_schema": {"type": "object"}, "nats": subject}
        for name, subject in (("a1", "svc.a"), ("b1", "svc.b"), ("a2", "svc.a"))
    ]
    ran = run(document({"a": {"skills": ["s"]}}), options={"skills": [scripted_skill("s", tools=tools)]})
    served = {source["subject"]: [tool["name"] for tool in source["tools"]] for source in ran.toolboxes()[0]}
    assert served == {"svc.a": ["a1", "a2"], "svc.b": ["b1"]}


def test_aliases_are_symmetric_and_transitive_and_ambiguous_ones_are_ignored() -> None:
    def skill(skill_id: str, groups: dict[str, list[str]]) -> Skill:
        return Skill.model_validate(scripted_skill(skill_id, "t", mcpAliases=groups))

    groups, contested = aliases(
        [skill("x", {"a": ["b"], "b": ["c"]}), skill("y", {"d": ["e", "f"]}), skill("z", {"g": ["f"]})]
    )
    assert contested == ["f"]
    assert groups["a"] == groups["b"] == groups["c"] == {"a", "b", "c"}
    assert groups["d"] == {"d", "e"}
    assert groups["g"] == {"g"}


# -- files with invalid YAML -------------------------------------------------------------------------------------------

LOOSE = """---
name: review
description: Reviews a change. Triggers on: /review, /check # and more
argument-hint: [file] [--deep]
globs: *.ts
compatibility: either: way
  or: another
category: git
---

Look closely.
"""


def test_a_value_that_is_invalid_yaml_is_read_literally_with_a_warning() -> None:
    skill, warnings = read_skill_file(LOOSE, ".claude/skills/review/SKILL.md")
    assert skill is not None
    assert skill.description == "Reviews a change. Triggers on: /review, /check # and more"
    assert (skill.category, skill.instruction) == ("git", "Look closely.")
    literal = [(one.where, one.message.split()[0]) for one in warnings if one.code == "SKILL_FIELD_LITERAL"]
    file = 'files[".claude/skills/review/SKILL.md"]'
    assert literal == [
        (f"{file}:3:43", "description"),
        (f"{file}:4:23", "argument-hint"),
        (f"{file}:5:9", "globs"),
        (f"{file}:6:22", "compatibility"),
    ]
    assert {one.severity for one in warnings} == {"warning"}
    assert warnings[0].expected == "quotes around a text with ': ' in it, and lines of one object to begin alike"


@pytest.mark.parametrize(
    "value", ['"quoted" and bar', "'open", "@team: x", "`code`: y", "100%: z", "a: b: c", "\ta: b"]
)
def test_any_value_on_one_line_is_read(value: str) -> None:
    skill, _warnings = read_skill_file(f"---\nname: x\ndescription: {value}\n---\nbody", "x")
    assert skill is not None
    assert skill.description == value.strip()


@pytest.mark.parametrize(
    ("front", "line", "message"),
    [
        ("name: x\nconfig:\n  A: {description: [}", 4, ""),
        ("name: x\nname: y", 3, "name"),
        ("name: x\nmcp: {url: 'https://x.test', type: sse}", 3, "'sse' is the transport"),
        ("name: x\n\tdescription: y", 3, "found character"),
    ],
)
def test_an_unreadable_skill_file_is_refused_with_its_line(front: str, line: int, message: str) -> None:
    skill, [problem] = read_skill_file(f"---\n{front}\n---\nbody", "x")
    assert skill is None
    assert problem.code == "INVALID_SKILL_FILE"
    assert problem.where.startswith(f'files["x"]:{line}:')
    assert message in problem.message


def test_a_start_whose_skill_cannot_be_read_is_refused_unless_the_skill_is_optional() -> None:
    files = {".claude/skills/review/SKILL.md": "---\nname: x\nname: y\n---\nbody"}
    raw = document({"a": {"skills": ["review"]}})
    [problem] = admitted(raw, files=files).objections
    assert (problem.code, problem.severity) == ("INVALID_SKILL_FILE", "error")
    assert problem.where == 'files[".claude/skills/review/SKILL.md"]:3:1'
    with Scenario() as scenario, pytest.raises(RequestRefused):
        scenario.start(source=json.dumps(raw), script={"default": {"text": "ok"}}, files=files)
    unused = admitted(document({"a": {}}), files=files)
    defined = admitted({**raw, "skills": {"review": {"instruction": "Look."}}}, files=files)
    optional = admitted({**raw, "skills": {"review": {"optional": True}}}, files=files)
    for plan in (unused, defined, optional):
        assert plan.objections == ()
        assert "INVALID_SKILL_FILE" in [one.code for one in plan.warnings]
    assert "UNKNOWN_SKILL" in [one.code for one in optional.warnings]
