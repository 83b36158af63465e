"""A playbook that is killed at every boundary: three questions, two breakpoints, a branch and a tool, on real workers.

Each worker dies by SIGKILL before or after an append of the run, and the next one continues it; another process answers
and resumes. The run ends as it does without any death.
"""

from pathlib import Path
from typing import Any

import anyio

from callboard.bus import events as ev
from callboard.bus.commands import Answer, Resume
from callboard.bus.log.port import Recorded
from callboard.projections.projection import fold
from callboard.projections.results.playbook_state import PlaybookState
from callboard.service.client.client import Client
from tests.e2e.kills.test_kill import Case, deaths, lane, undisturbed
from tests.support.playbook_cases import block, declared, doc, steps, sub
from tests.support.worker_processes import PATIENCE_S, end_payload, open_fleet, say

LANES = 8
"""How many chains of workers die beside each other; most of their time they wait."""

AT_LENGTH = sub("3a", "At length.\n@output(draft)") + "\n\n" + sub("3b", '@elicit(confirm, "Good?")')
SOURCE = doc(
    declared("- `topic` (string)"),
    steps(
        'Outline {{topic}}.\n@elicit(input, "For whom?")\n@output(outline: enum, "short", "long", extract:"form")',
        '@tool(desk, search, {"q": "{{topic}}", "for": "{{__elicit_step_1}}"})\n@output(found)',
        "Write about {{found}}.\n\n" + block(('if outline == "long"', AT_LENGTH), ("else", sub("3c", "In short."))),
        '@elicit(select, "Where to?", "mail", "web")\n@output(channel)',
        "@prompt({{draft}})\nFor {{channel}}.",
    ),
    "## ARTIFACTS\n\ntype: markdown",
)
SCRIPT: dict[str, Any] = {
    "turns": {
        "1": [{"text": 'As JSON: {"form": "long"}', "usage": {"input_tokens": 9, "output_tokens": 3}}],
        "3a": [{"text": "At great length."}],
        "5": [{"text": "Finished."}],
    },
    "tools": {"search": [{"output": {"hits": 3}}]},
}
ANSWERS = {"1#1.1!ask": "children", "3/3b#1.1!ask": True, "4#1.1!ask": "web"}


def start(run_id: str) -> dict[str, Any]:
    return {
        "definition": {"language": "playbook", "source": SOURCE},
        "input": {"topic": "tides"},
        "run_id": run_id,
        "model": "scripted",
        "script": SCRIPT,
        "breakpoints": [2, 3],
    }


async def attended(client: Client, run_id: str) -> list[Recorded]:
    """Follow a run to its end; answer, and resume, whatever it parks for, once each."""
    said: set[str] = set()
    seen: list[Recorded] = []
    with anyio.fail_after(PATIENCE_S):
        async with client.follow(run_id) as feed:
            async for recorded in feed:
                seen.append(recorded)
                payload = ev.payload_of(recorded.event)
                if isinstance(payload, ev.RunEnd):
                    return seen
                for key in payload.awaits if isinstance(payload, ev.RunParked) else []:
                    if key in said:
                        continue
                    said.add(key)
                    if key in ANSWERS:
                        await say(client, run_id, "answer", Answer(key, user_response=ANSWERS[key]))
                    elif "!gate.after" in key:
                        await say(client, run_id, "resume", Resume(variables={"seen": key}))
    raise AssertionError(f"{run_id} never ended")


CASE = Case("playbook", start, attended, ["human.closed", "run.resumed", "tool.result", "model.result", "route"])


async def test_a_playbook_is_killed_at_every_boundary_and_answered_from_elsewhere(tmp_path: Path) -> None:
    async with open_fleet(tmp_path, partitions=2) as fleet:
        expected = await undisturbed(fleet, CASE)
        end = end_payload(expected)
        assert (end.status, end.output) == ("completed", "Finished.")
        assert end.results["named_outputs"] == {
            "__elicit_step_1": "children",
            "outline": "long",
            "found": '{"hits":3}',
            "seen": "3#1.1!gate.after",
            "draft": "At great length.",
            "__elicit_step_3": "yes",
            "__elicit_step_4": "web",
            "channel": "web",
        }
        assert fold(PlaybookState(), [item.event for item in expected]).steps[0].input_tokens == 9
        kills = deaths(expected)
        async with anyio.create_task_group() as tasks:
            for i in range(LANES):
                tasks.start_soon(lane, fleet, CASE, f"lane-{i}", kills[i::LANES], expected)
