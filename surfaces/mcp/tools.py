"""The tools: each from its checked arguments to its answer, through the operations of the service.

Errors for the caller are raised as `CallboardError` (with ``problems`` if there are several) or `ApiError`. A tool
that waits for the end of a run puts the run's questions to the person at the client.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio import to_thread

from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event, Problem
from callboard.bus.log.port import whole
from callboard.bus.log.successors import successor_of
from callboard.bus.nats.registrations import read_registration
from callboard.bus.subjects import RunRef
from callboard.features.access.vouchers import Vouchers, with_voucher
from callboard.languages.plan import Definition, Plan
from callboard.languages.registry import authoring, language, parse_definition
from callboard.lib.concurrency import background_tasks
from callboard.lib.json_types import JSON
from callboard.projections.lists.questions import Question, Questions
from callboard.projections.projection import fold, known_payload
from callboard.projections.trace.trace import TraceFold
from callboard.projections.trace.tree import Trace
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.registration import registered_names
from callboard.runtime.admission.start_message import MODEL_SCRIPTED, read_start
from callboard.runtime.admission.versions import UnknownDefinition, find_registration
from callboard.runtime.client.connection import Connection
from callboard.runtime.client.errors import RequestRefused
from callboard.service.files.local_files import text_of
from callboard.service.files.start_messages import prepare
from callboard.service.files.start_request import StartRequest
from callboard.service.files.validation import errors, examine_definition
from callboard.service.operations.narration import narrate
from callboard.service.operations.operation import read_request
from callboard.service.operations.operations import Operations
from callboard.service.operations.requests import ListQuestions, ListRuns, QuestionList, RunList
from callboard.service.operations.run_lists import Listings
from callboard.service.operations.tells import answered_question, reception_text, send_command, verdict_of
from callboard.surfaces.http.access import check_sees
from callboard.surfaces.mcp import answers, arguments
from callboard.surfaces.mcp.caller import Caller
from callboard.surfaces.mcp.library import Library, describe_definition
from callboard.surfaces.mcp.run_reports import page_of, run_of

_TOLD = frozenset(
    {
        ev.RunStart.type,
        ev.NodeEnter.type,
        ev.NodeExit.type,
        ev.NodeRetry.type,
        ev.NodeProgress.type,
        ev.NodeWarning.type,
    }
)
"""Events that are reported to callers that wait for a run's end."""


class Awaiting:
    """Waits for runs of one tenant."""

    def __init__(self, connection: Connection) -> None:
        self._client = connection.client
        self._vouchers = Vouchers(connection.log, connection.config.tenant, connection.config.replicas)

    async def run(self, run_id: str, wait_s: float, caller: Caller) -> answers.Run:
        """Wait for a run's end, put its questions to the person at the client, and return the run's state.

        If another run continues it, this waits for that one and returns its state.

        :raises ApiError: if the caller may not see the run
        """
        events = await self._client.events(run_id)
        check_sees(caller.subject, events)
        after = 0
        until = anyio.current_time() + wait_s
        while (left_s := until - anyio.current_time()) > 0:
            if events[-1].type in ev.AT_REST:
                if (successor := successor_of(events[-1])) is None:
                    break
                with anyio.move_on_after(left_s):
                    await self._client.await_admission(successor)
                    run_id, after = successor, 0
                    events = await self._client.events(run_id)
                continue
            after = await self._heard(run_id, after, left_s, caller)
            events = await self._client.events(run_id)
            for question in fold(Questions(), events):
                if caller.can_ask(question):
                    await self._put(question, caller)
        return run_of(events)

    async def _heard(self, run_id: str, after: int, wait_s: float, caller: Caller) -> int:
        """Report a run's events to the caller until it rests, asks a question, or the time is up.

        Return the sequence of the last event."""
        with anyio.move_on_after(wait_s):
            async with self._client.follow(run_id, after=after) as feed:
                async for recorded in feed:
                    event = await whole(self._client.log, recorded)
                    payload = known_payload(event)
                    after = recorded.sequence
                    if payload is not None and event.type in _TOLD:
                        await caller.report(narrate(event, payload))
                    if event.type in ev.AT_REST or (caller.asks and event.type == ev.HumanAsked.type):
                        break
        return after

    async def _put(self, question: Question, caller: Caller) -> None:
        """Put a question to the person at the client; withdraw it if the run closes it first."""
        answered, response = False, None

        async def wait_closed() -> None:
            async with self._client.follow(question.run) as feed:
                async for recorded in feed:
                    event = recorded.event
                    ours = event.type == ev.HumanClosed.type and event.key == question.key
                    if ours or event.type in ev.AT_REST:
                        break
            tasks.cancel_scope.cancel()

        async with background_tasks() as tasks:
            tasks.start_soon(wait_closed)
            answered, response = await caller.ask(question)
        if answered:
            await self.send_answer(question, response, caller)

    async def send_answer(self, question: Question, response: JSON, caller: Caller) -> None:
        """Send the person's answer to the run; if the question has been answered already, the first answer counts."""
        answer = {"interaction": question.key, "user_response": response, "by": caller.known_as(), "channel": "mcp"}
        with suppress(CallboardError):
            vouched = await with_voucher(self._vouchers, question.run, answer, caller.subject)
            await send_command(self._client, question.run, "answer", vouched)

    async def questions(self, run_id: str) -> Sequence[Question]:
        """Return the open questions of a run.

        :raises UnknownRun: if the run does not exist
        """
        return fold(Questions(), await self._client.events(run_id))


DEFINITIONS_MAX = 200
"""Limit of registered definitions in one list."""


class Tools:
    """Serves one tenant, with a connection to the runtime and a library of definitions.

    ``performer`` is the worker that has to perform the runs started here; empty for any worker.
    """

    def __init__(self, connection: Connection, library: Library, listings: Listings, performer: str = "") -> None:
        self._performer = performer
        self._connection = connection
        self.library = library
        self._operations = Operations(connection.log, Definitions(), listings)
        self._tenant = connection.config.tenant
        self.awaiting = Awaiting(connection)
        self._vouchers = Vouchers(connection.log, connection.config.tenant, connection.config.replicas)

    # -- definitions --------------------------------------------------------------------------------------------------

    async def list_workflows(self, asked: arguments.ListWorkflows, _caller: Caller) -> answers.Workflows:
        return await self.workflows(asked.folder)

    async def workflows(self, folder: str | None) -> answers.Workflows:
        """Return the definitions in a folder; without one, those in all folders and the registered ones."""
        found, more = await to_thread.run_sync(self.library.workflows, folder)
        registered = [] if folder else list(await registered_names(self._connection.log, self._tenant))
        for name in registered[:DEFINITIONS_MAX]:
            definition = await read_registration(self._connection.log, self._tenant, name)
            if definition is not None and definition.source is not None:
                found.append(describe_definition(definition.source, name=name))
        return answers.Workflows(workflows=found, more=more or len(registered) > DEFINITIONS_MAX)

    async def validate_workflow(self, asked: arguments.ValidateWorkflow, _caller: Caller) -> answers.Validation:
        if asked.file is not None:
            path = self.library.find(asked.file)
            source = text_of(path)
            definition = parse_definition(source, path.name)
            permit = self.library.check_named
            name, problems = await to_thread.run_sync(examine_definition, source, _order(path, asked), permit)
        else:
            source = asked.source if asked.source is not None else await self.registered_source(asked.name or "")
            name, problems, definition = _examine_source(source, asked)
        files: list[str] = []
        if isinstance(definition, Definition):
            known_files = authoring(definition.language).files(definition.document, asked.input)
            files = sorted(set(known_files.values()))
        return answers.Validation(valid=not errors(problems), language=name, problems=problems, files=files)

    async def registered_source(self, name: str) -> str:
        found = await find_registration(self._connection.log, self._tenant, name)
        if found is None or found.source is None:
            raise UnknownDefinition(name)
        return found.source

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def start_workflow(self, asked: arguments.StartWorkflow, caller: Caller) -> answers.Run:
        message, warnings = await self._message(asked)
        if by := caller.known_as():
            message["by"] = by
        start = read_start(msgspec.json.encode(message))
        if isinstance(start, list):
            raise RequestRefused("start", start)
        verdict = await self._connection.client.start(message, worker=self._performer)
        if verdict.status == "rejected" or verdict.run_id is None:
            raise RequestRefused("start", verdict.problems)
        run = await self.awaiting.run(verdict.run_id, asked.wait_s, caller)
        told = {(one.code, one.message): one for one in (*warnings, *verdict.warnings, *run.warnings)}
        return msgspec.structs.replace(run, warnings=list(told.values()), duplicate=verdict.duplicate)

    async def _message(self, asked: arguments.StartWorkflow) -> tuple[dict[str, Any], Sequence[Problem]]:
        model = asked.model or (MODEL_SCRIPTED if asked.script is not None else None)
        others = {
            "run_id": asked.run_id,
            "model": model,
            "script": asked.script,
            "tags": asked.tags or None,
            "attributes": asked.attributes or None,
            "encryption_key": asked.encryption_key,
        }
        message, warnings = await self._definition(asked)
        return message | {name: value for name, value in others.items() if value is not None}, warnings

    async def _definition(self, asked: arguments.StartWorkflow) -> tuple[dict[str, Any], Sequence[Problem]]:
        """Return the definition and input of a start message, and warnings about them."""
        if asked.file is not None:
            path = self.library.find(asked.file)
            request = _order(path, asked, dry_run=asked.dry_run, offline=asked.offline, strict=asked.strict)
            found = await to_thread.run_sync(prepare, request, self.library.check_named)
            options = {**asked.options, **found.message.get("options", {})}
            return found.message | ({"options": options} if options else {}), found.warnings
        which = {"name": asked.name} if asked.name is not None else {"source": asked.source}
        given = asked.input
        if asked.dry_run:
            given = (
                {**given, "dryRun": True} if isinstance(given, dict) else {"dryRun": True} if given is None else given
            )
        message: dict[str, Any] = {"definition": which, "input": given}
        flags = {name: True for name, wanted in (("offline", asked.offline), ("strict", asked.strict)) if wanted}
        options = {**asked.options, **flags}
        others = {"files": asked.files, "arguments": asked.arguments, "options": options}
        return message | {name: value for name, value in others.items() if value}, ()

    async def get_run(self, asked: arguments.GetRun, caller: Caller) -> answers.Run:
        return await self.awaiting.run(asked.run_id, asked.wait_s, caller)

    async def events(self, run_id: str) -> Sequence[Event]:
        """Return all events of a run.

        :raises UnknownRun: if the run does not exist
        """
        return await self._connection.client.events(run_id)

    async def result(self, run_id: str) -> answers.Run:
        """Return the state of a run. Raises as `events`."""
        return run_of(await self.events(run_id))

    async def trace(self, run_id: str) -> Trace:
        """Return the trace of a run. Raises as `events`."""
        return fold(TraceFold(), await self.events(run_id))

    async def list_runs(self, asked: arguments.ListRuns, _caller: Caller) -> RunList:
        request = read_request(asked.model_dump(exclude_none=True), ListRuns)
        return await self._operations.runs(self._tenant, request)

    async def list_questions(self, asked: arguments.ListQuestions, _caller: Caller) -> QuestionList:
        request = read_request(asked.model_dump(exclude_none=True), ListQuestions)
        return await self._operations.questions(self._tenant, request)

    async def watch_run(self, asked: arguments.WatchRun, _caller: Caller) -> answers.Page:
        client = self._connection.client
        ref = RunRef(self._tenant, asked.run_id)
        until = anyio.current_time() + asked.wait_s
        after = asked.after
        while True:
            page = await page_of(client, ref, asked, after)
            if page.events or page.ended or anyio.current_time() >= until:
                return page
            after = page.next_after
            with anyio.move_on_at(until):
                async with client.follow(asked.run_id, after=after) as feed:
                    async for _recorded in feed:
                        break

    # -- commands -----------------------------------------------------------------------------------------------------

    async def tell(self, asked: arguments.TellArguments, caller: Caller) -> answers.Told:
        run_id, verb = asked.run_id, asked.verb
        given = asked.model_dump(exclude={"run_id"}) | {"by": caller.known_as(asked.by)}
        body = {name: value for name, value in given.items() if value is not None}
        if verb == "answer":
            body = await with_voucher(self._vouchers, run_id, {**body, "channel": "mcp"}, caller.subject)
        found = await send_command(self._connection.client, run_id, verb, body)
        recorded = found.recorded.n if found.recorded is not None else None
        question = await answered_question(self._connection.client, run_id, found)
        return answers.Told(run_id, verb, verdict_of(found), recorded, reception_text(found, verb, question))


def _order(
    path: Path,
    asked: arguments.StartWorkflow | arguments.ValidateWorkflow,
    *,
    dry_run: bool = False,
    offline: bool = False,
    strict: bool = False,
) -> StartRequest:
    return StartRequest(
        str(path),
        None if asked.input is None else _text(asked.input),
        dry_run=dry_run,
        offline=offline,
        strict=strict,
        arguments_text=_text(asked.arguments) if asked.arguments else None,
    )


def _text(given: Any) -> str:
    return msgspec.json.encode(given).decode()


def _examine_source(
    source: str, asked: arguments.ValidateWorkflow
) -> tuple[str, list[Problem], Definition[Any] | list[Problem]]:
    """Return language, problems and definition of a text that does not come from a file."""
    definition = parse_definition(source)
    if isinstance(definition, list):
        return "", definition, definition
    start = StartRun(
        DefinitionSource(definition.language, source), input=asked.input, files=asked.files, arguments=asked.arguments
    )
    plan = language(definition.language).admit(definition, start)
    if isinstance(plan, Plan):
        return definition.language, [*definition.objections, *plan.objections, *plan.warnings], definition
    # Without an input, missing inputs are not problems.
    missed = [problem for problem in plan if asked.input is not None or not problem.where.startswith("input")]
    return definition.language, [*definition.warnings, *missed], definition
