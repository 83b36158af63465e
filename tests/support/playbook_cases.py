"""Cases of the execution chapter: playbooks, their answers, and the expected ends."""

from dataclasses import dataclass, field
from typing import Any

from tests.support.playbooks import Performance, Play


@dataclass(frozen=True)
class Expected:
    """The end of a run; None is not compared. ``prompts`` are the prompts of the model, in order."""

    output: str | None = None
    status: str = "completed"
    statuses: dict[str, str] | None = None
    named: dict[str, str] | None = None
    outputs: dict[str, str] | None = None
    prompts: list[str] | None = None
    warnings: list[str] = field(default_factory=list[str])
    error: str = ""
    """The code of the failure of the step, or of the run if no step failed."""
    artifact: str | None = None


Case = tuple[Play, Expected]


def check(done: Performance, expected: Expected) -> None:
    """Compare the end of a run with the expected one."""
    end = done.end
    assert end.status == expected.status, end
    if expected.outputs is not None:
        assert done.results["step_outputs"] == expected.outputs
    if expected.output is not None:
        assert end.output == expected.output
    if expected.statuses is not None:
        assert done.statuses == expected.statuses
    if expected.named is not None:
        assert done.named == expected.named
    if expected.prompts is not None:
        assert done.prompts == expected.prompts
    if expected.artifact is not None:
        assert done.results["artifact_type"] == expected.artifact
    assert done.warnings == expected.warnings
    failure = end.error.previous or end.error if end.error else None
    assert (failure.code if failure else "") == expected.error


def doc(*sections: str) -> str:
    """A playbook of these sections."""
    return "# T\n\n" + "\n\n".join(sections) + "\n"


def steps(*bodies: str) -> str:
    """The sections of steps that are numbered from 1."""
    return "\n\n".join(f"## STEP {number}: S{number}\n\n{body}" for number, body in enumerate(bodies, 1))


def declared(*lines: str) -> str:
    return "## INPUTS\n\n" + "\n".join(lines)


def block(*branches: tuple[str, str]) -> str:
    """A branch block: each branch its marker, such as ``if a == "x"``, and its body."""
    return "\n\n".join([*(f"```{marker}```\n\n{body}" for marker, body in branches), "```endif```"])


def sub(label: str, body: str) -> str:
    return f"### STEP {label}: Sub {label}\n\n{body}"


def says(**texts: str) -> dict[str, list[Any]]:
    """The answers of the model, by step; several answers have a bar between them. Names begin with an ``s``."""
    return {name[1:]: list(text.split("|")) for name, text in texts.items()}


A = "- `a` (string)"

LINEAR: dict[str, Case] = {
    "one step": (Play(doc(steps("Do.")), turns=says(s1="Done.")), Expected("Done.", prompts=["Do."])),
    "steps run in the order of the document": (
        Play(doc("## STEP 3: C\n\nc", "## STEP 1: A\n\na"), turns=says(s1="A", s3="C")),
        Expected("A", prompts=["c", "a"], outputs={"3": "C", "1": "A"}, statuses={"3": "completed", "1": "completed"}),
    ),
    "a repeated number": (
        Play(doc("## STEP 1: A\n\na", "## STEP 1: B\n\nb", "## STEP 2: C\n\nc"), turns=says(s1="A|B", s2="C")),
        Expected("C", prompts=["a", "b", "c"], outputs={"1": "B", "2": "C"}),
    ),
    "a step without a text is asked for by its title": (
        Play(doc("## STEP 1: Look around"), turns=says(s1="ok")),
        Expected("ok", prompts=["Look around"]),
    ),
    "an answer is kept as it is": (
        Play(doc(steps("Do.\n\n@output(x)", "{{x}}|")), turns={"1": [{"text": " a\n"}], "2": ["b"]}),
        Expected("b", prompts=["Do.", " a\n|"], named={"x": " a\n"}, outputs={"1": " a\n", "2": "b"}),
    ),
    "an empty answer is one": (
        Play(doc(steps("Do.\n\n@output(x)", "[{{x}}]")), turns={"1": [{"text": ""}], "2": ["b"]}),
        Expected("b", prompts=["Do.", "[]"], named={"x": ""}, outputs={"1": "", "2": "b"}),
    ),
    "data counts as its JSON": (
        Play(doc(steps("Do.")), turns={"1": [{"data": {"n": 1}}]}),
        Expected('{"n":1}'),
    ),
    "what fails stops the run": (
        Play(doc(steps("a", "b", "c")), turns={"1": ["A"], "2": [{"error": "overloaded"}]}),
        Expected(
            "A",
            "failed",
            {"1": "completed", "2": "failed", "3": "pending"},
            outputs={"1": "A"},
            error="model.overloaded",
        ),
    ),
    "an answer that is cut off is a failure": (
        Play(doc(steps("a")), turns={"1": [{"tool_calls": [{"tool": "x"}]}]}),
        Expected(None, "failed", {"1": "failed"}, error="agent.max_turns"),
    ),
}

NAMES: dict[str, Case] = {
    "values are texts": (
        Play(
            doc(
                declared(*(f"- `{name}` (string)" for name in "abcdef")),
                steps("{{a}} {{b}} {{c}} {{d}} {{e}} {{f}}"),
            ),
            {"a": "x", "b": True, "c": 5, "d": 0.5, "e": [1, {"k": "ü"}], "f": ""},
            says(s1="ok"),
        ),
        Expected("ok", prompts=['x true 5 0.5 [1,{"k":"ü"}] ']),
    ),
    "defaults": (
        Play(
            doc(declared("- `a` (number: 5)", "- `b` (string: x)", "- `c` (string: y)"), steps("{{a}}{{b}}{{c}}")),
            {"b": "given", "c": None},
            says(s1="ok"),
        ),
        Expected("ok", prompts=["5giveny"]),
    ),
    "hints and inline defaults": (
        Play(
            doc(declared(A), steps("{{a:string:no}} {{b:number:7}} {{c:string:}}| {{d:text}} {{a:text}} {{e:x:a b}}")),
            {"a": "A"},
            says(s1="ok"),
        ),
        Expected("ok", prompts=["A 7 | {{d:text}} A a b"], warnings=["UNRESOLVED_PLACEHOLDER"]),
    ),
    "what nothing is known of stays": (
        Play(doc(steps("{{x}} {{ y }} {{}} {{x}}")), turns=says(s1="ok")),
        Expected("ok", prompts=["{{x}} {{ y }} {{}} {{x}}"], warnings=["UNRESOLVED_PLACEHOLDER"]),
    ),
    "values are put in once and as they are": (
        Play(doc(declared(A, "- `b` (string)"), steps("{{a}}")), {"a": r"{{b}} \1 $& \g<0>", "b": "B"}, says(s1="ok")),
        Expected("ok", prompts=[r"{{b}} \1 $& \g<0>"]),
    ),
    "an input beats an output, an output an inline default": (
        Play(
            doc(declared(A), steps("One.\n\n@output(a)", "Two.\n\n@output(b)", "{{a}} {{b:string:no}}")),
            {"a": "in"},
            says(s1="out", s2="B", s3="ok"),
        ),
        Expected("ok", prompts=["One.", "Two.", "in B"], named={"a": "out", "b": "B"}),
    ),
    "a name is known from the next step on": (
        Play(doc(steps("{{x}}\n\n@output(x)", "{{x}}")), turns=says(s1="X", s2="ok")),
        Expected("ok", prompts=["{{x}}", "X"], warnings=["UNRESOLVED_PLACEHOLDER"]),
    ),
    "a later output takes the place of an earlier one": (
        Play(doc(steps("a\n@output(x)", "{{x}}\n@output(x)", "{{x}}")), turns=says(s1="1", s2="2", s3="3")),
        Expected("3", prompts=["a", "1", "2"], named={"x": "2"}),
    ),
    "an input that nothing declares is a name too": (
        Play(doc(steps("{{z}}")), {"z": "Z"}, says(s1="ok")),
        Expected("ok", prompts=["Z"]),
    ),
}

NESTED = 'So: {"level": "critical", "findings": [{"level": "low"}, {"level": "low"}]}'
TWICE = 'First {"level": "low", "n": 1}, in the end {"level": "high", "why": "{a}"}. Bye {"other": 1} {not}'

OUTPUTS: dict[str, Case] = {
    "a type changes nothing": (
        Play(doc(steps("a\n@output(n: number)", "{{n}}")), turns=says(s1="about 3", s2="ok")),
        Expected("ok", prompts=["a", "about 3"], named={"n": "about 3"}),
    ),
    "an option is stored without what is around it": (
        Play(doc(steps('a\n@output(e: enum, "yes", "no")')), turns={"1": [" yes\n"]}),
        Expected(" yes\n", named={"e": "yes"}),
    ),
    "what is no option is stored as it is": (
        Play(doc(steps('a\n@output(e: enum, "yes", "no")')), turns={"1": ["Yes. "]}),
        Expected("Yes. ", named={"e": "Yes. "}, warnings=["ENUM_MISMATCH"]),
    ),
    "options without the type are none": (
        Play(doc(steps('a\n@output(e, "yes", "no")')), turns={"1": ["maybe"]}),
        Expected("maybe", named={"e": "maybe"}),
    ),
    "a field of the last object that has it": (
        Play(doc(steps('a\n@output(l, extract:"level")')), turns={"1": [TWICE]}),
        Expected(TWICE, named={"l": "high"}),
    ),
    "a field of the outermost object, and not of those inside of it": (
        Play(doc(steps('a\n@output(l, extract:"level")')), turns={"1": [NESTED]}),
        Expected(NESTED, named={"l": "critical"}),
    ),
    "a field with a type": (
        Play(doc(steps('a\n@output(l: enum, "low", "high", extract:"level")')), turns={"1": [TWICE]}),
        Expected(TWICE, named={"l": "high"}),
    ),
    "no object has the field": (
        Play(doc(steps('a\n@output(l, extract:"nothing")')), turns={"1": [TWICE]}),
        Expected(TWICE, named={"l": TWICE}, warnings=["NOT_EXTRACTED"]),
    ),
    "an output of a question": (
        Play(
            doc(steps('@elicit(input, "Who?")\n@output(who)', "{{who}} {{__elicit_step_1}}")),
            turns=says(s2="ok"),
            answers={"1#1.1!ask": ["Ada"]},
        ),
        Expected("ok", prompts=["Ada Ada"], named={"__elicit_step_1": "Ada", "who": "Ada"}),
    ),
}

ROUTED = steps(
    "Classify.\n\n@output(kind)",
    "Shared {{kind}}.\n\n"
    + block(
        ('if kind == "bug"', sub("2a", "Analyse.\n@output(first)") + "\n\n" + sub("2b", "Fix {{first}}.")),
        ('elif kind != ""', sub("2c", "Else {{kind}}.")),
        ("else", sub("2d", "Nothing.")),
    )
    + "\n\nAnd below.\n\n@output(routed)",
    "{{routed}}",
)

CONDITIONS = block(
    ('if a == "x"', sub("1a", "first")),
    ('elif a != "y"', sub("1b", "second")),
)

BRANCHES: dict[str, Case] = {
    "a branch with two sub-steps": (
        Play(doc(ROUTED), turns={"1": ["bug"], "2a": ["cause"], "2b": ["fixed"], "3": ["end"]}),
        Expected(
            "end",
            prompts=[
                "Classify.",
                "Shared bug.\n\nAnd below.\n\nAnalyse.",
                "Shared bug.\n\nAnd below.\n\nFix cause.",
                "fixed",
            ],
            statuses={"1": "completed", "2": "completed", "2a": "completed", "2b": "completed", "3": "completed"},
            outputs={"1": "bug", "2": "fixed", "3": "end"},
            named={"kind": "bug", "first": "cause", "routed": "fixed"},
        ),
    ),
    "another branch": (
        Play(doc(ROUTED), turns={"1": ["Bug"], "2c": ["c"], "3": ["end"]}),
        Expected("end", outputs={"1": "Bug", "2": "c", "3": "end"}, named={"kind": "Bug", "routed": "c"}),
    ),
    "else": (
        Play(doc(ROUTED), turns={"1": [{"text": ""}], "2d": ["d"], "3": ["end"]}),
        Expected("end", outputs={"1": "", "2": "d", "3": "end"}),
    ),
    "no branch: the step is skipped, text and all": (
        Play(
            doc(declared(A), steps("Text.\n\n" + CONDITIONS + "\n\n@output(o)", "[{{o}}]")), {"a": "y"}, says(s2="ok")
        ),
        Expected(
            "ok",
            prompts=["[{{o}}]"],
            statuses={"1": "skipped", "2": "completed"},
            outputs={"2": "ok"},
            named={},
            warnings=["UNRESOLVED_PLACEHOLDER"],
        ),
    ),
    "only the first that holds": (
        Play(doc(declared(A), steps(CONDITIONS)), {"a": "x"}, {"1a": ["ok"]}),
        Expected("ok", prompts=["first"]),
    ),
    "comparison is exact": (
        Play(doc(declared(A), steps(CONDITIONS)), {"a": "X "}, {"1b": ["ok"]}),
        Expected("ok", prompts=["second"]),
    ),
    "what is not declared is the empty text": (
        Play(
            doc(steps(block(('if a != ""', sub("1a", "no")), ('elif a == ""', sub("1b", "yes"))))), turns={"1b": ["ok"]}
        ),
        Expected("ok", prompts=["yes"]),
    ),
    "else counts last, wherever it stands": (
        Play(
            doc(
                declared(A),
                steps(
                    block(('if a == "x"', sub("1a", "x")), ("else", sub("1b", "else")))
                    + "\n\n"
                    + block(('if a == "y"', sub("1c", "y")), ("else", sub("1d", "no")))
                ),
            ),
            {"a": "y"},
            {"1c": ["ok"]},
        ),
        Expected("ok", prompts=["y"]),
    ),
    "an empty branch leaves the step's own text": (
        Play(doc(declared(A), steps("Own.\n\n" + block(('if a == "x"', "")))), {"a": "x"}, says(s1="ok")),
        Expected("ok", prompts=["Own."], outputs={"1": "ok"}),
    ),
    "an empty branch without a text is skipped": (
        Play(doc(declared(A), steps(block(('if a == "x"', "")), "b")), {"a": "x"}, says(s2="ok")),
        Expected("ok", statuses={"1": "skipped", "2": "completed"}),
    ),
    "an unclosed block is never taken": (
        Play(doc(declared(A), steps('Text.\n```if a == "x"```\n### STEP 1a: A', "b")), {"a": "x"}, says(s2="ok")),
        Expected("ok", statuses={"1": "skipped", "2": "completed"}),
    ),
    "a branch without a heading": (
        Play(doc(declared(A), steps(block(('if a == "x"', "Do.\n@output(o)")))), {"a": "x"}, {"1a": ["ok"]}),
        Expected("ok", prompts=["Do.\n@output(o)"], named={}),
    ),
    "a step asks before its branch is chosen": (
        Play(
            doc(
                steps(
                    '@elicit(select, "Way?", "left", "right")\n\n'
                    + block(
                        ('if __elicit_step_1 == "left"', sub("1a", "Left.")),
                        ('elif __elicit_step_1 == "right"', sub("1b", "Right.")),
                    )
                )
            ),
            turns={"1b": ["ok"]},
            answers={"1#1.1!ask": ["right"]},
        ),
        Expected("ok", prompts=["Right."], named={"__elicit_step_1": "right"}, outputs={"1": "ok"}),
    ),
    "a sub-step that only asks": (
        Play(
            doc(
                declared(A), steps("Text.\n\n" + block(('if a == "x"', sub("1a", '@elicit(confirm, "?")\n@output(c)'))))
            ),
            {"a": "x"},
            answers={"1/1a#1.1!ask": ["no"]},
        ),
        Expected("no", named={"__elicit_step_1": "no", "c": "no"}, outputs={"1": "no"}),
    ),
    "a sub-step that calls a tool": (
        Play(
            doc(
                declared(A),
                steps("Text.\n\n" + block(('if a == "x"', sub("1a", "@tool(s, t)") + "\n\n" + sub("1b", "b")))),
            ),
            {"a": "x"},
            {"1b": ["ok"]},
            {"t": [{"output": "T"}]},
        ),
        Expected("ok", prompts=["Text.\n\nb"]),
    ),
    "a sub-step that fails": (
        Play(
            doc(
                declared(A),
                steps(block(('if a == "x"', f"{sub('1a', 'a')}\n\n{sub('1b', 'b')}\n\n{sub('1c', 'c')}")), "d"),
            ),
            {"a": "x"},
            {"1a": ["A"], "1b": [{"error": "refused"}]},
        ),
        Expected(
            "A",
            "failed",
            {"1": "failed", "1a": "completed", "1b": "failed", "2": "pending"},
            outputs={},
            error="model.refused",
        ),
    ),
    "a tool wins over the branches of its step": (
        Play(
            doc(declared(A), steps("@tool(s, t)\n\n" + CONDITIONS)),
            {"a": "x"},
            tools={"t": [{"output": "T"}]},
        ),
        Expected("T", statuses={"1": "completed"}),
    ),
}

TOOLS: dict[str, Case] = {
    "a tool's result is the output": (
        Play(
            doc(steps('Text.\n@prompt(x)\n@elicit(input, "?")\n@tool(s, t, {"a": 1})\n@output(x)', "{{x}}")),
            turns=says(s2="ok"),
            tools={"t": [{"output": {"b": [1, "ü"]}}]},
        ),
        Expected(
            "ok", prompts=['{"b":[1,"ü"]}'], named={"x": '{"b":[1,"ü"]}'}, outputs={"1": '{"b":[1,"ü"]}', "2": "ok"}
        ),
    ),
    "a field of a tool's result": (
        Play(doc(steps('@tool(s, t)\n@output(x, extract:"b")')), tools={"t": [{"output": {"b": 2}}]}),
        Expected('{"b":2}', named={"x": "2"}),
    ),
    "a tool that fails": (
        Play(doc(steps("@tool(s, t)", "b")), tools={"t": [{"error": "broken"}]}),
        Expected(None, "failed", {"1": "failed", "2": "pending"}, error="tool.failed"),
    ),
    "a tool that nobody serves": (
        Play(doc(steps("@tool(s, t)"))),
        Expected(None, "failed", {"1": "failed"}, error="tool.unscripted"),
    ),
    "arguments that are no JSON": (
        Play(doc(steps("@tool(s, t, {a: 1})"))),
        Expected(None, "failed", {"1": "failed"}, error="playbook.tool_arguments"),
    ),
    "arguments that are no object": (
        Play(doc(steps("@tool(s, t, [1])"))),
        Expected(None, "failed", {"1": "failed"}, error="playbook.tool_arguments"),
    ),
    "a caller's tool": (
        Play(
            doc(steps("@tool(s, t)\n@output(x)", "{{x}}")),
            turns=says(s2="ok"),
            answers={"1#1.1!tool.0.0": [{"n": 1}]},
            start={"options": {"connections": {"s": "caller"}}},
        ),
        Expected("ok", prompts=['{"n":1}']),
    ),
}

QUESTIONS: dict[str, Case] = {
    "a question that is the step": (
        Play(doc(steps('@elicit(confirm, "Go?")', "b")), turns=says(s2="ok"), answers={"1#1.1!ask": [True]}),
        Expected("ok", outputs={"1": "yes", "2": "ok"}, named={"__elicit_step_1": "yes"}, prompts=["b"]),
    ),
    "no stops nothing": (
        Play(doc(steps('@elicit(confirm, "Go?")', "b")), turns=says(s2="ok"), answers={"1#1.1!ask": ["No "]}),
        Expected("ok", outputs={"1": "no", "2": "ok"}),
    ),
    "a question and a text": (
        Play(
            doc(steps('Revise with {{__elicit_step_1}}.\n@elicit(input, "How?")\n@output(x)')),
            turns=says(s1="Revised."),
            answers={"1#1.1!ask": ["shorter"]},
        ),
        Expected(
            "Revised.",
            prompts=["Revise with shorter."],
            named={"__elicit_step_1": "shorter", "x": "Revised."},
            outputs={"1": "Revised."},
        ),
    ),
    "a question and a prompt": (
        Play(
            doc(steps('@prompt(library:p)\n@elicit(input, "How?")')),
            turns=says(s1="ok"),
            answers={"1#1.1!ask": ["so"]},
            prompts={"library:p": "P"},
        ),
        Expected("ok", prompts=["P"], outputs={"1": "ok"}),
    ),
    "responses that the start has": (
        Play(
            doc(steps('@elicit(select, "?", "a", "b")', '@elicit(confirm, "?")', '@elicit(input, "?")')),
            start={"options": {"elicit": {"1": "b", "2": False, "3": 7}}},
        ),
        Expected("7", outputs={"1": "b", "2": "no", "3": "7"}),
    ),
    "nobody is asked": (
        Play(
            doc(steps('@elicit(select, "?", "a", "b")', '@elicit(confirm, "?")', '@elicit(input, "?")')),
            start={"options": {"autonomous": True}, "breakpoints": ["1", "3"]},
        ),
        Expected(
            "",
            outputs={"1": "a", "2": "yes", "3": ""},
            named={"__elicit_step_1": "a", "__elicit_step_2": "yes", "__elicit_step_3": ""},
        ),
    ),
    "a response before the default": (
        Play(
            doc(steps('@elicit(select, "?", "a", "b")', '@elicit(confirm, "?")')),
            start={"options": {"autonomous": True, "elicit": {"1": "b"}}},
        ),
        Expected("yes", outputs={"1": "b", "2": "yes"}),
    ),
    "a select without options takes any text": (
        Play(doc(steps('@elicit(select, "?")')), answers={"1#1.1!ask": ["whatever"]}),
        Expected("whatever"),
    ),
}

REFERENCES: dict[str, Case] = {
    "a prompt goes before the text and has values put in": (
        Play(
            doc(declared(A), steps("Own {{a}}.\n@prompt(library:{{a}}-guide)")),
            {"a": "x"},
            says(s1="ok"),
            prompts={"library:x-guide": "Guide for {{a}}.\n"},
        ),
        Expected("ok", prompts=["Guide for x.\n\nOwn x."]),
    ),
    "a prompt without a text of its own": (
        Play(doc(steps("@prompt(library:p)")), turns=says(s1="ok"), prompts={"library:p": "P"}),
        Expected("ok", prompts=["P"]),
    ),
    "a prompt that is not there": (
        Play(doc(steps("Own.\n@prompt(library:p)")), turns=says(s1="ok")),
        Expected("ok", prompts=["Own."], warnings=["PROMPT_NOT_FOUND"]),
    ),
    "a bare prompt": (
        Play(doc(steps("Own.\n@prompt(p)")), turns=says(s1="ok"), prompts={":p": "P"}),
        Expected("ok", prompts=["P\n\nOwn."]),
    ),
    "prompts that the start has, of any scheme": (
        Play(
            doc(steps("A.\n@prompt(wiki:p)", "B.\n@prompt(library:p)", "C.\n@prompt(p)")),
            turns=says(s1="1", s2="2", s3="3"),
            start={"options": {"prompts": {"wiki:p": "W", "library:p": "L", "p": "P"}}},
        ),
        Expected("3", prompts=["W\n\nA.", "L\n\nB.", "P\n\nC."]),
    ),
    "a scheme that nobody knows": (
        Play(doc(steps("A.\n@prompt(wiki:p)")), turns=says(s1="ok")),
        Expected("ok", prompts=["A."], warnings=["PROMPT_NOT_FOUND"]),
    ),
    "a file": (
        Play(
            doc(declared(A), steps("A.\n@prompt(file:./p/{{a}}.md)")),
            {"a": "x"},
            says(s1="ok"),
            start={"files": {"p/x.md": "F {{a}}"}},
        ),
        Expected("ok", prompts=["F x\n\nA."]),
    ),
    "a file outside, also by a value": (
        Play(
            doc(
                declared(A, "- `b` (string)"),
                steps(
                    "A.\n@prompt(file:../x.md)",
                    "B.\n@prompt(file:/x.md)",
                    "C.\n@prompt(file:{{a}})",
                    "D.\n@prompt(file:{{b}}x.md)",
                ),
            ),
            {"a": "p/../../x.md", "b": "..\\"},
            says(s1="1", s2="2", s3="3", s4="4"),
            start={"files": {"../x.md": "no", "/x.md": "no", "x.md": "no"}},
        ),
        Expected("4", prompts=["A.", "B.", "C.", "D."], warnings=["PROMPT_NOT_FOUND"] * 4),
    ),
    "a file that is not there": (
        Play(doc(steps("A.\n@prompt(file:x.md)")), turns=says(s1="ok")),
        Expected("ok", prompts=["A."], warnings=["PROMPT_NOT_FOUND"]),
    ),
    "a prompt that a step made": (
        Play(
            doc(declared(A), steps("Make.\n@output(p)", "Apply.\n@prompt({{p}})")),
            {"a": "x"},
            says(s1="Check {{a}}.", s2="ok"),
        ),
        Expected("ok", prompts=["Make.", "Check x.\n\nApply."]),
    ),
    "an empty variable": (
        Play(doc(declared(A), steps("Apply.\n@prompt({{a}})")), {"a": ""}, says(s1="ok")),
        Expected("ok", prompts=["Apply."]),
    ),
    "a variable that is not defined": (
        Play(doc(steps("Apply.\n@prompt({{p}})", "b"))),
        Expected(None, "failed", {"1": "failed", "2": "pending"}, error="playbook.prompt_undefined"),
    ),
    "a prompt of a branching step goes before each sub-step": (
        Play(
            doc(
                declared(A),
                steps(
                    "Own.\n@prompt(library:p)\n\n"
                    + block(('if a == "x"', sub("1a", "A.\n@prompt(library:q)") + "\n\n" + sub("1b", "B.")))
                ),
            ),
            {"a": "x"},
            {"1a": ["1"], "1b": ["2"]},
            prompts={"library:p": "P", "library:q": "Q"},
        ),
        Expected("2", prompts=["P\n\nOwn.\n\nQ\n\nA.", "P\n\nOwn.\n\nB."]),
    ),
}

ARTIFACTS: dict[str, Case] = {
    "a type": (Play(doc("## ARTIFACTS\ntype: JSON", steps("a")), turns=says(s1="ok")), Expected("ok", artifact="json")),
    "no type": (Play(doc(steps("a")), turns=says(s1="ok")), Expected("ok", artifact="")),
    "a type that a step says": (
        Play(doc("## ARTIFACTS\ntype: {{kind}}", steps("a\n@output(kind)")), turns=says(s1="Mermaid\n")),
        Expected("Mermaid\n", artifact="mermaid"),
    ),
    "a type that nobody knows": (
        Play(doc(declared(A), "## ARTIFACTS\ntype: {{a}}", steps("a")), {"a": "pdf"}, says(s1="ok")),
        Expected("ok", artifact="pdf", warnings=["ARTIFACT_TYPE"]),
    ),
}

STANDS: dict[str, Case] = {
    "a breakpoint": (
        Play(doc(steps("a\n@output(x)", "{{x}}")), turns=says(s1="A", s2="B"), start={"breakpoints": ["1"]}),
        Expected("B", prompts=["a", "A"]),
    ),
    "a breakpoint at the last step, and at one that is repeated": (
        Play(doc("## STEP 1: A\n\na", "## STEP 1: B\n\nb"), turns=says(s1="A|B"), start={"breakpoints": ["1"]}),
        Expected("B"),
    ),
    "a breakpoint at a tool, at a question and at a branch": (
        Play(
            doc(declared(A), steps("@tool(s, t)", '@elicit(input, "?")', CONDITIONS.replace("1a", "3a"))),
            {"a": "x"},
            {"3a": ["ok"]},
            {"t": [{"output": "T"}]},
            {"2#1.1!ask": ["R"]},
            start={"breakpoints": ["1", "2", "3"]},
        ),
        Expected("ok", outputs={"1": "T", "2": "R", "3": "ok"}),
    ),
    "a skipped step does not stop": (
        Play(doc(declared(A), steps(CONDITIONS, "b")), {"a": "y"}, says(s2="ok"), start={"breakpoints": ["1"]}),
        Expected("ok", statuses={"1": "skipped", "2": "completed"}),
    ),
    "variables that a resume overrides": (
        Play(
            doc(declared(A), steps("a\n@output(x)", "{{a}} {{x}} {{new}}\n@output(x)", "{{x}}")),
            {"a": "in"},
            says(s1="A", s2="B", s3="C"),
            variables={"1": {"a": "over", "x": 5, "new": True}},
            start={"breakpoints": ["1"]},
        ),
        Expected("C", prompts=["a", "over 5 true", "B"], named={"x": "B", "new": "true"}),
    ),
}

SAVED = {"step_outputs": {"1": "one", "2": "two"}, "named_outputs": {"x": "X"}, "input_values": {"a": "saved"}}
THREE = doc("## SYSTEM\n\nBe.", declared(A), steps("a", "b", "{{a}} {{x}}"))

STATES: dict[str, Case] = {
    "a state to go on from": (
        Play(THREE, turns=says(s3="end"), start={"state": {**SAVED, "status": "paused", "paused_at_step": 2}}),
        Expected(
            "end",
            prompts=["saved X"],
            statuses={"1": "completed", "2": "completed", "3": "completed"},
            outputs={"1": "one", "2": "two", "3": "end"},
            named={"x": "X"},
        ),
    ),
    "an input beats the one that was saved": (
        Play(THREE, {"a": "new"}, says(s3="end"), start={"state": {**SAVED, "paused_at_step": 2}}),
        Expected("end", prompts=["new X"]),
    ),
    "a state without a place goes on behind the last output": (
        Play(THREE, turns=says(s3="end"), start={"state": SAVED}),
        Expected("end", prompts=["saved X"]),
    ),
    "a state at a step that has no output": (
        Play(
            THREE,
            turns=says(s2="again", s3="end"),
            start={"state": {**SAVED, "step_outputs": {"1": "one"}, "paused_at_step": 2, "status": "failed"}},
        ),
        Expected("end", prompts=["b", "saved X"], outputs={"1": "one", "2": "again", "3": "end"}),
    ),
    "a state at a breakpoint, as the specification shows it, without the output of its step": (
        Play(
            THREE,
            turns=says(s3="end"),
            start={"state": {**SAVED, "step_outputs": {"1": "one"}, "paused_at_step": 2, "status": "paused"}},
        ),
        Expected("end", prompts=["saved X"], outputs={"1": "one", "3": "end"}),
    ),
    "a state that is at the end": (
        Play(THREE, start={"state": {**SAVED, "step_outputs": {"1": "one", "3": "three"}, "paused_at_step": 3}}),
        Expected(
            "three",
            outputs={"1": "one", "3": "three"},
            statuses={"1": "completed", "2": "skipped", "3": "completed"},
        ),
    ),
    "a state at a question, which is asked again": (
        Play(
            doc(steps("a", '@elicit(input, "?")\n@output(r)')),
            answers={"2#1.1!ask": ["R"]},
            start={"state": {"step_outputs": {"1": "one"}, "status": "awaiting_input", "paused_at_step": 2}},
        ),
        Expected("R", named={"__elicit_step_2": "R", "r": "R"}),
    ),
    "a state that holds the response": (
        Play(
            doc(steps("a", '@elicit(input, "?")\n@output(r)')),
            start={
                "state": {
                    "step_outputs": {"1": "one"},
                    "named_outputs": {"__elicit_step_2": "R"},
                    "paused_at_step": 2,
                }
            },
        ),
        Expected("R", named={"__elicit_step_2": "R", "r": "R"}),
    ),
    "breakpoints that were saved": (
        Play(
            THREE,
            turns=says(s3="end"),
            variables={"3": {"x": "over"}},
            start={"state": {**SAVED, "paused_at_step": 2, "breakpoints": {"2": True, "3": True}}},
        ),
        Expected("end", named={"x": "over"}),
    ),
}

CASES: dict[str, Case] = {
    f"{family}: {name}": case
    for family, cases in {
        "linear": LINEAR,
        "names": NAMES,
        "outputs": OUTPUTS,
        "branches": BRANCHES,
        "tools": TOOLS,
        "questions": QUESTIONS,
        "prompts": REFERENCES,
        "artifacts": ARTIFACTS,
        "stands": STANDS,
        "states": STATES,
    }.items()
    for name, case in cases.items()
}
