"""A tool may limit its time, its retries and its concurrent calls, in every language that declares tools."""

from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest
from nats.errors import NoRespondersError
from pydantic import ValidationError

from callboard.actors.actor import Supervisor
from callboard.actors.node import NodeActor
from callboard.actors.tools import limits as limits_module
from callboard.actors.tools.limits import RETRY_LONGEST_S, call_with_retries
from callboard.actors.tools.run_scoped_servers import RunScopedServers, SharedObjects
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment, ToolFailed
from callboard.actors.tools.toolbox import open_toolbox
from callboard.bus import events as ev
from callboard.bus.effects import (
    Failure,
    McpTools,
    NatsTools,
    PythonTools,
    ScriptedTools,
    ToolboxRecord,
    ToolLimits,
    ToolSource,
    ToolSpec,
)
from callboard.languages.playbook.options import PlaybookOptions
from callboard.languages.skills.skill import McpServer, Skill
from callboard.languages.workflow.visit import tool_sources
from callboard.lib.durations import seconds_of
from callboard.lib.json_types import JSON
from tests.support.failures import tool_failure
from tests.support.flow_providers import flow_of, ours, played
from tests.support.flows import FlowTheatre
from tests.support.patience import until
from tests.support.workflows import document, refused, scripted_skill


class Shop:
    """Answers requests for tools with given answers, and records the requests."""

    def __init__(self, *answers: JSON | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, float]] = []
        self.keys: list[str] = []

    async def request(self, _subject: str, payload: bytes, timeout_s: float) -> bytes:
        asked = msgspec.json.decode(payload)
        self.asked.append((asked["tool"], timeout_s))
        self.keys.append(asked["idempotency_key"])
        answer = self.answers.pop(0) if self.answers else {"output": 1}
        if isinstance(answer, Exception):
            raise answer
        return msgspec.json.encode(answer)

    async def call(self, source: ToolSource, tool: str, context: ToolCallContext, **more: Any) -> JSON:
        async with open_toolbox([source], ToolEnvironment(env={}, request=self.request, **more)) as toolbox:
            return await toolbox.call(tool, {}, context)

    async def failure(self, source: ToolSource, tool: str, context: ToolCallContext) -> Failure:
        return await tool_failure(self.call(source, tool, context))


def shop(**limits: ToolLimits) -> NatsTools:
    return NatsTools("shop", [ToolSpec("price"), ToolSpec("stock")], limits=limits)


def context(**more: Any) -> ToolCallContext:
    return ToolCallContext("r1", "a", "key-1", **more)


@pytest.fixture
def skipped_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Skip the waits between tries; return how long they would have been."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(limits_module.anyio, "sleep", sleep)
    return waits


async def test_the_timeout_is_that_of_the_tool_or_its_source_or_the_worker() -> None:
    services = Shop()
    source = shop(price=ToolLimits(timeout="10m"))
    await services.call(source, "price", context())
    await services.call(source, "stock", context())
    await services.call(source, "stock", context(), timeout_s=7.0)
    await services.call(msgspec.structs.replace(source, timeout_s=5.0), "stock", context(), timeout_s=7.0)
    assert services.asked == [("price", 600.0), ("stock", 60.0), ("stock", 7.0), ("stock", 5.0)]


async def test_a_python_function_is_killed_at_its_own_timeout() -> None:
    source = PythonTools({"sleep": "anyio:sleep"}, limits={"sleep": ToolLimits(timeout="PT0.2S")})
    async with open_toolbox([source], ToolEnvironment(env={})) as toolbox:
        found = await tool_failure(toolbox.call("sleep", {"delay": 60}, context()))
    assert (found.code, found.details) == ("tool.timeout", {"timeout_s": 0.2})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("PT1H0.5S", 3600.5),
        ("P1DT2H", 93600),
    ],
)
def test_a_timeout_is_read_as_seconds(text: str, seconds: float) -> None:
    assert msgspec.convert({"timeout": text}, ToolLimits).timeout == text
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "-5s", "P", "PT", "P1M", "1y", "10m!", "ten"])
def test_an_invalid_timeout_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"timeout": text}, ToolLimits)


async def test_a_failed_call_is_repeated_with_the_same_idempotency_key(skipped_waits: list[float]) -> None:
    services = Shop(NoRespondersError(), {"error": {"message": "busy"}}, {"output": {"eur": 3}})
    progress: list[str] = []
    tries: list[int] = []
    output = await services.call(
        shop(price=ToolLimits(retries=3)),
        "price",
        context(on_failed_try=lambda _n, line: progress.append(line), on_try=tries.append),
    )
    assert (output, tries, services.keys, skipped_waits) == ({"eur": 3}, [1, 2, 3], ["key-1"] * 3, [0.5, 1.0])
    assert progress[1] == "try 2 failed (tool.failed: busy); 2 left, the next one in 1 s"


async def test_a_call_fails_with_the_last_failure_when_its_retries_are_used_up(skipped_waits: list[float]) -> None:
    services = Shop(*({"error": {"message": f"no {n}"}} for n in range(11)))
    found = await services.failure(shop(price=ToolLimits(retries=10)), "price", context())
    assert (found.message, len(services.asked)) == ("no 10", 11)
    assert skipped_waits == [0.5, 1, 2, 4, 8, 16, *[RETRY_LONGEST_S] * 4]


@pytest.mark.parametrize(
    "answer", [{"no": "output"}, {"error": {"message": "never", "retryable": False}}], ids=["malformed", "final"]
)
@pytest.mark.usefixtures("skipped_waits")
async def test_a_final_failure_is_not_retried(answer: JSON) -> None:
    services = Shop(answer)
    await services.failure(shop(price=ToolLimits(retries=3)), "price", context())
    assert len(services.asked) == 1


@pytest.mark.usefixtures("skipped_waits")
async def test_tries_before_a_takeover_count_as_retries() -> None:
    tries: list[int] = []
    failed: list[int] = []

    async def call() -> JSON:
        raise ToolFailed(Failure("tool.failed", "again"))

    outcome = context(on_try=tries.append, on_failed_try=lambda number, _line: failed.append(number), tried=2)
    with pytest.raises(ToolFailed):
        await call_with_retries(shop(price=ToolLimits(retries=3)), "price", outcome, call)
    assert (tries, failed) == ([3, 4], [3])


@pytest.mark.parametrize(
    ("server", "calls"),
    [({"command": ["desk"]}, 1), ({"command": ["desk"], "scope": "run"}, 3), ({"url": "http://desk"}, 3)],
)
@pytest.mark.usefixtures("skipped_waits")
async def test_a_crashed_server_of_a_node_is_not_called_again(server: dict[str, Any], calls: int) -> None:
    source = McpTools("desk", **server, limits={"look": ToolLimits(retries=2)})
    calls_made = 0

    async def call() -> JSON:
        nonlocal calls_made
        calls_made += 1
        raise ToolFailed(Failure("tool.crashed", "gone"))

    with pytest.raises(ToolFailed):
        await call_with_retries(source, "look", context(), call)
    assert calls_made == calls


class CallGate:
    """Executes each tool call until the test lets it finish, and records the running calls."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.outcomes: list[str] = []
        self.most = 0
        self.allowed: set[str] = set()

    async def carry(self, job: Any, _sessions: Any, _reporter: Any) -> ev.Payload:
        self.running.append(job.key)
        self.most = max(self.most, sum("price" in key for key in self.running))
        await until(lambda: job.key in self.allowed)
        self.running.remove(job.key)
        return ev.ToolResult(node="A", tool="price")

    def outcome(self, key: str, _payload: ev.Payload) -> None:
        self.outcomes.append(key)

    def aside(self, key: str, _payload: ev.Payload) -> None:
        raise AssertionError(f"no event is expected aside from {key}")


def job(key: str, tool: str, *sources: ToolSource) -> Any:
    toolboxes = {"a#1.1!toolbox": ToolboxRecord(list(sources))}
    return SimpleNamespace(key=key, intent=ev.ToolCall(node="A", tool=tool), toolboxes=toolboxes)


async def test_a_call_that_waits_for_a_bounded_tool_occupies_no_place_of_the_worker() -> None:
    """The worker has two places for effects and the tool may run once: a waiting call leaves its place free."""
    gate: Any = CallGate()
    served = shop(price=ToolLimits(concurrency=1))
    # The source of another node declares other tools beside it, and it is still the same tool.
    elsewhere = msgspec.structs.replace(served, tools=[ToolSpec("price")])
    async with Supervisor(lambda _name, error: pytest.fail(str(error))) as actors:
        shared = SharedObjects(RunScopedServers(lambda body: actors.spawn("tools", body)))
        limiter = anyio.CapacityLimiter(2)
        nodes = [NodeActor(name, gate, gate, limiter, actors.spawn, shared) for name in ("a#1", "b#1")]
        nodes[0].take(job("price 1", "price", served))
        await until(lambda: gate.running == ["price 1"])
        nodes[1].take(job("price 2", "price", elsewhere))
        nodes[0].take(job("price 3", "price", served))
        nodes[0].take(job("stock", "stock", served))
        await until(lambda: "stock" in gate.running)
        assert gate.running == ["price 1", "stock"]
        for key in ("stock", "price 1", "price 2", "price 3"):
            await until(lambda key=key: key in gate.running)
            gate.allowed.add(key)
            await until(lambda key=key: key in gate.outcomes)
        actors.stop_all()
    assert gate.outcomes == ["stock", "price 1", "price 2", "price 3"]
    assert gate.most == 1


TOOL = {"description": "d", "input_schema": {"type": "object"}}


def test_a_workflow_skill_limits_each_tool_and_its_server() -> None:
    tools = [
        {"name": "price", "nats": "shop", "timeout": "10m", "retries": 2, **TOOL},
        {"name": "stock", "nats": "shop", **TOOL},
        {"name": "count", "python": "shop:count", "concurrency": 1, **TOOL},
        {"name": "reserve", **TOOL},
    ]
    mcp = {"command": "desk", "timeout": "2m", "scope": "run", "limits": {"look": {"timeout": "PT1H"}}}
    [skill] = [Skill.model_validate(scripted_skill("s", tools=tools, mcp=mcp))]
    python, nats, scripted, desk = tool_sources([skill], {}, None)
    assert isinstance(python, PythonTools)
    assert isinstance(nats, NatsTools)
    assert isinstance(scripted, ScriptedTools)
    assert python.limits == {"count": ToolLimits(concurrency=1)}
    assert nats.limits == {"price": ToolLimits(timeout="10m", retries=2)}
    assert scripted.limits == {}
    assert desk == McpTools("s", ["desk"], timeout_s=120.0, limits={"look": ToolLimits(timeout="PT1H")}, scope="run")


def test_sources_without_limits_are_recorded_without_them() -> None:
    plain = McpServer.model_validate({"command": "desk"})
    assert set(plain.model_dump(exclude_none=True)) == {"command", "args", "headers", "env"}
    recorded = msgspec.to_builtins([PythonTools({"f": "m:f"}), McpTools("desk", ["desk"]), ScriptedTools([])])
    assert recorded == [
        {"type": "python", "functions": {"f": "m:f"}},
        {"type": "mcp", "name": "desk", "command": ["desk"]},
        {"type": "scripted", "tools": []},
    ]


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"timeout": "soon"}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"retries": 11}, "retries"),
        ({"concurrency": 0}, "concurrency"),
        ({"timeout": None}, "timeout"),
    ],
)
def test_invalid_limits_are_refused(fields: dict[str, Any], where: str) -> None:
    skill = scripted_skill("s", tools=[{"name": "price", **TOOL, **fields}])
    [problem] = refused(document({"a": {"skills": ["s"]}}), options={"skills": [skill]})
    assert problem.where == f"options.skills[0].tools[0].{where}"


def test_a_playbook_connection_limits_its_tools() -> None:
    shop = {"type": "nats", "subject": "shop", "tools": [{"name": "price"}]}
    limits = {"price": {"timeout": "10m", "concurrency": 2}}
    source = PlaybookOptions.model_validate({"connections": {"s": {**shop, "limits": limits}}}).source("s")
    assert isinstance(source, NatsTools)
    assert source.limits == {"price": ToolLimits(timeout="10m", concurrency=2)}
    with pytest.raises(ValidationError, match="timeout"):
        PlaybookOptions.model_validate({"connections": {"s": {**shop, "limits": {"price": {"timeout": "soon"}}}}})


async def test_a_flow_limits_each_tool_of_a_source() -> None:
    limits = {"sleep": {"timeout": "200ms", "retries": 1}}
    source = {"type": "python", "functions": {"sleep": "anyio:sleep"}, "limits": limits}
    flow = flow_of(ours("tool"), source=source, tool="sleep", arguments={"delay": 60})
    outcome, events = await played(FlowTheatre(script={}), flow)
    assert outcome["failure"]["code"] == "Provider.Call.Tool.Timeout"
    assert "within 0.2 s" in outcome["failure"]["message"]
    [result] = [event for event in events if event.type == "tool.result"]
    assert msgspec.json.decode(result.payload)["tries"] == 2


async def test_the_timeout_of_a_flow_call_applies_to_any_source() -> None:
    source = {"type": "python", "functions": {"sleep": "anyio:sleep"}}
    flow = flow_of(ours("tool"), source=source, tool="sleep", arguments={"delay": 60}, timeout="PT0.2S")
    outcome, _events = await played(FlowTheatre(script={}), flow)
    assert "within 0.2 s" in outcome["failure"]["message"]


async def test_invalid_limits_fail_the_call_of_a_flow() -> None:
    source = {"type": "python", "functions": {"f": "m:f"}, "limits": {"f": {"timeout": "soon"}}}
    outcome, _events = await played(FlowTheatre(script={}), flow_of(ours("tool"), source=source, tool="f"))
    assert outcome["failure"]["code"] == "System.ParameterValidationFailed"
