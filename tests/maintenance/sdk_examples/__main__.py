"""The command: loads the examples of one SDK, performs each as a run, and prints a line for each."""

import asyncio
import importlib
import io
import logging
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from callboard import Runtime
from callboard.bus import events as ev
from tests.maintenance.sdk_examples import examples
from tests.maintenance.sdk_examples.examples import PROGRAMS, Example, Program

SDKS = ("openai_agents", "langgraph", "claude_agent", "pydantic_ai")

LIMIT_S = 60
"""How long an example may take."""


def main() -> int:
    """Perform the examples that the command line names."""
    name, checkout, *words = sys.argv[1:]
    if (name := name.replace("-", "_")) not in SDKS:
        sys.exit(f"SDK is one of {', '.join(SDKS)}, not {name}")
    sdk = importlib.import_module(f"tests.maintenance.sdk_examples.{name}")
    chosen = [one for one in sdk.EXAMPLES if not words or any(word in one.name for word in words)]
    logging.disable(logging.INFO)
    with TemporaryDirectory() as folder:
        load = partial(sdk.load, checkout=Path(checkout).resolve(), folder=Path(folder))
        return asyncio.run(_perform(chosen, load, Path(folder)))


async def _perform(chosen: list[Example], load: Callable[[Example], Program], folder: Path) -> int:
    failed = 0
    async with Runtime(data_dir=folder / "state", code=[examples], always_replay=True) as runtime:
        for one in chosen:
            try:
                with redirect_stdout(io.StringIO()) as printed:
                    PROGRAMS[one.name] = load(one)
                    counts = await asyncio.wait_for(_perform_one(runtime, one), LIMIT_S)
                missing = [part for part in one.prints if part not in printed.getvalue()]
                assert not missing, f"it does not print {missing}"
            except Exception as fault:
                failed += 1
                print(f"failed  {one.name}: {type(fault).__name__}: {fault}", flush=True)
            else:
                print(f"passed  {one.name}: {counts}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return min(failed, 1)


async def _perform_one(runtime: Runtime, one: Example) -> str:
    """Perform an example, and return what its log has.

    :raises AssertionError: if the run does not complete, or has not asked for each prepared turn
    """
    scripted: Any = {"script": {"turns": one.turns}} if one.turns else {}
    run = await runtime.start(registered="example", input={"name": one.name}, **scripted)
    answers = list(one.answers)
    counted = dict.fromkeys(("model.result", "effect.result", "tool.result", "human.asked"), 0)
    async for event in run.events():
        if event.type in counted:
            counted[event.type] += 1
        if event.type == "human.asked":
            await run.answer(answers.pop(0) if answers else True, interaction=event.key)
        payload = ev.payload_of(event)
        if isinstance(payload, ev.RunEnd):
            assert payload.status == "completed", payload.error
    expected = sum(map(len, one.turns.values()))
    asked = counted["model.result"]
    assert not one.turns or asked == expected, f"{asked} turns instead of {expected}"
    assert not answers, f"answers to no question: {answers}"
    steps = counted["effect.result"] + counted["tool.result"]
    return f"{asked} turns, {steps} calls, {counted['human.asked']} questions"


if __name__ == "__main__":
    sys.exit(main())
