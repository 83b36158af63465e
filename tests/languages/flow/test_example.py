"""The example of a flow, run as its README describes: real tools, a busy warehouse, a person, released reservations."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.languages.flow.language import LANGUAGE
from callboard.languages.plan import Definition, Plan
from tests.support.places import ROOT
from tests.support.workdir import Workdir, next_event

EXAMPLE = ROOT / "examples" / "flow-orders"
ORDER: dict[str, Any] = json.loads((EXAMPLE / "order.json").read_text())


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    """A copy of the example, to run it in."""
    shutil.copytree(EXAMPLE, tmp_path / "orders", ignore=shutil.ignore_patterns("__pycache__"))
    return Workdir(tmp_path / "orders")


def run_example(workdir: Workdir, *args: str) -> tuple[int, list[dict[str, Any]]]:
    """Run the flow; return the exit code and the events."""
    done = workdir.call("run", "flow.json", "--data-dir", "temp", "--stream", *args)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def routes(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["payload"]["to"] for event in events if event["type"] == "route" and event["path"].count("/") == 1]


def tools(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["payload"]["tool"] for event in events if event["type"] == ev.ToolCall.type]


def test_the_flow_is_valid_without_a_warning() -> None:
    definition = LANGUAGE.parse((EXAMPLE / "flow.json").read_text())
    assert isinstance(definition, Definition), definition
    plan = LANGUAGE.admit(definition, StartRun(DefinitionSource("flow"), input=ORDER))
    assert isinstance(plan, Plan)
    assert (definition.warnings, plan.warnings) == ((), ())


def test_a_busy_warehouse_is_retried_and_the_order_is_sent(workdir: Workdir) -> None:
    code, events = run_example(workdir, "--input", "@order.json")
    assert code == 0
    assert routes(events) == ["price", "judge", "charge", "done"]
    output = events[-1]["payload"]["output"]
    assert (output["order"], output["total"], len(output["lines"])) == ("A-17", 434, 2)
    [retry] = [event for event in events if event["type"] == "node.retry"]
    assert retry["path"] == "main/reserve[1]/ask:mw0"
    assert retry["payload"]["error"]["code"] == "Warehouse.Busy"
    assert sorted(tools(events)) == ["charge", "reserve", "reserve", "reserve", "total"]


def test_a_declined_card_fails_the_order_and_releases_the_reservations(workdir: Workdir) -> None:
    code, events = run_example(workdir, "--input", json.dumps({**ORDER, "card": "5000"}))
    assert code == 1
    result = events[-1]["payload"]["results"]
    assert (result["code"], result["previous"]["code"]) == ("Order.Unpaid", "Provider.Call.Tool.Failed")
    assert tools(events)[-1] == "release"


def test_a_shortage_is_not_retried(workdir: Workdir) -> None:
    code, events = run_example(workdir, "--input", json.dumps({**ORDER, "lines": [{"sku": "desk", "count": 9}]}))
    assert code == 1
    assert events[-1]["payload"]["error"]["code"] == "Order.Unavailable"
    assert tools(events) == ["reserve", "release"]


@pytest.mark.parametrize(("answer", "code", "end"), [("yes", 0, "done"), ("no", 1, "refused")])
def test_an_expensive_order_needs_an_approval(workdir: Workdir, answer: str, code: int, end: str) -> None:
    with workdir.up():
        run = workdir.start_run("flow.json", "--input", "@order.json", "--arguments", '{"limit": 100}')
        with workdir.process("watch", run, "--json") as watching:
            asked = next_event(watching, "human.asked")
            assert asked["payload"]["question"] == "Order A-17 comes to 434 euros. Send it?"
            workdir.run_json("answer", run, asked["key"], answer, "--by", "ada")
            ended = next_event(watching, "run.end")
            assert watching.wait() == code
        assert ended["payload"]["status"] == ("failed" if code else "completed")
        assert workdir.run_json("show", run)["path"][-1] == end
