"""Tools of MCP servers in all languages: lists that change while an agent works, and servers with tools of one name."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import callboard
from callboard import Agent, McpTools, workflow
from callboard.bus import events as ev
from callboard.bus.effects import ToolSpec
from callboard.bus.tool_names import NAME_CHARS_MAX, names_of, passes, prefixed_name
from callboard.languages.tool_names import DistinctTools
from callboard.testing import Scenario
from tests.support.flow_providers import flow_of, ours
from tests.support.graphs import graph, node, webhook
from tests.support.workflows import document

SCHEMA: dict[str, Any] = {"type": "object"}
URL = "https://{}.test/mcp"


def specs(*names: str) -> list[ToolSpec]:
    return [ToolSpec(name, input_schema=SCHEMA) for name in names]


class Changing:
    """A server whose tools change with each call in a scenario, until the last list of them."""

    def __init__(self, *lists: Sequence[str]) -> None:
        self._lists = lists
        self.scenario = Scenario(servers={"desk": self, "line": self, "hub": specs("search")})

    def __call__(self, _source: McpTools) -> list[ToolSpec]:
        made = sum("!tool." in key for key in self.scenario.carried_out)
        return specs(*self._lists[min(made, len(self._lists) - 1)])


@callboard.step
async def look_up(word: str) -> str:
    return word


def python_agent(*servers: str, approve: Sequence[str] = ()) -> Any:
    sources = [McpTools(name, url=URL.format(name)) for name in servers]
    agent = Agent("a", servers=sources, approve=approve, tools=[look_up])

    @workflow
    async def asking() -> str:
        return (await agent.run("Go.")).text

    return asking


def of_workflow(*servers: str, approve: Any = None) -> str:
    skills = {name: {"mcp": {"url": URL.format(name), **({"approve": approve} if approve else {})}} for name in servers}
    return json.dumps(document({"a": {"skills": [*servers]}}, skills=skills))


def of_flow(*servers: str, approve: Any = None) -> str:
    tools = [{"type": "mcp", "name": name, "url": URL.format(name)} for name in servers]
    return json.dumps(flow_of(ours("model"), tools=tools, **({"approve": approve} if approve else {})))


def of_graph(*servers: str, approve: Any = None) -> str:
    own: dict[str, Any] = {"model": "gpt-5-nano", "system_prompt": "Be brief.", "user_prompt": "Go."}
    own |= {"approve": approve} if approve else {}
    nodes = [webhook(), node("a", "AI_AGENT", "OPENAI_CHATGPT", [*servers], **own)]
    nodes += [node(name, "TOOL", "NOTION_MCP_TOOL", mcp_server_url=URL.format(name)) for name in servers]
    return json.dumps(graph(nodes, "t -> a"))


SOURCES: dict[str, Callable[..., Any]] = {
    "workflow": of_workflow,
    "flow": of_flow,
    "graph": of_graph,
    "python": python_agent,
}


def started(scenario: Scenario, language: str, source: Any, turns: Sequence[Sequence[str]], **script: Any) -> None:
    """Start an agent of which each turn calls some tools, and the last none."""
    said = [{"tool_calls": [{"tool": tool, "input": {}} for tool in called]} for called in turns]
    place = "main/a:call.model" if language == "flow" else "a"
    written = {"turns": {place: [*said, {"text": "done"}]}, **script}
    if language == "python":
        scenario.start(source, script=written)
    else:
        scenario.start(source=source, script=written, input={"body": {"text": "Hi"}} if language == "graph" else None)


def offered(scenario: Scenario) -> list[list[str]]:
    """The tools of servers that each turn of the model was offered."""
    return [[tool.name for tool in turn.tools if tool.server != ""] for turn in scenario.turns.values()]


def calls(scenario: Scenario) -> list[tuple[str, str, str]]:
    payloads: list[Any] = scenario.payloads("tool.call")
    return [(call.tool, call.server, call.own_name) for call in payloads]


@pytest.mark.parametrize("language", SOURCES)
def test_a_tool_that_a_server_adds_or_removes_is_offered_or_not_from_the_next_turn_on(language: str) -> None:
    outputs = {"tools": {"enable": [{"output": "on"}], "echo": [{"output": "hi"}] * 2}}
    with Changing(["enable"], ["enable", "echo"], ["echo"], ["echo", "more"]).scenario as scenario:
        started(scenario, language, SOURCES[language]("desk"), [["enable"], ["echo"], ["echo"]], **outputs)
        assert offered(scenario) == [["enable"], ["enable", "echo"], ["echo"], ["echo", "more"]]
        results: list[ev.ToolResult] = scenario.payloads("tool.result")  # pyright: ignore
        assert [result.error for result in results] == [None] * 3
        assert [[tool.name for tool in listing] for one in results for listing in one.listings.values()] == [
            ["enable", "echo"],
            ["echo"],
            ["echo", "more"],
        ]


@pytest.mark.parametrize("language", SOURCES)
def test_a_list_that_does_not_change_is_not_recorded_again(language: str) -> None:
    with Scenario(servers={"desk": specs("enable")}) as scenario:
        started(scenario, language, SOURCES[language]("desk"), [["enable"]], tools={"enable": [{"output": "on"}]})
        results: list[ev.ToolResult] = scenario.payloads("tool.result")  # pyright: ignore
        models: list[ev.ModelCall] = scenario.payloads("model.call")  # pyright: ignore
        assert [one.listings for one in results] == [{}]
        assert [(len(one.tools) > 0, one.retooled) for one in models] == [(True, False), (False, False)]


@pytest.mark.parametrize("language", SOURCES)
def test_servers_with_tools_of_one_name_are_told_apart(language: str) -> None:
    servers = {"hub": specs("search", "pulls"), "line": specs("search")}
    outputs = {"tools": {"hub_search": [{"output": "g"}], "search": [{"output": "l"}], "pulls": [{"output": "p"}]}}
    with Scenario(servers=servers) as scenario:
        source = SOURCES[language]("hub", "line")
        started(scenario, language, source, [["hub_search", "line_search", "pulls"]], **outputs)
        assert offered(scenario)[0] == ["hub_search", "pulls", "line_search"]
        assert calls(scenario) == [
            ("hub_search", "hub", "search"),
            ("line_search", "line", "search"),
            ("pulls", "hub", "pulls"),
        ]
        results: list[Any] = scenario.payloads("tool.result")
        assert [one.error for one in results] == [None] * 3
        warnings: list[Any] = scenario.payloads("node.warning")
        assert [(one.code, one.fields) for one in warnings] == [("TOOL_RENAMED", ["hub_search", "line_search"])]
        scenario.crash_everywhere()


@pytest.mark.parametrize("language", SOURCES)
def test_a_tool_keeps_its_name_when_another_server_gets_one_of_that_name(language: str) -> None:
    outputs = {"tools": {"search": [{"output": 1}] * 2, "enable": [{"output": "on"}]}}
    with Changing(["enable"], ["enable", "search"]).scenario as scenario:
        source = SOURCES[language]("hub", "line")
        started(scenario, language, source, [["enable"], ["search", "line_search"]], **outputs)
        assert offered(scenario)[1] == ["search", "enable", "line_search"]
        assert calls(scenario)[1:] == [("search", "hub", "search"), ("line_search", "line", "search")]


@pytest.mark.parametrize("language", SOURCES)
@pytest.mark.parametrize(("approve", "asked"), [(["search"], [0, 1]), (["line_search"], [1]), ("*", [0, 1])])
def test_an_approval_holds_for_a_tool_by_each_of_its_names(language: str, approve: Any, asked: list[int]) -> None:
    servers = {"hub": specs("search"), "line": specs("search")}
    approve = [approve] if language == "python" and isinstance(approve, str) else approve
    with Scenario(servers=servers) as scenario:
        source = SOURCES[language]("hub", "line", approve=approve)
        outputs = {"tools": {"search": [{"output": 1}] * 2}}
        started(scenario, language, source, [["hub_search", "line_search"]], **outputs)
        questions = [event.key.partition("!")[2] for event in scenario.events if event.type == "human.asked"]
        assert questions == [f"approve.1.{index}" for index in asked]


@pytest.mark.parametrize("language", SOURCES)
def test_an_approval_by_the_longer_name_holds_when_no_other_tool_has_the_name(language: str) -> None:
    with Scenario(servers={"hub": specs("search")}) as scenario:
        source = SOURCES[language]("hub", approve=["hub_search"])
        started(scenario, language, source, [["search"]], tools={"search": [{"output": 1}]})
        assert [event.type for event in scenario.events].count("human.asked") == 1


def test_a_step_keeps_its_name_beside_a_servers_tool_of_that_name() -> None:
    with Scenario(servers={"desk": specs("look_up")}) as scenario:
        source = python_agent("desk")
        started(scenario, "python", source, [["desk_look_up"]], tools={"look_up": [{"output": "served"}]})
        assert calls(scenario) == [("desk_look_up", "desk", "look_up")]


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ({"deny": ["search"]}, ["pulls"]),
        ({"deny": ["line_search"]}, ["search", "pulls"]),
        ({"allow": ["search"]}, ["hub_search", "line_search"]),
        ({"allow": ["hub_search"]}, ["search"]),
    ],
)
def test_a_nodes_filter_means_a_tool_by_each_of_its_names(tools: Any, expected: list[str]) -> None:
    skills = {name: {"mcp": {"url": URL.format(name)}} for name in ("hub", "line")}
    raw = document({"a": {"skills": [*skills], "tools": tools}}, skills=skills)
    with Scenario(servers={"hub": specs("search", "pulls"), "line": specs("search")}) as scenario:
        scenario.start(source=json.dumps(raw), script={"default": {"text": "ok"}})
        assert offered(scenario) == [expected]
        assert "TOOL_FILTER_UNMATCHED" not in [one.code for one in scenario.result.warnings]


# -- names ------------------------------------------------------------------------------------------------------------


class Place:
    """A node that takes note of its warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, _code: str, reason: str, _fields: Sequence[str] = ()) -> None:
        self.warnings.append(reason)


def named(*tools: tuple[str, str], taken: Sequence[str] = ()) -> list[str]:
    """The names of tools, each given by its server and own name; without a server it is no server's tool."""
    place: Any = Place()
    names = DistinctTools(place, taken)
    listed = [ToolSpec(name, server=server, own_name=name if server else "") for server, name in tools]
    return [one.name for one in names.name(listed)]


def test_names_are_distinct_whatever_the_tools_are_called() -> None:
    assert named(("a", "b_c"), ("a_b", "c"), ("x", "b_c"), ("y", "c")) == ["a_b_c", "a_b_c_2", "x_b_c", "y_c"]
    assert named(("", "search"), ("hub", "search")) == ["search", "hub_search"]
    assert named(("hub", "search"), taken=["search", "hub_search"]) == ["hub_search_2"]
    assert named(("a", "t"), ("b", "t"), ("c", "a_t")) == ["a_t_2", "b_t", "a_t"]


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("git.hub", "search issues", "git_hub_search_issues"),
        ("7", "search", "_7_search"),
        ("über", "suche", "_ber_suche"),
        ("s" * 40, "t" * 40, f"{'s' * 40}_{'t' * 14}_"),
    ],
)
def test_a_longer_name_is_one_that_all_providers_accept(server: str, tool: str, name: str) -> None:
    found = prefixed_name(server, tool)
    assert found.startswith(name)
    assert len(found) <= NAME_CHARS_MAX
    assert prefixed_name(server, f"{tool}x") != found


def test_long_names_that_must_be_counted_stay_within_the_bound() -> None:
    tool = "t" * 80
    found = named(("s", tool), ("s2", tool), taken=[prefixed_name("s", tool)])
    assert len(set(found)) == 2
    assert max(map(len, found)) <= NAME_CHARS_MAX


def test_a_filter_of_a_server_means_a_tool_by_both_names() -> None:
    assert not passes(McpTools("s", deny=["s_t"]), "t")
    assert not passes(McpTools("s", deny=["t"]), "t")
    assert passes(McpTools("s", allow=["s_t"]), "t")
    assert not passes(McpTools("s", allow=["r_t"]), "t")
    assert names_of(ToolSpec("t", server="script")) == {"t"}
    assert names_of(ToolSpec("s_t_2", server="s", own_name="t")) == {"s_t_2", "t", "s_t"}
