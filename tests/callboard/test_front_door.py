"""The package's public API: complete, documented, typed and cheap to import; and its functions work."""

import ast
import inspect
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import callboard
from tests.support.places import ROOT

FOLDERS = {
    *("lib", "bus", "actors", "languages", "adapters", "projections"),
    *("runtime", "features", "service", "surfaces"),
}

GREETING = """# Greeting

## INPUTS

- `who` (string: you)

## STEP 1: Greet

Greet {{who}}.
"""

ASKING = """# Asking

## STEP 1: Ask

Ask.

@elicit(input, "What is your name?")

## STEP 2: Greet

Greet.
"""

FAILING = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "fall",
    "steps": {"fall": {"action": "Raise", "result": {"code": "My.Code", "message": "It fell."}}},
}

SLEEPING = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "rest",
    "steps": {"rest": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": {"action": "Return"}},
}

SCRIPT: dict[str, Any] = {"default": {"text": "Hello."}}


def _public() -> list[tuple[str, Any]]:
    return [(name, getattr(callboard, name)) for name in callboard.__all__ if name != "__version__"]


def _functions() -> Iterator[tuple[str, Any]]:
    """Return public functions, and public methods that public classes define."""
    for name, found in _public():
        if inspect.isfunction(found):
            yield name, found
        for inner, method in vars(found).items() if inspect.isclass(found) else ():
            if inspect.isfunction(method) and not inner.startswith("_"):
                yield f"{name}.{inner}", method


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "found"), _public())
def test_a_name_is_documented_and_has_the_module_callboard(name: str, found: Any) -> None:
    assert found.__module__ == "callboard"
    assert found.__name__ == name
    assert (vars(found) if inspect.isclass(found) else {"__doc__": found.__doc__})["__doc__"]


@pytest.mark.parametrize(("name", "function"), list(_functions()))
def test_functions_are_documented_and_typed(name: str, function: Any) -> None:
    assert function.__doc__
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    untyped = [one for one in signature.parameters.values() if one.annotation is one.empty and one.name != "self"]
    assert not untyped


def test_no_further_names_are_public() -> None:
    assert dir(callboard) == sorted(callboard.__all__)
    modules = {path.stem for path in (ROOT / "callboard").iterdir()}
    leaked = {name for name in vars(callboard) if not name.startswith("_")} - {*callboard.__all__, "TYPE_CHECKING"}
    assert leaked <= FOLDERS | modules
    with pytest.raises(AttributeError, match="no attribute 'Stage'"):
        _ = callboard.Stage  # pyright: ignore


def test_type_checkers_see_the_names_that_exist() -> None:
    tree = ast.parse((ROOT / "callboard" / "__init__.py").read_text())
    seen = {
        alias.name: f"{node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("callboard.")
        for alias in node.names
    }
    assert seen.keys() | {"__version__"} == set(callboard.__all__)
    for name, module in seen.items():
        assert getattr(sys.modules[module], name) is getattr(callboard, name)


def test_events_and_errors_can_be_pickled() -> None:
    error = callboard.UsageInvalid("no", "there")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    problem = callboard.Problem("a.b", "c")
    assert pickle.loads(pickle.dumps(problem)) == problem


def test_the_version_is_that_of_the_package() -> None:
    assert f'\nversion = "{callboard.__version__}"\n' in (ROOT / "pyproject.toml").read_text()


# -- runs --------------------------------------------------------------------------------------------------------------


async def test_a_file_is_run_in_one_call(tmp_path: Path) -> None:
    (tmp_path / "greet.md").write_text(GREETING)
    (tmp_path / "script.yaml").write_text("turns: {'1': [{text: Hello Ada.}]}")
    result = await callboard.run(
        tmp_path / "greet.md",
        settings={"data_dir": tmp_path / "state"},
        input={"who": "Ada"},
        script=tmp_path / "script.yaml",
        run_id="greet-1",
    )
    assert (result.run, result.status, result.output) == ("greet-1", "completed", "Hello Ada.")
    assert result.raise_for_status() is result
    async with callboard.Runtime(data_dir=tmp_path / "state") as runtime:
        again = await runtime.get_run("greet-1").show()
    assert again.output == "Hello Ada."


async def test_raise_for_status_raises_for_a_failed_run(tmp_path: Path) -> None:
    result = await callboard.run(source=json.dumps(FAILING), settings={"data_dir": tmp_path})
    assert result.status == "failed"
    with pytest.raises(callboard.RunNotCompleted, match=r"the run is failed: My\.Code: It fell\.") as caught:
        result.raise_for_status()
    assert caught.value.result is result


async def test_the_language_of_a_file_may_be_named(tmp_path: Path) -> None:
    file = tmp_path / "greet.txt"
    file.write_text("# Greet\n\n## STEP 1: Say it\n\nSay hello.\n")
    script = {"turns": {"1": [{"text": "hello"}]}, "default": {"text": "hello"}}
    result = await callboard.run(file, language="playbook", script=script, settings={"data_dir": tmp_path})
    assert result.status == "completed"
    with pytest.raises(callboard.RequestRefused, match="there is no language 'nonsense'"):
        await callboard.run(file, language="nonsense", script=script, settings={"data_dir": tmp_path})


async def test_a_run_is_followed_and_its_question_answered(tmp_path: Path) -> None:
    async with callboard.Runtime(data_dir=tmp_path) as runtime:
        run = await runtime.start(source=ASKING, script=SCRIPT)
        seen: list[str] = []
        with anyio.fail_after(60):
            async for event in run.events():
                seen.append(event.type)
                if event.type == "human.asked":
                    recorded = await run.answer("Ada", by="Grace")
                    assert recorded is not None
                    assert recorded.type == "human.answered"
            result = await run.result()
    assert (seen[0], seen[-1], result.status) == ("run.accepted", "run.end", "completed")
    assert seen.count("human.answered") == 1


async def test_another_program_reaches_the_runtime_with_a_client(tmp_path: Path) -> None:
    async with callboard.Runtime(data_dir=tmp_path), callboard.Client(data_dir=tmp_path) as client:
        run = await client.start(source=json.dumps(SLEEPING))
        recorded = await run.pause("to look", by="Ada")
        assert recorded is not None
        assert (await client.get_run(run.id).show()).status == "paused"
        await run.resume()
        await run.signal("hello", {"n": 1})
        await run.cancel("enough")
        with anyio.fail_after(60):
            assert (await run.result()).status == "cancelled"
        killed = await client.start(source=json.dumps(SLEEPING))
        await killed.kill()
        with anyio.fail_after(60):
            assert (await killed.result()).status == "cancelled"
        with pytest.raises(callboard.UnknownRun):
            await client.get_run("nobody").result()


async def test_an_open_run_continues_when_the_store_is_opened_again(tmp_path: Path) -> None:
    async with callboard.Runtime(data_dir=tmp_path) as runtime:
        run = await runtime.start(source=ASKING, script=SCRIPT, run_id="asking")
        async for event in run.events():
            if event.type == "human.asked":
                break
    async with callboard.Runtime(data_dir=tmp_path) as runtime:
        run = runtime.get_run("asking")
        await run.answer("Ada")
        with anyio.fail_after(60):
            assert (await run.result()).status == "completed"


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_a_definition_is_refused_with_every_problem(tmp_path: Path) -> None:
    wrong = json.dumps({**FAILING, "entrypoint": "nowhere", "stops": {}})
    (tmp_path / "wrong.json").write_text(wrong)
    async with callboard.Runtime(data_dir=tmp_path / "state") as runtime:
        with pytest.raises(callboard.RequestRefused) as by_us:
            await runtime.start(tmp_path / "wrong.json")
        with pytest.raises(callboard.RequestRefused) as by_admission:
            await runtime.start(source=wrong)
    codes = {one.code for one in by_us.value.problems}
    assert codes == {"UNKNOWN_STEP", "SCHEMA"}
    assert codes <= {one.code for one in by_admission.value.problems}
    assert "UNKNOWN_STEP steps" in str(by_us.value) or "UNKNOWN_STEP entrypoint" in str(by_us.value)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({}, "pass exactly one definition"),
        ({"source": GREETING, "registered": "greet"}, "pass exactly one definition"),
        ({"source": GREETING, "sauce": 1}, "unknown start option: sauce"),
    ],
)
async def test_a_start_with_invalid_options_is_refused(tmp_path: Path, start: dict[str, Any], words: str) -> None:
    async with callboard.Runtime(data_dir=tmp_path) as runtime:
        with pytest.raises(callboard.UsageInvalid, match=words):
            await runtime.start(**start)


async def test_errors_of_settings_name_them_as_keyword_arguments() -> None:
    with pytest.raises(callboard.ConfigInvalid) as caught:
        async with callboard.Client(data_die="state", partitions=0):
            pass
    unknown, wrong = caught.value.problems
    assert (unknown.where, unknown.expected) == ("data_die=", "'data_dir'")
    assert wrong.where == "partitions="


async def test_a_client_needs_a_server_and_its_async_with_block(tmp_path: Path) -> None:
    with pytest.raises(callboard.NoServer):
        async with callboard.Client(data_dir=tmp_path):
            pass
    with pytest.raises(RuntimeError, match="only within its `async with`"):
        callboard.Runtime(data_dir=tmp_path).get_run("greet-1")


def test_a_client_logs_warnings_to_stderr_and_nothing_to_stdout() -> None:
    program = """
import asyncio, callboard, logging, structlog
from callboard.runtime.settings import logs

async def main():
    try:
        async with callboard.Client(nats_url="nats://127.0.0.1:1"):
            pass
    except callboard.OperatorError as error:
        structlog.get_logger("x").warning("warned", code=error.code)
        structlog.get_logger("x").info("told")
    assert not logs.is_configured() and not logging.getLogger().handlers

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "server.unreachable" in done.stderr
    assert "told" not in done.stderr
