"""The death of the process that performs an experiment, by SIGKILL, and its continuation by another command."""

import json
import time
from typing import Any

from tests.features.evaluation.conftest import Shop

WAITING = '''\
import time
from pathlib import Path

def lookup(id: str) -> dict:
    """Look up."""
    return {"amount": 49.99}

def pay(amount: float) -> dict:
    """Pay; other amounts than the recorded one wait until the test lets them go."""
    if amount != 49.99:
        Path("begun").touch()
        while not Path("go").exists():
            time.sleep(0.01)
    return {"paid": amount}
'''

PATIENCE_S = 60.0


def test_an_experiment_whose_process_is_killed_is_continued_without_doubling_or_losing_a_case(shop: Shop) -> None:
    for number in range(2, 5):
        shop.record(f"shop-{number}")
    workdir, folder = shop.workdir, shop.workdir.folder
    workdir.run("dataset", "add", "support", "--where", "definition=shop")
    workdir.write("shoptools_of_the_test.py", WAITING)
    words = ("--script", shop.script(amount=499.99), "--tool", "pay=live", "--run-id", "the-experiment")
    with workdir.process("eval", "support", *words) as process:
        until = time.monotonic() + PATIENCE_S
        while not (folder / "begun").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.01)
        process.kill()
        process.wait()
    workdir.write("go", "")
    done = workdir.run("eval", "--continue", "the-experiment", "--json")
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    rows = {row["case"]: row for row in report["rows"]}
    assert rows.keys() == {"shop-1", "shop-2", "shop-3", "shop-4"}
    assert len(report["rows"]) == 4
    assert {row["changes"][0]["kind"] for row in rows.values()} == {"arguments"}
    events = workdir.events("the-experiment")
    started = [event["key"] for event in events if event["type"] == "child.start"]
    assert sorted(started) == sorted({event["key"] for event in events if event["type"] == "child.end"})
    assert len(started) == 4
    assert len([event for event in events if event["type"] == "run.claimed"]) > 1
    runs = workdir.run_json("runs", "--where", "tag.experiment=the-experiment")
    assert {row["run"] for row in runs} == {row["run"] for row in rows.values()}
    assert workdir.run("replay", "the-experiment").exit_code == 0
