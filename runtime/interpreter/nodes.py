"""Node executions as the interpreter uses them: each call becomes an event or an effect.

`StageNode` implements `callboard.languages.language.Node`. Effect keys are built only here.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from callboard.bus import events as ev
from callboard.bus.effects import Failure, McpTools, ModelReply, ModelRequest, ToolboxRecord, ToolSource, ToolSpec
from callboard.bus.events import Event, NodeOutcome, Payload, TimerPurpose
from callboard.bus.paths import again_slot, effect_key, last_id
from callboard.bus.work import TurnWork, Work
from callboard.languages.language import (
    Alike,
    Answered,
    Ask,
    End,
    Failed,
    Instant,
    Ok,
    Question,
    SignalArrived,
)
from callboard.lib.canonical_json import digest
from callboard.lib.json_types import JSON
from callboard.runtime.interpreter.asks import Asks
from callboard.runtime.interpreter.driver import Wait
from callboard.runtime.interpreter.elicitation import elicit_responses
from callboard.runtime.interpreter.ledger import Execution
from callboard.runtime.interpreter.waits import OpenQuestion

_RANDOM_SCALE = float(1 << 53)

COUNTED_ANSWER = "counted_answer"
"""The member of the data of ``node.progress`` with the number of an answer that counts; the question needs more."""

NOT_UNDERSTOOD = "human.not_understood"
"""The code of the warning that an answer does not fit its question."""


class StageNode(Execution):
    """A node execution as the interpreter uses it."""

    __slots__ = ("_asks", "_opened")

    def __init__(
        self, asks: Asks, path: str, iteration: int, name: str, entered_at: Instant, kind: str = "node"
    ) -> None:
        super().__init__(path, iteration, name, entered_at, kind)
        self._asks = asks
        self._opened = 0

    def key(self, slot: str) -> str:
        return effect_key(self.path, self.iteration, self.attempt, slot)

    def asked_at(self, source: str) -> None:
        self.source = source

    def compares_by(self, alike: Alike | None) -> None:
        self.alike = alike

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
        exit = ev.NodeExit(outcome=outcome, result=result, error=error, told=told)
        return self._asks.leave(self, exit, kept=kept)

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
        return self._asks.ledger.state(payload, self.path, self.iteration, self.attempt, self.alike)

    # synchronous readings

    def wall_time(self, slot: str) -> Instant:
        return self._asks.ledger.read_clock(self, self.key(slot))

    def mark(self, id: str) -> bool:
        return self._asks.ledger.mark(self, id)

    def random(self, slot: str) -> float:
        bits = self._asks.random_bits(self.key(slot))
        return (int.from_bytes(bits[:8], "big") >> 11) / _RANDOM_SCALE

    # effects

    async def turn(self, slot: str, request: ModelRequest, *, work: TurnWork | None = None) -> Ok[ModelReply] | Failed:
        asks = self._asks
        key = self.key(slot)
        model, stand_in = asks.model_of(key, request.model)
        base = self.calls.get(request.base) if request.base else None
        if request.base and base is None:
            raise ValueError(f"turn {key} continues {request.base}, which is not a turn of this node")
        call = ev.ModelCall(
            purpose=request.purpose,
            model=model,
            digest=digest(base.digest if base else "", model, request),
            provider=stand_in or (model.partition(":")[0] if ":" in model else ""),
            base=request.base,
            system=request.system,
            messages=request.messages,
            tools=request.tools,
            schema=request.schema,
            choices=request.choices,
            evaluator=request.evaluator,
            max_output_tokens=request.max_output_tokens,
            temperature=request.temperature,
            parameters=request.parameters,
            retooled=request.retooled,
        )
        self.calls[key] = call
        of = f"{request.purpose} {request.evaluator or ''}"
        ordinal, of_id = asks.ordinal(f"{of} {self.path}"), asks.ordinal(f"{of} / {last_id(self.path)}")
        outcome: ev.ModelResult = await asks.effect(self, key, call, ordinal, of_id, work)
        self.replies[key] = outcome
        if outcome.error is not None:
            return Failed(outcome.error)
        return Ok(outcome)

    async def tool(
        self,
        slot: str,
        tool: str,
        input: JSON,
        *,
        id: str = "",
        server: str = "",
        own_name: str = "",
        via: Literal["worker", "caller"] = "worker",
    ) -> Ok[JSON] | Failed:
        call = ev.ToolCall(node=self.name, tool=tool, input=input, id=id, server=server, via=via, own_name=own_name)
        ordinal = self._asks.ordinal(f"tool {tool}")
        outcome: ev.ToolResult = await self._asks.effect(self, self.key(slot), call, ordinal)
        self._keep_listings(outcome)
        while outcome.asks is not None:
            earlier = [*call.earlier, *([] if call.responses is None else [call.responses])]
            round = len(earlier) + 1
            responses = await elicit_responses(self, f"{slot}.ask.{round}", tool, outcome.asks)
            call = msgspec.structs.replace(call, responses=responses, state=outcome.asks.get("state"), earlier=earlier)
            outcome = await self._asks.effect(self, self.key(again_slot(slot, round)), call, ordinal)
            self._keep_listings(outcome)
        self.outputs[self.key(slot)] = outcome
        return Ok(outcome.output) if outcome.error is None else Failed(outcome.error)

    def _keep_listings(self, outcome: ev.ToolResult) -> None:
        for key, specs in outcome.listings.items():
            if key in self.toolboxes:
                self.toolboxes[key] = ToolboxRecord(self.toolboxes[key].sources, specs)

    async def call(
        self, slot: str, kind: ev.EffectKind, request: JSON, *, work: Work | None = None
    ) -> Ok[JSON] | Failed:
        intent = ev.EffectCall(kind_=kind, node=self.name or None, request=request, digest=digest(request))
        outcome: ev.EffectResult = await self._asks.effect(self, self.key(slot), intent, work=work)
        return Ok(outcome.value) if outcome.error is None else Failed(outcome.error)

    def toolbox(self, sources: Sequence[ToolSource]) -> "ToolboxBlock":
        self._opened += 1
        slot = "toolbox" if self._opened == 1 else f"toolbox.{self._opened}"
        return ToolboxBlock(self._asks, self, slot, list(sources))

    async def sleep(self, slot: str, until: Instant, purpose: TimerPurpose = "sleep") -> None:
        if until > self._asks.now:
            await self._asks.effect(self, self.key(slot), ev.TimerSet(due=until, purpose=purpose))

    def question(self, slot: str, ask: Ask) -> "QuestionBlock":
        return QuestionBlock(self._asks, self, self.key(slot), ask)

    async def signal(self, slot: str, name: str, match: JSON = None, due: Instant | None = None) -> SignalArrived:
        outcome = await self._asks.signal(self, self.key(slot), ev.SignalAwaited(name=name, match=match, due=due))
        return SignalArrived(outcome.name, outcome.data, outcome.by)

    async def child(self, slot: str, definition: dict[str, Any], input: JSON, **start: Any) -> End:
        key = self.key(slot)
        intent = ev.ChildStart(definition=definition, child=self._asks.child_named(key), input=input, start=start)
        outcome: ev.ChildEnd = await self._asks.effect(self, key, intent)
        status = msgspec.convert(outcome.status, Literal["completed", "failed", "cancelled", "expired"])
        return End(status, outcome.output, outcome.results, outcome.error)


class ToolboxBlock:
    """A toolbox that is open during a block. Listing its tools is an effect; the node actor owns its sessions."""

    def __init__(self, asks: Asks, node: StageNode, slot: str, sources: list[ToolSource]) -> None:
        self._asks = asks
        self._node = node
        self._slot = slot
        self._sources = sources
        self._key = node.key(slot)

    async def __aenter__(self) -> Ok[list[ToolSpec]] | Failed:
        self._node.toolboxes[self._key] = ToolboxRecord(self._sources)
        try:
            recorded = [one.as_recorded() if isinstance(one, McpTools) else one for one in self._sources]
            listed = await self._node.call(self._slot, "toolbox", msgspec.to_builtins(recorded))
        except BaseException:
            await self.__aexit__()
            raise
        if isinstance(listed, Failed):
            return listed
        specs = msgspec.convert(listed.value, list[ToolSpec])
        self._node.toolboxes[self._key] = ToolboxRecord(self._sources, specs)
        return Ok(specs)

    @property
    def specs(self) -> list[ToolSpec]:
        record = self._node.toolboxes.get(self._key)
        return [] if record is None or record.specs is None else record.specs

    async def __aexit__(self, *_: object) -> None:
        self._node.toolboxes.pop(self._key, None)
        self._asks.ledger.close_toolbox(self._key)


class QuestionBlock:
    """A question that is open during a block. If the block does not close it, it is closed as cancelled."""

    def __init__(self, asks: Asks, node: StageNode, key: str, ask: Ask) -> None:
        self._asks = asks
        self._node = node
        self._key = key
        self._ask = ask
        self._question: AskedQuestion | None = None

    async def __aenter__(self) -> Question:
        await self._asks.reach_effect()
        asked = self._asks.question(self._node, self._key, self._ask)
        self._question = AskedQuestion(self._asks, self._node, self._key, asked)
        return self._question

    async def __aexit__(self, *_: object) -> None:
        self._asks.driver.check_alive()
        if self._question is not None:
            self._question.close("cancelled", None, None)


class AskedQuestion:
    """`callboard.languages.language.Question`: an open question as the interpreter uses it."""

    def __init__(self, asks: Asks, node: StageNode, key: str, question: OpenQuestion) -> None:
        self._asks = asks
        self._node = node
        self._key = key
        self._question = question

    async def answer(self) -> Answered:
        await self._asks.driver.checkpoint()
        while not self._question.answers:
            self._question.wait = Wait(self._asks.driver)
            await self._question.wait
        return self._question.answers.popleft()

    def not_understood(self, reason: str) -> None:
        self._node.warn(NOT_UNDERSTOOD, reason)

    def count_answer(self, k: int, message: str) -> None:
        self._node.progress(message, data={COUNTED_ANSWER: k, "interaction": self._key})

    def close(self, outcome: Literal["answered", "timeout", "cancelled"], k: int | None, label: str | None) -> None:
        self._asks.close_question(self._key, ev.HumanClosed(outcome=outcome, k=k, label=label))
