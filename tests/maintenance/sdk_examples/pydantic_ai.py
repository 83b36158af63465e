"""The examples of Pydantic AI, from its repository and its pages: each `Agent(…)` gets `capabilities=[Durable()]`.

An example is the program of a workflow from its first run of an agent on: there `run_sync` is `await run`, and
`asyncio.run` is `await`. What is before that, its imports and definitions, is executed when it is loaded.
"""

import ast
import builtins
import functools
import inspect
import re
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
from pydantic_ai import agent as agents

from callboard.adapters.pydantic_ai import Durable
from callboard.languages.python.loop import current_loop
from tests.maintenance.sdk_examples.examples import Example, Perform, Program, Turn

LINE = "from callboard.adapters.pydantic_ai import Durable"


def _calls(*named: str, **arguments: Any) -> Turn:
    """A turn that calls tools, all with these arguments."""
    return {"tool_calls": [{"tool": name, "input": arguments} for name in named]}


_FLIGHT = {"flight_number": "SFO-AK123", "price": 350, "origin": "SFO", "destination": "ANC", "date": "2025-01-10"}
_WON = [turn for n in (18, 5) for turn in (_calls("roulette_wheel", square=n), {"data": n == 18})]
EXAMPLES: Sequence[Example] = (
    Example(
        file="docs/agent.md",
        program="roulette_wheel.py",
        covers="dependencies, a tool, an output type, two runs",
        turns={"agent": _WON},
        prints=["True", "False"],
    ),
    Example(
        file="docs/agent.md",
        program="tool_retry.py",
        covers="a tool that asks the model to try again",
        turns={
            "agent": [
                _calls("get_user_by_name", name="John"),
                _calls("get_user_by_name", name="John Doe"),
                {"data": {"user_id": 123, "message": "Coffee?"}},
            ]
        },
        prints=["user_id=123 message='Coffee?'"],
    ),
    Example(
        file="docs/agent.md",
        program="agent_iter_async_for.py",
        covers="iteration over the nodes of the agent",
        turns={"agent": [{"text": "Paris"}]},
        prints=["CallToolsNode", "Paris"],
    ),
    Example(
        file="docs/agent.md",
        program="run_stream_event_stream_handler.py",
        covers="a stream with a handler of events",
        turns={
            "agent": [
                _calls("weather_forecast", location="Paris", forecast_date="2030-01-01"),
                {"text": "It will be warm."},
            ]
        },
        prints=["The forecast in Paris on 2030-01-01 is 24°C", "[Output] It will be warm."],
    ),
    Example(
        file="docs/tools.md",
        program="dice_game.py",
        covers="parallel tools, chance, dynamic dependencies",
        turns={"agent": [_calls("roll_dice", "get_player_name"), {"text": "Congratulations Anne!"}]},
        prints=["Congratulations Anne!"],
    ),
    Example(
        file="docs/tools-advanced.md",
        program="sequential_tool.py",
        covers="a sequential tool, a FunctionModel",
        prints=["done", "['fetch_record(1)', \"write_to_database('data')\"]"],
    ),
    Example(
        file="docs/tools-advanced.md",
        program="agent_prepare_tools_filter_out.py",
        covers="tools that a capability prepares, a TestModel",
        prints=['{"launch_potato":"Potato launched at a!"}', "success (no tool calls)"],
    ),
    Example(
        file="docs/output.md",
        program="colors_or_sizes.py",
        covers="a union of output types",
        turns={
            "agent": [
                _calls("final_result_list", response=["red", "blue"]),
                _calls("final_result_list_2", response=[10, 20]),
            ]
        },
        prints=["['red', 'blue']", "[10, 20]"],
    ),
    Example(
        file="docs/output.md",
        program="output_functions.py",
        covers="output functions, one of which hands over to another agent",
        turns={
            "agent": [
                _calls("final_result_hand_off_to_sql_agent", query="SELECT * FROM capital_cities"),
                _calls("final_result_run_sql_query", query="SELECT name FROM capital_cities"),
                _calls("final_result_run_sql_query", query="SELECT * FROM capital_cities"),
                *(_calls("final_result_RouterFailure", explanation=why) for why in ("no pets", "no flights")),
            ],
        },
        prints=["Row(name='Amsterdam', country='Netherlands')", "RouterFailure(explanation='no flights')"],
    ),
    Example(
        file="docs/output.md",
        program="sql_gen.py",
        covers="an output validator, output that does not fit its type",
        turns={"agent": [_calls("final_result_Success"), _calls("final_result_Success", sql_query="SELECT 2")]},
        prints=["sql_query='SELECT 2'"],
    ),
    Example(
        file="docs/output.md",
        program="streamed_hello_world.py",
        covers="a stream of text",
        turns={"agent": [{"text": "A textbook of 1974."}]},
        prints=["A textbook of 1974."],
    ),
    Example(
        file="docs/multi-agent-applications.md",
        program="agent_delegation_simple.py",
        covers="delegation, usage of both agents, usage limits",
        turns={
            "joke_selection_agent": [_calls("joke_factory", count=2), {"text": "Colgate."}],
            "joke_generation_agent": [{"data": ["Colgate.", "A cat."]}],
        },
        prints=["Colgate.", "requests=3", "tool_calls=1"],
    ),
    Example(
        file="docs/multi-agent-applications.md",
        program="agent_delegation_deps.py",
        covers="delegation with shared dependencies, requests by HTTP in a tool",
        turns={
            "joke_selection_agent": [_calls("joke_factory", count=2), {"text": "Colgate."}],
            "joke_generation_agent": [_calls("get_jokes", count=2), {"data": ["Colgate."]}],
        },
        pages="Colgate.",
        prints=["Colgate.", "requests=4"],
    ),
    Example(
        file="docs/multi-agent-applications.md",
        program="programmatic_handoff.py",
        covers="a conversation of several runs with a person at the terminal",
        turns={
            "flight_search_agent": [
                _calls("flight_search", origin="SFO", destination="ANC"),
                _calls("final_result_FlightDetails", flight_number="AK456"),
            ],
            "seat_preference_agent": [
                _calls("final_result_Failed"),
                _calls("final_result_SeatPreference", row=1, seat="A"),
            ],
        },
        typed=["SFO to ANC", "?", "first row, window"],
        prints=["Flight found: AK456", "Please try again", "row=1 seat='A'"],
    ),
    Example(
        file="docs/deferred-tools.md",
        program="deferred_tool_handler.py",
        covers="deferred calls and approvals that the agent itself decides",
        turns={
            "agent": [
                {
                    "tool_calls": [
                        {"tool": "delete_file", "input": {"path": "a"}},
                        {"tool": "update_file", "input": {"path": ".env", "content": ""}},
                        {"tool": "send_to_worker", "input": {"task": "t"}},
                    ]
                },
                {"text": "Done."},
            ]
        },
        prints=["Deleting files is not allowed", "File '.env' updated: ''", "(external result for send_to_worker)"],
    ),
    Example(
        file="docs/message-history.md",
        program="run_result_messages.py",
        covers="messages of a result",
        turns={"agent": [{"text": "Colgate."}]},
        prints=["Colgate.", "UserPromptPart"],
    ),
    Example(
        file="examples/pydantic_ai_examples/roulette_wheel.py",
        covers="two streamed runs",
        turns={"agent": _WON},
        prints=["Bet on 18: True", "Bet on 5: False"],
    ),
    Example(
        file="examples/pydantic_ai_examples/flight_booking.py",
        covers="delegation, an output validator, histories, usage limits, a person at the terminal",
        turns={
            "agent": [
                _calls("extract_flights"),
                {"data": [_FLIGHT]},
                _calls("final_result_FlightDetails", **{**_FLIGHT, "destination": "FAI"}),
                _calls("final_result_FlightDetails", **_FLIGHT),
                _calls("final_result_FlightDetails", **_FLIGHT),
                _calls("final_result_SeatPreference", row=1, seat="A"),
            ],
        },
        typed=["search", "buy", "window"],
        prints=["Flight found: flight_number='SFO-AK123'", "seat=SeatPreference(row=1, seat='A')"],
    ),
    Example(
        file="examples/pydantic_ai_examples/pydantic_model.py",
        covers="an output type, usage",
        turns={"agent": [{"data": {"city": "Chicago", "country": "USA"}}]},
        prints=["city='Chicago' country='USA'", "requests=1"],
    ),
    Example(
        file="examples/pydantic_ai_examples/weather_agent.py",
        covers="tools that send requests by HTTP",
        turns={
            "agent": [
                _calls("get_lat_lng", location_description="London"),
                _calls("get_weather", lat=51, lng=0),
                {"text": "It is fine."},
            ]
        },
        pages='{"lat": 51, "lng": 0}',
        prints=["Response: It is fine."],
    ),
)

OWN_TESTS = (
    "test_agent.py",
    "test_deps.py",
    "test_history_processor.py",
    "test_streaming.py",
    "test_tools.py",
    "test_toolsets.py",
    "test_usage_limits.py",
    "test_validation_context.py",
    "models/test_model_function.py",
    "models/test_model_test.py",
)
"""The tests of agents, tools, deferred calls, validators, streams, limits and toolsets."""

_ONE_PIECE = (
    "test_(structured_response_iter|output_validator_(text|structured)|output_function_(text|structured)|"
    "stream_output_partial_then_final_validation|output_validator_text_double_stream_text|stream_structured_output|"
    "iter_stream_structured_output|iter_stream_output_tool_dont_hit_retry_limit|run(_sync|_stream)?_event_stream_handler|"
    "stream_tool_returning_user_content|run_stream_events|args_validator_event_args_valid_field)$"
)

REASONS = {
    r"^Unanswered:": "a call that wants approval is a question of the run, and no `DeferredToolRequests`",
    r"^(StepFailed|ModelFailed):": "a tool or model raises an exception that is not the library's",
    r"^NotInWorkflow: the workflow (starts a thread|opens a file)": "parts of the library are called without an agent",
    _ONE_PIECE: "the workflow sees a streamed answer in one piece",
    r"outer_cancellation": "a tool that is cancelled ends in the worker, and the agent does not wait for that",
    r"test_toolset_factory": "the function of a dynamic toolset is called again in the step of each call",
    r"event_loop|test_name_from_global": "this program replaces `run_sync`, which the test examines",
    r"response_singleton|test_set_mcp_sampling_model": "the test examines an object of the library's own model",
    r"set_exception_handler|debounce": (
        "an object of the test is shared between the loops of the workflow and of the worker"
    ),
    r"using_thread_executor|does_not_need_a_worker_thread": "the worker has threads of its own",
    r"test_tool_name_conflict_hint|test_return_bytes_invalid": "a message or value of the library for its own toolset",
    r"test_plain_response": "a text instead of a required output ends `run_stream`; see the limits",
}
"""Why tests do not apply, by a pattern of their failure, or of their name."""

ANSWERS: dict[str, Any] = {}
"""A question of a test has no answer: it ends."""

_typed: Iterator[str] = iter(())
"""The next input at the terminal."""


def load(one: Example, checkout: Path, folder: Path) -> Program:
    """Execute the definitions of an example, and return the rest of it as a function."""
    _replace_world(one, checkout)
    tree = make_durable(_source(checkout, one))
    runs = next((n for n, node in enumerate(tree.body) if _waits(node)), len(tree.body))
    file = folder / f"pydantic_example_{abs(hash(one.name))}.py"
    file.write_text(ast.unparse(tree), encoding="utf-8")
    module = types.ModuleType(file.stem)
    module.__file__ = str(file)
    sys.modules[file.stem] = module
    exec(_compile(tree.body[:runs], file), vars(module))
    rest = _compile(tree.body[runs:], file)

    async def program() -> None:
        global _typed
        _typed = iter(one.typed)
        if inspect.isawaitable(waits := eval(rest, vars(module))):
            await waits
        elif hasattr(module, "main"):
            await module.main()
        else:
            print((await module.agent.run("Begin.")).all_messages())

    return program


def _compile(body: Sequence[ast.stmt], file: Path) -> types.CodeType:
    module = ast.Module([*body], [])
    return compile(module, str(file), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def _source(checkout: Path, one: Example) -> str:
    text = (checkout / one.file).read_text(encoding="utf-8")
    if not one.file.endswith(".md"):
        return text
    title = re.escape(one.program)
    found = re.search(rf'^```python \{{title="{title}".*?\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{one.file} has no example {one.program}"
    return found[1]


def make_durable(source: str) -> ast.Module:
    """Return an example whose agents are durable, and whose program waits for them in a workflow."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_agent(node.func):
            given = [one for one in node.keywords if one.arg == "capabilities"]
            own: Sequence[ast.expr] = [ast.Starred(one.value, ast.Load()) for one in given]
            durable = ast.Call(ast.Name("Durable", ast.Load()), [], [])
            node.keywords = [one for one in node.keywords if one not in given]
            node.keywords.append(ast.keyword("capabilities", ast.List([*own, durable], ast.Load())))
    # After the docstring and the imports from the future.
    first = next(
        (
            n
            for n, one in enumerate(tree.body)
            if not (isinstance(one, ast.ImportFrom) and one.module == "__future__")
            and not (n == 0 and isinstance(one, ast.Expr))
        ),
        0,
    )
    tree.body[first:first] = ast.parse(LINE).body
    return ast.fix_missing_locations(_Program().visit(tree))


def _is_agent(function: ast.expr) -> bool:
    named = function.value if isinstance(function, ast.Subscript) else function
    return isinstance(named, ast.Name) and named.id == "Agent"


class _Program(ast.NodeTransformer):
    """Replaces what a program does outside of an event loop by what a workflow does."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant("__main__") if node.id == "__name__" else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value=ast.Name("asyncio"), attr="run"):
                return ast.Await(node.args[0])
            case ast.Attribute(attr="run_sync"):
                node.func.attr = "run"
                return ast.Await(node)
            case _:
                return node


def _waits(node: ast.stmt) -> bool:
    """Whether a statement of a module awaits at module level, not inside a definition."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(isinstance(one, ast.Await) for one in ast.walk(node))


def _replace_world(one: Example, checkout: Path) -> None:
    """Replace what an example uses of the world: a person at the terminal, requests by HTTP, and where spans go."""
    modules = str(checkout / "tests" / "example_modules")
    if modules not in sys.path:
        sys.path.insert(0, modules)
    sys.modules.setdefault("logfire", _logfire())
    world: Any = builtins
    world.input = lambda _prompt="": next(_typed)
    client: Any = httpx2.AsyncClient
    answer = httpx2.MockTransport(lambda _request: httpx2.Response(200, text=one.pages))
    client.__init__ = functools.partialmethod(_INIT, transport=answer)
    # A workflow is dropped and replayed while a tool has its client.
    client.aclose = client.__aexit__ = _keep_open


_INIT = httpx2.AsyncClient.__init__


async def _keep_open(*_args: Any) -> None:
    """Leave a client of HTTP open."""


def _logfire() -> types.ModuleType:
    """Return what takes the place of the package to which examples send their spans."""
    module: Any = types.ModuleType("logfire")
    for name in ("configure", "instrument_pydantic_ai", "instrument_httpx", "info"):
        setattr(module, name, lambda *_args, **_named: None)
    return module


def patch(perform: Perform) -> None:
    """Make each agent durable, for the library's own tests. ``run_sync`` in a test outside a workflow is a run."""
    sdk: Any = agents
    make, run_sync = sdk.Agent.__init__, sdk.AbstractAgent.run_sync

    @functools.wraps(make)
    def init(agent: Any, *args: Any, capabilities: Any = None, **named: Any) -> None:
        make(agent, *args, capabilities=[*(capabilities or ()), Durable()], **named)

    @functools.wraps(run_sync)
    def run(agent: Any, *args: Any, **named: Any) -> Any:
        if current_loop() is not None:
            return run_sync(agent, *args, **named)
        return perform(lambda: agent.run(*args, **named))

    sdk.Agent.__init__ = init
    sdk.AbstractAgent.run_sync = run
