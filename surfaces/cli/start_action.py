"""Starting a run at a running server: publish, wait for the verdict, say it."""

import os
from collections.abc import Sequence

import msgspec

from callboard.bus.errors import JetStreamDisabled, PermissionDenied
from callboard.bus.events import Problem
from callboard.bus.tracecontext import read, within
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.settings.config import Config
from callboard.service.api.starter import start_by_request
from callboard.service.operations.errors import RequestRefused
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.service.operations.start_messages import Message
from callboard.surfaces.cli.output import problem_text, say
from callboard.surfaces.cli.settings import Settings


async def publish(prepared: Message, config: Config, settings: Settings, file: str) -> None:
    """Publish a start message and print the run's id.

    :raises RequestRefused: if the start is refused
    :raises CallboardError: if there is no server, or no worker that answers
    """
    name = "callboard start"
    with within(read(os.environ)):
        try:
            async with reach(config, reads=False, name=name) as connection:
                verdict = await connection.client.start(prepared.message)
        except (PermissionDenied, JetStreamDisabled):
            if config.nats_url is None:
                raise
            # A user who may only ask workers, as `deploy/README.md` has it, or an account of a tenant.
            verdict = await start_by_request(prepared.message, config, name)
    if verdict.status == "rejected" or verdict.run_id is None:
        raise RequestRefused("start", verdict.problems, file)
    tell_started(verdict, [*prepared.warnings, *verdict.warnings], settings, file, prepared.source)


def tell_started(
    verdict: Verdict, warnings: Sequence[Problem], settings: Settings, file: str, source: str = ""
) -> None:
    """Print the id of a run that has been started, and what there is to warn of; ``file`` is where that stands."""
    if settings.as_json:
        found = {"run_id": verdict.run_id, "duplicate": verdict.duplicate}
        say(compact({**found, "warnings": msgspec.to_builtins(warnings)}))
        return
    for warning in warnings:
        say(problem_text(warning, file, source), err=True)
    if verdict.duplicate:
        say("it had been started before", err=True)
    say(verdict.run_id or "")
