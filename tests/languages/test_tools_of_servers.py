"""Tools of MCP servers in all languages: lists that change during a run, and servers with tools of one name."""

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


class ChangingServer:
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


def workflow_agent(*servers: str, approve: Any = None) -> str:
    skills = {name: {"mcp": {"url": URL.format(name), **({"approve": approve} if approve else {})}} for name in servers}
    return json.dumps(document({"a": {"skills": [*servers]}}, skills=skills))


def flow_agent(*servers: str, approve: Any = None) -> str:
    tools = [{"type": "mcp", "name": name, "url": URL.format(name)} for name in servers]
    return json.dumps(flow_of(ours("model"), tools=tools, **({"approve": approve} if approve else {})))


def graph_agent(*servers: str, approve: Any = None) -> str:
    own: dict[str, Any] = {"model": "gpt-5-nano", "system_prompt": "Be brief.", "user_prompt": "Go."}
    own |= {"approve": approve} if approve else {}
    nodes = [webhook(), node("a", "AI_AGENT", "OPENAI_CHATGPT", [*servers], **own)]
    nodes += [node(name, "TOOL", "NOTION_MCP_TOOL", mcp_server_url=URL.format(name)) for name in servers]
    return json.dumps(graph(nodes, "t -> a"))


AGENTS: dict[str, Callable[..., Any]] = {
    "workflow": workflow_agent,
    "flow": flow_agent,
    "graph": graph_agent,
    "python": python_agent,
}


def start(scenario: Scenario, language: str, source: Any, turns: Sequence[Sequence[str]], **script: Any) -> None:
    """Start an agent whose turns call these tools, and whose last turn calls none."""
    replies = [{"tool_calls": [{"tool": tool, "input": {}} for tool in called]} for called in turns]
    place = "main/a:call.model" if language == "flow" else "a"
    written = {"turns": {place: [*replies, {"text": "done"}]}, **script}
    if language == "python":
        scenario.start(source, script=written)
    else:
        scenario.start(source=source, script=written, input={"body": {"text": "Hi"}} if language == "graph" else None)


def find_offered(scenario: Scenario) -> list[list[str]]:
    """Return the tools of servers in each turn of the model."""
    return [[tool.name for tool in turn.tools if tool.server != ""] for turn in scenario.turns.values()]


def find_calls(scenario: Scenario) -> list[tuple[str, str, str]]:
    payloads: list[Any] = scenario.payloads("tool.call")
    return [(call.tool, call.server, call.own_name) for call in payloads]


@pytest.mark.parametrize("language", AGENTS)
def test_the_next_turn_has_the_changed_tools_of_a_server(language: str) -> None:
    outputs = {"tools": {"enable": [{"output": "on"}], "echo": [{"output": "hi"}] * 2}}
    with ChangingServer(["enable"], ["enable", "echo"], ["echo"], ["echo", "more"]).scenario as scenario:
        start(scenario, language, AGENTS[language]("desk"), [["enable"], ["echo"], ["echo"]], **outputs)
        assert find_offered(scenario) == [["enable"], ["enable", "echo"], ["echo"], ["echo", "more"]]
        results: list[ev.ToolResult] = scenario.payloads("tool.result")  # pyright: ignore
        assert [result.error for result in results] == [None] * 3
        assert [[tool.name for tool in listing] for one in results for listing in one.listings.values()] == [
            ["enable", "echo"],
            ["echo"],
            ["echo", "more"],
        ]


@pytest.mark.parametrize("language", AGENTS)
def test_a_list_that_does_not_change_is_not_recorded_again(language: str) -> None:
    with Scenario(servers={"desk": specs("enable")}) as scenario:
        start(scenario, language, AGENTS[language]("desk"), [["enable"]], tools={"enable": [{"output": "on"}]})
        results: list[ev.ToolResult] = scenario.payloads("tool.result")  # pyright: ignore
        models: list[ev.ModelCall] = scenario.payloads("model.call")  # pyright: ignore
        assert [one.listings for one in results] == [{}]
        assert [(len(one.tools) > 0, one.retooled) for one in models] == [(True, False), (False, False)]


@pytest.mark.parametrize("language", AGENTS)
def test_tools_of_one_name_get_the_prefix_of_their_server(language: str) -> None:
    servers = {"hub": specs("search", "pulls"), "line": specs("search")}
    outputs = {"tools": {"hub_search": [{"output": "g"}], "search": [{"output": "l"}], "pulls": [{"output": "p"}]}}
    with Scenario(servers=servers) as scenario:
        source = AGENTS[language]("hub", "line")
        start(scenario, language, source, [["hub_search", "line_search", "pulls"]], **outputs)
        assert find_offered(scenario)[0] == ["hub_search", "pulls", "line_search"]
        assert find_calls(scenario) == [
            ("hub_search", "hub", "search"),
            ("line_search", "line", "search"),
            ("pulls", "hub", "pulls"),
        ]
        results: list[Any] = scenario.payloads("tool.result")
        assert [one.error for one in results] == [None] * 3
        warnings: list[Any] = scenario.payloads("node.warning")
        assert [(one.code, one.fields) for one in warnings] == [("TOOL_RENAMED", ["hub_search", "line_search"])]
        scenario.crash_everywhere()


@pytest.mark.parametrize("language", AGENTS)
def test_a_tool_keeps_its_name_when_another_server_gets_one_of_that_name(language: str) -> None:
    outputs = {"tools": {"search": [{"output": 1}] * 2, "enable": [{"output": "on"}]}}
    with ChangingServer(["enable"], ["enable", "search"]).scenario as scenario:
        source = AGENTS[language]("hub", "line")
        start(scenario, language, source, [["enable"], ["search", "line_search"]], **outputs)
        assert find_offered(scenario)[1] == ["search", "enable", "line_search"]
        assert find_calls(scenario)[1:] == [("search", "hub", "search"), ("line_search", "line", "search")]


@pytest.mark.parametrize("language", AGENTS)
@pytest.mark.parametrize(("approve", "asked"), [(["search"], [0, 1]), (["line_search"], [1]), ("*", [0, 1])])
def test_an_approval_holds_for_a_tool_by_each_of_its_names(language: str, approve: Any, asked: list[int]) -> None:
    servers = {"hub": specs("search"), "line": specs("search")}
    approve = [approve] if language == "python" and isinstance(approve, str) else approve
    with Scenario(servers=servers) as scenario:
        source = AGENTS[language]("hub", "line", approve=approve)
        outputs = {"tools": {"search": [{"output": 1}] * 2}}
        start(scenario, language, source, [["hub_search", "line_search"]], **outputs)
        questions = [event.key.partition("!")[2] for event in scenario.events if event.type == "human.asked"]
        assert questions == [f"approve.1.{index}" for index in asked]


@pytest.mark.parametrize("language", AGENTS)
def test_an_approval_by_the_longer_name_holds_for_a_tool_with_a_short_name(language: str) -> None:
    with Scenario(servers={"hub": specs("search")}) as scenario:
        source = AGENTS[language]("hub", approve=["hub_search"])
        start(scenario, language, source, [["search"]], tools={"search": [{"output": 1}]})
        assert [event.type for event in scenario.events].count("human.asked") == 1


def test_a_step_keeps_its_name_beside_a_servers_tool_of_that_name() -> None:
    with Scenario(servers={"desk": specs("look_up")}) as scenario:
        source = python_agent("desk")
        start(scenario, "python", source, [["desk_look_up"]], tools={"look_up": [{"output": "served"}]})
        assert find_calls(scenario) == [("desk_look_up", "desk", "look_up")]


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ({"deny": ["search"]}, ["pulls"]),
        ({"deny": ["line_search"]}, ["search", "pulls"]),
        ({"allow": ["search"]}, ["hub_search", "line_search"]),
        ({"allow": ["hub_search"]}, ["search"]),
    ],
)
def test_a_filter_of_a_node_may_use_each_name_of_a_tool(tools: Any, expected: list[str]) -> None:
    skills = {name: {"mcp": {"url": URL.format(name)}} for name in ("hub", "line")}
    raw = document({"a": {"skills": [*skills], "tools": tools}}, skills=skills)
    with Scenario(servers={"hub": specs("search", "pulls"), "line": specs("search")}) as scenario:
        scenario.start(source=json.dumps(raw), script={"default": {"text": "ok"}})
        assert find_offered(scenario) == [expected]
        assert "TOOL_FILTER_UNMATCHED" not in [one.code for one in scenario.result.warnings]


# -- names -------------------------------------------------------------------------------------------------------------


class NotingNode:
    """A node that notes its warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, _code: str, reason: str, _fields: Sequence[str] = ()) -> None:
        self.warnings.append(reason)


def name_tools(*tools: tuple[str, str], taken: Sequence[str] = ()) -> list[str]:
    """Return the distinct names of tools, each given by its server (empty for a step) and its name."""
    place: Any = NotingNode()
    names = DistinctTools(place, taken)
    listed = [ToolSpec(name, server=server, own_name=name if server else "") for server, name in tools]
    return [one.name for one in names.name(listed)]


def test_the_names_of_tools_are_distinct() -> None:
    assert name_tools(("a", "b_c"), ("a_b", "c"), ("x", "b_c"), ("y", "c")) == ["a_b_c", "a_b_c_2", "x_b_c", "y_c"]
    assert name_tools(("", "search"), ("hub", "search")) == ["search", "hub_search"]
    assert name_tools(("hub", "search"), taken=["search", "hub_search"]) == ["hub_search_2"]
    assert name_tools(("a", "t"), ("b", "t"), ("c", "a_t")) == ["a_t_2", "b_t", "a_t"]


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("git.hub", "search issues", "git_hub_search_issues"),
        ("7", "search", "_7_search"),
        ("über", "suche", "_ber_suche"),
        ("s" * 40, "t" * 40, f"{'s' * 40}_{'t' * 14}_"),
    ],
)
def test_all_providers_accept_a_longer_name(server: str, tool: str, name: str) -> None:
    found = prefixed_name(server, tool)
    assert found.startswith(name)
    assert len(found) <= NAME_CHARS_MAX
    assert prefixed_name(server, f"{tool}x") != found


def test_a_numbered_name_keeps_the_maximum_length() -> None:
    tool = "t" * 80
    found = name_tools(("s", tool), ("s2", tool), taken=[prefixed_name("s", tool)])
    assert len(set(found)) == 2
    assert max(map(len, found)) <= NAME_CHARS_MAX


def test_a_filter_of_a_server_may_use_both_names_of_a_tool() -> None:
    filters: list[Any] = [{"deny": ["s_t"]}, {"deny": ["t"]}, {"allow": ["s_t"]}, {"allow": ["r_t"]}]
    assert [passes(McpTools("s", **given), "t") for given in filters] == [False, False, True, False]
    assert names_of(ToolSpec("t", server="script")) == {"t"}
    assert names_of(ToolSpec("s_t_2", server="s", own_name="t")) == {"s_t_2", "t", "s_t"}
