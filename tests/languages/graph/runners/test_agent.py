"""Agents of graphs: the user's message, memory, tools, outputs; and TOOL, MEMORY, EXTERNAL_ACTION nodes."""

from typing import Any

import msgspec
import pytest

from callboard.actors.carrier import Job
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.effects import McpTools, ScriptedTools
from callboard.languages.graph.language import LANGUAGE
from callboard.languages.graph.tools import resolve_tools
from callboard.languages.graph.work import Context
from callboard.languages.language import Needs
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


def buffer(id: str = "mem", **configurations: Any) -> dict[str, Any]:
    return node(id, "MEMORY", "CONVERSATION_BUFFER", **configurations)


def notion(id: str = "tools", **configurations: Any) -> dict[str, Any]:
    return node(id, "TOOL", "NOTION_MCP_TOOL", **configurations)


def says(*turns: Any, tools: dict[str, Any] | None = None, path: str = "ai") -> dict[str, Any]:
    listed = [{"text": one, "usage": USAGE} if isinstance(one, str) else one for one in turns]
    return {"turns": {path: listed}, **({"tools": tools} if tools else {})}


def talk(
    own: dict[str, Any], *others: dict[str, Any], input: Any = "Hello?", script: Any = None, **names: Any
) -> Performance:
    """An agent that gets this input."""
    return perform(
        graph([own, *others], triggers=[]), input, start_from_node="ai", script=script or says("Hi."), **names
    )


def first_call(done: Performance) -> Any:
    return next(call for call in done.of_type("model.call") if call.purpose == "turn")


# -- the conversation --------------------------------------------------------------------------------------------------


def test_an_answer() -> None:
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
    call = first_call(done)
    assert call.model == "openai:gpt-5-nano"
    assert call.system == "Be brief."
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
    assert first_call(talk(agent(subtype=subtype, **configurations))).model == (model or "scripted")


def test_gemini_is_configured_in_its_own_words() -> None:
    own = agent(subtype="GOOGLE_GEMINI", generation_config={"max_output_tokens": 7, "temperature": 0.5})
    call = first_call(talk(own))
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
def test_what_an_agent_sets_of_its_model_is_passed_on(given: dict[str, Any], passed_on: dict[str, Any]) -> None:
    assert first_call(talk(agent(subtype="GOOGLE_GEMINI", **given))).parameters == passed_on


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("plain", "plain"),
        ('{"a": 1}', {"a": 1}),
        ("[1]", [1]),
        ("5", 5),
        ("{broken", "{broken"),
    ],
)
def test_text_that_is_json_becomes_its_value(text: str, content: Any) -> None:
    assert talk(agent(), script=says(text)).out("ai")["content"] == content


def test_structured_answers() -> None:
    schema = {"type": "object", "properties": {"label": {"type": "string"}}}
    own = agent(subtype="ANTHROPIC_CLAUDE", output_processing={"output_schema": schema})
    done = talk(own, script=says({"data": {"label": "spam"}}))
    assert done.out("ai")["content"] == {"label": "spam"}
    assert first_call(done).schema == schema


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
def test_the_message_in_the_input(input: Any, message: str) -> None:
    assert first_call(talk(agent(), input=input)).messages[-1].parts[0].text == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"user_input": "Hello!"}, "Hello!"),
        ({"message": "m", "text": "t"}, "m"),
        ({"event": {"text": "slack"}}, "slack"),
        ("bare", "bare"),
    ],
)
def test_the_message_in_the_triggers_data(data: Any, message: str) -> None:
    """The design document's own request: `trigger_data` with `user_input`."""
    trigger = node("t", "TRIGGER", "MANUAL", trigger_name="x")
    done = perform(graph([trigger, agent()], "t -> ai"), data, script=says("Hi."))
    assert first_call(done).messages[-1].parts[0].text == message


def test_without_a_message_no_model_is_asked() -> None:
    done = talk(agent(retry_attempts=2), input={"n": 1})
    assert done.of_type("model.call") == []
    assert done.record("ai")["status"] == "FAILED"
    assert done.record("ai")["retry_count"] == 0


def test_a_provider_that_fails_is_tried_again() -> None:
    done = talk(agent(retry_attempts=2), script=says({"error": "overloaded"}, {"error": "bad_reply"}, "Hi."))
    assert done.out("ai")["content"] == "Hi."
    assert done.record("ai")["retry_count"] == 2
    failed = talk(agent(), script=says({"error": "overloaded"}))
    assert failed.record("ai")["error"]["error_code"] == "NODE_EXEC_ERROR"


# -- tools -------------------------------------------------------------------------------------------------------------

CALLS = {"tool_calls": [{"tool": "notion_search", "input": {"q": 1}}], "usage": USAGE}


def test_tools_are_called_until_there_is_an_answer() -> None:
    script = says(CALLS, "Found.", tools={"notion_search": [{"output": {"hits": 3}}]})
    done = talk(agent(attached=["tools"]), notion(), script=script)
    assert done.out("ai")["content"] == "Found."
    [call] = done.out("ai")["function_calls"]
    assert (call["name"], call["arguments"], call["result"]) == ("notion_search", {"q": 1}, {"hits": 3})
    assert done.out("ai")["metadata"]["iterations"] == 2
    assert done.results["tokens_used"]["total_tokens"] == 30
    assert done.sequence == ["ai"]
    assert set(done.results["node_executions"]) == {"ai"}
    assert done.record("ai")["execution_details"]["attached"] == {"memory": [], "tools": ["notion_search"]}
    asked = first_call(done)
    assert [tool.name for tool in asked.tools] == ["notion_search"]
    assert "- notion_search" in asked.system
    assert [one.node for one in done.of_type("tool.call")] == ["ai"]


def test_a_tools_error_is_told_to_the_model() -> None:
    script = says(CALLS, "Sorry.", tools={"notion_search": [{"error": "rate limited"}]})
    done = talk(agent(attached=["tools"]), notion(), script=script)
    [call] = done.out("ai")["function_calls"]
    assert call["result"] == {"success": False, "error_message": "rate limited"}
    assert done.results["status"] == "SUCCESS"


@pytest.mark.parametrize(("configurations", "turns"), [({}, 5), ({"max_tool_iterations": 2}, 2)])
def test_after_so_many_turns_it_stops(configurations: dict[str, Any], turns: int) -> None:
    script = says(*[{**CALLS, "usage": USAGE}] * 9, tools={"notion_search": [{"output": 1}] * 9})
    done = talk(agent(attached=["tools"], **configurations), notion(), script=script)
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
    done = talk(agent(), script=says({"text": "Dear", "stop_reason": "max_tokens"}))
    assert done.out("ai")["content"] == "Dear"
    [warning] = done.of_type("node.warning")
    assert (warning.code, "max_tokens" in warning.reason) == ("graph.cut_short", True)
    assert done.results["status"] == "SUCCESS"


def test_an_agent_goes_on_without_tools_that_cannot_be_had() -> None:
    own = notion(mcp_server_url="http://mcp.example.com")
    script = says("Hi.", tools={})
    done = talk(agent(attached=["tools"]), own, script=script)
    assert done.out("ai")["content"] == "Hi."
    assert [one.code for one in done.of_type("node.warning")] == ["graph.tools"]


def sources(own: dict[str, Any], *scripted: str) -> list[Any]:
    found = parsed(graph([webhook(), agent(attached=["tools"]), own])).document
    context = Context(found, {}, "", {}, frozenset(scripted))
    return resolve_tools(found.attached["tools"], context).sources


def test_the_variables_of_tokens_are_told() -> None:
    written = graph([webhook(), agent(attached=["tools"]), notion(access_token="Bearer ${NOTION_TOKEN}")])
    plan = LANGUAGE.admit(parsed(written), StartRun(DefinitionSource("graph")))
    assert not isinstance(plan, list)
    assert plan.needs == Needs(model=False, environment=["NOTION_TOKEN"])


def test_where_tools_are_served() -> None:
    [server] = sources(notion(access_token="${NOTION_TOKEN}"))
    assert server == McpTools(
        "tools", url="http://localhost:8000/api/v1/mcp", headers={"Authorization": "Bearer ${NOTION_TOKEN}"}
    )
    [placeholder] = sources(notion(access_token="{{$placeholder}}"))
    assert placeholder.headers == {}
    [scripted] = sources(notion(), "notion_search", "another")
    assert isinstance(scripted, ScriptedTools)
    assert [tool.name for tool in scripted.tools] == ["notion_search"]
    both = sources(notion(mcp_server_url="http://localhost:1/mcp"), "notion_search")
    assert [type(source) for source in both] == [ScriptedTools, McpTools]
    [all_scripted] = sources(notion(mcp_server_url="http://x/mcp", available_tools=["a"]), "a")
    assert isinstance(all_scripted, ScriptedTools)


# -- memory ------------------------------------------------------------------------------------------------------------


def remembering(*, summarize: bool = False) -> tuple[list[Any], Answering]:
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


def test_memory_is_read_before_and_written_after() -> None:
    asked, carry = remembering()
    done = talk(agent(attached=["mem"]), buffer(max_messages=9), kinds={"memory": carry})
    assert [one["operation"] for one in asked] == ["get_context", "store"]
    load, store = asked
    assert load["memory"]["id"] == "mem"
    assert load["memory"]["configurations"] == {"max_messages": 9, "auto_summarize": True, "summarize_count": 10}
    assert load["scope"] == {"workflow_id": "g", "user_id": "u", "execution_id": "r1"}
    assert (load["query"], load["limit"]) == ("Hello?", 20)
    assert store["messages"] == [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hi."}]
    assert store["text"] == "User: Hello?\nAssistant: Hi."
    call = first_call(done)
    assert [(one.role, one.parts[0].text) for one in call.messages] == [
        ("user", "Who?"),
        ("assistant", "Ada."),
        ("user", "Hello?"),
    ]
    assert call.system.endswith("What you remember:\nShe likes tea.")


def test_an_answer_that_is_no_text_is_kept_as_json() -> None:
    asked, carry = remembering()
    talk(agent(attached=["mem"]), buffer(), kinds={"memory": carry}, script=says('{"a": 1}'))
    assert asked[1]["messages"][1]["content"] == '{"a":1}'


@pytest.mark.parametrize("kinds", [None, {"memory": fails("memory.down")}, {"memory": answers("odd")}])
def test_a_memory_that_fails_is_never_fatal(kinds: Any) -> None:
    done = talk(agent(attached=["mem"]), buffer(), kinds=kinds)
    assert done.out("ai")["content"] == "Hi."
    codes = [one.code for one in done.of_type("node.warning")]
    assert codes == ([] if kinds and "odd" in str(kinds) else codes)


def test_a_model_makes_the_summary_that_a_memory_asks_for() -> None:
    asked, carry = remembering(summarize=True)
    script = {"turns": {"ai": [{"text": "Hi."}]}}
    done = talk(agent(attached=["mem"]), buffer(), kinds={"memory": carry}, script=script)
    assert [call.purpose for call in done.of_type("model.call")] == ["turn", "summarize"]
    assert asked[2]["operation"] == "summarize"
    assert (asked[2]["summary"], asked[2]["count"]) == ("Hi.", 1)


def test_two_agents_share_a_memory() -> None:
    asked, carry = remembering()
    nodes = [agent("ai", attached=["mem"]), agent("ai2", attached=["mem"]), buffer()]
    script = {"turns": {"ai": [{"text": "One."}], "ai2": [{"text": "Two."}]}}
    done = perform(
        graph(nodes, "ai -> ai2", triggers=[]), "x", start_from_node="ai", script=script, kinds={"memory": carry}
    )
    assert done.sequence == ["ai", "ai2"]
    assert {one["memory"]["id"] for one in asked} == {"mem"}
    assert asked[2]["query"] == "One."


def test_memory_in_the_graph() -> None:
    own = node("m", "MEMORY", "KEY_VALUE_STORE", storage_backend="memory")
    answer = {"value": {"x": 1}, "exists": True, "success": True, "odd": 1}
    done = perform(graph([own], triggers=[]), {"key": "k"}, start_from_node="m", kinds={"memory": answers(answer)})
    [(_kind, request)] = done.harness.asked
    assert request["operation"] == "get"
    assert request["input"] == {"key": "k"}
    assert done.out("m")["value"] == {"x": 1}
    assert "odd" not in done.out("m")
    put = node("m", "MEMORY", "KEY_VALUE_STORE", storage_backend="memory", operation="set", key="{{ input.who }}")
    done = perform(graph([put], triggers=[]), {"who": "Ada"}, start_from_node="m", kinds={"memory": answers({})})
    assert done.harness.asked[0][1]["memory"]["configurations"]["key"] == "Ada"
    done = perform(graph([put], triggers=[]), {"operation": "get"}, start_from_node="m", kinds={"memory": answers({})})
    assert done.harness.asked[0][1]["operation"] == "set"
    down = perform(graph([put], triggers=[]), {}, start_from_node="m", kinds={"memory": fails()})
    assert down.record("m")["status"] == "FAILED"


# -- tools in the graph ------------------------------------------------------------------------------------------------


def test_a_tool_in_the_graph() -> None:
    script = {"tools": {"notion_search": [{"output": {"hits": 1}}]}}
    given = {"tool_name": "notion_search", "function_args": {"q": 1}}
    done = perform(graph([notion("w")], triggers=[]), given, start_from_node="w", script=script)
    found = done.out("w")
    assert (found["result"], found["success"], found["cached"]) == ({"hits": 1}, True, False)
    assert done.record("w")["execution_details"]["tool_parameters"] == {"q": 1}


def test_a_tool_that_refuses_fails_the_node() -> None:
    script = {"tools": {"notion_search": [{"error": "no such page"}]}}
    done = perform(graph([notion("w", tool_name="notion_search")], triggers=[]), {}, start_from_node="w", script=script)
    assert done.record("w")["error"]["error_code"] == "NODE_EXECUTION_FAILED"
    assert done.record("w")["error"]["error_message"] == "no such page"
    unnamed = perform(graph([notion("w")], triggers=[]), {}, start_from_node="w", script=script)
    assert unnamed.record("w")["error"]["error_code"] == "NODE_EXEC_ERROR"


# -- services ----------------------------------------------------------------------------------------------------------


def slack(**configurations: Any) -> dict[str, Any]:
    required = {"action_type": "send_message", "channel": "#x", "bot_token": "{{$placeholder}}"}
    return node("s", "EXTERNAL_ACTION", "SLACK", **{**required, **configurations})


def acted(own: dict[str, Any], input: Any, answer: Any, kind: str = "service") -> Performance:
    return perform(graph([own], triggers=[]), input, start_from_node="s", kinds={kind: answers(answer)})


def test_a_service_is_asked() -> None:
    done = acted(slack(message="n is {{ input.n }}"), {"n": 5}, {"success": True, "message_ts": "1.2", "more": 1})
    [(_kind, request)] = done.harness.asked
    assert (request["service"], request["action"], request["user_id"]) == ("slack", "send_message", "u")
    assert request["configurations"]["message"] == "n is 5"
    assert request["configurations"]["channel"] == "#x"
    assert request["configurations"]["unfurl_links"] is True
    assert "bot_token" not in request["configurations"]
    assert done.out("s")["message_ts"] == "1.2"
    assert "more" not in done.out("s")


def test_the_input_says_what_is_done() -> None:
    done = acted(slack(), {"action_type": "create_channel"}, {"success": True})
    assert done.harness.asked[0][1]["action"] == "create_channel"
    aliased = node("s", "EXTERNAL_ACTION", "SLACK", action="update_message", channel="#x")
    assert acted(aliased, {}, {"success": True}).harness.asked[0][1]["action"] == "update_message"


def test_a_service_that_refuses_fails_the_execution() -> None:
    refusal = {
        "success": False,
        "error_code": "missing_oauth_token",
        "error_message": "Slack OAuth token not found",
        "error_details": {"reason": "missing_oauth_token", "oauth_flow_url": "/integrations/connect/slack"},
    }
    done = acted(slack(retry_attempts=3), {}, refusal)
    assert len(done.harness.asked) == 1
    error = done.record("s")["error"]
    assert error["error_message"] == "Slack OAuth token not found"
    assert error["error_code"] == "missing_oauth_token"
    assert error["error_details"] == refusal["error_details"]
    told = done.out("s")
    assert {name: told[name] for name in refusal} == refusal
    assert done.results["status"] == "ERROR"


def test_a_refusal_without_a_code_has_that_of_the_engine() -> None:
    done = acted(slack(), {}, {"success": False, "error_message": "no", "error_details": "why"})
    error = done.record("s")["error"]
    assert (error["error_code"], error["error_details"]) == (
        "NODE_EXECUTION_FAILED",
        {"port": "result", "error_details": "why"},
    )


def test_mail_goes_to_a_url() -> None:
    answer = {"result": {"type": "success", "value": {"status": 202, "headers": {}, "body": None}}, "metadata": {}}
    own = node(
        "s", "EXTERNAL_ACTION", "EMAIL", url="https://example.com/mail", to="ada@example.com", subject="{{ input.s }}"
    )
    done = acted(own, {"s": "Hi", "text": "Hello."}, answer, kind="provider")
    asked = done.harness.asked[0][1]["with"]
    assert (asked["method"], asked["url"]) == ("POST", "https://example.com/mail")
    assert asked["json"] == {"to": "ada@example.com", "subject": "Hi", "text": "Hello."}
    assert done.out("s")["success"] is True


def test_mail_without_a_url_goes_by_the_worker_s_server() -> None:
    own = node("s", "EXTERNAL_ACTION", "EMAIL", to="ada@example.com", subject="{{ input.s }}")
    done = acted(own, {"s": "Hi", "text": "Hello."}, {"success": True, "message_id": "<1@x>"})
    [(_kind, request)] = done.harness.asked
    assert (request["service"], request["configurations"]) == ("email", {"to": "ada@example.com", "subject": "Hi"})
    assert done.out("s")["message_id"] == "<1@x>"


def test_other_services_are_called_by_url_or_pass_their_input_on() -> None:
    answer = {"result": {"type": "success", "value": {"status": 500, "headers": {}, "body": None}}, "metadata": {}}
    own = node("s", "EXTERNAL_ACTION", "WEBHOOK", url="https://example.com/hook")
    done = acted(own, {"x": 1}, answer, kind="provider")
    assert done.harness.asked[0][1]["with"]["json"] == {"x": 1}
    assert done.results["status"] == "ERROR"
    nothing = acted(node("s", "EXTERNAL_ACTION", "JIRA_ACTION"), {"x": 1}, answer)
    assert nothing.out("s") == {"x": 1}


# -- whatever dies -----------------------------------------------------------------------------------------------------


def test_an_agent_survives_any_death() -> None:
    script = says(
        {"error": "overloaded"},
        CALLS,
        "One.",
        {"tool_calls": [{"tool": "notion_search", "input": {"q": 2}}, {"tool": "notion_search", "input": {"q": 3}}]},
        "Two.",
        tools={"notion_search": [{"output": 1}, {"error": "no"}, {"output": 3}]},
    )
    _asked, carry = remembering()
    nodes = [
        flow("each", "FOR_EACH"),
        agent(attached=["mem", "tools"], retry_attempts=1, retry_backoff_seconds=30),
        buffer(),
        notion(),
        step("on"),
    ]
    written = graph(nodes, "each.iteration -> ai", "ai -> on", triggers=[])
    done = check_deaths(written, ["a", "b"], kinds={"memory": carry}, script=script, start_from_node="each")
    assert done.runs("ai")[0]["output_data"]["result"]["content"] == "One."
    assert done.results["status"] == "SUCCESS"
