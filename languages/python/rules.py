"""Rules: changes of the interpreter's decisions. A run keeps the rules that were in force at its admission, so that its
log replays without a divergence. Pure.

Each constant is the first generation of runs that follow the rule; `RunInfo.rules` is the generation of a run.
"""

HELD_BY_PAUSES = 1
"""A paused run does not continue: no code is executed and no effect begins until it is resumed or cancelled."""

SETS_HAVE_AN_ORDER = 2
"""The sets in values are written in one order, not in that of the hashes in the process."""

ONLY_ARGUMENTS = 3
"""The input of a child run that is a workflow may be its only argument, also if that is no object."""

ALL_APPROVALS = 4
"""Each of several settings of a graph or an agent that demand an approval holds. Before, a durable graph that another
one called had the settings of that one only, and calls of tools that a provider makes were not asked about."""

SAME_IN_ALL_PYTHONS = 5
"""Tasks and timers have addresses that do not depend on how a version of asyncio is built: `waiting` has the functions
that differ, and the tasks that close generators are not numbered among those of the workflow."""

BYTES_HAVE_A_FORM = 6
"""Bytes are written in base64, behind `values.BYTES`, instead of as text."""

MACHINE_IS_HIDDEN = 7
"""The local time zone is UTC, and what differs between machines, such as the environment, is refused."""

OWN_PRIMITIVES = 8
"""Locks, semaphores and queues of asyncio that outlive a run are separate for each run."""

LATEST = 8
"""The generation of newly admitted runs."""
