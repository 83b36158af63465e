"""Node executions as an interpreter holds them, with what stands open in them: effects, bounds, questions.

`StageNode` is the run's side of `callboard.languages.language.Node`: it turns each call into an event or an effect of
the stage, under a key that only it builds.
"""

import hmac
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from callboard.bus import events as ev
from callboard.bus.effects import JSON, Failure, ModelReply, ModelRequest, Text, ToolSource, ToolSpec, digest
from callboard.bus.events import Event, NodeOutcome, Payload, TimerPurpose
from callboard.bus.paths import effect_key
from callboard.languages.language import (
    NOT_UNDERSTOOD,
    Answered,
    Ask,
    End,
    Failed,
    Instant,
    Ok,
    Question,
    SignalArrived,
)
from callboard.runtime.driver import Wait

if TYPE_CHECKING:
    from callboard.runtime.stage import Stage

_RANDOM_SCALE = float(1 << 53)


@dataclass(slots=True)
class OpenEffect:
    """An intent that has no outcome yet, and who waits for it. ``ordinal`` counts like calls of the run from 0."""

    event: Event
    intent: Payload
    node: "StageNode"
    wake: Callable[[Any], None]
    ordinal: int = 0


@dataclass(slots=True)
class Bound:
    """A deadline around work: not an event itself, its passing is one."""

    due: Instant
    wake: Callable[[Any], None]
    node: "StageNode"


class Left:
    """What a node execution left behind, for later messages to recall; each text is made once."""

    def __init__(self, exit: ev.NodeExit) -> None:
        self._exit = exit
        self._texts: dict[tuple[str, bool], Text] = {}

    def told(self) -> str:
        """Return the JSON text of what later nodes see of it: ``told``, or the ``data`` of its result."""
        if self._exit.told is not None:
            return self.recalled("/told").text
        result = self._exit.result
        return self.recalled("/result/data").text if isinstance(result, dict) and "data" in result else "null"

    def recalled(self, pointer: str, *, plain: bool = False) -> Text:
        """Return the JSON text of what a pointer (RFC 6901) finds in the payload of the node's exit.

        ``plain``: of a string the string itself.
        """
        text = self._texts.get((pointer, plain))
        if text is None:
            value = _pointed(msgspec.to_builtins(self._exit), pointer)
            text = Text(value if plain and isinstance(value, str) else msgspec.json.encode(value).decode())
            self._texts[pointer, plain] = text
        return text


def _pointed(document: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        document = document[int(token)] if isinstance(document, list) else document[token]
    return document


class StageNode:
    """A node execution as the interpreter holds it, and what later turns of it may refer to."""

    def __init__(
        self, stage: "Stage", path: str, iteration: int, name: str, entered_at: Instant, kind: str = "node"
    ) -> None:
        self.path = path
        self.kind = kind
        self.iteration = iteration
        self.attempt = 1
        self.entered_at = entered_at
        self.name = name
        self.calls: dict[str, ev.ModelCall] = {}
        self.replies: dict[str, ev.ModelResult] = {}
        self.outputs: dict[str, ev.ToolResult] = {}
        self.toolboxes: dict[str, list[ToolSource]] = {}
        self._stage = stage
        self._opened = 0

    def key(self, slot: str) -> str:
        return effect_key(self.path, self.iteration, self.attempt, slot)

    # facts

    def exit(
        self,
        outcome: NodeOutcome,
        result: JSON = None,
        error: Failure | None = None,
        told: JSON = None,
        *,
        kept: bool = False,
    ) -> Instant:
        payload = ev.NodeExit(outcome=outcome, result=result, error=error, told=told)
        self._stage.left_behind(self, Left(payload), kept=kept)
        return self._state(payload).time

    def retry(self, reason: str, **names: Any) -> None:
        names.setdefault("node", self.name)
        names.setdefault("attempt", self.attempt)
        self._state(ev.NodeRetry(reason=reason, **names))
        self.attempt += 1

    def route(self, to: str, reason: str, edge: int | str | None = None, **names: Any) -> None:
        names.setdefault("source", self.name)
        self._state(ev.Route(target=to, reason=reason, edge=edge, **names))

    def progress(self, message: str, **names: Any) -> None:
        self._state(ev.NodeProgress(node=self.name, message=message, **names))

    def warn(self, code: str, reason: str, fields: Sequence[str] = ()) -> None:
        self._state(ev.NodeWarning(node=self.name, code=code, reason=reason, fields=list(fields)))

    def _state(self, payload: Payload) -> Event:
        return self._stage.state(payload, self.path, self.iteration, self.attempt)

    # synchronous readings

    def wall_time(self, slot: str) -> Instant:
        return self._stage.read_clock(self, self.key(slot))

    def random(self, slot: str) -> float:
        bits = hmac.digest(self._stage.seed.encode(), self.key(slot).encode(), "sha256")
        return (int.from_bytes(bits[:8], "big") >> 11) / _RANDOM_SCALE

    # effects

    async def turn(self, slot: str, request: ModelRequest) -> Ok[ModelReply] | Failed:
        stage = self._stage
        key = self.key(slot)
        environment = stage.info.environment
        named = request.model or environment.get("default_model") or ""
        model = environment.get("models", {}).get(named, named)
        base = self.calls.get(request.base) if request.base else None
        if request.base and base is None:
            raise ValueError(f"turn {key} continues {request.base}, which is no turn of this node")
        call = ev.ModelCall(
            purpose=request.purpose,
            model=model,
            digest=digest(base.digest if base else "", model, request),
            provider=environment.get("stand_in") or (model.partition(":")[0] if ":" in model else ""),
            base=request.base,
            system=request.system,
            messages=request.messages,
            tools=request.tools,
            schema=request.schema,
            choices=request.choices,
            evaluator=request.evaluator,
            max_output_tokens=request.max_output_tokens,
            temperature=request.temperature,
        )
        self.calls[key] = call
        ordinal = stage.ordinal(f"{request.purpose} {request.evaluator or ''} {self.path}")
        outcome: ev.ModelResult = await stage.effect(self, key, call, ordinal)
        self.replies[key] = outcome
        if outcome.error is not None:
            return Failed(outcome.error)
        return Ok(
            ModelReply(
                text=outcome.text,
                data=outcome.data,
                tool_calls=outcome.tool_calls,
                usage=outcome.usage,
                stop_reason=outcome.stop_reason,
                response_id=outcome.response_id,
                response_model=outcome.response_model,
                provider=outcome.provider,
                first_chunk_ms=outcome.first_chunk_ms,
                tries=outcome.tries,
            )
        )

    async def tool(
        self,
        slot: str,
        tool: str,
        input: JSON,
        *,
        id: str = "",
        server: str = "",
        via: Literal["worker", "caller"] = "worker",
    ) -> Ok[JSON] | Failed:
        key = self.key(slot)
        call = ev.ToolCall(node=self.name, tool=tool, input=input, id=id, server=server, via=via)
        outcome: ev.ToolResult = await self._stage.effect(self, key, call, self._stage.ordinal(f"tool {tool}"))
        self.outputs[key] = outcome
        return Ok(outcome.output) if outcome.error is None else Failed(outcome.error)

    async def call(self, slot: str, kind: ev.EffectKind, request: JSON) -> Ok[JSON] | Failed:
        intent = ev.EffectCall(kind_=kind, node=self.name or None, request=request, digest=digest(request))
        outcome: ev.EffectResult = await self._stage.effect(self, self.key(slot), intent)
        return Ok(outcome.value) if outcome.error is None else Failed(outcome.error)

    def toolbox(self, sources: Sequence[ToolSource]) -> "ToolboxBlock":
        self._opened += 1
        slot = "toolbox" if self._opened == 1 else f"toolbox.{self._opened}"
        return ToolboxBlock(self._stage, self, slot, list(sources))

    async def sleep(self, slot: str, until: Instant, purpose: TimerPurpose = "sleep") -> None:
        if until > self._stage.now():
            await self._stage.effect(self, self.key(slot), ev.TimerSet(due=until, purpose=purpose))

    def question(self, slot: str, ask: Ask) -> "QuestionBlock":
        return QuestionBlock(self._stage, self, self.key(slot), ask)

    async def signal(self, slot: str, name: str, match: JSON = None, due: Instant | None = None) -> SignalArrived:
        outcome = await self._stage.await_signal(
            self, self.key(slot), ev.SignalAwaited(name=name, match=match, due=due)
        )
        return SignalArrived(outcome.name, outcome.data, outcome.by)

    async def child(self, slot: str, definition: dict[str, Any], input: JSON, **start: Any) -> End:
        key = self.key(slot)
        intent = ev.ChildStart(definition=definition, child=self._stage.child_id(key), input=input, start=start)
        outcome: ev.ChildEnd = await self._stage.effect(self, key, intent)
        status = msgspec.convert(outcome.status, Literal["completed", "failed", "cancelled", "expired"])
        return End(status, outcome.output, outcome.results, outcome.error)


class ToolboxBlock:
    """A toolbox for the length of a block: the listing is an effect, the sessions are the node actor's."""

    def __init__(self, stage: "Stage", node: StageNode, slot: str, sources: list[ToolSource]) -> None:
        self._stage = stage
        self._node = node
        self._slot = slot
        self._sources = sources
        self._key = node.key(slot)

    async def __aenter__(self) -> Ok[list[ToolSpec]] | Failed:
        self._node.toolboxes[self._key] = self._sources
        try:
            listed = await self._node.call(self._slot, "toolbox", msgspec.to_builtins(self._sources))
        except BaseException:
            await self.__aexit__()
            raise
        return Ok(msgspec.convert(listed.value, list[ToolSpec])) if isinstance(listed, Ok) else listed

    async def __aexit__(self, *_: object) -> None:
        self._stage.driver.check_alive()
        self._node.toolboxes.pop(self._key, None)
        self._stage.sink.close_toolbox(self._key)


class QuestionBlock:
    """A question for the length of a block; if nobody closed it, it is closed as cancelled."""

    def __init__(self, stage: "Stage", node: StageNode, key: str, ask: Ask) -> None:
        self._stage = stage
        self._node = node
        self._key = key
        self._ask = ask
        self._question: StageQuestion | None = None

    async def __aenter__(self) -> Question:
        await self._stage.driver.checkpoint()
        self._question = self._stage.ask(self._node, self._key, self._ask)
        return self._question

    async def __aexit__(self, *_: object) -> None:
        self._stage.driver.check_alive()
        if self._question is not None:
            self._question.close("cancelled", None, None)


@dataclass(slots=True)
class StageQuestion:
    """An open question: answers queue up in log order until the interpreter takes them."""

    stage: "Stage"
    event: Event
    node: StageNode
    key: str
    question: str
    timeout_at: Instant | None = None
    refuses: Callable[[JSON], str | None] | None = None
    closed: bool = False
    count: int = 0
    answers: deque[Answered] = field(default_factory=deque[Answered])
    wait: Wait | None = None

    async def answer(self) -> Answered:
        await self.stage.driver.checkpoint()
        while not self.answers:
            self.wait = Wait(self.stage.driver)
            await self.wait
        return self.answers.popleft()

    def deliver(self, answered: Answered) -> None:
        self.answers.append(answered)
        wait, self.wait = self.wait, None
        if wait is not None:
            wait.wake()

    def not_understood(self, reason: str) -> None:
        self.node.warn(NOT_UNDERSTOOD, reason)

    def close(self, outcome: Literal["answered", "timeout", "cancelled"], k: int | None, label: str | None) -> None:
        if not self.closed:
            self.closed = True
            self.stage.close_question(self, ev.HumanClosed(outcome=outcome, k=k, label=label))
