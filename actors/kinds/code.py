"""Code in a definition, run in the sandbox: carries out the effect kind ``code``.

A request is ``{"language": "python", "source": "<text>", "function": "<name>" | null, "inputs": [<value>, …], "wrap":
<bool>, "limits": {"wall_s", "cpu_s", "memory_bytes", "output_bytes"}}``: ``function`` names the function of the source
that is called with each input alone, null says that the source is a ``lambda``; with ``wrap``, an input that is not an
object also answers to ``["value"]``, ``["output"]`` and ``["data"]["result"]``. The limits are for all inputs together.

The value is ``{"results": [{"value": …} | {"error": "…", "code": "code.…"}, …]}``, one for each input; the printed text
is in the metadata, as ``printed``.
"""

import os
from typing import Any, Literal

import anyio
import msgspec
import structlog

from callboard.actors.carrier import EffectFailed, Job
from callboard.actors.sandbox.process import Ended, Sandbox, SandboxBroken
from callboard.bus.effects import Failure
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON

logger = structlog.get_logger(__name__)

Mode = Literal["isolated", "bounded", "off"]
"""How code is run: isolated by the kernel, with bounds alone (on any system), or not at all."""

PYTHON = "python"

NESTING_MAX = 100
"""Maximum depth of a result, in levels: a log must stay readable."""

AT_ONCE_MAX = os.cpu_count() or 1
"""How many requests one worker carries out at once."""

WALL_S_MAX = 60.0
CPU_S_MAX = 60.0
MEMORY_BYTES_MAX = 1024**3
OUTPUT_BYTES_MAX = 16 * 1024**2
"""The largest value of a request's ``output_bytes``."""


class CodeLimits(msgspec.Struct, frozen=True):
    """The limits on the code of one request, for all its inputs together."""

    wall_s: float = 10.0
    cpu_s: float = 5.0
    memory_bytes: int = 256 * 1024**2
    output_bytes: int = 4 * 1024**2

    def within(self) -> "CodeLimits":
        """Return these limits, each reduced to the largest value allowed."""
        return CodeLimits(
            min(self.wall_s, WALL_S_MAX),
            min(self.cpu_s, CPU_S_MAX),
            min(self.memory_bytes, MEMORY_BYTES_MAX),
            min(self.output_bytes, OUTPUT_BYTES_MAX),
        )


class _Request(msgspec.Struct, frozen=True):
    source: str
    inputs: list[Any]
    function: str | None = None
    wrap: bool = False
    language: str = PYTHON
    limits: CodeLimits = CodeLimits()


class _Result(msgspec.Struct, frozen=True, omit_defaults=True):
    value: Any = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET
    code: str | msgspec.UnsetType = msgspec.UNSET


class _Said(msgspec.Struct, frozen=True):
    code: str
    message: str


class _Answer(msgspec.Struct, frozen=True):
    """The answer of the child. It is untrusted: the code may have written it itself."""

    results: list[_Result] = []
    printed: str = ""
    failure: _Said | None = None


class CodeSandboxes:
    """The sandboxes of one worker: started when first needed, at most one per core."""

    def __init__(self, mode: Mode) -> None:
        self._mode: Mode = mode
        self._idle: list[Sandbox] = []
        self._turns = anyio.Semaphore(AT_ONCE_MAX)

    async def carry(self, _job: Job, request: JSON) -> tuple[JSON, JSON]:
        """Run code over inputs: an effect of kind ``code``.

        :raises EffectFailed: if an input has no result; the failure of a single input is its result
        """
        asked = _read(request)
        if self._mode == "off":
            raise _failure("code.unavailable", "this worker runs no code of definitions (its setting `code` is off)")
        limits = asked.limits.within()
        async with self._turns:
            ended = await self._describe_end(limits, msgspec.json.encode(asked))
        answer = _answer(ended, limits)
        results = [_check_result(one) for one in answer.results]
        if len(results) != len(asked.inputs):
            raise _failure("code.crashed", "the code did not leave a result for each input")
        value = {"results": msgspec.to_builtins(results)}
        return value, {"printed": answer.printed} if answer.printed else None

    async def aclose(self) -> None:
        """End the processes."""
        while self._idle:
            await self._idle.pop().kill()

    async def _describe_end(self, limits: CodeLimits, request: bytes) -> Ended:
        sandbox = self._idle.pop() if self._idle else await self._start_sandbox()
        try:
            ended = await sandbox.ask(msgspec.to_builtins(limits), request)
        except SandboxBroken as broken:
            await sandbox.kill()
            raise _failure("code.crashed", f"the sandbox has failed: {broken}", retryable=True) from broken
        except BaseException:
            await sandbox.kill()
            raise
        self._idle.append(sandbox)
        return ended

    async def _start_sandbox(self) -> Sandbox:
        isolated = self._mode == "isolated"
        try:
            sandbox = await Sandbox.start(isolated)
        except SandboxBroken as broken:
            logger.warning("code is not run", code="code.unavailable", reason=str(broken))
            remedy = "its setting `code` may waive isolation" if isolated else "see its log"
            raise _failure("code.unavailable", f"this worker cannot isolate code: {broken}; {remedy}") from broken
        if not isolated:
            logger.warning("code of definitions is run with bounds alone: it reaches what this user's files allow")
        return sandbox


def _read(request: JSON) -> _Request:
    try:
        asked = msgspec.convert(request, _Request)
    except msgspec.ValidationError as error:
        raise _failure("code.malformed", f"invalid request to run code: {error}") from error
    if asked.language.lower() != PYTHON:
        raise _failure("code.language", f"code is run in {PYTHON} only, not in {asked.language!r}")
    return asked


def _answer(ended: Ended, limits: CodeLimits) -> _Answer:
    match ended.ending:
        case "answered":
            pass
        case "timeout":
            message = f"the code was ended: it took longer than {limits.wall_s:g} s"
            raise _failure("code.timeout", message, retryable=None)
        case "cpu":
            raise _failure("code.cpu", f"the code was ended: it used more than {limits.cpu_s:g} s of processor time")
        case "too_large":
            raise _failure("code.output_too_large", f"the results have more than {limits.output_bytes} bytes")
        case _:
            how = f" (signal {ended.signal})" if ended.signal else ""
            raise _failure("code.crashed", f"the process that ran the code died{how}")
    try:
        answer = decode_json(ended.written, type=_Answer)
    except JSON_ERRORS as error:
        raise _failure("code.bad_output", f"the code did not leave a valid answer: {error}") from error
    if answer.failure is not None:
        raise _failure(answer.failure.code, answer.failure.message)
    return answer


def _check_result(result: _Result) -> _Result:
    """Refuse a value that nests too deep."""
    level: list[Any] = [result.value] if isinstance(result.value, dict | list) else []
    for _ in range(NESTING_MAX):
        level = [below for one in level for below in (one.values() if isinstance(one, dict) else one)]
        level = [below for below in level if isinstance(below, dict | list)]
        if not level:
            return result
    return _Result(error=f"returned a value that nests deeper than {NESTING_MAX} levels", code="code.bad_output")


def _failure(code: str, message: str, retryable: bool | None = False) -> EffectFailed:
    return EffectFailed(Failure(code, message, retryable=retryable))
