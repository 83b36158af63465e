"""The text of playbooks: the public vectors, and the rules of the parser that no vector covers."""

from pathlib import Path
from typing import Any

import pytest

from callboard.languages.playbook.document import Playbook, Step, to_vector_form
from callboard.languages.playbook.findings import BYTES_MAX
from callboard.languages.playbook.parse import Parsed, parse
from tests.support.conformance import WITH_DATA
from tests.support.playbooks import compared, expected_of, vectors

HEAD = "# T\n\n"


def parse_valid(source: str) -> Playbook:
    parsed = parse(source)
    assert parsed.playbook is not None, parsed.problems
    return parsed.playbook


def parse_clean(source: str) -> Playbook:
    assert parse(source).problems == []
    return parse_valid(source)


def find_steps(parsed: Parsed) -> list[Step]:
    assert parsed.playbook is not None, parsed.problems
    return parsed.playbook.steps


def parse_step(body: str) -> Step:
    return parse_valid(f"{HEAD}## STEP 1: One\n\n{body}\n").steps[0]


def find_problems(parsed: Parsed) -> list[tuple[str, int | None]]:
    return [(problem.code, problem.line) for problem in parsed.problems]


def with_inputs(*lines: str) -> str:
    return HEAD + "## INPUTS\n\n" + "\n".join(lines) + "\n\n## STEP 1: One\n\nDo.\n"


@WITH_DATA
@pytest.mark.parametrize("path", vectors())
def test_a_public_vector_is_parsed_as_expected(path: Path) -> None:
    expected = expected_of(path)
    parsed = parse(path.read_text(encoding="utf-8"))
    assert expected["valid"] == (parsed.playbook is not None)
    found = to_vector_form(parsed.playbook) if parsed.playbook is not None else None
    assert compared(expected["definition"], found)
    warnings = {(warning.message, warning.line) for warning in parsed.warnings}
    assert {(warning["message"], warning["line"]) for warning in expected["warnings"]} == warnings
    assert {error["message"] for error in expected["errors"]} <= {error.message for error in parsed.errors}


# -- the document ------------------------------------------------------------------------------------------------------


def test_the_size_is_counted_in_bytes() -> None:
    room = BYTES_MAX - len(f"{HEAD}## STEP 1: One\n")
    full = f"{HEAD}## STEP 1: One\n" + "é" * (room // 2) + "x" * (room % 2)
    assert len(full.encode()) == BYTES_MAX
    assert parse_clean(full).steps[0].content.startswith("éé")
    assert find_problems(parse(full + "x")) == [("TOO_LARGE", None)]


@pytest.mark.parametrize("source", ["", " \n\t\n", "\ufeff", "\r\n"])
def test_an_empty_document_is_refused(source: str) -> None:
    assert find_problems(parse(source)) == [("EMPTY", None)]


def test_half_of_a_surrogate_pair_is_refused() -> None:
    assert find_problems(parse("# T\ud800\n## STEP 1: One\n")) == [("NOT_UNICODE", None)]


def test_all_errors_are_reported_together() -> None:
    source = "## INPUTS\n- `a` (string)\n- `a` (text)\n* b\n## Step 1: no\n"
    assert find_problems(parse(source)) == [
        ("NO_TITLE", None),
        ("NO_STEPS", None),
        ("DUPLICATE_INPUT", 3),
        ("MALFORMED_INPUT", 4),
    ]


def test_line_ends_and_a_byte_order_mark_do_not_matter() -> None:
    plain = "# T\n\nAbout.\n\n## STEP 1: One\n\nDo\nit.\n\n@output(x)\n"
    for other in (plain.replace("\n", "\r\n"), plain.replace("\n", "\r"), "\ufeff" + plain):
        assert to_vector_form(parse_clean(other)) == to_vector_form(parse_clean(plain))


def test_only_line_feeds_end_lines() -> None:
    assert parse_step("a\u2028## b\x0b## c\x85d").content == "a\u2028## b\x0b## c\x85d"


# -- titles and sections -----------------------------------------------------------------------------------------------


def test_a_heading_begins_in_column_one_and_has_a_blank() -> None:
    playbook = parse_clean("#No\n # Nor this\n#\t T \n##NO\n ## STEP 9: no\n##\tSTEP 1:\tOne \n###STEP\n")
    assert (playbook.title, playbook.description) == ("T", "##NO\n ## STEP 9: no")
    assert (playbook.steps[0].title, playbook.steps[0].content, playbook.steps[0].line) == ("One", "###STEP", 6)


def test_later_titles_are_text() -> None:
    playbook = parse_clean("drop\n# T\nA\n# B\n### C\n## STEP 1: One\n# D\n")
    assert (playbook.title, playbook.description) == ("T", "A\n# B\n### C")
    assert playbook.steps[0].content == "# D"


def test_a_title_in_a_section_does_not_split_it() -> None:
    playbook = parse_clean("## STEP 1: One\nA\n# T\nB\n")
    assert (playbook.title, playbook.description, playbook.steps[0].content) == ("T", "", "A\nB")


def test_sections_are_known_in_any_case_and_order() -> None:
    playbook = parse_clean(
        "# T\n## output\ntype: json\n## STEP 1: One\nDo {{a}}.\n## Notes\n@output(no)\n## System  Prompt\n"
        "first\n## inputs\n- `a` (string)\n## sYSTEM\n\n last \n"
    )
    assert (playbook.artifact_type, playbook.system_prompt) == ("json", "last")
    assert [one.name for one in playbook.inputs] == ["a"]
    assert playbook.steps[0].output_var == ""


@pytest.mark.parametrize(
    "heading",
    ["## Step 1: A", "## STEP 1 : A", "## STEP 1:A", "## STEP 1:", "## STEP 1: ", "## STEP 1a: A", "## STEP: A",
     "## STEP one: A", "## SYSTEMS", "## STEP ١: A"],
)  # fmt: skip
def test_an_unknown_section_is_ignored(heading: str) -> None:
    playbook = parse_clean(f"# T\n## STEP 1: One\nDo.\n{heading}\n@output(x)\n- `a` (string)\n")
    assert [step.title for step in playbook.steps] == ["One"]
    assert playbook.steps[0].content == "Do."


def test_code_fences_have_no_meaning() -> None:
    playbook = parse_clean("# T\n## STEP 1: One\n```\n@output(x)\n## STEP 2: Two\n```\n")
    assert [(step.content, step.output_var) for step in playbook.steps] == [("```", "x"), ("```", "")]


def test_a_title_may_have_colons_and_a_number_leading_zeros() -> None:
    step = parse_clean("# T\n## STEP 01: a: b: c\n").steps[0]
    assert (step.number, step.label, step.title) == (1, "1", "a: b: c")


@pytest.mark.parametrize(
    ("numbers", "warned"),
    [((1, 2, 3), []), ((1, 3, 5), [(2, 3), (4, 5)]), ((1, 1, 2), [(2, 1)]), ((2, 3), [(1, 2)]), ((0,), [(1, 0)]),
     ((3, 2, 1), [(1, 3), (4, 2), (3, 1)])],
)  # fmt: skip
def test_each_number_is_compared_with_the_one_before(numbers: tuple[int, ...], warned: list[tuple[int, int]]) -> None:
    parsed = parse("# T\n" + "".join(f"## STEP {number}: S\n" for number in numbers))
    found = [f"Non-sequential step number: expected {expected}, got {got}" for expected, got in warned]
    assert [warning.message for warning in parsed.warnings] == found
    assert [step.number for step in find_steps(parsed)] == list(numbers)


# -- inputs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("- `a` (string)", {"type": "string", "required": True}),
        ("  -\t`A_1`  (STRING: x): Told ", {"name": "A_1", "default": "x", "description": "Told", "required": False}),
        ("- `a` (num: 0)", {"type": "number", "default": "0", "required": False}),
        ("- `a` (Bool: false)", {"type": "boolean", "default": "false", "required": False}),
        ("- `a` (string: \"x\")", {"default": '"x"', "required": False}),
        ("- `a` (string: 10:30)", {"default": "10:30", "required": False}),
        ("- `a` (string: )", {"default": "", "required": True}),
        ("- `a` (json: {})", {"type": "string", "default": "{}", "required": False}),
        ("- `a` (whatever)", {"type": "string", "required": True}),
        ("- `a` ( )", {"type": "string", "required": True}),
        ("- `a` (choice: X , y,, )", {"type": "enum", "options": ["X", "y"], "default": "", "required": True}),
        ("- `a` (enum)", {"type": "enum", "options": [], "required": True}),
        ("- `a` (text):x", {"type": "text", "description": "x"}),
    ],
)  # fmt: skip
def test_an_input_has_name_type_default_and_description(line: str, expected: dict[str, Any]) -> None:
    [found] = parse_clean(with_inputs(line)).inputs
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.line == 5


@pytest.mark.parametrize(
    "line",
    ["- a (string)", "- `1a` (string)", "- `_a` (string)", "- `a-b` (string)", "-`a` (string)", "- `a`(string)",
     "- `a` string", "- `a` (string):", "- `a` (string) : x", "- `a` (string) x", "- `a` ()", "* `a` (string)",
     "- `a` (f(x)): y", "---", "**bold**"],
)  # fmt: skip
def test_a_malformed_input_is_warned_about(line: str) -> None:
    parsed = parse(with_inputs(line, "Some words.", "+ `b` (string)"))
    assert find_problems(parsed) == [("MALFORMED_INPUT", 5)]
    assert parsed.playbook is not None
    assert parsed.playbook.inputs == []


def test_names_are_case_sensitive_and_the_last_section_counts() -> None:
    playbook = parse_clean(with_inputs("- `a` (string)", "- `A` (string)") + "## INPUTS\n- `a` (text)\n")
    assert [(one.name, one.type) for one in playbook.inputs] == [("a", "text")]


# -- content and directives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "content"),
    [
        ("A\n\n@output(x)\n\nB", "A\n\nB"),
        ("A\n@output(x)\nB", "A\nB"),
        ("A\n\n@output(x)\nB", "A\n\nB"),
        ("A\n\n@elicit(input, \"?\")\n\n@output(x)\n\nB", "A\n\nB"),
        ("A\n\n\n\nB\n\n@output(x)\n", "A\n\n\n\nB"),
        ("\n@output(x)\n\nA  \n\t\nB\t", "A\n\nB"),
        ("  A\n   B", "A\n   B"),
        ("say @output(x) now", "say @output(x) now"),
        ("@Output(x)", "@Output(x)"),
        ("@output(my-var)", "@output(my-var)"),
        ("@output()", "@output()"),
        ("@elicit()", "@elicit()"),
        ("@prompt()", "@prompt()"),
        ("- @output(x)", "- @output(x)"),
        ("@tool(only)", ""),
    ],
)  # fmt: skip
def test_the_content_of_a_step_has_no_directives(body: str, content: str) -> None:
    assert parse_step(body).content == content


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("@output(x)", ("x", None, [], "")),
        ("  @output(9)  ", ("9", None, [], "")),
        ("@output(x : INT)", ("x", "number", [], "")),
        ("@output(x: json)", ("x", "json", [], "")),
        ("@output(x: thing)", ("x", "string", [], "")),
        ('@output(x: choice, "a b",  "c,d")', ("x", "enum", ["a b", "c,d"], "")),
        ('@output(x, "a")', ("x", None, ["a"], "")),
        ('@output(x, extract:"f_1")', ("x", None, [], "f_1")),
        ('@output(x: enum, "a", extract:"f")', ("x", "enum", ["a"], "f")),
        ('@output(x: json)\n@output(y, extract:"f")', ("y", None, [], "f")),
        ('@output(y, extract:"f")\n@output(x: json)', ("x", "json", [], "")),
    ],
)  # fmt: skip
def test_an_output_has_name_type_options_and_field(line: str, expected: tuple[Any, ...]) -> None:
    step = parse_step(line)
    assert (step.output_var, step.output_type, step.output_options, step.extract_field) == expected


@pytest.mark.parametrize(
    "line",
    ['@output(x, extract: "f")', '@output(x, extract:"f", "a")', "@output(x:)", "@output(x: number )",
     "@output(x: enum, 'a')", '@output(x, extract:"a-b")', "@output (x)"],
)  # fmt: skip
def test_a_malformed_output_is_text(line: str) -> None:
    step = parse_step(line)
    assert (step.content, step.output_var) == (line, "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('@elicit(input, "What?")', ("input", "What?", [])),
        ('@elicit(CONFIRM, "Go, (really)?")', ("confirm", "Go, (really)?", [])),
        ('@elicit(select, "Which?", "a, b", "it\'s")', ("select", "Which?", ["a, b", "it's"])),
        ("@elicit(select, 'Which?', 'a')", ("select", "", [])),
        ("@elicit(confirm)", ("confirm", "", [])),
        ('@elicit(input, "a")\n@elicit(select, "b", "c")', ("select", "b", ["c"])),
    ],
)  # fmt: skip
def test_a_question_has_type_prompt_and_options(line: str, expected: tuple[Any, ...]) -> None:
    asked = parse_step(line).elicitation
    assert asked is not None
    assert (asked.type, asked.prompt, asked.options) == expected


def test_a_question_of_an_unknown_type_is_text_with_a_warning() -> None:
    parsed = parse(f'{HEAD}## STEP 1: One\n@elicit(dropdown, "?")\n')
    assert find_problems(parsed) == [("ELICIT_TYPE", 4)]
    [step] = find_steps(parsed)
    assert (step.content, step.elicitation) == ('@elicit(dropdown, "?")', None)


@pytest.mark.parametrize(
    ("line", "reference", "warned"),
    [
        ("@prompt(library:a-b)", "library:a-b", []),
        ("@prompt(file:a/{{x}}.md)", "file:a/{{x}}.md", []),
        ("@prompt(mcp:server/name)", "mcp:server/name", []),
        ("@prompt(bare name)", "bare name", []),
        ("@prompt({{x}})", "{{x}}", []),
        ("@prompt(wiki:page:1)", "wiki:page:1", ["PROMPT_SCHEME"]),
        ("@prompt(a)\n@prompt(b)", "b", []),
    ],
)
def test_a_prompt_reference_is_read(line: str, reference: str, warned: list[str]) -> None:
    parsed = parse(f"{HEAD}## STEP 1: One\n{line}\n")
    found = find_steps(parsed)[0].prompt_ref
    assert found is not None
    assert (found.prompt_id, [problem.code for problem in parsed.problems]) == (reference, warned)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("@tool(a, b)", ("a", "b", "")),
        ("@tool( a-1.x ,b_2 )", ("a-1.x", "b_2", "")),
        ('@tool("My Server", "the tool", {"a": [1, 2], "b": "x, y"})',
         ("My Server", "the tool", '{"a": [1, 2], "b": "x, y"}')),
        ('@tool("a, b", c, {"n": {{n}}})', ("a, b", "c", '{"n": {{n}}}')),
        ("@tool(a, b, )", ("a", "b", "")),
        ("@tool(a, b)\n@tool(c, d, {})", ("c", "d", "{}")),
        ("@tool(a, b)\n@tool(c)", ("a", "b", "")),
    ],
)  # fmt: skip
def test_a_tool_call_has_connection_tool_and_arguments(line: str, expected: tuple[str, str, str]) -> None:
    call = parse_step(line).tool_call
    assert call is not None
    assert (call.connection_name, call.tool_name, call.arguments) == expected


@pytest.mark.parametrize("line", ["@tool(a)", "@tool(a,)", "@tool(, b)", "@tool(,)"])
def test_a_tool_call_without_two_names_is_removed(line: str) -> None:
    step = parse_step(f"Do.\n{line}")
    assert (step.content, step.tool_call) == ("Do.", None)


# -- branches ----------------------------------------------------------------------------------------------------------

BLOCK = """Above.

```if  a=="x"```

### STEP 1a: A

In a. @output(x)
@output(first)

### STEP 1b: B

```elif a   !=  "y" ```
### STEP 1c: C

@elicit(confirm, "Go?")

```else```

### STEP 1d: D

In d.

```endif```

Below.

@output(whole)"""


def parse_branches(block: str, declared: str = "- `a` (string)") -> Parsed:
    return parse(f"# T\n## INPUTS\n{declared}\n## STEP 1: One\n{block}\n")


def test_a_block_has_branches_with_sub_steps() -> None:
    parsed = parse_branches(BLOCK)
    assert parsed.problems == []
    [step] = find_steps(parsed)
    assert (step.content, step.output_var, step.is_branching) == ("Above.\n\nBelow.", "whole", True)
    tests = [branch.condition and (branch.condition.operator, branch.condition.value) for branch in step.branches]
    assert tests == [("==", "x"), ("!=", "y"), None]
    labels = [[(one.label, one.number, one.content) for one in branch.steps] for branch in step.branches]
    assert labels == [[("1a", 1, "In a. @output(x)"), ("1b", 1, "")], [("1c", 1, "")], [("1d", 1, "In d.")]]
    assert [one.line for branch in step.branches for one in branch.steps] == [9, 14, 17, 23]
    assert step.branches[0].steps[0].output_var == "first"


@pytest.mark.parametrize(
    "marker",
    ["``` if a == \"x\"```", "```if a = \"x\"```", "```if a == 'x'```", "```if a > \"1\"```", "```if a == x```",
     "```if a == \"x\" and b == \"y\"```", "```if a == \"x\"``", "```IF a == \"x\"```", "x ```if a == \"x\"```"],
)  # fmt: skip
def test_a_malformed_marker_is_text(marker: str) -> None:
    step = parse_step(marker)
    assert (step.content, step.is_branching) == (marker, False)


def test_markers_without_an_if_are_removed() -> None:
    parsed = parse_branches('A\n```elif a == "x"```\nB\n```else```\nC\n```endif```\nD')
    assert (find_steps(parsed)[0].content, find_steps(parsed)[0].is_branching) == ("A\nB\nC\nD", False)


def test_an_unclosed_block_loses_its_last_branch() -> None:
    parsed = parse_branches('```if a == "x"```\n### STEP 1a: A\n```else```\n### STEP 1b: B\nText.')
    [step] = find_steps(parsed)
    assert [[one.label for one in branch.steps] for branch in step.branches] == [["1a"]]
    alone = parse_branches('Text.\n```if b == "x"```\n### STEP 1a: A\n@output(y)')
    assert find_problems(alone) == [("UNDECLARED_VARIABLE", 6)]
    step = find_steps(alone)[0]
    assert (step.content, step.is_branching, step.branches, step.output_var) == ("Text.", True, [], "")


def test_two_blocks_of_a_step_are_one_and_an_inner_block_ends_the_outer() -> None:
    one = '```if a == "{}"```\n### STEP 1{}: S\n'
    for between in ("", "```endif```\nMore.\n"):
        parsed = parse_branches(one.format("x", "a") + between + one.format("y", "b") + "```endif```")
        assert parsed.problems == []
        branches = find_steps(parsed)[0].branches
        assert [[one.label for one in branch.steps] for branch in branches] == [["1a"], ["1b"]]


def test_a_branch_without_a_heading_is_one_sub_step() -> None:
    parsed = parse_branches('```if a == "x"```\n\n Do  \n@output(x)\n```else```\n```endif```')
    first, second = find_steps(parsed)[0].branches
    [step] = first.steps
    assert (step.label, step.title, step.content) == ("1a", "Branch a", "Do\n@output(x)")
    assert (step.output_var, step.line) == ("", 6)
    assert second.steps == []


def test_text_before_the_first_sub_step_is_lost() -> None:
    parsed = parse_branches(
        '```if a == "x"```\nLost.\n@output(lost)\n### Note\n### STEP 1a: A\n### Kept\n ### STEP 1b: No\n```endif```'
    )
    [branch] = find_steps(parsed)[0].branches
    assert [(one.label, one.content) for one in branch.steps] == [("1a", "### Kept\n ### STEP 1b: No")]


SOURCES = """# T

## STEP 1: One

@output(early)

## STEP 2: Two

@elicit(confirm, "?")
@output(same)

```if early == "x"```
### STEP 2a: A
@output(inner)
```elif same == "x"```
### STEP 2b: B
```elif __elicit_step_2 == "yes"```
### STEP 2c: C
```endif```

## STEP 3: Three

```if inner == "x"```
### STEP 3a: A
@elicit(input, "?")
```elif given == "x"```
### STEP 3b: B
```elif late == "x"```
### STEP 3c: C
```elif __elicit_step_3 == "x"```
### STEP 3d: D
```endif```

## STEP 4: Four

@output(late)

```if __elicit_step_3 == "x"```
### STEP 4a: A
```endif```

## INPUTS

- `given` (string)
- `inner` (string)
"""


def test_the_variable_of_a_condition_has_a_source() -> None:
    parsed = parse(SOURCES)
    assert find_problems(parsed) == [("UNDECLARED_VARIABLE", line) for line in (15, 28, 30)]
    tests = [branch.condition for step in find_steps(parsed) for branch in step.branches]
    assert [(test.variable, test.source) for test in tests if test] == [
        ("early", "step_output"),
        ("same", "input"),
        ("__elicit_step_2", "step_output"),
        ("inner", "input"),
        ("given", "input"),
        ("late", "input"),
        ("__elicit_step_3", "input"),
        ("__elicit_step_3", "step_output"),
    ]


# -- artifacts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "warned"),
    [
        ("type: markdown", "markdown", []),
        ("TYPE:HTML_CSS", "html_css", []),
        ("type: json\ntype: mermaid", "json", []),
        ("words\n  type: typescript  \nmore", "typescript", []),
        ("type: plain text", "", []),
        ("kind: json", "", []),
        ("type: PDF", "pdf", ["ARTIFACT_TYPE"]),
        ("type: {{Format}}", "{{Format}}", []),
    ],
)
def test_an_artifact_type_is_read(body: str, kind: str, warned: list[str]) -> None:
    parsed = parse(f"{HEAD}## STEP 1: One\nDo.\n## ARTIFACTS\n\n{body}\n")
    assert parsed.playbook is not None
    assert (parsed.playbook.artifact_type, [problem.code for problem in parsed.problems]) == (kind, warned)
    assert all("markdown, json, mermaid" in problem.message for problem in parsed.problems)
