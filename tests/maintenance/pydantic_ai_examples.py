"""Public examples of Pydantic AI as durable runs: ``python -m tests.maintenance.pydantic_ai_examples CHECKOUT``.

``CHECKOUT`` is a folder with the library's repository: its ``docs`` and ``examples``. The text of an example is
unchanged, except that each ``Agent(…)`` gets the argument ``capabilities=[Durable()]``. A script answers for the model.
Each run of an agent is a scenario of the test kit, which replays it at its end; with ``--crash`` it is repeated with a
crash after every event.
"""

import argparse
import ast
import asyncio
import builtins
import functools
import io
import re
import sys
import tempfile
import traceback
import types
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from msgspec import Struct, field

from callboard.languages.python.loop import current_loop
from callboard.testing import Scenario
from tests.support.hosted_calls import holding, perform

LINE = "from callboard.adapters.pydantic_ai import Durable"


class Example(Struct, kw_only=True):
    """An example: its ``place`` in the checkout, a file or the title of a block in a page, and what it ``covers``.

    ``turns`` are the script of each of its runs, the last of which repeats. ``prints`` are parts of its output.
    ``typed`` is what a person types, ``decisions`` what a person answers to questions in their order. ``pages`` is what
    any request by HTTP gets.
    """

    place: str
    covers: str
    turns: list[dict[str, list[dict[str, Any]]]] = field(default_factory=list[dict[str, list[dict[str, Any]]]])
    prints: list[str]
    typed: list[str] = field(default_factory=list[str])
    decisions: list[Any] = field(default_factory=list[Any])
    pages: str = ""


def calls(*named: str, **arguments: Any) -> dict[str, Any]:
    """Return a turn that calls a tool, with these arguments."""
    return {"tool_calls": [{"tool": name, "input": arguments} for name in named]}


FLIGHT = {"flight_number": "SFO-AK123", "price": 350, "origin": "SFO", "destination": "ANC", "date": "2025-01-10"}
WON = [{"agent": [calls("roulette_wheel", square=n), {"data": n == 18}]} for n in (18, 5)]
EXAMPLES = [
    Example(
        place="docs/agent.md roulette_wheel.py",
        covers="dependencies, a tool, an output type, two runs",
        turns=WON,
        prints=["True", "False"],
    ),
    Example(
        place="docs/agent.md tool_retry.py",
        covers="a tool that asks the model to try again",
        turns=[
            {
                "agent": [
                    calls("get_user_by_name", name="John"),
                    calls("get_user_by_name", name="John Doe"),
                    {"data": {"user_id": 123, "message": "Coffee?"}},
                ]
            }
        ],
        prints=["user_id=123 message='Coffee?'"],
    ),
    Example(
        place="docs/agent.md agent_iter_async_for.py",
        covers="iteration over the nodes of the agent",
        turns=[{"agent": [{"text": "Paris"}]}],
        prints=["CallToolsNode", "Paris"],
    ),
    Example(
        place="docs/agent.md run_stream_event_stream_handler.py",
        covers="a stream with a handler of events",
        turns=[
            {
                "agent": [
                    calls("weather_forecast", location="Paris", forecast_date="2030-01-01"),
                    {"text": "It will be warm."},
                ]
            }
        ],
        prints=["The forecast in Paris on 2030-01-01 is 24°C", "[Output] It will be warm."],
    ),
    Example(
        place="docs/tools.md dice_game.py",
        covers="parallel tools, chance, dynamic dependencies",
        turns=[{"agent": [calls("roll_dice", "get_player_name"), {"text": "Congratulations Anne!"}]}],
        prints=["Congratulations Anne!"],
    ),
    Example(
        place="docs/tools-advanced.md sequential_tool.py",
        covers="a sequential tool, a FunctionModel",
        prints=["done", "['fetch_record(1)', \"write_to_database('data')\"]"],
    ),
    Example(
        place="docs/tools-advanced.md agent_prepare_tools_filter_out.py",
        covers="tools that a capability prepares, a TestModel",
        prints=['{"launch_potato":"Potato launched at a!"}', "success (no tool calls)"],
    ),
    Example(
        place="docs/output.md colors_or_sizes.py",
        covers="a union of output types",
        turns=[
            {"agent": [calls("final_result_list", response=["red", "blue"])]},
            {"agent": [calls("final_result_list_2", response=[10, 20])]},
        ],
        prints=["['red', 'blue']", "[10, 20]"],
    ),
    Example(
        place="docs/output.md output_functions.py",
        covers="output functions, one of which hands over to another agent",
        turns=[
            {
                "agent": [calls("final_result_hand_off_to_sql_agent", query="SELECT * FROM capital_cities")],
                "agent/agent": [
                    calls("final_result_run_sql_query", query="SELECT name FROM capital_cities"),
                    calls("final_result_run_sql_query", query="SELECT * FROM capital_cities"),
                ],
            }
        ],
        prints=["Row(name='Amsterdam', country='Netherlands')"],
    ),
    Example(
        place="docs/output.md sql_gen.py",
        covers="an output validator, output that does not fit its type",
        turns=[{"agent": [calls("final_result_Success"), calls("final_result_Success", sql_query="SELECT 2")]}],
        prints=["sql_query='SELECT 2'"],
    ),
    Example(
        place="docs/output.md streamed_hello_world.py",
        covers="a stream of text",
        turns=[{"agent": [{"text": "A textbook of 1974."}]}],
        prints=["A textbook of 1974."],
    ),
    Example(
        place="docs/multi-agent-applications.md agent_delegation_simple.py",
        covers="delegation, usage of both agents, usage limits",
        turns=[
            {
                "joke_selection_agent": [calls("joke_factory", count=2), {"text": "Colgate."}],
                "joke_generation_agent": [{"data": ["Colgate.", "A cat."]}],
            }
        ],
        prints=["Colgate.", "requests=3", "tool_calls=1"],
    ),
    Example(
        place="docs/multi-agent-applications.md agent_delegation_deps.py",
        covers="delegation with shared dependencies, requests by HTTP in a tool",
        turns=[
            {
                "joke_selection_agent": [calls("joke_factory", count=2), {"text": "Colgate."}],
                "joke_generation_agent": [calls("get_jokes", count=2), {"data": ["Colgate."]}],
            }
        ],
        pages="Colgate.",
        prints=["Colgate.", "requests=4"],
    ),
    Example(
        place="docs/multi-agent-applications.md programmatic_handoff.py",
        covers="a conversation of several runs with a person at the terminal",
        turns=[
            {
                "flight_search_agent": [
                    calls("flight_search", origin="SFO", destination="ANC"),
                    calls("final_result_FlightDetails", flight_number="AK456"),
                ],
                "seat_preference_agent": [
                    calls("final_result_Failed"),
                    calls("final_result_SeatPreference", row=1, seat="A"),
                ],
            }
        ],
        typed=["SFO to ANC", "?", "first row, window"],
        prints=["Flight found: AK456", "Please try again", "row=1 seat='A'"],
    ),
    Example(
        place="docs/deferred-tools.md deferred_tool_handler.py",
        covers="deferred calls and approvals that the agent itself decides",
        turns=[
            {
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
            }
        ],
        prints=["Deleting files is not allowed", "File '.env' updated: ''", "(external result for send_to_worker)"],
    ),
    Example(
        place="docs/message-history.md run_result_messages.py",
        covers="messages of a result",
        turns=[{"agent": [{"text": "Colgate."}]}],
        prints=["Colgate.", "UserPromptPart"],
    ),
    Example(
        place="examples/pydantic_ai_examples/roulette_wheel.py",
        covers="two streamed runs",
        turns=[{"agent": [turn for won in WON for turn in won["agent"]]}],
        prints=["Bet on 18: True", "Bet on 5: False"],
    ),
    Example(
        place="examples/pydantic_ai_examples/flight_booking.py",
        covers="delegation, an output validator, histories, usage limits, a person at the terminal",
        turns=[
            {
                "agent": [
                    calls("extract_flights"),
                    calls("final_result_FlightDetails", **{**FLIGHT, "destination": "FAI"}),
                    calls("final_result_FlightDetails", **FLIGHT),
                    calls("final_result_FlightDetails", **FLIGHT),
                    calls("final_result_SeatPreference", row=1, seat="A"),
                ],
                "agent/extract_flights/agent": [{"data": [FLIGHT]}],
            }
        ],
        typed=["search", "buy", "window"],
        prints=["Flight found: flight_number='SFO-AK123'", "seat=SeatPreference(row=1, seat='A')"],
    ),
    Example(
        place="examples/pydantic_ai_examples/pydantic_model.py",
        covers="an output type, usage",
        turns=[{"agent": [{"data": {"city": "Chicago", "country": "USA"}}]}],
        prints=["city='Chicago' country='USA'", "requests=1"],
    ),
    Example(
        place="examples/pydantic_ai_examples/weather_agent.py",
        covers="tools that send requests by HTTP",
        turns=[
            {
                "agent": [
                    calls("get_lat_lng", location_description="London"),
                    calls("get_weather", lat=51, lng=0),
                    {"text": "It is fine."},
                ]
            }
        ],
        pages='{"lat": 51, "lng": 0}',
        prints=["Response: It is fine."],
    ),
]


def main() -> int:
    """Run the examples, and print a line about each; return 1 if one fails."""
    parser = argparse.ArgumentParser(prog="pydantic_ai_examples")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("words", nargs="*", help="words in the names of the examples to run; by default all")
    parser.add_argument("--crash", action="store_true", help="repeat each run with a crash after every event")
    given = parser.parse_args()
    failed = 0
    for example in EXAMPLES:
        if given.words and not any(word in example.place for word in given.words):
            continue
        try:
            stage = Stage(example)
            stage.perform(given.checkout, given.crash)
            print(f"ok      {example.place}: {stage.runs} runs, {stage.events} events")
        except Exception:
            failed += 1
            print(f"failed  {example.place}\n{traceback.format_exc(limit=-6)}")
    return 1 if failed else 0


class Stage:
    """The execution of one example."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.runs = self.events = 0
        self._typed: Iterator[str] = iter(())
        self._scenarios: list[Scenario] = []
        self._stack = ExitStack()

    def perform(self, checkout: Path, crash: bool) -> None:
        """Execute the example; with ``crash``, once again for each event of its runs.

        :raises AssertionError: if it does not print what it should, or a run is different after a crash
        """
        output = io.StringIO()
        folders = tempfile.TemporaryDirectory()
        with folders as name, self._replaced(checkout), redirect_stdout(output), self._stack:
            module = _execute(_source(checkout, self.example.place), Path(name))
            if not self.runs and hasattr(module, "main"):
                self._run(module.main)
            elif not self.runs and "agent" in vars(module):
                print(self._run(lambda: module.agent.run("Begin.")).all_messages())
            self._check(output.getvalue())
            for scenario in self._scenarios if crash else ():
                scenario.crash_everywhere()

    def _check(self, printed: str) -> None:
        missing = [part for part in self.example.prints if part not in printed]
        assert not missing, f"it does not print {missing}, but:\n{printed}"
        assert self.runs, "it has not run any agent"

    def _run(self, make: Callable[[], Any]) -> Any:
        turns = self.example.turns[min(self.runs, len(self.example.turns) - 1)] if self.example.turns else None
        self.runs += 1

        def begin() -> Any:
            self._typed = iter(self.example.typed)
            return make()

        more: dict[str, Any] = {} if turns is None else {"script": {"turns": turns}}
        number, call = self._stack.enter_context(holding(begin))
        scenario = self._stack.enter_context(Scenario(own_models=turns is None))
        scenario.start(perform, input={"number": number}, **more)
        for decision in self.example.decisions:
            scenario.answer(decision)
        if call.raised is not None:
            raise call.raised
        assert scenario.result.status == "completed", scenario.result
        self.events += len(scenario.events)
        self._scenarios.append(scenario)
        return call.value

    @contextmanager
    def _replaced(self, checkout: Path) -> Generator[None]:
        """Replace what an example uses to run agents, and of the world."""
        from pydantic_ai import agent as agents

        sdk: Any = agents.AbstractAgent
        run_sync = sdk.run_sync

        @functools.wraps(run_sync)
        def durable_run_sync(agent: Any, *args: Any, **named: Any) -> Any:
            assert current_loop() is None
            return self._run(lambda: agent.run(*args, **named))

        def durable_run(coro: Any) -> Any:
            # A coroutine runs once, and a replay begins another one.
            function = sys.modules["__main__"].__dict__[coro.__name__]
            coro.close()
            return self._run(function)

        answer = httpx.MockTransport(lambda _request: httpx.Response(200, text=self.example.pages))
        connect = functools.partialmethod(httpx.AsyncClient.__init__, transport=answer)
        replacements: list[tuple[object, str, object]] = [
            (sdk, "run_sync", durable_run_sync),
            (asyncio, "run", durable_run),
            (builtins, "input", lambda _prompt="": next(self._typed)),
            (httpx.AsyncClient, "__init__", connect),
            # The test kit drops the workflow at rest, while a tool has its client.
            (httpx.AsyncClient, "aclose", _keep_open),
            (httpx.AsyncClient, "__aexit__", _keep_open),
            (sys, "path", [str(checkout / "tests" / "example_modules"), *sys.path]),
        ]
        sys.modules.setdefault("logfire", _logfire())
        with ExitStack() as stack:
            for of, name, value in replacements:
                stack.enter_context(patch.object(of, name, value))
            yield


async def _keep_open(*_args: Any) -> None:
    """Leave a client of HTTP open."""


def _logfire() -> types.ModuleType:
    """Return what takes the place of the package to which examples send their spans."""
    module: Any = types.ModuleType("logfire")
    for name in ("configure", "instrument_pydantic_ai", "instrument_httpx", "info"):
        setattr(module, name, lambda *_args, **_named: None)
    return module


def _source(checkout: Path, place: str) -> str:
    """Return the text of an example, with the line that makes each agent durable."""
    file, _, title = place.partition(" ")
    text = (checkout / file).read_text(encoding="utf-8")
    if title:
        found = re.search(rf'^```python \{{title="{re.escape(title)}".*?\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
        assert found is not None, f"{file} has no example {title}"
        text = found[1]
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_agent(node.func):
            given = [one for one in node.keywords if one.arg == "capabilities"]
            own: Sequence[ast.expr] = [ast.Starred(one.value, ast.Load()) for one in given]
            durable = ast.Call(ast.Name("Durable", ast.Load()), [], [])
            node.keywords = [one for one in node.keywords if one not in given]
            node.keywords.append(ast.keyword("capabilities", ast.List([*own, durable], ast.Load())))
    # After the imports from the future.
    place_of_imports = next(
        (
            n
            for n, one in enumerate(tree.body)
            if not (isinstance(one, ast.ImportFrom) and one.module == "__future__")
            and not (n == 0 and isinstance(one, ast.Expr))
        ),
        0,
    )
    tree.body[place_of_imports:place_of_imports] = ast.parse(LINE).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _is_agent(function: ast.expr) -> bool:
    named = function.value if isinstance(function, ast.Subscript) else function
    return isinstance(named, ast.Name) and named.id == "Agent"


def _execute(source: str, folder: Path) -> types.ModuleType:
    """Execute an example as a program."""
    file = folder / "example.py"
    file.write_text(source, encoding="utf-8")
    module = types.ModuleType("__main__")
    module.__file__ = str(file)
    program = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        exec(compile(source, str(file), "exec"), vars(module))
    finally:
        # Runs may still need it; the next example has its own.
        sys.modules["__main__"] = program
    return module


if __name__ == "__main__":
    sys.exit(main())
