"""Datasets: versions, samples, cases in files, and the runs that they keep."""

import json
from pathlib import Path

import pytest

from callboard.features.evaluation.datasets import CaseInvalid, sampled
from callboard.service.files.case_files import cases_in
from tests.features.evaluation.conftest import Shop


def test_each_addition_makes_a_version_and_earlier_ones_stay(shop: Shop) -> None:
    shop.record("shop-2")
    added = shop.workdir.run_json("dataset", "add", "support", "--where", "definition=shop")
    assert (added["version"], added["cases"]) == (2, 2)
    listed = shop.workdir.run_json("dataset", "list")
    assert [(row["name"], row["version"], row["cases"]) for row in listed] == [("support", 2, 2), ("support", 1, 1)]
    first = shop.workdir.run_json("dataset", "show", "support@1")
    assert [case["run"] for case in first["cases"]] == ["shop-1"]


def test_runs_of_experiments_are_no_cases(shop: Shop) -> None:
    report = shop.eval("--script", shop.script(amount=1.0))
    assert report["rows"][0]["run"]
    assert shop.workdir.run_json("dataset", "add", "again", "--where", "definition=shop")["cases"] == 1


def test_an_exported_dataset_can_be_added_again(shop: Shop) -> None:
    shop.workdir.run("dataset", "export", "support", "--output", "cases.jsonl")
    assert shop.workdir.run_json("dataset", "add", "copy", "cases.jsonl")["cases"] == 1
    shown = [shop.workdir.run_json("dataset", "show", name)["cases"] for name in ("support", "copy")]
    assert shown[0] == shown[1]


def test_a_run_of_a_dataset_is_purged_only_after_the_dataset_is_removed(shop: Shop) -> None:
    with shop.workdir.up():
        refused = shop.workdir.run("purge", "shop-1", "--yes")
        assert "the dataset support refers to it" in refused.stderr
        assert shop.workdir.run("dataset", "remove", "support").exit_code == 0
        assert shop.workdir.run("purge", "shop-1", "--yes").exit_code == 0
        assert shop.workdir.refusal("dataset", "show", "support")[1] == "dataset.unknown"


def test_a_run_that_does_not_exist_is_no_case(shop: Shop) -> None:
    assert shop.workdir.refusal("dataset", "add", "support", "--run", "nothing") == (1, "dataset.case")
    assert shop.workdir.run_json("dataset", "list")[0]["version"] == 1


def test_a_sample_is_the_same_for_the_same_seed_and_keeps_the_order() -> None:
    runs = [f"run-{number}" for number in range(50)]
    chosen = sampled(runs, 10, 1)
    assert chosen == sampled(runs, 10, 1) == [run for run in runs if run in chosen]
    assert chosen != sampled(runs, 10, 2)
    assert sampled(runs, 100, 1) == runs


def test_cases_are_read_from_jsonl_and_from_csv(tmp_path: Path) -> None:
    lines, columns = tmp_path / "a.jsonl", tmp_path / "b.csv"
    lines.write_text('{"input": {"order": {"id": 7}}, "expected": "yes", "tags": ["a", "b"]}\n\n')
    columns.write_text("input.order.id,expected,tags\n7,yes,a b\n")
    [one], [other] = cases_in(lines), cases_in(columns)
    assert one == other
    assert (one.input, one.expected, one.tags) == ({"order": {"id": 7}}, "yes", ["a", "b"])
    assert len(one.id) == 12


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.jsonl", "{}\nnonsense\n", ":1"),
        ("a.jsonl", '{"input": 1}\nnonsense\n', ":2"),
        ("a.jsonl", '{"input": 1, "run": "r"}\n', ":1"),
        ("a.jsonl", '{"input": 1, "answer": 2}\n', ":1"),
        ("a.csv", "input,input.a\n1,2\n", ":2"),
        ("a.csv", "input\n1,2\n", ":2"),
    ],
)
def test_a_line_that_is_no_case_is_named(tmp_path: Path, name: str, text: str, place: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(CaseInvalid) as caught:
        list(cases_in(file))
    assert caught.value.where == f"{file}{place}"


def test_cases_with_inputs_are_performed_with_a_definition(shop: Shop) -> None:
    shop.workdir.write("inputs.jsonl", json.dumps({"id": "one", "input": {}, "expected": "nothing"}) + "\n")
    shop.workdir.run("dataset", "add", "inputs", "inputs.jsonl")
    missing = shop.workdir.run_json("eval", "inputs")["rows"][0]
    assert (missing["verdict"], missing["error"]["code"]) == ("failed", "case.definition")
    words = ("--definition", "shop.yaml", "--script", "script.json", "--score", "exact")
    report = shop.workdir.run_json("eval", "inputs", *words)
    [row] = report["rows"]
    assert (row["verdict"], row["status"], row["scores"]) == ("performed", "completed", {"exact": 0.0})
