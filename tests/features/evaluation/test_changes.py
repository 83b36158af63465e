"""Changes of definitions, scripts and code in all languages: every regression is reported, and nothing else is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.features.evaluation.conftest import ORDERS, SHOP, TOOLS, answers
from tests.features.evaluation.test_experiments import GRAPH
from tests.support.workdir import Workdir, forgotten_modules

BOOK = "# Bill\n\n## INPUTS\n\n- `who` (string: you)\n\n## STEP 1: Bill\n\nWrite the amount for {{who}}.\n"

FLOW: dict[str, Any] = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "bill",
    "steps": {
        "bill": {"action": "Pass", "next": "tell", "assign": {"amount": "{{ 3.0 * 2.0 }}"}},
        "tell": {"action": "Return", "value": {"amount": "{{ vars.amount }}"}},
    },
}

CODE = """\
from callboard import child, step, workflow

@step
async def pay(amount: float) -> float:
    return amount

@workflow
async def receipt(amount: float) -> str:
    return f"paid {await pay(amount)}"

@workflow
async def billed_in_the_test(n: int) -> str:
    paid = await pay(n * 2.0)
    ran = await child(receipt, paid)
    return ran.output
"""

FILE = "billed_in_the_test.py"


class Change(NamedTuple):
    """A change of a run's definition or script, and the verdict about it."""

    run: str
    words: Callable[[Workdir], list[str]]
    verdict: str


def text(name: str, content: str, *more: str) -> Callable[[Workdir], list[str]]:
    """A candidate with another definition."""
    return lambda workdir: ["--definition", workdir.write(name, content), *more]


def flow(old: str, new: str) -> Callable[[Workdir], list[str]]:
    return text("new.json", json.dumps(FLOW).replace(old, new))


def graph(old: str, new: str) -> Callable[[Workdir], list[str]]:
    return text("new.json", json.dumps(GRAPH).replace(old, new))


def script(content: dict[str, Any]) -> Callable[[Workdir], list[str]]:
    """A candidate with another script."""
    return lambda workdir: ["--script", workdir.write("new-script.json", content)]


def code(old: str, new: str) -> Callable[[Workdir], list[str]]:
    """A candidate with edited code."""
    return lambda workdir: ["--code", workdir.write(FILE, CODE.replace(old, new))]


def skills(old: str, new: str) -> Callable[[Workdir], list[str]]:
    """A candidate whose tools are described otherwise."""

    def words(workdir: Workdir) -> list[str]:
        return ["--skills", workdir.write("new-skills.yaml", ORDERS.replace(old, new))]

    return words


def with_bill(said: str) -> dict[str, Any]:
    return {"turns": {"1": [{"text": said}]}}


CHANGES = {
    "workflow: a comment": Change("shop", text("new.yaml", f"# A comment.\n{SHOP}"), "identical"),
    "workflow: a prompt": Change("shop", text("new.yaml", SHOP.replace("Say no.", "Say no kindly.")), "identical"),
    "workflow: a prompt that is used": Change(
        "shop", text("new.yaml", SHOP.replace("Refund the amount.", "Refund it.")), "equal"
    ),
    "workflow: a name": Change("shop", text("new.yaml", SHOP.replace("name: Look,", "name: Find,")), "equal"),
    "workflow: a condition": Change(
        "shop", text("new.yaml", SHOP.replace("the amount is small", "the sum is small")), "equal"
    ),
    "workflow: an amount": Change("shop", script(answers(amount=499.99)), "regressed"),
    "workflow: a route": Change("shop", script(answers(route="deny")), "regressed"),
    "workflow: an amount in words": Change("shop", script(answers(said="We paid 499 today.")), "regressed"),
    "workflow: the description of a tool": Change("shop", skills("pay back", "pay the amount back"), "equal"),
    "workflow: the name of a tool": Change("shop", skills("name: pay", "name: pay_back"), "regressed"),
    "workflow: other words": Change("shop", script(answers(said="The money is back.")), "changed"),
    "playbook: a prompt": Change("book", text("new.md", BOOK.replace("Write the", "Write only the")), "equal"),
    "playbook: an amount": Change("book", script(with_bill("499.99")), "regressed"),
    "playbook: an amount in words": Change("book", script(with_bill("It is 499.99.")), "regressed"),
    "playbook: a failure": Change("book", script({"turns": {"1": [{"error": "overloaded"}]}}), "regressed"),
    "flow: a formula": Change("flow", flow("3.0 * 2.0", "3.0 * 20.0"), "regressed"),
    "flow: an equal formula": Change("flow", flow("3.0 * 2.0", "2.0 * 3.0"), "identical"),
    "flow: another answer": Change("flow", flow('{"amount": "', '{"sum": "'), "regressed"),
    "graph: a condition": Change("graph", graph("> 1", "> 5"), "regressed"),
    "graph: an equal condition": Change("graph", graph("> 1", "> 1.0"), "identical"),
    "python: a comment": Change("code", code("    paid =", "    # A comment.\n    paid ="), "identical"),
    "python: an argument of a step": Change("code", code("n * 2.0", "n * 20.0"), "regressed"),
    "python: the answer of a child": Change("code", code('f"paid', 'f"received'), "identical"),
    "python: another answer": Change("code", code("return ran.output", "return '0'"), "regressed"),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Workdir:
    """A folder with a run of each language, each in a dataset of its name."""
    folder = tmp_path_factory.mktemp("changes")
    workdir = Workdir(folder)
    workdir.write("shoptools_of_the_test.py", TOOLS)
    request = json.dumps({"body": {"n": 2}, "method": "POST"})
    runs = {
        "shop": ("shop.yaml", SHOP, "--script", workdir.write("shop.json", answers())),
        "book": ("book.md", BOOK, "--script", workdir.write("book.json", with_bill("49.99")), "-i", '{"who": "Ada"}'),
        "flow": ("flow.json", json.dumps(FLOW), "-i", '{"n": 3}'),
        "graph": ("graph.json", json.dumps(GRAPH), "-i", request, "--option", "user_id=u"),
        "code": (FILE, CODE, "-i", '{"n": 3}'),
    }
    for name, (file, content, *words) in runs.items():
        workdir.write("skills.yaml", ORDERS)
        workdir.write(file, content)
        target = f"{file}:billed_in_the_test" if name == "code" else file
        with forgotten_modules(folder):
            done = workdir.run("run", target, *words, "--run-id", name)
        assert done.exit_code == 0, done.output
        assert workdir.run("dataset", "add", name, "--run", name).exit_code == 0
    return workdir


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_has_its_verdict(recorded: Workdir, change: Change) -> None:
    words = change.words(recorded)
    before = Path(recorded.folder / "called.txt").read_text()
    # This process also has the code as it was.
    run = recorded.call if "--code" in words else recorded.run
    [row] = json.loads(run("eval", change.run, *words, "--json").stdout)["rows"]
    assert row["verdict"] == change.verdict, row
    assert Path(recorded.folder / "called.txt").read_text() == before


def test_several_definitions_and_models_are_candidates_of_one_experiment(recorded: Workdir) -> None:
    names = ["a.yaml", "b.yaml"]
    for name in names:
        recorded.write(name, SHOP.replace("Refund the amount.", f"Refund it as in {name}."))
    words = [word for name in names for word in ("--definition", name)]
    report = json.loads(recorded.run("eval", "shop", *words, "--json").stdout)
    assert {row["candidate"]: row["verdict"] for row in report["rows"]} == {"a.yaml": "equal", "b.yaml": "equal"}


@pytest.mark.parametrize(
    ("run", "node", "verdict", "live"),
    [("shop", "refund", "equal", 2), ("shop", "deny", "identical", None), ("book", "1", "equal", 1)],
)
def test_the_prompt_of_a_node_is_replaced_in_the_definition_of_each_case(
    recorded: Workdir, run: str, node: str, verdict: str, live: int | None
) -> None:
    prompt = recorded.write("prompt.txt", "Do it kindly.")
    [row] = json.loads(recorded.run("eval", run, "--prompt", f"{node}={prompt}", "--json").stdout)["rows"]
    assert (row["verdict"], row["answered"].get("live")) == (verdict, live)


def test_a_case_whose_code_is_not_there_fails_with_the_reason(recorded: Workdir) -> None:
    [row] = json.loads(recorded.call("eval", "code", "--json").stdout)["rows"]
    assert (row["verdict"], row["error"]["code"]) == ("failed", "case.refused")
    assert "code.unknown" in row["error"]["message"]


@pytest.mark.parametrize(("run", "node"), [("shop", "none"), ("flow", "bill"), ("graph", "t"), ("code", "pay")])
def test_a_node_whose_prompt_cannot_be_replaced_fails_the_case(recorded: Workdir, run: str, node: str) -> None:
    prompt = recorded.write("prompt.txt", "Do it kindly.")
    [row] = json.loads(recorded.run("eval", run, "--prompt", f"{node}={prompt}", "--json").stdout)["rows"]
    assert (row["verdict"], row["error"]["code"]) == ("failed", "case.prompt")
