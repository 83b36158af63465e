"""The ``process`` provider: a program on the worker's machine, in a temporary folder.

It is off unless the worker's operator allows commands or images (`callboard.actors.providers.process_rules`). However
the call ends, all processes that the program has started are killed, and the folder is removed.
"""

import time
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct, field

from callboard.actors.programs.program import Program
from callboard.actors.providers.process_rules import ProcessRules, allows
from callboard.actors.providers.provider import Answer, Request, failure, seconds_of, success
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.temporary_folders import TemporaryFolder

PROCESS = "mwl:provider.call/callboard/process/v1"
PREFIX = "Provider.Call.Process"

TIMEOUT = "PT60S"
TIMEOUT_MIN_S = 0.001

SHOWN_CHARS_MAX = 8_000
"""How much of the end of an output a failure shows."""

REMOVAL_S = 10.0
"""How long the removal of a container may take."""

_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class _Refused(Exception):
    """The program is not run; the answer says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.result["message"])
        self.answer = answer


class _TooMuch(Exception):
    """The program wrote more than is kept."""


class _Run(Struct):
    """A program that is about to run, and its output so far."""

    argv: list[str]
    env: dict[str, str]
    stdin: bytes
    bytes_max: int
    removal: list[str] | None = None
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)

    def keep(self, kept: bytearray, chunk: bytes) -> None:
        kept += chunk
        if len(self.stdout) + len(self.stderr) > self.bytes_max:
            raise _TooMuch


class ProcessProvider:
    """Runs programs that the rules allow."""

    def __init__(self, rules: ProcessRules) -> None:
        self._rules = rules

    async def execute(self, request: Request) -> Answer:
        arguments = request.arguments
        timeout = arguments.get("timeout", TIMEOUT)
        timeout_s = max(TIMEOUT_MIN_S, min(seconds_of(timeout), self._rules.timeout_max_s))
        began = time.monotonic()
        try:
            run = self._check_request(request)
            with anyio.fail_after(timeout_s):
                exit_code = await _run(run)
        except _Refused as refused:
            return refused.answer
        except (FileNotFoundError, PermissionError) as error:
            # With an image, the missing program is the command for containers.
            program = error.filename or arguments["argv"][0]
            return failure(f"{PREFIX}.NotFound", f"program {program!r} not found", retryable=False)
        except TimeoutError:
            message = f"{arguments['argv'][0]} was killed: it took longer than {timeout}"
            return failure(f"{PREFIX}.Timeout", message, type="timeout")
        except _TooMuch:
            message = f"{arguments['argv'][0]} wrote more than {self._rules.output_bytes_max} bytes"
            return failure(f"{PREFIX}.OutputTooLarge", message, retryable=False)
        metadata = {"exit_code": exit_code, "duration_ms": round((time.monotonic() - began) * 1000, 3)}
        return _answer(arguments, run, exit_code, metadata)

    def _check_request(self, request: Request) -> _Run:
        """Return the run that a call asks for.

        :raises _Refused: ``NotAllowed``, with the list of the allowed programs
        """
        rules, arguments = self._rules, request.arguments
        argv: list[str] = arguments["argv"]
        image: str | None = arguments.get("image")
        given: dict[str, str] = arguments.get("env", {})
        if image is None and not allows(rules.allow, argv):
            message = f"this worker does not run {' '.join(argv)!r:.200}"
            raise _not_allowed(message, "providers.process.allow", rules.allow)
        if image is not None and not allows(rules.images, [image]):
            message = f"this worker does not run the image {image!r:.200}"
            raise _not_allowed(message, "providers.process.images", rules.images)
        if foreign := sorted(set(given) - set(rules.settable)):
            message = f"calls may not set {', '.join(foreign)}"
            raise _not_allowed(message, "providers.process.settable", rules.settable)
        if any("\0" in text for text in (*argv, *given.values())):
            raise _not_allowed("an argument has a NUL in it", "providers.process.allow", rules.allow)
        stdin: str | None = arguments.get("stdin")
        content = msgspec.json.encode(request.input) if stdin is None else stdin.encode()
        if image is None:
            return _Run(argv, {**rules.env, **given}, content, rules.output_bytes_max)
        name = f"callboard-{request.idempotency_key[:32]}"
        variables = [word for variable in given for word in ("--env", variable)]
        command = [rules.containers, "run", "--rm", "--interactive", "--name", name, *variables, image, *argv]
        removal = [rules.containers, "rm", "--force", name]
        return _Run(command, {**rules.env, **given}, content, rules.output_bytes_max, removal)


def _not_allowed(message: str, setting: str, allowed: Any) -> _Refused:
    details = {"setting": setting, "allowed": list(allowed)}
    remedy = f"its operator allows it by {setting}"
    return _Refused(failure(f"{PREFIX}.NotAllowed", f"{message}; {remedy}", details=details, retryable=False))


async def _run(run: _Run) -> int:
    """Run a program to its end; return its exit code, or minus the number of the signal that ended it."""
    folder = await anyio.to_thread.run_sync(TemporaryFolder)
    child: Program | None = None
    try:
        if run.removal is not None:
            # A container that a worker left when it died has the same name.
            await anyio.run_process(run.removal, check=False, env=run.env)
        # A cancelled spawn would leak the process.
        with anyio.CancelScope(shield=True):
            child = await Program.start(run.argv, env=run.env, cwd=str(folder.path))
        assert child is not None, "a shielded spawn either raises or returns"
        return await _converse(child, run)
    finally:
        with anyio.CancelScope(shield=True):
            if child is not None:
                # Kill the remaining processes of a program, and release its pipes.
                if run.removal is not None and child.returncode is None:
                    # Killing the client of a container daemon does not end the container.
                    with anyio.move_on_after(REMOVAL_S):
                        await anyio.run_process(run.removal, check=False, env=run.env)
                await child.end()
            # The folder may be large by now, and contain files that we may not remove.
            await anyio.to_thread.run_sync(folder.remove)


async def _converse(child: Program, run: _Run) -> int:
    too_much = False

    async def read(stream: Any, kept: bytearray) -> None:
        nonlocal too_much
        try:
            async for chunk in stream:
                run.keep(kept, chunk)
        except _TooMuch:
            too_much = True
            tasks.cancel_scope.cancel()

    async def write() -> None:
        # A program need not read its input.
        with suppress(*_BROKEN):
            await child.stdin.send(run.stdin)
        with suppress(*_BROKEN):
            await child.stdin.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        tasks.start_soon(read, child.stdout, run.stdout)
        tasks.start_soon(read, child.stderr, run.stderr)
        # None of its processes holds the pipes open by then; the output is read to the end.
        await child.wait()
    if too_much:
        raise _TooMuch
    assert child.returncode is not None
    return child.returncode


def _answer(arguments: dict[str, Any], run: _Run, exit_code: int, metadata: dict[str, Any]) -> Answer:
    stdout = run.stdout.decode("utf-8", "replace")
    stderr = run.stderr.decode("utf-8", "replace")
    program = arguments["argv"][0]
    if exit_code not in arguments.get("expect", [0]):
        ending = f"ended with exit code {exit_code}" if exit_code >= 0 else f"was killed by signal {-exit_code}"
        shown = {"stdout": stdout[-SHOWN_CHARS_MAX:], "stderr": stderr[-SHOWN_CHARS_MAX:]}
        details = {"exit_code": exit_code, **shown}
        return failure(f"{PREFIX}.Failed", f"{program} {ending}", details=details, **metadata)
    value: dict[str, Any] = {"exit_code": exit_code, "stdout": stdout, "stderr": stderr}
    if arguments.get("output") == "json":
        try:
            value["stdout"] = decode_json(run.stdout)
        except JSON_ERRORS as error:
            message = f"the output of {program} is not JSON: {error}"
            details = {"stdout": stdout[-SHOWN_CHARS_MAX:], "stderr": stderr[-SHOWN_CHARS_MAX:]}
            return failure(f"{PREFIX}.InvalidOutput", message, details=details, retryable=False, **metadata)
    return success(value, **metadata)
