"""The state that a workflow sets: a reader gets its latest value, also right after an answer."""

import json
from pathlib import Path

import pytest

from callboard import Runtime, ask, set_state, workflow
from callboard.testing import Scenario
from tests.support.workdir import Workdir


@workflow
async def cart() -> list[str]:
    items: list[str] = []
    while (item := await ask("next item", str)) != "pay":
        items.append(item)
        set_state(items)
    return items


@pytest.mark.usefixtures("own_servers")
async def test_a_reader_has_the_state_that_follows_an_answer(tmp_path: Path) -> None:
    async with Runtime(data_dir=tmp_path, code=[cart]) as runtime:
        run = await runtime.start(cart)
        assert (await run.show()).state is None
        for n in range(5):
            await run.answer(f"item {n}")
            assert (await run.show()).state == [f"item {i}" for i in range(n + 1)]
        await run.answer("pay")
        result = await run.result()
        assert result.output == result.state
    workdir = Workdir(tmp_path)
    shown = workdir.call("show", run.id, "--data-dir", str(tmp_path)).stdout
    assert "State:\n  [" in shown
    assert (
        json.loads(workdir.call("show", run.id, "--json", "--data-dir", str(tmp_path)).stdout)["state"] == result.state
    )


def test_the_state_is_the_same_after_every_crash() -> None:
    with Scenario() as scenario:
        scenario.start(cart).answer("a").answer("b").answer("pay")
        scenario.crash_everywhere()
