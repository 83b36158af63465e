"""A long conversation that is killed at every step and finished elsewhere: a dozen turns, tools, MCP, a retry.

Tools run in parallel, scripted ones and those of an MCP server over stdio; a judge and a value decide, the first
attempt is found wanting and the second passes. A worker process dies by SIGKILL behind each step of it in turn, and
the next one goes on. Tools in a process of their own are in tests/e2e/kills/test_kill.py.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio

from callboard.bus import events as ev
from tests.e2e.kills.test_kill import Case, lane, undisturbed
from tests.support.places import TESTS
from tests.support.worker_process import Kill, When
from tests.support.worker_processes import end_payload, open_fleet, until_end
from tests.support.workflows import document, scripted_skill

LANES = 8
"""How many chains of workers die beside each other; most of their time they wait."""

TURNS = 12

STEPS = ("model.result", "tool.result", "effect.result", "node.enter", "node.retry", "node.exit", "route", "run.end")
"""Events that a step of the conversation ends with."""

SCALES = str(TESTS / "fixtures" / "tools" / "mcp_scales.py")
SKILLS = [
    scripted_skill("desk", "search"),
    scripted_skill("scales", tools=[], mcp={"command": sys.executable, "args": ["-S", SCALES]}),
]
FOUND = {"type": "object", "properties": {"grams": {"type": "integer"}}, "required": ["grams"]}
INQUIRY = document(
    {
        "inquire": {
            "skills": ["desk", "scales"],
            "output": FOUND,
            "eval": [
                {"name": "heavy", "kind": "value", "rule": {"output_matches": [{"path": "grams", "equals": 5}]}},
                {"name": "sound", "kind": "judge", "rubric": "Is it sound?"},
            ],
            "retry": {"max": 1, "instruction": {"reflect": "What was forgotten?"}},
        },
        "report": {},
    },
    [("inquire", "report", "all is clear")],
)


def search(k: int) -> dict[str, Any]:
    return {"tool": "search", "input": {"q": f"question {k}"}}


def weigh(what: str) -> dict[str, Any]:
    return {"tool": "weigh", "input": {"what": what}}


def turn(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(calls), "usage": {"input_tokens": 10, "output_tokens": 2}}


SCRIPT: dict[str, Any] = {
    "turns": {
        "inquire": [
            turn(search(1), weigh("apple")),
            turn(weigh("fig")),
            turn(weigh("plum"), weigh("cherry")),
            turn(search(2)),
            turn(weigh("lemon")),
            {"data": {"grams": 3}},
            turn(weigh("apple"), search(3)),
            turn(search(4)),
            turn(weigh("pear")),
            turn(search(5)),
            {"data": {"grams": 5}},
        ],
        "report": [{"text": "five grams"}],
    },
    "judges": {"inquire/sound": ["no", "yes"]},
    "asks": {"inquire": ["You forgot to weigh the apple."]},
    "routes": {"inquire": ["report"]},
    "tools": {"search": [{"output": {"hits": 1}}, {"error": "slow"}, *({"output": {"hits": k}} for k in (3, 4, 5))]},
}


def start(run_id: str) -> dict[str, Any]:
    return {
        "definition": {"language": "workflow", "source": json.dumps(INQUIRY)},
        "input": {},
        "run_id": run_id,
        "model": "scripted",
        "script": SCRIPT,
        "options": {"skills": SKILLS},
    }


CASE = Case("conversation", start, until_end, ["tool.result", "model.result", "node.retry", "effect.result", "route"])


async def test_a_conversation_is_killed_at_every_step_and_finished_elsewhere(tmp_path: Path) -> None:
    async with open_fleet(tmp_path, partitions=2) as fleet:
        fleet.preload = ["mcp"]
        expected = await undisturbed(fleet, CASE)
        asked = Counter(
            call.purpose for item in expected if isinstance(call := ev.payload_of(item.event), ev.ModelCall)
        )
        assert asked == {"turn": TURNS, "judge": 2, "reflect": 1, "route": 1}
        assert end_payload(expected).results["inquire"]["evals"][1]["pass"] is True
        steps = [n for n, item in enumerate(expected, 1) if item.event.type in STEPS]
        kills = [Kill("after", "append", n) for n in steps]
        assert len(kills) > 30
        async with anyio.create_task_group() as tasks:
            for i in range(LANES):
                tasks.start_soon(lane, fleet, CASE, f"lane-{i}", kills[i::LANES], expected)
        runs = [f"lane-{i}-{k}" for i in range(LANES) for k in range(len(kills[i::LANES]))]
        assert all(fleet.carried(run) for run in runs)


async def test_a_turn_is_paid_for_once_unless_its_answer_was_lost(tmp_path: Path) -> None:
    """Killed before the answer is recorded, a turn is asked again; killed behind it, never."""
    async with open_fleet(tmp_path, partitions=2) as fleet:
        fleet.preload = ["mcp"]
        expected = await undisturbed(fleet, CASE)
        answered = [k for k, item in enumerate(expected, 1) if item.event.type == "model.result"]
        middle = answered[len(answered) // 2]
        key = expected[middle - 1].event.key
        asked_by_when: dict[When, int] = {"before": 2, "after": 1}
        for when, asked in asked_by_when.items():
            await lane(fleet, CASE, when, [Kill(when, "append", middle)], expected)
            assert sum(carried.key == key for carried in fleet.carried(f"{when}-0")) == asked
