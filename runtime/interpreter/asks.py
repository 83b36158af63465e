"""Asks: the effects, questions and signals that an interpreter awaits.

Each is announced, stays open until its outcome is delivered, and then wakes the interpreter. Node executions
(`callboard.runtime.interpreter.nodes`) and the stage are built on this module; it depends on neither.
"""

import hmac
from typing import Any

from msgspec import Struct, structs

from callboard.actors.models.model import ModelTurn
from callboard.bus import events as ev
from callboard.bus.answer_schemas import answer_schema
from callboard.bus.conversation import NodeResults, assemble_request
from callboard.bus.effects import Failure
from callboard.bus.events import Event, ForkedFrom, Payload
from callboard.bus.log.successors import SUCCESSOR_KEY
from callboard.bus.model_names import exact_name
from callboard.bus.run_ids import child_id
from callboard.bus.work import TurnWork, Work
from callboard.languages.language import Ask, Instant, RunInfo
from callboard.lib.json_types import JSON
from callboard.runtime.interpreter.code import same_entry
from callboard.runtime.interpreter.driver import Driver, Wait
from callboard.runtime.interpreter.ledger import Execution, Ledger
from callboard.runtime.interpreter.waits import OpenQuestion, PendingEffect, Waits


class ForkTimes(Struct, frozen=True):
    """The point where a fork parts from its origin.

    ``forked`` describes the shared part, ``then`` is the time of its last event, ``gone_on`` the time at which the fork
    continued.
    """

    forked: ForkedFrom
    then: Instant
    gone_on: Instant


class Asks:
    """The effects, questions and signals of one run's interpreter. ``now`` is the time of the event being delivered."""

    def __init__(
        self,
        info: RunInfo,
        ledger: Ledger,
        waits: Waits,
        driver: Driver,
        run: str,
        seed: str,
        parting: ForkTimes | None = None,
    ) -> None:
        self.info = info
        self.ledger = ledger
        self.waits = waits
        self.driver = driver
        self.memory = NodeResults()
        self.entered: dict[tuple[str, int], Execution] = {}
        """Nodes that have been entered but not left, by path and iteration."""
        self.now: Instant
        self._run = run
        self._forked = parting.forked if parting is not None else None
        self._seed = seed.encode()
        self._ordinals: dict[str, int] = {}
        self._exact_names: dict[str, str] = {}
        """The exact names of models, by the names in the definition."""

    async def effect(
        self,
        node: Execution,
        key: str,
        intent: Payload,
        ordinal: int = 0,
        of_id: int = 0,
        work: Work | TurnWork | None = None,
    ) -> Any:
        """Announce an effect and wait for its outcome's payload."""
        await self.reach_effect()
        event = self.ledger.announce(node, key, self._as_recorded(key, intent))
        wait = Wait(self.driver, lambda cause: self._abandon(key, cause))
        self.waits.open(key, PendingEffect(event, intent, node, wait.wake, ordinal, of_id, work))
        return await wait

    async def reach_effect(self) -> None:
        """Wait as long as a pause holds the effect that is about to be announced.

        :raises Cancelled: if the current task has been cancelled
        """
        await self.waits.until_released()
        await self.driver.checkpoint()

    def _abandon(self, key: str, cause: Failure) -> None:
        effect = self.waits.effects.pop(key)
        self.ledger.cancel(effect.node, key, effect.intent.type, cause)

    def ordinal(self, what: str) -> int:
        """Number calls of one kind from 0, in the order in which the interpreter makes them."""
        number = self._ordinals.get(what, 0)
        self._ordinals[what] = number + 1
        return number

    def random_bits(self, key: str) -> bytes:
        """Return 32 bytes derived from the run's seed and the key."""
        return hmac.digest(self._seed, key.encode(), "sha256")

    def child_id(self, key: str) -> str:
        """The run id of a child, derived from this run and the key, so that a repeated start is the same run."""
        return child_id(self._run, key)

    def successor(self, given: JSON) -> ev.Successor:
        """Return the run that continues this one with an input. It takes over the signals that were not awaited."""
        signals = [ev.CarriedSignal(one.name, one.data, one.by) for one in self.waits.kept_signals()]
        return ev.Successor(self.child_id(SUCCESSOR_KEY), given, signals)

    def child_named(self, key: str) -> str:
        """The run id that a child's intent names. In the shared part of a fork it is the id of the origin's child."""
        recorded = self._shared_intent(key)
        intent = ev.payload_of(recorded) if recorded is not None else None
        return intent.child if isinstance(intent, ev.ChildStart) else self.child_id(key)

    def model_of(self, key: str, named: str | None) -> tuple[str, str]:
        """The exact name of the model for a turn, and the name of its stand-in, if it has one."""
        environment = self.info.environment
        default, stand_in = environment.default_model, environment.stand_in
        recorded = self._shared_intent(key)
        call = ev.payload_of(recorded) if recorded is not None else None
        if isinstance(call, ev.ModelCall):
            default, stand_in = call.model, call.provider
        elif self._forked is not None and self._forked.default_model:
            default, stand_in = self._forked.default_model, self._forked.stand_in
        model = named or default
        exact = self._exact_names.get(model)
        if exact is None:
            exact = environment.models.get(model.strip()) or exact_name(model, environment.prefixes)
            self._exact_names[model] = exact
        return exact, stand_in

    def _as_recorded(self, key: str, intent: Payload) -> Payload:
        """Return an intent as a replay compares it. The start of a child whose definition is code names the sources
        of its time: the same entry point with other sources is the same request.
        """
        if not isinstance(intent, ev.ChildStart):
            return intent
        recorded = self.ledger.recorded_intent(key)
        then = ev.payload_of(recorded) if recorded is not None else None
        if not isinstance(then, ev.ChildStart) or then.definition == intent.definition:
            return intent
        same = same_entry(then.definition, intent.definition)
        return structs.replace(intent, definition=then.definition) if same else intent

    def _shared_intent(self, key: str) -> Event | None:
        """The recorded intent of a key, if it belongs to the part that a fork shares with its origin."""
        recorded = self.ledger.recorded_intent(key) if self._forked is not None else None
        return recorded if recorded is not None and self._forked and recorded.n <= self._forked.n else None

    def leave(self, node: Execution, exit: ev.NodeExit, *, kept: bool = False) -> Instant:
        """Leave a node; return the instant of its exit.

        Later messages may quote the exit of a node. The exit of any other construct is quotable only if ``kept``.
        """
        if kept or node.kind == "node":
            self.memory.keep(f"{node.path}#{node.iteration}", node.name, exit)
        self.entered.pop((node.path, node.iteration), None)
        return self.ledger.state(exit, node.path, node.iteration, node.attempt).time

    def question(self, node: Execution, key: str, ask: Ask) -> OpenQuestion:
        """Ask a person. The schema only helps the person to answer, so a replay keeps the recorded one."""
        recorded = self.ledger.recorded_intent(key)
        asked = ev.payload_of(recorded) if recorded is not None else None
        schema = answer_schema(ask.options) if ask.schema is None else ask.schema
        intent = ev.HumanAsked(
            question=ask.question,
            interaction_type=ask.type,
            options=ask.options,
            channel_type=ask.channel_type,
            request_data=ask.request_data,
            timeout_at=ask.timeout_at,
            timeout_action=ask.timeout_action,
            schema=asked.schema if isinstance(asked, ev.HumanAsked) else schema,
        )
        question = self.waits.questions[key] = OpenQuestion(self.ledger.announce(node, key, intent), node, ask)
        return question

    def close_question(self, key: str, closed: ev.HumanClosed) -> None:
        """Close a question, once."""
        question = self.waits.questions.get(key)
        if question is not None and not question.closed:
            question.closed = True
            del self.waits.questions[key]
            self.waits.answered[key] = closed.outcome
            self.ledger.close(question.node, key, closed)

    async def signal(self, node: Execution, key: str, awaited: ev.SignalAwaited) -> ev.SignalReceived:
        """Wait for a signal. Signals that arrived before they were awaited are taken first, in log order."""
        await self.reach_effect()
        received = self.waits.take_signal(awaited.name, awaited.match)
        if received is None:
            delivered: ev.SignalReceived = await self.effect(node, key, awaited)
            return delivered
        self.ledger.announce(node, key, awaited)
        self.ledger.close(node, key, received)
        return received


def model_turn(effect: PendingEffect, memory: NodeResults, idempotency_key: str) -> ModelTurn:
    """Resolve an announced model call into the complete request: earlier turns, recalled values, tool outputs."""
    key = effect.event.key
    call = effect.node.calls[key]
    request = assemble_request(effect.node, key, memory)
    return ModelTurn(
        model=call.model,
        path=effect.event.path,
        key=key,
        ordinal=effect.ordinal,
        ordinal_of_id=effect.ordinal_of_id,
        idempotency_key=idempotency_key,
        purpose=call.purpose,
        system=request.system,
        messages=request.messages,
        tools=request.tools,
        schema=request.schema,
        choices=call.choices,
        evaluator=call.evaluator,
        max_output_tokens=call.max_output_tokens,
        temperature=call.temperature,
        parameters=call.parameters,
    )
