"""Experiments on a real server: what is replayed, performed again, taken from the record, refused and compared."""

import json
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from tests.features.evaluation.conftest import SHOP, Shop
from tests.support.workdir import Workdir, forgotten_modules

RECORDED_CALLS = ["lookup 7", "pay 49.99"]


@pytest.fixture(scope="module")
def recorded_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    with forgotten_modules(folder):
        made = Shop(Workdir(folder))
        made.record()
        made.workdir.run("dataset", "add", "support", "--run", "shop-1")
        yield made


@pytest.fixture
def shop(recorded_shop: Shop) -> Shop:
    """The shop that the tests of this module share; no test adds to its dataset."""
    recorded_shop.workdir.write("called.txt", "".join(f"{call}\n" for call in RECORDED_CALLS))
    return recorded_shop


PLAYBOOK = "# Hi\n\n## INPUTS\n\n- `who` (string: you)\n\n## STEP 1: Greet\n\nGreet {{who}}.\n\n@output(greeting)\n"

FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "total",
    "steps": {
        "total": {"action": "Pass", "next": "wait", "assign": {"at": "{{ string(wallTime()) }}"}},
        "wait": {"action": "Sleep", "for": "PT0.01S", "next": "tell"},
        "tell": {"action": "Return", "value": "{{ vars.at }}"},
    },
}

GRAPH = {
    "metadata": {"id": "g", "name": "g", "created_time": 0, "created_by": "u"},
    "nodes": [
        {
            "id": "t",
            "name": "t",
            "type": "TRIGGER",
            "subtype": "WEBHOOK",
            "configurations": {"webhook_path": "/x"},
        },
        {
            "id": "i",
            "name": "i",
            "type": "FLOW",
            "subtype": "IF",
            "configurations": {"condition_expression": "$json.body.n > 1"},
        },
    ],
    "connections": [{"id": "c", "from_node": "t", "to_node": "i"}],
    "triggers": ["t"],
}

PYTHON = """\
from callboard import step, workflow

@step
async def double(n: int) -> int:
    return 2 * n

@workflow
async def doubled_in_the_test(n: int) -> int:
    return await double(n)
"""


def test_the_unchanged_definition_is_identical_without_a_child_run_or_a_call(shop: Shop) -> None:
    report = shop.eval()
    [row] = report["rows"]
    assert (row["verdict"], row["origin"], row.get("run")) == ("identical", "shop-1", None)
    assert report["candidates"]["baseline"]["answered"] == {"recorded": 9}
    assert shop.called() == RECORDED_CALLS
    types = [event["type"] for event in shop.workdir.events(report["experiment"])]
    assert "child.start" not in types
    assert types[-1] == "run.end"


def test_runs_of_all_languages_are_identical(workdir: Workdir) -> None:
    scripts = {"turns": {"1": [{"text": "Hello"}], "a": [{"text": "Hello"}]}}
    script = workdir.write("all.json", scripts)
    one = "id: one\nname: One\nentry: a\nnodes:\n  a: {name: A, instruction: Say something.}\nedges: []\n"
    workdir.write("one.yaml", one)
    workdir.write("two.md", PLAYBOOK)
    workdir.write("three.json", FLOW)
    workdir.write("four.json", GRAPH)
    workdir.write("five_in_the_test.py", PYTHON)
    request = json.dumps({"body": {"n": 2}, "method": "POST"})
    for words in (
        ("one.yaml", "--script", script),
        ("two.md", "--script", script, "--input", '{"who": "Ada"}'),
        ("three.json",),
        ("four.json", "--input", request, "--option", "user_id=u"),
        ("five_in_the_test.py:doubled_in_the_test", "--input", '{"n": 2}'),
    ):
        done = workdir.run("run", *words)
        assert done.exit_code == 0, done.output
    assert workdir.run_json("dataset", "add", "all", "--where", "status=completed")["cases"] == 5
    report = workdir.run_json("eval", "all", "--code", "five_in_the_test.py")
    assert report["candidates"]["baseline"]["verdicts"] == {"identical": 5}, report["rows"]


def test_a_changed_prompt_asks_only_for_the_turns_that_differ(shop: Shop) -> None:
    shop.workdir.write("new.yaml", SHOP.replace("Refund the amount.", "Refund it at once."))
    row = shop.row("--definition", "new.yaml")
    assert (row["verdict"], row["answered"]) == ("equal", {"live": 2, "recorded": 7})
    assert row["first"]["requested"].startswith("node.enter at refund")
    assert shop.called() == RECORDED_CALLS
    [first] = [one for one in shop.workdir.events(row["run"]) if one["type"] == "run.accepted"]
    assert first["payload"]["forked_from"]["run"] == "shop-1"
    assert first["payload"]["parent"]["run"] != ""


def test_a_call_with_other_arguments_is_refused_and_a_regression(shop: Shop) -> None:
    row = shop.row("--script", shop.script(amount=499.99))
    assert (row["verdict"], row["answered"]["refuse"]) == ("regressed", 1)
    [change] = row["changes"]
    assert (change["kind"], change["places"]) == (
        "arguments",
        [{"pointer": "/amount", "left": 49.99, "right": 499.99}],
    )
    assert shop.called() == RECORDED_CALLS


def test_a_call_with_other_arguments_is_made_if_its_policy_is_live(shop: Shop) -> None:
    row = shop.row("--script", shop.script(amount=499.99), "--tool", "pay=live")
    assert (row["verdict"], row["answered"].get("refuse")) == ("regressed", None)
    assert shop.called() == [*RECORDED_CALLS, "pay 499.99"]


def test_a_call_with_other_arguments_is_answered_by_the_script_if_its_policy_says_so(shop: Shop) -> None:
    shop.workdir.write(
        "other.json",
        {
            **json.loads((shop.workdir.folder / shop.script(amount=1.0)).read_text()),
            "tools": {"pay": [{"output": "paid"}]},
        },
    )
    row = shop.row("--script", "other.json", "--tool", "pay=script")
    assert (row["answered"]["script"], row["changes"][0]["kind"]) == (1, "arguments")
    assert shop.called() == RECORDED_CALLS


def test_other_words_in_the_answer_are_a_change_and_no_regression(shop: Shop) -> None:
    row = shop.row("--script", shop.script(said="The money is on its way."))
    assert (row["verdict"], [one["kind"] for one in row["changes"]]) == ("changed", ["wording"])


def test_another_route_is_a_regression(shop: Shop) -> None:
    row = shop.row("--script", shop.script(route="deny"))
    kinds = {one["kind"] for one in row["changes"]}
    assert (row["verdict"], kinds >= {"calls", "routes"}) == ("regressed", True)


def test_an_experiment_that_is_continued_shows_its_report_again(shop: Shop) -> None:
    report = shop.eval()
    again = shop.workdir.run_json("eval", "--continue", report["experiment"])
    assert again == report


def test_the_gate_sets_the_exit_code_and_writes_its_files(shop: Shop) -> None:
    other = shop.script(amount=499.99)
    files = ("--junit", "junit.xml", "--markdown", "summary.md")
    done = shop.workdir.run("eval", "support", "--script", other, "--fail-on", "regressions > 0", *files)
    assert (done.exit_code, "failed: regressions > 0" in done.stderr) == (1, True)
    assert "pay at refund /amount: 49.99 → 499.99" in done.stdout
    suite = ElementTree.parse(shop.workdir.folder / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert "**failed**: regressions > 0" in (shop.workdir.folder / "summary.md").read_text()
    assert shop.workdir.run("eval", "support", "--fail-on", "regressions > 0").exit_code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("eval", "unknown"), "dataset.unknown"),
        (("eval", "support@7"), "dataset.unknown"),
        (("eval", "--continue", "shop-1"), "experiment.unknown"),
        (("eval", "--continue", "nothing"), "run.unknown"),
        (("eval", "support", "--fail-on", "nonsense >"), "expression.refused"),
    ],
)
def test_wrong_requests_are_refused(shop: Shop, words: tuple[str, ...], code: str) -> None:
    done = shop.workdir.run(*words, "--json")
    assert done.exit_code != 0
    assert code in done.stdout


def test_scorers_judge_the_record_and_the_candidate(shop: Shop) -> None:
    shop.workdir.write("cases.jsonl", json.dumps({"run": "shop-1", "expected": {"summary": "Sorry, no."}}) + "\n")
    shop.workdir.write("scorers_of_the_test.py", SCORERS)
    assert shop.workdir.run("dataset", "add", "scored", "cases.jsonl").exit_code == 0
    schema = shop.workdir.write("schema.json", {"type": "object", "required": ["summary"]})
    words = ("--score", "exact", "--score", "contains", "--score", f"schema={schema}")
    more = ("--score", "cel=output.summary == expected.summary", "--score", "scorers_of_the_test.py")
    other = shop.script(said="Sorry, no.")
    report = shop.eval("--script", other, *words, *more, "--fail-under", "exact=0.9", dataset="scored")
    scores = report["candidates"]["candidate"]["scores"]
    means = {name: (one["before"]["mean"], one["after"]["mean"]) for name, one in scores.items() if one["after"]}
    assert means == {"exact": (0, 1), "contains": (0, 1), "schema": (1, 1), "cel": (0, 1), "short": (0, 1)}
    assert (report["rows"][0]["verdict"], len(report["problems"])) == ("improved", 1)
    assert "ZeroDivisionError" in report["problems"][0]


SCORERS = """\
from callboard import scorer

@scorer
def short(output):
    return len(output["summary"]) < 12

@scorer
def broken(output):
    return 1 / 0
"""


def test_an_encrypted_run_is_performed_with_its_key_and_skipped_without_it(shop: Shop) -> None:
    shop.record("secret-1", "--encryption-key", "customer-7")
    shop.workdir.run("dataset", "add", "secrets", "--run", "secret-1")
    shop.workdir.write("new.yaml", SHOP.replace("Refund the amount.", "Refund it at once."))
    [plain] = shop.workdir.run_json("eval", "secrets", "--definition", "new.yaml")["rows"]
    assert (plain["verdict"], plain["error"]["code"]) == ("skipped", "case.encrypted")
    words = ("--definition", "new.yaml", "--encryption-key", "customer-7")
    [row] = shop.workdir.run_json("eval", "secrets", *words)["rows"]
    assert (row["verdict"], row["answered"]) == ("equal", {"live": 2, "recorded": 7})
    accepted = shop.workdir.events(row["run"])[0]
    assert accepted["payload"]["encryption_key"] == "customer-7"
    with shop.workdir.up():
        assert shop.workdir.run("forget", "customer-7", "--yes").exit_code == 0
    [skipped] = shop.workdir.run_json("eval", "secrets")["rows"]
    assert (skipped["verdict"], skipped["error"]["code"]) == ("skipped", "log.unreadable")


def test_repetitions_perform_the_unchanged_definition_beside_the_candidate(shop: Shop) -> None:
    shop.workdir.write("new.yaml", SHOP.replace("Refund the amount.", "Refund it at once."))
    report = shop.eval("--definition", "new.yaml", "--repeat", "2")
    rows = {(row["candidate"], row.get("repeat", 1)): row["verdict"] for row in report["rows"]}
    assert rows == {(name, repeat): "equal" for name in ("baseline", "candidate") for repeat in (1, 2)}
    assert report["candidates"]["baseline"]["answered"] == {"live": 10, "recorded": 8}
    assert shop.called() == RECORDED_CALLS


def test_an_experiment_ends_at_its_limit_and_reports_the_cases_so_far(shop: Shop) -> None:
    report = shop.eval("--script", shop.script(amount=499.99), "--limit", "turns=1")
    assert report["status"] == "cancelled"
    assert report["rows"] == []


def test_an_experiment_is_performed_beside_a_running_server(shop: Shop) -> None:
    with shop.workdir.up():
        row = shop.row("--script", shop.script(amount=499.99))
    assert row["verdict"] == "regressed"
    assert shop.called() == RECORDED_CALLS
