"""The answers that a test gives to effects: by kind of effect, by the URI of a provider, or by the name of a step."""

import difflib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from callboard.actors.carrier import EffectFailed
from callboard.actors.providers.catalog import MOCK
from callboard.actors.providers.http import HTTP
from callboard.actors.providers.nats import NATS
from callboard.actors.providers.process import PROCESS
from callboard.actors.tools.failures import shorten
from callboard.actors.tools.scripted import scripted_answer, scripts
from callboard.actors.tools.tool import ToolCallContext, ToolFailed
from callboard.bus.effects import Failure
from callboard.lib.json_types import JSON
from callboard.runtime.client.errors import UsageInvalid

Answers = Callable[[Any], Any | Awaitable[Any]] | Sequence[Any]
"""The answers to effects of one kind: a function of the request, or values in order, of which the last one repeats. The
function of a step takes the arguments by name; an exception among the values is raised."""

KINDS = ("channel", "code", "memory", "prompt", "service")
"""Kinds of effects that reach external systems, and are therefore answered only from the script."""

STEP = "step"
"""The kind of the calls of steps, and the key of the answers to all other steps."""

ALL_KINDS = (*KINDS, "case", "provider", "source", STEP)

PROVIDERS = (HTTP, NATS, PROCESS, MOCK)
"""The providers of every worker."""

UNSCRIPTED = "testing.unscripted"

NAMES_SHOWN_MAX = 20


def fails(code: str, message: str = "") -> Callable[[Any], JSON]:
    """Return an answer that fails with this code."""

    def answer(_request: Any) -> JSON:
        raise EffectFailed(Failure(code, message or code))

    return answer


def unscripted_failure(what: str, request: Any, remedy: str = "") -> EffectFailed:
    message = f"nothing is scripted for {what}; it is asked for {shorten(str(request))}"
    return EffectFailed(Failure(UNSCRIPTED, f"{message}: {remedy}" if remedy else message, retryable=False))


class Answering:
    """The answers of one scenario. An effect that is executed again after a crash gets the same answer."""

    def __init__(self, given: Mapping[str, Answers]) -> None:
        self._given = given
        self._asked: dict[str, list[str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def __iter__(self) -> Iterable[str]:
        return iter(self._given)

    async def answer(self, name: str, call: str, request: Any) -> Any:
        """Return the answer to an effect. ``call`` identifies the effect in all its executions.

        :raises EffectFailed: ``testing.unscripted`` without one, or as the test wants
        """
        answers = self._given.get(name)
        if answers is None:
            raise unscripted_failure(name, request)
        if not callable(answers):
            found = answers[min(self._place(name, call), len(answers) - 1)]
            if isinstance(found, BaseException):
                raise found
            return found
        answer = answers(request)
        return await answer if inspect.isawaitable(answer) else answer

    def scripts_step(self, name: str, script: Mapping[str, Any]) -> bool:
        """Return whether the calls of a step have answers, here or among the tools of the start's script."""
        return name in self._given or STEP in self._given or scripts(name, script)

    async def answer_step(self, name: str, call: str, arguments: JSON, script: Mapping[str, Any]) -> Any:
        """Return the answer to a call of a step.

        :raises EffectFailed: ``testing.unscripted`` without one, or as the test wants
        """
        if name in self._given:
            return await self.answer(name, call, arguments)
        if STEP in self._given:
            return await self.answer(STEP, call, {"step": name, "arguments": arguments})
        if not scripts(name, script):
            remedy = f"give its answers in effects={{{name!r}: …}}, or call the functions of steps by call_steps=True"
            raise unscripted_failure(f"step {name}", arguments, remedy)
        try:
            return scripted_answer(name, script, ToolCallContext("", "", call, self._place(name, call)))
        except ToolFailed as failed:
            raise EffectFailed(failed.failure) from failed

    def check(self, steps: Iterable[str], texts: Sequence[str]) -> None:
        """Check that each name means something: a kind of effect, a step, or a provider that every worker has or that
        one of the ``texts`` of definitions names.

        :raises UsageInvalid: if one does not
        """
        names = [*ALL_KINDS, *steps]
        unknown = [one for one in self._given if one not in names and not _is_provider(one, texts)]
        if not unknown:
            return
        close = [near for one in unknown for near in difflib.get_close_matches(one, [*names, *PROVIDERS], 1)]
        meant = f"; did you mean {', '.join(close)}?" if close else ""
        found = sorted({*names} - {*ALL_KINDS})
        listed = ", ".join(found[:NAMES_SHOWN_MAX]) + (" …" if len(found) > NAMES_SHOWN_MAX else "") or "none"
        raise UsageInvalid(
            f"effects has {', '.join(map(repr, unknown))}, which no effect is called{meant}",
            "effects",
            f"Name a kind of effect ({', '.join(ALL_KINDS)}), the URI of a provider ({', '.join(PROVIDERS)}, or one "
            f"that the definition names), or a step (here: {listed}).",
        )

    def _place(self, name: str, call: str) -> int:
        asked = self._asked.setdefault(name, [])
        if call not in asked:
            asked.append(call)
        return asked.index(call)


def _is_provider(name: str, texts: Sequence[str]) -> bool:
    return name in PROVIDERS or (":" in name and any(name in text for text in texts))
