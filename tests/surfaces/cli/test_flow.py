"""Flows at the command line: expressions, conformance, arguments, and the views of runs."""

import json
import shlex
from typing import Any

import pytest

from callboard.languages.flow.authoring import CLAIM, find_differences, same
from callboard.languages.registry import TITLE_CHARS_MAX, about, parse_definition
from callboard.surfaces.cli import exits
from tests.support.conformance import CORPUS, WITH_DATA
from tests.support.flows import call, caught, cleanup, failing, flow, mock, retry, returned, subflow, timeout
from tests.support.workdir import Workdir

# -- expressions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2", 3),
        ("{{ 1 + 2 }}", 3),
        ("  {{ {'a': [1.5, null, true]} }} ", {"a": [1.5, None, True]}),
        ("vars.n + 1.0", 3),
        ("vars.n > 1 && 'b' in vars.words", True),
        ("timestamp(string(now())) <= wallTime()", True),
    ],
)
def test_an_expression_is_evaluated_with_and_without_its_braces(workdir: Workdir, expression: str, value: Any) -> None:
    bindings = '{"vars": {"n": 2, "words": ["a", "b"]}}'
    done = workdir.run("cel", expression, "--bindings", bindings)
    assert (done.exit_code, json.loads(done.stdout)) == (exits.OK, value)
    assert workdir.run_json("cel", expression, "--bindings", bindings) == {"value": value}


def test_bindings_come_from_a_file_too_and_must_be_an_object(workdir: Workdir) -> None:
    workdir.write("state.json", {"vars": {"n": 2}})
    assert workdir.run_json("cel", "vars", "--bindings", "@state.json") == {"value": {"n": 2}}
    refused = workdir.run("cel", "1", "--bindings", "[1]")
    assert refused.exit_code == exits.USAGE
    assert "--bindings" in refused.stderr


@pytest.mark.parametrize(
    ("expression", "place_shown"), [("1 +", "1:4"), ("{{ 1 + + 2 }}", "1:8"), ("{{ 1 +\n   ) }}", "2:4")]
)
def test_a_malformed_expression_is_shown_with_its_place(workdir: Workdir, expression: str, place_shown: str) -> None:
    done = workdir.run("cel", expression)
    assert done.exit_code == exits.FAILED
    assert f"{place_shown}: error EXPRESSION" in done.stderr
    line, column = map(int, place_shown.split(":"))
    shown, caret = done.stderr.splitlines()[-2:]
    assert shown == f"     {line} | {expression.splitlines()[line - 1]}"
    assert caret.index("^") == len("     1 | ") + column - 1
    [problem] = json.loads(workdir.run("cel", expression, "--json").stdout)["error"]["problems"]
    assert (problem["line"], problem["column"]) == (line, column)


@pytest.mark.parametrize(
    ("expression", "code", "remedy"),
    [
        ("vars.n", "System.ExpressionEvaluationError", "Bind vars with --bindings."),
        ("{'a': 1}.b", "System.ExpressionEvaluationError", "has(…)"),
        ("double(1) + 1", "System.ExpressionEvaluationError", "int(…)"),
        ("missing(1)", "System.ExpressionEvaluationError", "cel.md"),
        ("now()", "System.UnrepresentableValue", "string(…)"),
        ("1.0 / 0.0", "System.UnrepresentableValue", "string(…)"),
    ],
)
def test_an_expression_without_a_value_names_the_failure_of_a_flow(
    workdir: Workdir, expression: str, code: str, remedy: str
) -> None:
    done = workdir.run("cel", expression, "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.exit_code, error["code"]) == (exits.FAILED, code)
    assert remedy in error["remedy"]
    assert f"error {code}: {error['message']}" in workdir.run("cel", expression).stderr


def test_a_clear_message_has_no_remedy(workdir: Workdir) -> None:
    done = workdir.run("cel", "1 / 0")
    assert done.stderr.splitlines()[1:] == ["  where: 1 / 0"]


def test_the_names_that_an_expression_reads_are_explained(workdir: Workdir) -> None:
    expression = "true || vars.n + step.input == missing(1)"
    assert workdir.run_json("cel", expression, "--explain") == {
        "value": True,
        "roots": ["step", "vars"],
        "unknown_functions": ["missing"],
    }
    output = workdir.run("cel", expression, "--explain").stderr
    assert output.splitlines() == ["reads: step (not bound), vars (not bound)", "calls unknown functions: missing"]


# -- conformance -------------------------------------------------------------------------------------------------------

CORE, CEL = CLAIM[:2]


def write_case(
    workdir: Workdir, name: str, definition: dict[str, Any], *scenarios: tuple[Any, dict[str, Any]], **about: Any
) -> None:
    """Write a case with a scenario for each input and expected Result."""
    named = {f"s{i}": {} for i in range(len(scenarios))}
    workdir.write(f"corpus/{name}/case.json", {"profiles": [CORE, CEL], "marks": [], "scenarios": named, **about})
    workdir.write(f"corpus/{name}/definition.json", definition)
    for i, (given, expected) in enumerate(scenarios):
        workdir.write(f"corpus/{name}/scenarios/s{i}/input.json", json.dumps(given))
        workdir.write(f"corpus/{name}/scenarios/s{i}/expected-result.json", expected)


@pytest.fixture
def corpus(workdir: Workdir) -> Workdir:
    doubled = flow({"done": returned("{{ step.input * 2.0 }}")})
    write_case(
        workdir, "100-good", doubled, (2, {"type": "success", "value": 4.0}), (3, {"type": "success", "value": 6})
    )
    write_case(
        workdir, "200-wrong", doubled, (2, {"type": "success", "value": 5}), ("x", {"type": "error", "code": "My.X"})
    )
    napping = flow({"nap": {"action": "Sleep", "for": "PT0.01S", "next": "done"}, "done": returned()})
    write_case(workdir, "300-slow", napping, (1, {"type": "success", "value": 1}), marks=["temporal"])
    write_case(
        workdir, "400-other", doubled, (1, {"type": "success", "value": 2}), profiles=[CORE, "https://example.com/more"]
    )
    return workdir


def test_the_claim_has_core_and_the_bases_of_all_extensions(workdir: Workdir) -> None:
    assert workdir.run("conformance").stdout.splitlines() == list(CLAIM)
    assert workdir.run_json("conformance") == {"claim": list(CLAIM)}
    assert len(CLAIM) == len(set(CLAIM)) == 7
    assert all(profile.rpartition("/")[0] in CLAIM for profile in CLAIM if profile.count("/") > CEL.count("/"))


def test_a_corpus_is_run_and_every_difference_reported(corpus: Workdir) -> None:
    done = corpus.run("conformance", "corpus", "--json")
    assert done.exit_code == exits.FAILED
    output = json.loads(done.stdout)
    counts = {"passed": 2, "failed": 1, "skipped": 0, "out-of-scope": 1, "scenarios": 5}
    assert output["counts"] == counts
    verdicts = {one["case"]: one["verdict"] for one in output["cases"]}
    assert verdicts == {"100-good": "passed", "200-wrong": "failed", "300-slow": "passed", "400-other": "out-of-scope"}
    wrong = next(one for one in output["cases"] if one["case"] == "200-wrong")
    first, second = wrong["scenarios"]
    assert first["differences"] == ["value: expected 5, found 4"]
    assert second["differences"][0].startswith('code: expected "My.X", found "System.ExpressionEvaluationError"')


def test_selected_cases_are_reported_as_text(corpus: Workdir) -> None:
    done = corpus.run("conformance", "corpus", "--case", "[13]*", "--skip-temporal")
    assert done.exit_code == exits.OK
    lines = done.stdout.splitlines()
    assert "✓ 100-good  s0, s1" in lines
    assert "– 300-slow  takes real time" in lines
    assert lines[-1] == "1 passed, 0 failed, 1 skipped; 2 scenarios"
    single = corpus.run_json("conformance", "corpus/200-wrong/../100-good", "--case", "*/s1")
    assert [one["name"] for one in single["cases"][0]["scenarios"]] == ["s1"]


def test_an_unreadable_corpus_is_refused(corpus: Workdir) -> None:
    (corpus.folder / "empty").mkdir()
    assert corpus.run("conformance", "corpus", "--case", "9*").exit_code == exits.USAGE
    corpus.write("corpus/100-good/scenarios/s1/expected-result.json", "{")
    for folder in ("empty", "corpus"):
        assert corpus.refusal("conformance", folder) == (exits.FAILED, "corpus.unreadable")


@WITH_DATA
def test_the_public_corpus_is_run(workdir: Workdir) -> None:
    output = workdir.run_json("conformance", str(CORPUS), "--skip-temporal")
    assert (output["counts"]["failed"], output["counts"]["out-of-scope"]) == (0, 0)
    assert output["counts"]["passed"] > 50


def test_results_are_compared_by_the_rules_of_the_corpus() -> None:
    found = {"type": "error", "code": "A", "message": "m", "previous": {"type": "timeout", "code": "B"}}
    assert find_differences({"type": "error", "code": "A"}, found) == []
    assert find_differences({"type": "error", "code": "A", "previous": {"type": "timeout", "code": "B"}}, found) == []
    deep = find_differences({"type": "error", "code": "A", "previous": {"type": "timeout", "code": "C"}}, found)
    assert deep == ['previous.code: expected "C", found "B"']
    assert find_differences({"type": "error", "code": "A", "previous": None}, found) != []
    assert find_differences({"type": "error", "code": "A", "details": None}, found) == []
    assert find_differences({"type": "error", "code": "A", "retryable": False}, found) != []
    assert find_differences({"type": "success", "value": None}, {"type": "success", "value": None}) == []
    assert find_differences({"type": "success", "value": None}, found)[0].startswith("type: expected success")
    assert same([1, {"a": 5}], [1.0, {"a": 5.0}])
    assert not same(True, 1)
    assert not same([1], [1, 2])
    assert not same({"a": None}, {})


# -- runs --------------------------------------------------------------------------------------------------------------

MANY = 30


def build_many() -> dict[str, Any]:
    """A fan-out with one failure, a retry, a timeout with a clean-up, a choice, and a failure at the end."""
    bad = mock(failure="{{ call.input == 13.0 ? {'code': 'Item.Bad'} : null }}")
    fan = {
        "action": "Gather",
        "over": "{{ step.input }}",
        "call": bad,
        "completion": {"successes": 3},
        "output": "{{ size(step.results) }}",
        "next": "fetch",
    }
    again = {**retry(3, "Store.*"), "onFailure": {"assign": {"failed": "{{ vars.failed + 1.0 }}"}}}
    flaky = mock(failure="{{ vars.failed < 1.0 ? {'code': 'Store.Busy'} : null }}")
    inner = subflow({"in": call(mock(delay="PT60S"), middleware=[cleanup(mock())]), "done": returned()})
    steps = {
        "fan": fan,
        "fetch": call(flaky, "work", middleware=[again]),
        "work": call({"flow": inner}, middleware=[timeout("PT0.05S")], catch=[caught("judge")]),
        "judge": {
            "action": "Match",
            "cases": [{"when": "{{ vars.limit > 5 }}", "next": "lost"}, {"when": "{{ false }}", "next": "done"}],
            "default": {"next": "done"},
        },
        "lost": call(failing("Store.Gone", message="for good"), catch=[caught("give-up")]),
        "give-up": {"action": "Raise", "result": {"code": "Order.Lost", "message": "gave up"}},
        "done": returned(),
    }
    declared = {"limit": {"type": "number"}, "failed": {"type": "number", "default": 0}}
    return flow(steps, parameters={"type": "object", "properties": declared})


@pytest.fixture(scope="module")
def performed(tmp_path_factory: pytest.TempPathFactory) -> Workdir:
    workdir = Workdir(tmp_path_factory.mktemp("flows"))
    workdir.write("many.json", build_many())
    done = workdir.run(
        "run",
        "many.json",
        *("--input", json.dumps(list(range(MANY)))),
        *("--arguments", '{"limit": 10}'),
        *("--run-id", "r1"),
    )
    assert done.exit_code == exits.FAILED, done.output
    assert (
        "  Order.Lost: gave up  (at main/give-up)\n  earlier, caught at main/lost: Store.Gone: for good\n"
        in done.stdout
    )
    assert "Path: fan → fetch → work → judge → lost → give-up" in done.stdout
    return workdir


def test_arguments_must_be_an_object_and_a_run_shows_its_chain(performed: Workdir) -> None:
    refused = performed.run("run", "many.json", "--arguments", "[1]", "--data-dir", "temp")
    assert refused.exit_code == exits.USAGE
    assert "--arguments" in refused.stderr
    shown = performed.run("show", "r1").stdout
    assert (
        "error       Order.Lost: gave up  (at main/give-up)\n            earlier, caught at main/lost: Store" in shown
    )
    assert "running" not in shown, "a retry middleware is not a running node"
    output = performed.run_json("show", "r1")
    assert output["path"] == ["fan", "fetch", "work", "judge", "lost", "give-up"]
    assert output["error"]["previous"]["code"] == "Store.Gone"
    [earlier] = output["cause"]["causes"]
    assert (earlier["code"], earlier["caught"]) == ("Store.Gone", "main/lost")


def test_the_tree_summarizes_dispatches_and_lists_failures(performed: Workdir) -> None:
    tree = performed.run("trace", "r1").stdout
    assert tree.count("✓ provider mock [") < MANY / 2
    assert "✗ provider mock [13]" in tree
    assert "more: 20 ok" in tree
    assert "↻ mw0 retry 1  Store.Busy" in tree
    assert "→ judge  caught Provider.Middleware.Timeout.Exceeded" in tree
    assert "→ lost  case.0" in tree
    assert "✓ Finally:mw0.onAlways" in tree
    assert "⊘ timer delay" in tree
    for form in ("table", "waterfall"):
        assert "20 ok" in performed.run("trace", "r1", "--format", form).stdout
    rows = performed.run_json("trace", "r1", "--format", "table")
    assert "main/fan" in [row["path"] for row in rows]


def test_the_result_of_a_flow_has_its_frames(performed: Workdir) -> None:
    output = json.loads(performed.run("trace", "r1", "--format", "result").stdout)
    assert (output["result"]["code"], output["result"]["previous"]["code"]) == ("Order.Lost", "Store.Gone")
    frame = output["trace"]
    steps = {step["step"]: step for step in frame["steps"]}
    actions = {name: step["action"] for name, step in steps.items()}
    assert actions == {
        "fan": "Gather",
        "fetch": "Call",
        "work": "Call",
        "judge": "Match",
        "lost": "Call",
        "give-up": "Raise",
    }
    dispatches = steps["fan"]["dispatches"]
    assert [one.get("index", 0) for one in dispatches] == list(range(MANY))
    assert [one["work"][0]["error"] for one in dispatches if "error" in one["work"][0]] == ["Item.Bad"]
    [again] = steps["fetch"]["retries"]
    assert (again["middleware"], again["number"], again["code"]) == ("mw0", 1, "Store.Busy")
    [dispatch] = steps["work"]["dispatches"]
    [inner] = dispatch["frames"]
    [cut] = inner["steps"]
    assert (inner["path"], cut["outcome"], cut["phases"][0]["phase"]) == ("main/work:call", "cancelled", "mw0.onAlways")
    assert cut["phases"][0]["dispatches"][0]["work"][0]["name"] == "mock"
    assert steps["work"]["ways"] == [
        {"next": "judge", "edge": "catch.0", "caught": "Provider.Middleware.Timeout.Exceeded"}
    ]
    assert performed.run_json("rebuild", "r1")[0]["different"] == []


def test_the_diagram_shows_subflows_and_taken_edges(performed: Workdir) -> None:
    drawn = performed.run("diagram", "r1").stdout.splitlines()
    lines = [line.strip() for line in drawn]
    assert 'n_main_x2f_fan[["▶ fan<br/>mock"]]' in lines
    assert 'n_main_x2f_work["work<br/>flow in timeout"]' in lines
    box = lines.index('subgraph n_main_x2f_work_x3a_call["work"]')
    assert lines[box + 1] == 'n_main_x2f_work_x3a_call_x2f_in["in<br/>mock in finally"]'
    assert 'n_main_x2f_judge{"judge"}' in lines
    assert 'n_main_x2f_give_x2d_up{{"give-up"}}' in lines
    assert 'n_main_x2f_work ==>|"calls · taken 1×"| n_main_x2f_work_x3a_call_x2f_in' in lines
    assert 'n_main_x2f_work -.->|"catch * · taken 1×"| n_main_x2f_judge' in lines
    assert 'n_main_x2f_judge ==>|"vars.limit #62; 5 · taken 1×"| n_main_x2f_lost' in lines
    assert 'n_main_x2f_judge -->|"false"| n_main_x2f_done' in lines
    assert performed.run("diagram", "r1", "--format", "svg").stdout.startswith("<svg")


def test_a_fan_out_node_is_coloured_as_failed(workdir: Workdir) -> None:
    bad = mock(failure="{{ frame.input == 1.0 ? {'code': 'Item.Bad'} : null }}")
    fan = {
        "action": "Gather",
        "over": [0, 1, 2],
        "call": {"flow": subflow({"in": call(bad), "done": returned()})},
        "completion": {"successes": 1},
        "next": "done",
    }
    workdir.write("fan.json", flow({"fan": fan, "done": returned()}))
    assert workdir.run("run", "fan.json", "--run-id", "r1").exit_code == exits.OK
    lines = [line.strip() for line in workdir.run("diagram", "r1").stdout.splitlines()]
    assert "class n_main_x2f_fan_x5b__x5d__x2f_in failed" in lines
    assert 'n_main_x2f_fan ==>|"for each · taken 3×"| n_main_x2f_fan_x5b__x5d__x2f_in' in lines
    assert 'subgraph n_main_x2f_fan_x5b__x5d_["fan · for each"]' in lines


def test_a_flow_has_no_dry_run(workdir: Workdir) -> None:
    workdir.write("plain.json", flow({"done": returned()}))
    done = workdir.run("run", "plain.json", "--dry-run", "--data-dir", "temp")
    assert done.exit_code == exits.USAGE
    assert "has no dry run" in done.stderr


# -- definitions -------------------------------------------------------------------------------------------------------

TITLED = "Waits for parcels. Then it says: all came."


def build_titled() -> dict[str, Any]:
    declared = {"type": "object", "properties": {"limit": {"type": "number", "description": "At most."}}}
    asked = {"provider": "mwl:provider.call/callboard/human/v1", "with": {"question": "All right?", "type": "confirm"}}
    awaited = {"provider": "mwl:provider.call/callboard/signal/v1", "with": {"name": "go on"}}
    steps = {"ask": call(asked, "wait"), "wait": call(awaited), "done": returned()}
    return flow(steps, comment=TITLED, parameters=declared)


def test_the_title_of_a_flow_is_the_first_sentence_of_its_comment(workdir: Workdir) -> None:
    file = workdir.write("titled.json", build_titled())
    definition = parse_definition((workdir.folder / file).read_text(encoding="utf-8"))
    assert not isinstance(definition, list)
    output = about(definition)
    assert (output.title, output.description) == ("Waits for parcels", TITLED)
    assert output.parameters == {"limit": {"type": "number", "description": "At most."}}
    assert ">Waits for parcels</title>" in workdir.run("diagram", file, "--format", "svg").stdout


@pytest.mark.parametrize(
    ("comment", "title"),
    [
        ("", ""),
        ("one\ntwo", "one"),
        ("v0.1 of it", "v0.1 of it"),
        ("word " * 40, "word " * 13 + "word…"),
        ("x" * 99, "x" * TITLE_CHARS_MAX + "…"),
    ],
)
def test_a_title_is_short(comment: str, title: str) -> None:
    definition = parse_definition(json.dumps(flow({"done": returned()}, comment=comment)))
    assert not isinstance(definition, list)
    assert about(definition).title == title


def test_an_edited_flow_keeps_the_name_of_its_file(workdir: Workdir) -> None:
    for answer in (1, 2):
        file = workdir.write("parcels.json", flow({"done": returned(answer)}, comment=f"Answer {answer}."))
        workdir.run_json("run", file, "--run-id", f"r{answer}")
    rows = workdir.run_json("runs")
    assert [(row["run"], row["definition"]) for row in rows] == [("r2", "parcels"), ("r1", "parcels")]
    assert len({row["definition_hash"] for row in rows}) == 2
    assert workdir.run("trace", "r1").stdout.startswith("✓ r1  parcels  ")
    [span] = [
        each
        for each in workdir.run_json("trace", "r1", "--format", "jaeger")["data"][0]["spans"]
        if not each["references"]
    ]
    assert span["operationName"] == "invoke_workflow parcels"
    assert workdir.run("replay", "r1").exit_code == exits.OK


def test_an_open_question_and_an_awaited_signal_are_shown(workdir: Workdir) -> None:
    with workdir.up() as _:
        file = workdir.write("titled.json", build_titled())
        workdir.run_json("start", file, "--run-id", "r1")
        key = "main/ask:call#1.1!ask"
        workdir.run("watch", "r1", "--until", "human.asked")
        lines = workdir.run("show", "r1").stdout.splitlines()
        assert lines[2].startswith("definition  titled (flow, ")
        assert lines[-2].endswith(f"callboard.surfaces.cli.main answer r1 '{key}' RESPONSE") or lines[-2].endswith(
            f"callboard answer r1 '{key}' RESPONSE"
        )
        assert lines[-1] == "    ? All right?  (yes or no)"
        workdir.run_json("answer", "r1", key, "yes")
        workdir.run("watch", "r1", "--until", "signal.awaited")
        assert workdir.run("show", "r1").stdout.splitlines()[-1].endswith(" signal r1 'go on'")
        workdir.run_json("signal", "r1", "go on")
        workdir.run("watch", "r1")
        refused = workdir.run("signal", "r1", "go on")
        assert refused.exit_code == exits.FAILED
        assert "See `callboard show r1`." in refused.stderr


def test_arguments_are_checked_before_anything_is_started(workdir: Workdir) -> None:
    file = workdir.write("titled.json", build_titled())
    good = workdir.run("validate", file, "--arguments", '{"limit": 3}')
    assert (good.exit_code, good.stdout) == (exits.OK, f"✓ {file} (flow): valid\n")
    bad = workdir.run_json("validate", file, "--arguments", '{"limt": 3}')
    [problem] = bad["problems"]
    assert (bad["valid"], problem["code"], problem["severity"]) == (True, "ARGUMENTS", "warning")
    assert "'limt'" in problem["message"]
    assert workdir.run("validate", file, "--arguments", "[]").exit_code == exits.USAGE
    assert workdir.run_json("validate", file)["problems"] == []


def test_braces_that_do_not_span_a_value_are_reported(workdir: Workdir) -> None:
    gather = {"action": "Gather", "over": "{{ step.input }", "call": mock(), "next": "done"}
    file = workdir.write("half.json", flow({"fan": gather, "done": returned()}))
    output = json.loads(workdir.run("validate", file, "--json").stdout)
    [problem] = output["problems"]
    assert (output["language"], problem["where"]) == ("flow", "steps.fan.over")
    assert "one pair of braces does not span it" in problem["message"]


def test_a_successful_fan_out_is_one_line_and_a_failure_several(performed: Workdir) -> None:
    lines = performed.run("show", "r1").stdout.splitlines()
    nodes = lines[lines.index("Nodes, latest state:") + 1 :]
    assert any(line.startswith("  ok  main/fan ") for line in nodes)
    assert any(line.startswith("  cancelled  main/work:call/in") for line in nodes)
    assert not any("mw1.onAlways" in line or "main/fan[" in line for line in nodes)


def test_a_dispatch_has_one_name_at_its_begin_and_end(workdir: Workdir) -> None:
    fan = {"action": "Gather", "over": [1, 2], "call": {"flow": "each"}, "next": "done"}
    document = flow({"fan": fan, "done": returned()}, flows={"each": subflow({"done": returned()})})
    result = workdir.run("run", workdir.write("fan.json", document), "--data-dir", "temp").stdout
    output = [line.split(" s ", 1)[1].strip() for line in result.splitlines() if "fan [" in line]
    assert sorted(output) == ["▶ fan [0]: each", "▶ fan [1]: each", "✓ fan [0] ok", "✓ fan [1] ok"]


def test_the_commands_to_answer_from_another_terminal_are_printed(workdir: Workdir) -> None:
    file = workdir.write("titled.json", build_titled())
    output: list[str] = []
    with workdir.process("run", file, "--data-dir", "temp") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("In another terminal: "):
                # The verb is the word before the first option.
                words = shlex.split(line)
                verb = words.index("--data-dir") - 1
                output.append(words[verb])
                workdir.run_json(*["yes" if word == "RESPONSE" else word for word in words[verb:]])
        process.wait()
    assert (output, process.returncode) == (["answer", "signal"], exits.OK)
