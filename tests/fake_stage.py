"""A stage without a log: drives an interpreter's coroutines by hand, answers its effects from a script, keeps facts.

It keeps the contract of `callboard.languages.language` as far as the workflow language uses it, and complains where an
interpreter breaks it: keys used twice, references to what was never recorded, facts about a node that was left twice.
"""

import datetime as dt
from collections import Counter, deque
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import coroutine
from typing import Any, cast

import msgspec

from callboard.bus.effects import (
    Failure,
    Former,
    McpTools,
    Message,
    ModelReply,
    ModelRequest,
    NatsTools,
    PythonTools,
    Recall,
    ScriptedTools,
    Text,
    ToolOutput,
    ToolSource,
    ToolSpec,
    ToolUse,
    digest,
)
from callboard.bus.events import Environment
from callboard.bus.paths import effect_key, last_id
from callboard.languages.language import Cancelled, End, Failed, Ok, RunInfo, Settled, Stage, Unwound

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

Script = dict[str, Any]
"""``turns``, ``routes``, ``judges``, ``asks``, ``tools`` as the scripted model has them; ``sources`` by value."""


@dataclass(frozen=True)
class Record:
    """A fact or an intent, in the order in which it was made."""

    type: str
    key: str
    payload: dict[str, Any]


@dataclass
class _Effect:
    key: str
    answer: Any
    task: "_Task"


@dataclass
class _Task:
    coro: Coroutine[Any, Any, Any]
    settled: Settled[Any] | None = None
    joins: "list[_Task]" = field(default_factory=list["_Task"])


@coroutine
def _suspend(wait: Any) -> Generator[Any, Any, Any]:
    return (yield wait)


class FakeStage:
    """See the module. ``newest_first`` answers open effects in the opposite order, ``cancel_at`` ends the run there."""

    def __init__(
        self,
        script: Script,
        *,
        environment: dict[str, Any] | None = None,
        files: dict[str, str] | None = None,
        mcp: dict[str, list[ToolSpec] | Failure] | None = None,
        newest_first: bool = False,
        cancel_at: str | None = None,
        tells: bool = False,
    ) -> None:
        self.info = RunInfo(
            None,
            {},
            {"strict": False} if tells else {},
            "run",
            msgspec.convert(environment or {}, Environment),
            files or {},
        )
        self.records: list[Record] = []
        self.requests: dict[str, ModelRequest] = {}
        self.outcomes: dict[str, Any] = {}
        self.exits: dict[str, dict[str, Any]] = {}
        self.told: dict[str, Any] = {}
        self.told_at: dict[str, dict[str, Any]] = {}
        self.open_toolboxes: list[str] = []
        self.root = FakeNode(self, "", 1, "")
        self._script = {name: dict(part) if isinstance(part, dict) else part for name, part in script.items()}
        self._mcp = mcp or {}
        self._iterations: Counter[str] = Counter()
        self._used: Counter[tuple[str, str]] = Counter()
        self._ready: deque[tuple[_Task, Any]] = deque()
        self._pending: deque[_Effect] = deque()
        self._tasks: list[_Task] = []
        self._newest_first = newest_first
        self._cancel_at = cancel_at

    # -- what an interpreter asks -------------------------------------------------------------------------------------

    def enter(self, path: str, kind: str = "node", **names: Any) -> "FakeNode":
        self._iterations[path] += 1
        node = FakeNode(self, path, self._iterations[path], names.get("node", ""))
        self.record("node.enter", node.where, {"kind": kind, **names})
        return node

    def now(self) -> dt.datetime:
        return EPOCH

    def resolved(self, sources: dict[str, dict[str, Any]]) -> None:
        self.record("sources.resolved", "", {"sources": sources})

    async def gate(self, node: Any, step: str, when: str = "before", *, path: str = "") -> None:
        self.record("gate", step, {"when": when, "node": node})

    def spawn(self, coro: Coroutine[Any, Any, Any]) -> _Task:
        task = _Task(coro)
        self._tasks.append(task)
        self._ready.append((task, None))
        return task

    async def join(self, *tasks: _Task) -> list[Settled[Any]]:
        if any(task.settled is None for task in tasks):
            await _suspend(tasks)
        return [task.settled for task in tasks if task.settled is not None]

    # -- driving ------------------------------------------------------------------------------------------------------

    def drive(self, interpretation: Coroutine[Any, Any, End]) -> End:
        """Run to the end, delivering one outcome at a time, each followed by running to quiescence."""
        root = self.spawn(interpretation)
        while root.settled is None:
            while self._ready:
                self._advance(*self._ready.popleft())
            if root.settled is not None:
                break
            assert self._pending, "the interpreter waits for nothing that could come"
            effect = self._pending.pop() if self._newest_first else self._pending.popleft()
            if effect.key == self._cancel_at:
                self._cancel_all(Failure("System.Cancelled", "told to"))
                continue
            self.outcomes[effect.key] = effect.answer
            self._ready.append((effect.task, effect.answer))
        assert not self.open_toolboxes, "a toolbox was left open"
        assert isinstance(root.settled, Ok), "the interpreter let its cancellation pass"
        return root.settled.value

    def _cancel_all(self, cause: Failure) -> None:
        self._pending.clear()
        self._ready.clear()
        for task in reversed([task for task in self._tasks if task.settled is None]):
            task.joins = []
            self._advance(task, Cancelled(cause))

    def _advance(self, task: _Task, value: Any) -> None:
        try:
            wait = task.coro.throw(value) if isinstance(value, Cancelled) else task.coro.send(value)
        except StopIteration as stop:
            self._settle(task, Ok(stop.value))
        except Cancelled as cancelled:
            self._settle(task, Unwound(cancelled.cause, cancelled.owner))
        else:
            if isinstance(wait, _Effect):
                wait.task = task
                self._pending.append(wait)
            else:
                task.joins = list(wait)

    def _settle(self, task: _Task, settled: Settled[Any]) -> None:
        task.settled = settled
        for waiting in self._tasks:
            if waiting.settled is None and task in waiting.joins and all(t.settled for t in waiting.joins):
                waiting.joins = []
                self._ready.append((waiting, None))

    # -- recording and answering --------------------------------------------------------------------------------------

    def record(self, type: str, key: str, payload: dict[str, Any]) -> None:
        msgspec.json.encode({name: value for name, value in payload.items() if name != "node"})
        self.records.append(Record(type, key, payload))

    async def effect(self, type: str, key: str, payload: dict[str, Any], answer: Any) -> Any:
        """Announce an effect and wait for its outcome."""
        assert key not in {record.key for record in self.records if "." in record.type and "!" in record.key}, key
        self.record(type, key, payload)
        return await _suspend(_Effect(key, answer, cast(_Task, None)))

    def scripted(self, part: str, path: str, *names: str) -> Any:
        """Take the next entry of a script's part for the first of the names that it has."""
        entries: dict[str, list[Any]] = self._script.get(part, {})
        for name in names:
            if name in entries:
                position = self._used[part, name]
                self._used[part, name] += 1
                if position < len(entries[name]):
                    return entries[name][position]
        return self._script.get("default") or {"error": f"nothing scripted in {part} for {path}"}

    def listing(self, source: ToolSource) -> list[ToolSpec] | Failure:
        match source:
            case PythonTools(functions):
                return [ToolSpec(name, f"the docstring of {path}") for name, path in functions.items()]
            case McpTools(name=name):
                return self._mcp.get(name, [])
            case NatsTools(tools=tools) | ScriptedTools(tools=tools):
                return tools

    # -- what tests look at -------------------------------------------------------------------------------------------

    @property
    def stage(self) -> Stage:
        return cast(Stage, self)

    def types(self) -> list[str]:
        return [record.type for record in self.records if record.type != "gate"]

    def of(self, type: str) -> list[Record]:
        return [record for record in self.records if record.type == type]

    def text(self, key: str) -> str:
        """Return the text of a request's messages, every reference resolved."""
        return "\n".join(self._message_text(message) for message in self.requests[key].messages)

    def _message_text(self, message: Message) -> str:
        text = ""
        for part in message.parts:
            match part:
                case Text(words):
                    text += words
                case Recall(of, at):
                    text += msgspec.json.encode(_pointed({"result": self.exits[of]["result"]}, at)).decode()
                case Former(of):
                    assert of in self.exits, f"{of} was never left"
                    for name, left in self.told_at[of].items():
                        text += f', "{name}": {msgspec.json.encode(left).decode()}'
                case ToolOutput(of=None, error=error):
                    text += f"[{error.code if error else ''}]"
                case ToolOutput(of=of):
                    assert of in self.outcomes, f"{of} is answered for but was never recorded"
                    text += f"[{of}]"
                case ToolUse():
                    raise AssertionError("a tool use is the model's to say")
        return text

    def fingerprint(self) -> list[tuple[str, str]]:
        """Return what was asked and stated, for comparison with another run."""
        return [(record.key, digest(record.type, msgspec.to_builtins(record.payload))) for record in self.records]


def _pointed(value: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        value = value[step.replace("~1", "/").replace("~0", "~")]
    return value


class FakeNode:
    """One node execution on a fake stage."""

    def __init__(self, stage: FakeStage, path: str, iteration: int, name: str) -> None:
        self._stage = stage
        self.path = path
        self.iteration = iteration
        self.attempt = 1
        self.name = name
        self.entered_at = EPOCH

    @property
    def where(self) -> str:
        return f"{self.path}#{self.iteration}"

    def key(self, slot: str) -> str:
        return effect_key(self.path, self.iteration, self.attempt, slot)

    def exit(self, outcome: str, result: Any = None, error: Failure | None = None, told: Any = None) -> dt.datetime:
        assert self.where not in self._stage.exits, f"{self.where} was left twice"
        self._stage.exits[self.where] = {"outcome": outcome, "result": result, "error": error}
        if isinstance(result, dict):
            self._stage.told[self.name] = result["data"] if told is None else told
        self._stage.told_at[self.where] = dict(self._stage.told)
        self._stage.record("node.exit", self.where, {"outcome": outcome, "result": result, "error": error})
        return EPOCH

    def retry(self, reason: str, **names: Any) -> None:
        self._stage.record("node.retry", self.where, {"node": self.name, "reason": reason, **names})
        self.attempt += 1

    def route(self, to: str, reason: str, edge: int | str | None = None, **_names: Any) -> None:
        self._stage.record("route", self.where, {"from": self.name, "to": to, "reason": reason, "edge": edge})

    def progress(self, message: str, **names: Any) -> None:
        self._stage.record("node.progress", self.where, {"message": message, **names})

    def warn(self, code: str, reason: str, fields: Sequence[str] = ()) -> None:
        self._stage.record("node.warning", self.where, {"code": code, "reason": reason, "fields": list(fields)})

    async def turn(self, slot: str, request: ModelRequest) -> Ok[ModelReply] | Failed:
        stage, key = self._stage, self.key(slot)
        assert request.base is None or request.base in stage.outcomes, f"{request.base} was never recorded"
        stage.requests[key] = request
        stage.text(key)
        name = last_id(self.path)
        match request.purpose:
            case "route":
                entry = stage.scripted("routes", self.path, self.path, name)
            case "judge":
                entry = stage.scripted("judges", self.path, f"{name}/{request.evaluator}")
            case "reflect":
                entry = stage.scripted("asks", self.path, self.path, name)
            case _:
                entry = stage.scripted("turns", self.path, self.path, name)
        payload = {"request": msgspec.to_builtins(request)}
        return await stage.effect("model.call", key, payload, _reply(entry, key))

    async def tool(self, slot: str, tool: str, input: Any, *, id: str = "", via: str = "worker") -> Ok[Any] | Failed:
        assert self._stage.open_toolboxes, "a tool is called without a toolbox"
        entry: Any = self._stage.scripted("tools", self.path, tool)
        answer = Failed(Failure("tool.failed", entry["error"])) if "error" in entry else Ok(entry["output"])
        payload = {"tool": tool, "input": input, "id": id, "via": via}
        return await self._stage.effect("tool.call", self.key(slot), payload, answer)

    async def call(self, slot: str, kind: str, request: Any) -> Ok[Any] | Failed:
        entry = self._stage.scripted("sources", self.path, request["value"])
        failed = isinstance(entry, dict) and "error" in entry
        answer = Failed(Failure(entry.get("code", "internal"), entry["error"])) if failed else Ok(entry)
        return await self._stage.effect("effect.call", self.key(slot), {"kind": kind, "request": request}, answer)

    @asynccontextmanager
    async def toolbox(self, sources: Sequence[ToolSource]) -> AsyncGenerator[Ok[list[ToolSpec]] | Failed]:
        listings = [self._stage.listing(source) for source in sources]
        failure = next((one for one in listings if isinstance(one, Failure)), None)
        listed = [spec for one in listings if not isinstance(one, Failure) for spec in one]
        answer = Failed(failure) if failure else Ok(listed)
        payload = {"kind": "toolbox", "request": msgspec.to_builtins(list(sources))}
        self._stage.open_toolboxes.append(self.where)
        try:
            yield await self._stage.effect("effect.call", self.key("toolbox"), payload, answer)
        finally:
            self._stage.open_toolboxes.remove(self.where)


def _reply(entry: Any, key: str) -> Ok[ModelReply] | Failed:
    if isinstance(entry, str):
        return Ok(ModelReply(text=entry))
    if "error" in entry:
        return Failed(Failure("model.overloaded", entry["error"]))
    uses = [
        ToolUse(call.get("id", f"{key}-{index}"), call["tool"], call.get("input", {}))
        for index, call in enumerate(entry.get("tool_calls", []))
    ]
    stop_reason = entry.get("stop_reason", "tool_use" if uses else "end_turn")
    return Ok(ModelReply(text=entry.get("text", ""), data=entry.get("data"), tool_calls=uses, stop_reason=stop_reason))
