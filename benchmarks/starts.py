"""Starts: the time from a start message to the run's first stored intent, with the first turn in one commit and in two.

The two kinds of starts alternate, at one worker and one client, so that both see the same machine.
"""

import time
from statistics import median

from benchmarks.staffed import staffed_connection
from callboard.bus import events as ev
from callboard.runtime.admission import starts

STARTS = 200
ASKS = '# Ask\n\n## STEP 1: Ask\n\n@elicit(input, "Well?")\n@output(said)\n'
NEVER_S, ALWAYS_S = 0.0, 3600.0
"""Maximum ages of starts that are stored together with their first turn."""


async def report() -> None:
    usual = starts.AT_ONCE_S
    took: dict[float, list[float]] = {NEVER_S: [], ALWAYS_S: []}
    try:
        async with (
            staffed_connection("always") as connection,
            connection.client.follow(event_type=ev.HumanAsked.type) as asked,
        ):
            for n in range(STARTS):
                starts.AT_ONCE_S = (NEVER_S, ALWAYS_S)[n % 2]
                began = time.perf_counter()
                source = {"language": "playbook", "source": ASKS}
                await connection.client.start({"definition": source, "run_id": f"start-{n}"})
                await anext(asked)
                took[starts.AT_ONCE_S].append(time.perf_counter() - began)
    finally:
        starts.AT_ONCE_S = usual
    two, one = median(took[NEVER_S]), median(took[ALWAYS_S])
    print(f"start to first intent: {1000 * one:.1f} ms with one commit, {1000 * two:.1f} ms with two: {one / two:.2f}")
