"""Near misses of playbooks have line, column and the correct form. Other texts give no warning."""

import json

import pytest

from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.events import Problem
from callboard.languages.plan import Definition, Plan
from callboard.languages.playbook.language import LANGUAGE
from callboard.languages.playbook.near_misses import PROBLEMS_MAX, near_misses
from callboard.languages.playbook.parse import parse
from tests.docs.test_schemas import validator
from tests.support.places import ROOT

INPUTS = """## INPUTS

- `who` (string: Ada): Who
- `size` (enum: small, large): How large
- `ok` (boolean: true): Whether
"""


def find_near_misses(body: str) -> list[Problem]:
    """Return the near misses of a playbook, whose body begins at line 1."""
    source = f"{body}\n\n{INPUTS}"
    return near_misses(source, parse(source).playbook)


def find_in_step(body: str) -> list[Problem]:
    """Return the near misses of a step's text, which begins at line 5."""
    return find_near_misses(f"# T\n\n## STEP 1: One\n\n{body}")


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("## Step 1: Greet", "## STEP 1: Greet"),
        ("## STEP 1 - Greet", "## STEP 1: Greet"),
        ("## STEP 1:", "## STEP 1: Title"),
        ("##STEP 1: Greet", "## STEP 1: Greet"),
        ("# STEP 1: Greet", "## STEP 1: Greet"),
        ("### Step 1A: Greet", "### STEP 1a: Greet"),
        ("## Inputs:", "## INPUTS"),
        ("## ARTIFACT", "## ARTIFACTS"),
        ("## OUTPUTS", "## OUTPUT"),
    ],
)
def test_a_misspelled_heading_is_a_near_miss(heading: str, expected: str) -> None:
    [one] = find_near_misses(f"# T\n\n## STEP 1: One\n\nDo.\n\n{heading}\n")
    assert (one.code, one.line, one.column, one.expected) == ("NEAR_HEADING", 7, 1, expected)


def test_a_playbook_without_steps_is_refused_with_its_misspelled_headings() -> None:
    found = LANGUAGE.parse("# T\n\n## Step 1: Greet\n\nGreet.\n")
    assert isinstance(found, list)
    assert [(one.code, one.line, one.severity) for one in found] == [
        ("NO_STEPS", None, "error"),
        ("NEAR_HEADING", 3, "warning"),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("@Output(x)", "@output(x)"),
        ("@output (x)", "@output(x)"),
        ("@output(my-var)", "@output(my_var)"),
        ("@output(x, json)", "@output(x: json)"),
        ('@output(x: json, extract: "f")', '@output(x: json, extract:"f")'),
        ("@output x", "@output(x)"),
        ("@ouput(x)", "@output(x)"),
        ("@output()", "@output(name)"),
        ("@tool(inv)", '@tool(inv, tool, {"argument": "value"})'),
        ("@Tool(inv, look)", "@tool(inv, look)"),
        ("@elicit(confirm, 'Sure?')", '@elicit(confirm, "Sure?")'),
        ("@elicit(select, Which one, a, b)", '@elicit(select, "Which one", "a", "b")'),
        ("@elicit(confirm, “Sure?”)", '@elicit(confirm, "Sure?")'),
        ('@elicit("Sure?")', '@elicit(input, "Sure?")'),
        ("@Prompt(library:x)", "@prompt(library:x)"),
    ],
)
def test_a_misspelled_directive_is_a_near_miss(line: str, expected: str) -> None:
    [one] = find_in_step(f"  {line}")
    assert (one.code, one.line, one.column, one.expected) == ("NEAR_DIRECTIVE", 5, 3, expected)
    assert find_in_step(str(one.expected)) == []


@pytest.mark.parametrize("line", ["Sum up. @output(x)", "- @output(x)"])
def test_a_directive_after_other_text_is_a_near_miss(line: str) -> None:
    [one] = find_in_step(line)
    assert (one.code, one.column) == ("NEAR_DIRECTIVE", line.index("@") + 1)
    assert one.expected == "@output(x) on a separate line"


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        ("```if who = 'Ada'```", '```if who == "Ada"```'),
        ('``` if who == "Ada" ```', '```if who == "Ada"```'),
        ('```if {{who}} == "Ada"```', '```if who == "Ada"```'),
        ('```else if who != "Ada"```', '```elif who != "Ada"```'),
        ("```Else```", "```else```"),
        ("```end```", "```endif```"),
        ("```end if```", "```endif```"),
        ("```if who```", '```if name == "value"```, one comparison of a name with a text'),
    ],
)
def test_a_misspelled_marker_is_a_near_miss(marker: str, expected: str) -> None:
    [one] = find_in_step(marker)
    assert (one.code, one.line, one.expected) == ("NEAR_MARKER", 5, expected)


IF, ELSE, ENDIF = '```if who == "Ada"```', "```else```", "```endif```"


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        ([IF, "a", ENDIF, IF, "b", ENDIF], 8, "has a block already, until line 7"),
        ([IF, "a", IF, "b", ENDIF], 7, "the block of line 5 is still open"),
        ([ELSE, "a"], 5, "so ```else``` is dropped"),
    ],
)
def test_a_block_that_does_not_count_is_warned_of(lines: list[str], line: int, message: str) -> None:
    [one] = find_in_step("\n".join(lines))
    assert (one.code, one.line, message in one.message) == ("BRANCH_BLOCK", line, True)


def test_text_that_is_lost_in_a_branch_is_warned_of() -> None:
    [lost] = find_in_step("\n".join([IF, "", "Lost.", "### STEP 1a: A", "a", ENDIF]))
    assert (lost.code, lost.line, lost.expected) == ("LOST_TEXT", 7, "### STEP 1a: Title, in front of it")
    [unlettered] = find_in_step("\n".join([IF, "### STEP 1: A", "a", ENDIF]))
    assert (unlettered.code, unlettered.line, unlettered.expected) == ("LOST_TEXT", 6, "### STEP 1a: Title")
    [unread] = find_in_step("\n".join([IF, "a", ELSE, "@output(x)", ENDIF]))
    assert (unread.code, unread.line, unread.expected) == ("LOST_TEXT", 8, "### STEP 1b: Title, in front of it")


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ('size == "smal"', "did you mean 'small'?"),
        ('size != "medium"', "always holds"),
        ('ok == "maybe"', "never holds"),
        ('kind == "critical"', "never holds"),
        ('__elicit_step_1 == "Yes"', "did you mean 'yes'?"),
        ('answer == "true"', "never holds"),
        ('who == "{{size}}"', "as it is written"),
    ],
)
def test_a_condition_on_an_impossible_value_is_warned_of(condition: str, hint: str) -> None:
    asking = '# T\n\n## STEP 1: Ask\n\n@elicit(confirm, "Sure?")\n@output(answer)\n\n'
    typed = '## STEP 2: Judge\n\nJudge.\n@output(kind: enum, "low", "high")\n\n'
    [one] = find_near_misses(f"{asking}{typed}## STEP 3: Go\n\n```if {condition}```\na\n{ENDIF}\n")
    assert (one.code, one.line, hint in one.message) == ("CONDITION_VALUE", 15, True)
    assert one.column == f"```if {condition}```".index('"') + (2 if "{{" in condition else 1)


def test_a_placeholder_that_is_not_filled_in_is_warned_of() -> None:
    found = find_near_misses(
        '# T\n\n## SYSTEM\n\nYou help {{who}}.\n\n## STEP 1: A\n\n@elicit(input, "How is {{ who }}?")\n'
    )
    assert [(one.code, one.line, one.column) for one in found] == [
        ("UNFILLED_PLACEHOLDER", 5, 10),
        ("UNFILLED_PLACEHOLDER", 9, 24),
    ]


@pytest.mark.parametrize(("text", "expected"), [("{{ who }}", "{{who}}"), ("{{who.name}}", "{{who}}")])
def test_malformed_placeholders_are_warned_of(text: str, expected: str) -> None:
    [one] = find_in_step(f"Greet {text}.")
    assert (one.code, one.line, one.column, one.expected) == ("UNFILLED_PLACEHOLDER", 5, 7, expected)


def test_an_environment_variable_that_is_not_filled_in_is_warned_of() -> None:
    [one] = find_in_step('@tool(desk, look, {"token": "${DESK_TOKEN}"})')
    assert (one.code, one.column) == ("UNFILLED_VARIABLE", 30)
    found = LANGUAGE.parse("# T\n\n## STEP 1: A\n\n@tool(desk, look)\n")
    assert isinstance(found, Definition)
    server = {"type": "mcp", "name": "desk", "url": "https://example.com/"}
    odd = {"env": {"T": "${DESK}"}, "headers": {"A": "${{ secrets.DESK }}", "B": "Bearer ${DESK}"}}
    start = StartRun(DefinitionSource("playbook"), options={"connections": {"desk": {**server, **odd}}})
    plan = LANGUAGE.admit(found, start)
    assert isinstance(plan, Plan)
    assert [(one.code, one.where, one.expected) for one in plan.warnings] == [
        ("UNFILLED_VARIABLE", "options.connections.desk.env.T", "DESK"),
        ("UNFILLED_VARIABLE", "options.connections.desk.headers.A", "${DESK}"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        "Say `@Output(x)` and mail ada@output.org (twice).",
        "```json\n@Output(x)\n## Step 1\n```",
        "@mention(x) says hello to @elicitation",
        "### Step 1: A part of the prompt\n\n#### Step 1b of it",
        'Write {{who}}, {{other}} and {{who:string:x}} with ``` fences\n\n```if size == "small"```\na\n```endif```',
        '```if ok == "yes"```\n### STEP 1a: A\na\n@output(x)\n```else```\nb\n```endif```\n\n@output(y)',
    ],
)
def test_literal_text_is_not_warned_of(body: str) -> None:
    assert find_in_step(body) == []


def test_examples_and_templates_have_no_near_misses() -> None:
    root = ROOT
    for path in [*(root / "examples").rglob("*.md"), *(root / "languages" / "playbook" / "templates").rglob("*.md")]:
        source = path.read_text(encoding="utf-8")
        if "## STEP 1: " in source:
            assert near_misses(source, parse(source).playbook) == [], path


def test_the_number_of_near_misses_is_limited() -> None:
    lines = ["@Output(x)"] * 5_000 + [" @output(" * 10_000]
    assert len(find_in_step("\n".join(lines))) == PROBLEMS_MAX


def test_the_schema_refuses_placeholders_that_are_not_filled_in() -> None:
    step = {"number": 1, "label": "1", "title": "A", "elicitation": {"type": "input", "prompt": "How is {{who}}?"}}
    assert not validator("playbook").is_valid({"title": "T", "steps": [step]})
    plain = json.loads(json.dumps(step).replace("{{who}}", "Ada"))
    assert validator("playbook").is_valid({"title": "T", "steps": [plain]})
    assert not validator("playbook").is_valid({"title": "T", "steps": [plain], "system_prompt": "You are {{who}}."})
