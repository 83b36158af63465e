"""Replaying a run at the command line: its interpreter over its log, and what that came to."""

import os

import msgspec

from callboard.languages.registry import language
from callboard.runtime.interpreter.code import adopted_digest
from callboard.runtime.interpreter.replay import read_admission
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.secrets import secrets_of
from callboard.service.operations.narration import local
from callboard.service.operations.replays import Replayed, replay_events
from callboard.service.operations.results import compact, result_object
from callboard.service.operations.run_files import source
from callboard.surfaces.cli.output import say, style
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import node_line, open_line


async def replay_run(run: str, at: int | None, config: Config, settings: Settings) -> None:
    """Replay a run and print what it came to.

    :raises UnknownRun: if the run does not exist
    :raises LogUnreadable: if the run's log holds something that is not an event
    :raises ReplayDiverged: if the interpreter asks for something else than was recorded
    :raises CallboardError: ``replay.not_started``, ``replay.no_event``, or as `read_admission` does
    """
    async with source(config, run, name="callboard replay") as runs:
        ref, events = await runs.run(run)
    admission = read_admission(events[0], language, adopted_digest(events))
    replayed = replay_events(ref, events, admission, secrets_of(config, os.environ, admission), at)
    if settings.as_json:
        say(compact({**msgspec.to_builtins(replayed), "standing": result_object(replayed.standing)}))
    else:
        say(_describe_replay(replayed, settings))


def _describe_replay(replayed: Replayed, settings: Settings) -> str:
    standing = replayed.standing
    whole = replayed.at == replayed.events
    verified = "the interpreter asks for exactly what the log holds" if whole else "no difference so far"
    replayed_to = f"replayed {replayed.run} to event {replayed.at} of {replayed.events}"
    lines = [
        f"{style('✓', fg='green')} {replayed_to}: {verified}",
        f"  status {standing.status}",
    ]
    if standing.nodes:
        lines += ["", "Nodes:", *(node_line(node) for node in standing.nodes.values())]
    if replayed.open:
        lines += ["", "Open effects:", *(open_line(effect, replayed.run, settings) for effect in replayed.open)]
    if replayed.deadlines:
        lines += ["", "Deadlines:", *(f"  {local(one.due)}  {one.key}" for one in replayed.deadlines)]
    if replayed.unwritten:
        lines += [
            "",
            "Would be recorded next:",
            *(f"  {one.type}  {one.path}  {one.text}" for one in replayed.unwritten),
        ]
    return "\n".join(lines)
