"""Agents of graphs: message, memory, tools and output; and the nodes TOOL, MEMORY and EXTERNAL_ACTION."""

from typing import Any

import msgspec
import pytest

from callboard.actors.carrier import Job
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.effects import McpTools, ScriptedTools
from callboard.languages.graph.language import LANGUAGE
from callboard.languages.graph.tools import resolve_tools
from callboard.languages.graph.work import ExecutionState
from callboard.languages.plan import Needs
from tests.support.graphs import (
    Answering,
    Performance,
    answers,
    check_deaths,
    fails,
    flow,
    graph,
    node,
    parsed,
    perform,
    perform_node,
    step,
    webhook,
)

USAGE = {"input_tokens": 10, "output_tokens": 5}


def agent(id: str = "ai", subtype: str = "OPENAI_CHATGPT", attached: Any = (), **configurations: Any) -> dict[str, Any]:
    required = {
        "model": "gpt-5-nano",
        "system_prompt": "Be brief.",
        **({"user_prompt": ""} if "GEMINI" in subtype else {}),
    }
    return node(id, "AI_AGENT", subtype, attached, **{**required, **configurations})


def memory_node(id: str = "mem", **configurations: Any) -> dict[str, Any]:
    return node(id, "MEMORY", "CONVERSATION_BUFFER", **configurations)


def tool_node(id: str = "tools", **configurations: Any) -> dict[str, Any]:
    return node(id, "TOOL", "NOTION_MCP_TOOL", **configurations)


def make_script(*turns: Any, tools: dict[str, Any] | None = None, path: str = "ai") -> dict[str, Any]:
    listed = [{"text": one, "usage": USAGE} if isinstance(one, str) else one for one in turns]
    return {"turns": {path: listed}, **({"tools": tools} if tools else {})}


def talk(
    own: dict[str, Any], *others: dict[str, Any], input: Any = "Hello?", script: Any = None, **names: Any
) -> Performance:
    """Run an agent that gets this input."""
    return perform_node(own, input, *others, script=script or make_script("Hi."), **names)


def find_first_call(done: Performance) -> Any:
    return next(call for call in done.of_type("model.call") if call.purpose == "turn")


# -- the conversation --------------------------------------------------------------------------------------------------


def test_an_answer_has_its_content_usage_and_model() -> None:
    done = talk(agent(temperature=0.2, max_tokens="100"))
    assert done.out("ai") == {
        "content": "Hi.",
        "metadata": {"model": "scripted", "stop_reason": "end_turn", "finish_reason": "end_turn", "iterations": 1},
        "token_usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        "function_calls": [],
    }
    assert done.results["tokens_used"] == {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    details = done.record("ai")["execution_details"]
    assert details == {"ai_model": "scripted", "prompt_tokens": 10, "completion_tokens": 5, "model_response": "Hi."}
    call = find_first_call(done)
    assert (call.model, call.system) == ("openai:gpt-5-nano", "Be brief.")
    assert msgspec.to_builtins(call.messages) == [{"role": "user", "parts": [{"type": "text", "text": "Hello?"}]}]
    assert (call.max_output_tokens, call.temperature) == (100, 0.2)


@pytest.mark.parametrize(
    ("subtype", "configurations", "model"),
    [
        ("OPENAI_CHATGPT", {"model": "gpt-5"}, "openai:gpt-5"),
        ("ANTHROPIC_CLAUDE", {"model": "claude-sonnet-4-5-20250929"}, "anthropic:claude-sonnet-4-5-20250929"),
        ("GOOGLE_GEMINI", {"model": "gemini-2.5-pro"}, "gemini:gemini-2.5-pro"),
        ("OPENAI_CHATGPT", {"model": "azure:mine"}, "azure:mine"),
        ("OPENAI_CHATGPT", {"model": ""}, ""),
    ],
)
def test_each_provider_has_its_models(subtype: str, configurations: dict[str, Any], model: str) -> None:
    assert find_first_call(talk(agent(subtype=subtype, **configurations))).model == (model or "scripted")


def test_gemini_has_its_own_settings_of_a_turn() -> None:
    own = agent(subtype="GOOGLE_GEMINI", generation_config={"max_output_tokens": 7, "temperature": 0.5})
    call = find_first_call(talk(own))
    assert (call.max_output_tokens, call.temperature) == (7, 0.5)


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        (
            {"top_p": 0.9, "frequency_penalty": "0.5", "presence_penalty": 0},
            {"top_p": 0.9, "frequency_penalty": 0.5, "presence_penalty": 0},
        ),
        ({"generation_config": {"top_k": 40, "stop_sequences": ["END"]}}, {"top_k": 40, "stop_sequences": ["END"]}),
        ({"generation_config": {"candidate_count": 1, "stop_sequences": []}}, {}),
        (
            {"safety_settings": {"harassment": "BLOCK_NONE"}, "seed": "7"},
            {"safety_settings": {"harassment": "BLOCK_NONE"}, "seed": 7},
        ),
        ({"top_p": "much", "stop_sequences": "END"}, {"stop_sequences": ["END"]}),
    ],
)
def test_the_parameters_of_an_agent_reach_its_model(given: dict[str, Any], passed_on: dict[str, Any]) -> None:
    assert find_first_call(talk(agent(subtype="GOOGLE_GEMINI", **given))).parameters == passed_on


@pytest.mark.parametrize(
    ("text", "content"), [("plain", "plain"), ('{"a": 1}', {"a": 1}), ("[1]", [1]), ("5", 5), ("{broken", "{broken")]
)
def test_text_that_is_json_becomes_its_value(text: str, content: Any) -> None:
    assert talk(agent(), script=make_script(text)).out("ai")["content"] == content


def test_an_output_schema_makes_an_answer_structured() -> None:
    schema = {"type": "object", "properties": {"label": {"type": "string"}}}
    own = agent(subtype="ANTHROPIC_CLAUDE", output_processing={"output_schema": schema})
    done = talk(own, script=make_script({"data": {"label": "spam"}}))
    assert done.out("ai")["content"] == {"label": "spam"}
    assert find_first_call(done).schema == schema


@pytest.mark.parametrize(
    ("input", "message"),
    [
        ("as it is", "as it is"),
        ({"user_prompt": "", "message": "m", "text": "t"}, "m"),
        ({"user_message": "um"}, "um"),
        ({"user_input": "ui", "input": "i"}, "ui"),
        ({"query": "q"}, "q"),
        ({"text": "t"}, "t"),
        ({"content": {"a": 1}}, '{"a":1}'),
        ({"user_prompt": 5}, "5"),
    ],
)
def test_the_message_is_found_in_the_input(input: Any, message: str) -> None:
    assert find_first_call(talk(agent(), input=input)).messages[-1].parts[0].text == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"user_input": "Hello!"}, "Hello!"),
        ({"message": "m", "text": "t"}, "m"),
        ({"event": {"text": "slack"}}, "slack"),
        ("bare", "bare"),
    ],
)
def test_the_message_is_found_in_the_data_of_the_trigger(data: Any, message: str) -> None:
    trigger = node("t", "TRIGGER", "MANUAL", trigger_name="x")
    done = perform(graph([trigger, agent()], "t -> ai"), data, script=make_script("Hi."))
    assert find_first_call(done).messages[-1].parts[0].text == message


def test_an_agent_without_a_message_fails_without_a_call() -> None:
    done = talk(agent(retry_attempts=2), input={"n": 1})
    assert done.of_type("model.call") == []
    assert done.record("ai")["status"] == "FAILED"
    assert done.record("ai")["retry_count"] == 0


def test_a_failed_turn_is_tried_again() -> None:
    done = talk(agent(retry_attempts=2), script=make_script({"error": "overloaded"}, {"error": "bad_reply"}, "Hi."))
    assert done.out("ai")["content"] == "Hi."
    assert done.record("ai")["retry_count"] == 2
    failed = talk(agent(), script=make_script({"error": "overloaded"}))
    assert failed.record("ai")["error"]["error_code"] == "NODE_EXEC_ERROR"


# -- tools -------------------------------------------------------------------------------------------------------------

CALLS = {"tool_calls": [{"tool": "notion_search", "input": {"q": 1}}], "usage": USAGE}


def test_tools_are_called_until_there_is_an_answer() -> None:
    script = make_script(CALLS, "Found.", tools={"notion_search": [{"output": {"hits": 3}}]})
    done = talk(agent(attached=["tools"]), tool_node(), script=script)
    assert done.out("ai")["content"] == "Found."
    [call] = done.out("ai")["function_calls"]
    assert (call["name"], call["arguments"], call["result"]) == ("notion_search", {"q": 1}, {"hits": 3})
    assert done.out("ai")["metadata"]["iterations"] == 2
    assert done.results["tokens_used"]["total_tokens"] == 30
    assert done.sequence == ["ai"]
    assert set(done.results["node_executions"]) == {"ai"}
    assert done.record("ai")["execution_details"]["attached"] == {"memory": [], "tools": ["notion_search"]}
    asked = find_first_call(done)
    assert [tool.name for tool in asked.tools] == ["notion_search"]
    assert "- notion_search" in asked.system
    assert [one.node for one in done.of_type("tool.call")] == ["ai"]


def test_the_model_reads_the_error_of_a_tool() -> None:
    script = make_script(CALLS, "Sorry.", tools={"notion_search": [{"error": "rate limited"}]})
    done = talk(agent(attached=["tools"]), tool_node(), script=script)
    [call] = done.out("ai")["function_calls"]
    assert call["result"] == {"success": False, "error_message": "rate limited"}
    assert done.results["status"] == "SUCCESS"


@pytest.mark.parametrize(("configurations", "turns"), [({}, 5), ({"max_tool_iterations": 2}, 2)])
def test_an_agent_stops_after_its_maximum_of_turns(configurations: dict[str, Any], turns: int) -> None:
    script = make_script(*[{**CALLS, "usage": USAGE}] * 9, tools={"notion_search": [{"output": 1}] * 9})
    done = talk(agent(attached=["tools"], **configurations), tool_node(), script=script)
    assert done.out("ai")["metadata"]["iterations"] == turns
    assert done.out("ai")["metadata"]["stop_reason"] == "max_iterations"
    assert len(done.out("ai")["function_calls"]) == len(done.of_type("tool.call")) == turns
    [warning] = done.of_type("node.warning")
    assert warning.code == "graph.max_iterations"
    assert f"used up its {turns} turns (`max_tool_iterations`) while the model still called notion_search" in (
        warning.reason
    )
    assert "goes on with an empty `content`" in warning.reason


def test_an_answer_that_was_cut_short_is_warned_of() -> None:
    done = talk(agent(), script=make_script({"text": "Dear", "stop_reason": "max_tokens"}))
    assert done.out("ai")["content"] == "Dear"
    [warning] = done.of_type("node.warning")
    assert (warning.code, "max_tokens" in warning.reason) == ("graph.cut_short", True)
    assert done.results["status"] == "SUCCESS"


def test_an_agent_continues_without_unavailable_tools() -> None:
    own = tool_node(mcp_server_url="http://mcp.example.com")
    script = make_script("Hi.", tools={})
    done = talk(agent(attached=["tools"]), own, script=script)
    assert done.out("ai")["content"] == "Hi."
    assert [one.code for one in done.of_type("node.warning")] == ["graph.tools"]


def find_sources(own: dict[str, Any], *scripted: str) -> list[Any]:
    found = parsed(graph([webhook(), agent(attached=["tools"]), own])).document
    context = ExecutionState(found, {}, "", {}, frozenset(scripted))
    return resolve_tools(found.attached["tools"], context).sources


def test_a_plan_names_the_environment_variables_of_tokens() -> None:
    written = graph([webhook(), agent(attached=["tools"]), tool_node(access_token="Bearer ${NOTION_TOKEN}")])
    plan = LANGUAGE.admit(parsed(written), StartRun(DefinitionSource("graph")))
    assert not isinstance(plan, list)
    assert plan.needs == Needs(model=False, environment=["NOTION_TOKEN"])


def test_the_sources_of_tools_are_servers_or_the_script() -> None:
    [server] = find_sources(tool_node(access_token="${NOTION_TOKEN}"))
    assert server == McpTools(
        "tools", url="http://localhost:8000/api/v1/mcp", headers={"Authorization": "Bearer ${NOTION_TOKEN}"}
    )
    [placeholder] = find_sources(tool_node(access_token="{{$placeholder}}"))
    assert placeholder.headers == {}
    [scripted] = find_sources(tool_node(), "notion_search", "another")
    assert isinstance(scripted, ScriptedTools)
    assert [tool.name for tool in scripted.tools] == ["notion_search"]
    both = find_sources(tool_node(mcp_server_url="http://localhost:1/mcp"), "notion_search")
    assert [type(source) for source in both] == [ScriptedTools, McpTools]
    [all_scripted] = find_sources(tool_node(mcp_server_url="http://x/mcp", available_tools=["a"]), "a")
    assert isinstance(all_scripted, ScriptedTools)


# -- memory ------------------------------------------------------------------------------------------------------------


def make_memory(*, summarize: bool = False) -> tuple[list[Any], Answering]:
    """Make a memory that holds an earlier conversation; return its requests, and its answers."""
    asked: list[Any] = []

    async def carry(_job: Job, request: Any) -> Any:
        asked.append(request)
        match request["operation"]:
            case "get_context":
                earlier = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ada."}]
                return {"messages": earlier, "context": "She likes tea."}
            case "store" if summarize:
                return {"to_summarize": {"messages": [{"role": "user", "content": "Who?"}], "summary": "old"}}
            case _:
                return {"success": True}

    return asked, carry


def test_an_agent_reads_its_memory_before_and_writes_it_after_the_turn() -> None:
    asked, carry = make_memory()
    done = talk(agent(attached=["mem"]), memory_node(max_messages=9), kinds={"memory": carry})
    assert [one["operation"] for one in asked] == ["get_context", "store"]
    load, store = asked
    assert load["memory"]["id"] == "mem"
    assert load["memory"]["configurations"] == {"max_messages": 9, "auto_summarize": True, "summarize_count": 10}
    assert load["scope"] == {"workflow_id": "g", "user_id": "u", "execution_id": "r1"}
    assert (load["query"], load["limit"]) == ("Hello?", 20)
    assert store["messages"] == [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hi."}]
    assert store["text"] == "User: Hello?\nAssistant: Hi."
    call = find_first_call(done)
    assert [(one.role, one.parts[0].text) for one in call.messages] == [
        ("user", "Who?"),
        ("assistant", "Ada."),
        ("user", "Hello?"),
    ]
    assert call.system.endswith("What you remember:\nShe likes tea.")


def test_a_structured_answer_is_stored_in_memory_as_json() -> None:
    asked, carry = make_memory()
    talk(agent(attached=["mem"]), memory_node(), kinds={"memory": carry}, script=make_script('{"a": 1}'))
    assert asked[1]["messages"][1]["content"] == '{"a":1}'


@pytest.mark.parametrize("kinds", [None, {"memory": fails("memory.down")}, {"memory": answers("odd")}])
def test_a_failing_memory_does_not_fail_the_agent(kinds: Any) -> None:
    done = talk(agent(attached=["mem"]), memory_node(), kinds=kinds)
    assert done.out("ai")["content"] == "Hi."


def test_a_model_writes_the_summary_that_a_memory_requests() -> None:
    asked, carry = make_memory(summarize=True)
    script = {"turns": {"ai": [{"text": "Hi."}]}}
    done = talk(agent(attached=["mem"]), memory_node(), kinds={"memory": carry}, script=script)
    assert [call.purpose for call in done.of_type("model.call")] == ["turn", "summarize"]
    assert asked[2]["operation"] == "summarize"
    assert (asked[2]["summary"], asked[2]["count"]) == ("Hi.", 1)


def test_two_agents_share_a_memory() -> None:
    asked, carry = make_memory()
    nodes = [agent("ai", attached=["mem"]), agent("ai2", attached=["mem"]), memory_node()]
    script = {"turns": {"ai": [{"text": "One."}], "ai2": [{"text": "Two."}]}}
    done = perform(
        graph(nodes, "ai -> ai2", triggers=[]), "x", start_from_node="ai", script=script, kinds={"memory": carry}
    )
    assert done.sequence == ["ai", "ai2"]
    assert {one["memory"]["id"] for one in asked} == {"mem"}
    assert asked[2]["query"] == "One."


def test_a_memory_node_performs_its_operation() -> None:
    own = node("m", "MEMORY", "KEY_VALUE_STORE", storage_backend="memory")
    answer = {"value": {"x": 1}, "exists": True, "success": True, "odd": 1}
    done = perform_node(own, {"key": "k"}, kinds={"memory": answers(answer)})
    [(_kind, request)] = done.harness.asked
    assert request["operation"] == "get"
    assert request["input"] == {"key": "k"}
    assert done.out("m")["value"] == {"x": 1}
    assert "odd" not in done.out("m")
    put = node("m", "MEMORY", "KEY_VALUE_STORE", storage_backend="memory", operation="set", key="{{ input.who }}")
    done = perform_node(put, {"who": "Ada"}, kinds={"memory": answers({})})
    assert done.harness.asked[0][1]["memory"]["configurations"]["key"] == "Ada"
    done = perform_node(put, {"operation": "get"}, kinds={"memory": answers({})})
    assert done.harness.asked[0][1]["operation"] == "set"
    down = perform_node(put, {}, kinds={"memory": fails()})
    assert down.record("m")["status"] == "FAILED"


# -- tools in the graph ------------------------------------------------------------------------------------------------


def test_a_tool_node_calls_its_tool() -> None:
    script = {"tools": {"notion_search": [{"output": {"hits": 1}}]}}
    given = {"tool_name": "notion_search", "function_args": {"q": 1}}
    done = perform_node(tool_node("w"), given, script=script)
    found = done.out("w")
    assert (found["result"], found["success"], found["cached"]) == ({"hits": 1}, True, False)
    assert done.record("w")["execution_details"]["tool_parameters"] == {"q": 1}


def test_a_tool_that_returns_an_error_fails_the_node() -> None:
    script = {"tools": {"notion_search": [{"error": "no such page"}]}}
    done = perform_node(tool_node("w", tool_name="notion_search"), {}, script=script)
    assert done.record("w")["error"]["error_code"] == "NODE_EXECUTION_FAILED"
    assert done.record("w")["error"]["error_message"] == "no such page"
    unnamed = perform_node(tool_node("w"), {}, script=script)
    assert unnamed.record("w")["error"]["error_code"] == "NODE_EXEC_ERROR"


# -- services ----------------------------------------------------------------------------------------------------------


def slack(**configurations: Any) -> dict[str, Any]:
    required = {"action_type": "send_message", "channel": "#x", "bot_token": "{{$placeholder}}"}
    return node("s", "EXTERNAL_ACTION", "SLACK", **{**required, **configurations})


def act(own: dict[str, Any], input: Any, answer: Any, kind: str = "service") -> Performance:
    return perform_node(own, input, kinds={kind: answers(answer)})


def test_a_service_gets_the_rendered_configurations() -> None:
    done = act(slack(message="n is {{ input.n }}"), {"n": 5}, {"success": True, "message_ts": "1.2", "more": 1})
    [(_kind, request)] = done.harness.asked
    assert (request["service"], request["action"], request["user_id"]) == ("slack", "send_message", "u")
    configurations = request["configurations"]
    assert (configurations["message"], configurations["channel"]) == ("n is 5", "#x")
    assert configurations["unfurl_links"] is True
    assert "bot_token" not in configurations
    assert done.out("s")["message_ts"] == "1.2"
    assert "more" not in done.out("s")


def test_the_input_may_name_the_action() -> None:
    done = act(slack(), {"action_type": "create_channel"}, {"success": True})
    assert done.harness.asked[0][1]["action"] == "create_channel"
    aliased = node("s", "EXTERNAL_ACTION", "SLACK", action="update_message", channel="#x")
    assert act(aliased, {}, {"success": True}).harness.asked[0][1]["action"] == "update_message"


def test_a_service_that_refuses_fails_the_execution() -> None:
    refusal = {
        "success": False,
        "error_code": "missing_oauth_token",
        "error_message": "Slack OAuth token not found",
        "error_details": {"reason": "missing_oauth_token", "oauth_flow_url": "/integrations/connect/slack"},
    }
    done = act(slack(retry_attempts=3), {}, refusal)
    assert len(done.harness.asked) == 1
    error = done.record("s")["error"]
    assert error["error_message"] == "Slack OAuth token not found"
    assert error["error_code"] == "missing_oauth_token"
    assert error["error_details"] == refusal["error_details"]
    assert done.out("s").items() >= refusal.items()
    assert done.results["status"] == "ERROR"


def test_a_refusal_without_a_code_gets_the_code_of_the_engine() -> None:
    done = act(slack(), {}, {"success": False, "error_message": "no", "error_details": "why"})
    error = done.record("s")["error"]
    assert (error["error_code"], error["error_details"]) == (
        "NODE_EXECUTION_FAILED",
        {"port": "result", "error_details": "why"},
    )


def test_a_mail_is_sent_to_the_url_of_its_node() -> None:
    answer = {"result": {"type": "success", "value": {"status": 202, "headers": {}, "body": None}}, "metadata": {}}
    own = node(
        "s", "EXTERNAL_ACTION", "EMAIL", url="https://example.com/mail", to="ada@example.com", subject="{{ input.s }}"
    )
    done = act(own, {"s": "Hi", "text": "Hello."}, answer, kind="provider")
    asked = done.harness.asked[0][1]["with"]
    assert (asked["method"], asked["url"]) == ("POST", "https://example.com/mail")
    assert asked["json"] == {"to": "ada@example.com", "subject": "Hi", "text": "Hello."}
    assert done.out("s")["success"] is True


def test_a_mail_without_a_url_is_sent_by_the_server_of_the_worker() -> None:
    own = node("s", "EXTERNAL_ACTION", "EMAIL", to="ada@example.com", subject="{{ input.s }}")
    done = act(own, {"s": "Hi", "text": "Hello."}, {"success": True, "message_id": "<1@x>"})
    [(_kind, request)] = done.harness.asked
    assert (request["service"], request["configurations"]) == ("email", {"to": "ada@example.com", "subject": "Hi"})
    assert done.out("s")["message_id"] == "<1@x>"


def test_other_services_are_called_by_url_or_pass_their_input_on() -> None:
    answer = {"result": {"type": "success", "value": {"status": 500, "headers": {}, "body": None}}, "metadata": {}}
    own = node("s", "EXTERNAL_ACTION", "WEBHOOK", url="https://example.com/hook")
    done = act(own, {"x": 1}, answer, kind="provider")
    assert done.harness.asked[0][1]["with"]["json"] == {"x": 1}
    assert done.results["status"] == "ERROR"
    nothing = act(node("s", "EXTERNAL_ACTION", "JIRA_ACTION"), {"x": 1}, answer)
    assert nothing.out("s") == {"x": 1}


# -- crashes -----------------------------------------------------------------------------------------------------------


def test_an_agent_survives_any_death() -> None:
    script = make_script(
        {"error": "overloaded"},
        CALLS,
        "One.",
        {"tool_calls": [{"tool": "notion_search", "input": {"q": 2}}, {"tool": "notion_search", "input": {"q": 3}}]},
        "Two.",
        tools={"notion_search": [{"output": 1}, {"error": "no"}, {"output": 3}]},
    )
    _asked, carry = make_memory()
    nodes = [
        flow("each", "FOR_EACH"),
        agent(attached=["mem", "tools"], retry_attempts=1, retry_backoff_seconds=30),
        memory_node(),
        tool_node(),
        step("on"),
    ]
    written = graph(nodes, "each.iteration -> ai", "ai -> on", triggers=[])
    done = check_deaths(written, ["a", "b"], kinds={"memory": carry}, script=script, start_from_node="each")
    assert done.runs("ai")[0]["output_data"]["result"]["content"] == "One."
    assert done.results["status"] == "SUCCESS"
