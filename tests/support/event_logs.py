"""A builder of event logs for tests, and a few logs made with it: no runtime, just the vocabulary."""

import datetime as dt
from typing import Any

from msgspec import Raw

from callboard.bus.effects import Choice, Failure, ModelUsage, ToolUse, Usage, user
from callboard.bus.events import (
    SCHEMA_VERSION,
    CancelRequested,
    ChildEnd,
    ChildStart,
    ChildUsage,
    ClockRead,
    CodeMarked,
    CommandRefused,
    DefinitionRef,
    EffectCall,
    EffectCancelled,
    EffectResult,
    Event,
    HumanAnswered,
    HumanAsked,
    HumanClosed,
    ModelCall,
    ModelResult,
    Newer,
    NodeEnter,
    NodeExit,
    NodeOutcome,
    NodeProgress,
    NodeRetry,
    NodeWarning,
    Outline,
    OutlineEdge,
    OutlineNode,
    Payload,
    Route,
    RunAccepted,
    RunAdopted,
    RunClaimed,
    RunDiverged,
    RunEnd,
    RunFailed,
    RunParked,
    RunPaused,
    RunQuarantined,
    RunReleased,
    RunResumed,
    RunStart,
    SignalAwaited,
    SignalReceived,
    SourcesResolved,
    TimerFired,
    TimerSet,
    ToolCall,
    ToolResult,
    encode_payload,
    payload_of,
)
from callboard.bus.paths import effect_key, last_id

RUN = "01932c5e-0000-7000-8000-000000000001"
T0 = dt.datetime(2026, 11, 20, 11, 0, 0, tzinfo=dt.UTC)
TICK = dt.timedelta(milliseconds=100)


def known_payload(event: Event) -> Payload:
    """Return the payload of an event that this version knows."""
    payload = payload_of(event)
    assert not isinstance(payload, Newer)
    return payload


def at(ticks: int) -> dt.datetime:
    """Return the time of an event after a number of ticks."""
    return T0 + ticks * TICK


class Log:
    """Grows one run's events; each comes one tick (100 ms) after the one before."""

    def __init__(self, run: str = RUN, definition: str = "cake") -> None:
        self.events: list[Event] = []
        self.run = run
        self.definition = definition
        self.epoch = 0
        self.time = T0

    def add(self, payload: Payload, path: str = "", iteration: int = 0, attempt: int = 0, slot: str = "") -> Event:
        """Append a payload; with a slot the event has an effect key."""
        key = effect_key(path, iteration, attempt, slot) if slot else ""
        return self.add_raw(payload.type, encode_payload(payload), path, iteration, attempt, key)

    def add_raw(self, kind: str, payload: bytes, path: str, iteration: int, attempt: int, key: str) -> Event:
        """Append bytes as the payload of an event of any type, known or not."""
        event = Event(
            type=kind,
            run=self.run,
            n=len(self.events) + 1,
            epoch=self.epoch,
            v=SCHEMA_VERSION,
            time=self.time,
            path=path,
            definition=self.definition,
            iteration=iteration,
            attempt=attempt,
            key=key,
            payload=Raw(payload),
        )
        self.events.append(event)
        self.time += TICK
        return event

    def wait(self, ticks: int) -> None:
        """Let time pass before the next event."""
        self.time += ticks * TICK

    # -- the run --

    def accepted(self, outline: Outline | None = None, language: str = "workflow", **fields: Any) -> Event:
        ref = DefinitionRef(language, "ab" * 32, "{}", self.definition)
        return self.add(RunAccepted(ref, {}, outline or Outline(), **fields))

    def claimed(self, worker: str = "w1") -> Event:
        self.epoch += 1
        return self.add(RunClaimed(worker, self.epoch))

    def started(self, outline: Outline | None = None, language: str = "workflow") -> "Log":
        """Accepted, claimed, run.start and sources.resolved."""
        self.accepted(outline, language)
        self.claimed()
        self.add(RunStart(self.definition, {"q": 1}))
        self.add(SourcesResolved({"nodes.bake.instruction": {"content": "Bake.", "kind": "inline"}}))
        return self

    def ended(self, output: Any = None, results: Any = None) -> "Log":
        self.add(RunEnd("completed", output, results))
        return self

    def failed(self, code: str = "boom", message: str = "it broke") -> "Log":
        error = Failure(code, message)
        self.add(RunFailed(error))
        self.add(RunEnd("failed", error=error))
        return self

    # -- nodes --

    def enter(self, path: str, iteration: int = 1, kind: str = "node") -> Event:
        name = last_id(path)
        return self.add(NodeEnter(kind, name, name.title(), f"Do {name}."), path, iteration, 1)

    def exit(
        self, path: str, iteration: int = 1, outcome: NodeOutcome = "ok", result: Any = None, attempt: int = 1
    ) -> Event:
        error = Failure("node.broke", f"{path} broke") if outcome == "failed" else None
        return self.add(NodeExit(outcome, result, error), path, iteration, attempt)

    def node_result(self, path: str, data: dict[str, Any], iteration: int = 1, attempt: int = 1) -> Event:
        """Exit with the NodeResult of a workflow node that succeeded."""
        result = {"status": "success", "data": data, "toolCalls": [], "evals": []}
        return self.exit(path, iteration, result=result, attempt=attempt)

    def route(self, source: str, target: str, reason: str, edge: int | str | None, iteration: int = 1) -> Event:
        return self.add(Route(source, target, reason, edge), source, iteration, 1)

    # -- effects --

    def model(
        self, path: str, slot: str = "turn.0", *, iteration: int = 1, attempt: int = 1, asks: str = "opus", **reply: Any
    ) -> None:
        """A turn of the model ``asks``, asked and answered."""
        self.ask_model(path, slot, iteration=iteration, attempt=attempt, asks=asks)
        reply.setdefault("usage", Usage(100, 20, 30, 10))
        result = ModelResult(provider="anthropic", response_id="r1", response_model="opus-1", **reply)
        self.add(result, path, iteration, attempt, slot)

    def ask_model(
        self, path: str, slot: str = "turn.0", *, iteration: int = 1, attempt: int = 1, asks: str = "opus"
    ) -> None:
        choices = [Choice("serve", "done")] if slot == "route" else []
        call = ModelCall(
            "route" if slot == "route" else "turn",
            asks,
            "d1",
            "anthropic",
            system="Be kind.",
            messages=[user("secret question")],
            choices=choices,
            max_output_tokens=512,
            temperature=0.5,
        )
        self.add(call, path, iteration, attempt, slot)

    def tool(self, path: str, tool: str = "search", slot: str = "tool.0.0", **result: Any) -> None:
        """A tool call with its result."""
        self.add(ToolCall(last_id(path), tool, {"q": "secret input"}, "c1", "mcp"), path, 1, 1, slot)
        self.add(ToolResult(last_id(path), tool, **result), path, 1, 1, slot)


CAKE = Outline(
    nodes=[OutlineNode("bake", "Bake"), OutlineNode("taste", "Taste"), OutlineNode("serve", "Serve")],
    edges=[
        OutlineEdge("bake", "taste"),
        OutlineEdge("taste", "bake", "too raw"),
        OutlineEdge("taste", "serve", "done"),
    ],
)
"""bake → taste always; taste → bake when "too raw"; taste → serve when "done"."""


def cake(*, retry: bool = False) -> Log:
    """The worked example of the workflow specification's digest: bake, taste, bake, taste, serve."""
    log = Log().started(CAKE)
    for visit in (1, 2):
        log.enter("bake", visit)
        log.model("bake", iteration=visit)
        if retry and visit == 2:
            log.add(NodeRetry("bake", 1, "golden (value): pale", "Fix and try again."), "bake", 2, 2)
            log.model("bake", iteration=2, attempt=2)
        log.node_result("bake", {"visit": visit}, visit, 2 if retry and visit == 2 else 1)
        log.route("bake", "taste", "only path", 0, visit)
        log.enter("taste", visit)
        log.model("taste", iteration=visit)
        log.node_result("taste", {"visit": visit}, visit)
        log.model("taste", "route", iteration=visit, text="bake" if visit == 1 else "serve")
        if visit == 1:
            log.route("taste", "bake", "too raw", 1, visit)
        else:
            log.route("taste", "serve", "done", 2, visit)
    log.enter("serve")
    log.tool("serve", output={"plates": 2})
    log.node_result("serve", {"served": True})
    return log.ended({"served": True}, {"serve": {"status": "success"}})


def everything() -> Log:
    """A log with every event type that logs have, and an unknown one; nested, parked, reclaimed."""
    outline = Outline([OutlineNode("main")])
    log = Log(definition="all").started(outline, language="flow")
    log.enter("main", kind="frame")
    log.enter("main/fan", kind="step")
    log.enter("main/fan[0]", kind="dispatch")
    log.enter("main/fan[1]", kind="dispatch")
    log.add(ClockRead(T0), "main/fan", 1, 1, "clock.0")
    log.ask_model("main/fan[0]")
    log.add(EffectCall("http", None, {"url": "x"}, "d"), "main/fan[1]", 1, 1, "call.0")
    log.add(EffectResult(value=1), "main/fan[1]", 1, 1, "call.0")
    log.exit("main/fan[1]")
    log.claimed("w2")
    log.add(
        ModelResult(text="hello", usage=Usage(5, 6), stop_reason="end_turn", tool_calls=[ToolUse("c", "t", {})]),
        "main/fan[0]",
        1,
        1,
        "turn.0",
    )
    log.tool("main/fan[0]", error=Failure("tool.failed", "rate limited"))
    log.add(NodeProgress("fan", "half way"), "main/fan[0]", 1, 1)
    log.add(NodeWarning("fan", "missing", "keys missing", ["a"]), "main/fan[0]", 1, 1)
    log.exit("main/fan[0]", outcome="failed")
    log.exit("main/fan")
    log.add(TimerSet(at(500), "delay"), "main", 1, 1, "nap")
    log.add(RunParked([effect_key("main", 1, 1, "nap")], at(500)))
    log.wait(100)
    log.claimed("w3")
    log.add(TimerFired(at(500)), "main", 1, 1, "nap")
    _waits(log)
    log.add_raw("run.from_the_future", b'{"x":1}', "", 0, 0, "")
    log.add(CommandRefused("answer", "late", "already answered"))
    log.add(RunReleased("w3"))
    log.add(RunDiverged("replay.diverged", "event 7 records a, and this replay asks for b", 7, "w3", "0.1.0"))
    log.add(RunAdopted("w3", "b" * 64, "a" * 64))
    log.add(CodeMarked("new-tax"), "", 1, 1, "new-tax")
    log.add(RunQuarantined("log.unreadable", 7, "cb.run.acme.r1.all.node.exit", "no event"))
    log.add(CancelRequested("enough", "ada"))
    log.add(EffectCancelled(ChildStart.type, Failure("cancelled")), "main", 1, 1, "child")
    log.exit("main", outcome="cancelled")
    log.add(RunEnd("cancelled", error=Failure("cancelled", "enough")))
    return log


def _waits(log: Log) -> None:
    log.add(HumanAsked("really?", "confirm"), "main", 1, 1, "ask")
    log.add(HumanAnswered(effect_key("main", 1, 1, "ask"), 1, "yes", by="ada"), "main", 1, 1)
    log.add(HumanClosed("answered", 1, "yes"), "main", 1, 1, "ask")
    log.add(RunPaused("command", by="ada"))
    log.add(RunResumed(by="ada"))
    log.add(SignalAwaited("go"), "main", 1, 1, "sig")
    log.add(SignalReceived("other"))
    log.add(SignalReceived("go", {"x": 1}), "main", 1, 1, "sig")
    log.add(ChildStart({"name": "sub"}, "child-0", 1), "main", 1, 1, "child.0")
    log.add(ChildUsage("child-0", [ModelUsage("anthropic:claude-1", Usage(3, 4))], 1), "main", 1, 1)
    log.add(ChildEnd("completed", 2, usage=Usage(7, 8)), "main", 1, 1, "child.0")
    log.add(ChildStart({"name": "sub"}, "child-1", 1), "main", 1, 1, "child")


def killed() -> Log:
    """A run that ended with a node and a model turn open."""
    log = Log().started(CAKE)
    log.enter("bake")
    log.ask_model("bake")
    log.add(RunEnd("cancelled"))
    return log
