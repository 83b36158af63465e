"""The providers that one worker has, by URI, and how dispatches and actions reach them.

The Result of the mock depends on its arguments alone. The interpreter waits for its delay.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import anyio.to_thread

from callboard.actors.carrier import EffectFailed, Job
from callboard.actors.providers.provider import ActionFailed, ActionRequest, Answer, Passed, Request
from callboard.bus.effects import Failure
from callboard.lib.finite_json import NotFinite, encode_finite
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON

MOCK = "mwl:provider.call/mwl/mock/v1"


class Mock:
    """Takes the place of any provider."""

    async def execute(self, request: Request) -> Answer:
        arguments = request.arguments
        failure = arguments.get("failure")
        if failure is not None:
            result = {"type": "error", **failure}
        else:
            result = {"type": "success", "value": arguments.get("value", request.input)}
        return Answer(result, arguments.get("metadata", {}))


Opens = Callable[[], Any]
"""Makes a provider or a middleware when it is first needed; usually its class."""


class Providers:
    """Opens providers when they are first needed, and hands dispatches to them."""

    def __init__(self, offered: Mapping[str, Opens]) -> None:
        self._offered: dict[str, Opens] = {MOCK: Mock, **offered}
        self._open: dict[str, Any] = {}

    def is_for_mock(self, request: JSON) -> bool:
        """Return whether the mock carries out a dispatch. An installed provider may have taken its URI."""
        return request["provider"] == MOCK and "phase" not in request and self._offered[MOCK] is Mock

    async def carry(self, job: Job, request: JSON) -> tuple[JSON, JSON]:
        """Carry out a dispatch, or an action of a middleware: an effect of kind ``provider``.

        The value is the answer, whatever the Result: ``{"result": …, "metadata": …}``; the value of an action that
        failed is ``{"failed": …, "metadata": …}``.

        :raises EffectFailed: ``provider.unknown`` if this worker has no such provider; ``provider.malformed`` if its
            answer is invalid
        """
        uri: str = request["provider"]
        provider = self._open_provider(uri)
        names: dict[str, Any] = {
            "uri": uri,
            "arguments": request["with"],
            "input": request["input"],
            "idempotency_key": job.idempotency_key,
            "run": job.ref.run,
            "path": job.event.path,
            "asked_at": job.event.time,
            "tenant": job.ref.tenant,
        }
        if "phase" not in request:
            answer = _answer(uri, await _call_provider(provider.execute, Request(**names)))
            return _json(uri, {"result": answer.result, "metadata": answer.metadata}), None
        asked = ActionRequest(**names, result=request.get("result"), metadata=request["metadata"])
        try:
            acted = await _call_provider(provider.act, request["phase"], asked)
        except ActionFailed as failed:
            return _json(uri, {"failed": failed.answer.result, "metadata": {}}), None
        if acted is None or isinstance(acted, Passed):
            return _json(uri, {"result": None, "metadata": acted.metadata if acted else {}}), None
        answer = _answer(uri, acted)
        return _json(uri, {"result": answer.result, "metadata": answer.metadata}), None

    def _open_provider(self, uri: str) -> Any:
        provider = self._open.get(uri)
        if provider is None:
            opens = self._offered.get(uri)
            if opens is None:
                known = ", ".join(sorted(self._offered))
                raise EffectFailed(Failure("provider.unknown", f"this worker has no provider {uri} (only {known})"))
            provider = self._open[uri] = opens()
        return provider

    async def aclose(self) -> None:
        """Close the resources that providers hold open."""
        for provider in self._open.values():
            close = getattr(provider, "aclose", None)
            if close is not None:
                await close()


async def _call_provider(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a provider; a function that is not a coroutine function is called in a thread, where it may block."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    found = await anyio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True)
    return await found if inspect.isawaitable(found) else found


def _answer(uri: str, given: Any) -> Answer:
    """Read what a provider returned: an Answer, or a Result as a plain object."""
    match given:
        case Answer():
            return given
        case {"type": str()}:
            return Answer(dict(given))
        case _:
            message = f"{uri} returned {type(given).__name__}, expected an Answer or a Result"
            raise EffectFailed(Failure("provider.malformed", message))


def _json(uri: str, value: JSON) -> JSON:
    """Return a value in its JSON form."""
    try:
        return decode_json(encode_finite(value))
    except NotFinite as error:
        message = f"the answer of {uri} is not JSON: {error}"
        raise EffectFailed(Failure("provider.malformed", message, details={"at": error.at})) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EffectFailed(Failure("provider.malformed", f"the answer of {uri} is not JSON: {error}")) from error
