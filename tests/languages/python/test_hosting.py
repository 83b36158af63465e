"""Hosting workflows in Python: in a program, and at the command line."""

import json
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from callboard import CallboardError, RequestRefused, Runtime
from callboard.bus.subjects import RunRef
from callboard.languages.python.hosted import HOSTED
from callboard.runtime.client.connection import open_connection
from callboard.runtime.hosting.code_loader import find_sources, load
from callboard.runtime.hosting.code_registration import register_bundle
from callboard.runtime.hosting.kept_code import unpack_code
from callboard.runtime.settings import config
from callboard.runtime.worker.worker import Worker
from callboard.surfaces.cli import exits
from tests.support import python_workflows as workflows
from tests.support.workdir import Workdir

GREETING = '''
from callboard import child, step, workflow
import words

@step
def upper(text: str) -> str:
    return text.upper()

@step(process=True)
def pid(text: str) -> int:
    import os
    return os.getpid()

@workflow
async def inner(who: str) -> str:
    return await upper(words.HELLO + who)

@workflow
async def greet(who: str) -> dict:
    """Greet somebody."""
    return {"said": (await child(inner, {"who": who})).output, "apart": await pid("x") != 0}
'''

FRACTION = """
from callboard import continue_as_new, signal, step, workflow

@step
async def divide(a: int, b: int) -> float:
    return a / b

@step
async def read(n: int) -> int:
    return n

@workflow
async def fraction(n: int) -> float:
    n = await read(n)
    return await divide(n, n - 5)

@workflow
async def later(again: bool = False) -> str:
    if not again:
        await signal("go")
        continue_as_new(True)
    return 'before'
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "greeting_play.py").write_text(GREETING)
    (tmp_path / "words.py").write_text('HELLO = "hello, "\n')
    (tmp_path / "other.py").write_text("raise RuntimeError\n")
    return tmp_path


def test_the_sources_of_a_file_are_those_beside_it_that_it_imports(folder: Path) -> None:
    bundle = load(str(folder / "greeting_play.py"))
    assert list(bundle.sources) == ["greeting_play.py", "words.py"]
    assert list(bundle.definitions) == ["inner", "greet"]
    (folder / "words.py").write_text('HELLO = "good day, "\n')
    assert load(str(folder / "greeting_play.py")).digest != bundle.digest


PACKAGED = """
from callboard import child, workflow
from .parts import pack
from {package}.parts import pack as again

@workflow
async def ship(thing: str) -> str:
    return (await child(pack, {{"thing": thing}})).output
"""


@pytest.fixture
def package(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A package within another one, whose names no other test has."""
    name = f"shop_{request.node.name.partition('[')[0]}"
    inner = tmp_path / name / "orders"
    inner.mkdir(parents=True)
    (tmp_path / name / "__init__.py").write_text("")
    (inner / "__init__.py").write_text("")
    (inner / "ships.py").write_text(PACKAGED.format(package=f"{name}.orders"))
    (inner / "parts.py").write_text(
        "from callboard import workflow\n@workflow\nasync def pack(thing: str) -> str:\n    return thing\n"
    )
    yield tmp_path / name
    for one in [one for one in sys.modules if one.partition(".")[0] == name]:
        del sys.modules[one]


def test_a_file_of_a_package_has_the_definition_of_its_folder_and_module(package: Path) -> None:
    name = package.name
    file = load(str(package / "orders" / "ships.py"))
    outer, inner = load(str(package)), load(str(package / "orders"))
    module = load(f"{name}.orders.ships", package.parent)
    assert list(file.definitions) == list(module.definitions) == ["ship"]
    assert file.definitions["ship"] == outer.definitions["ship"] == inner.definitions["ship"]
    assert module.definitions["ship"] == file.definitions["ship"]
    assert f'"python":"{name}.orders.ships:ship"' in file.definitions["ship"]
    assert find_sources(str(package / "orders" / "ships.py")) == find_sources(str(package))


@pytest.mark.parametrize("way", ["file", "module"])
def test_workflows_that_the_code_imports_are_hosted_as_children(way: str, package: Path) -> None:
    target = str(package / "orders" / "ships.py") if way == "file" else f"{package.name}.orders.ships"
    bundle = load(target, package.parent)
    assert bundle.digest in HOSTED[f"{package.name}.orders.parts:pack"]


def test_a_module_of_a_package_may_import_those_beside_it_without_the_package(package: Path) -> None:
    (package / "play_that_imports.py").write_text(
        "import label_of_the_play\nfrom callboard import workflow\n@workflow\nasync def go() -> None: ...\n"
    )
    (package / "label_of_the_play.py").write_text("")
    file, folder = load(str(package / "play_that_imports.py")), load(str(package))
    assert file.definitions["go"] == folder.definitions["go"]


def test_a_file_beside_a_module_of_a_package_is_read(package: Path) -> None:
    (package / "notes.yaml").write_text("in the package")
    (package.parent / "rules.yaml").write_text("beside the package")
    read = load(str(package / "orders" / "ships.py")).code.read
    assert [read("notes.yaml"), read("rules.yaml")] == ["in the package", "beside the package"]
    with pytest.raises(ValueError, match="lies outside"):
        read("../../other.yaml")


@pytest.mark.parametrize("line", ["raise ValueError('no')", "raise SystemExit('no')"])
def test_a_file_that_cannot_be_imported_is_refused_with_the_line(folder: Path, line: str) -> None:
    (folder / "broken_play.py").write_text(f"import callboard\n\n{line}\n")
    with pytest.raises(CallboardError) as raised:
        load(str(folder / "broken_play.py"))
    assert raised.value.code == "python.import_failed"
    assert raised.value.where.endswith("broken_play.py:3")


@pytest.mark.parametrize(
    ("target", "code"), [("nothing_there", "python.code_missing"), ("without_plays.py", "python.no_workflow")]
)
def test_code_without_a_workflow_is_refused(target: str, code: str, folder: Path) -> None:
    (folder / "without_plays.py").write_text("")
    with pytest.raises(CallboardError) as raised:
        load(target, folder)
    assert raised.value.code == code


def test_the_replay_command_that_a_run_suggests_names_its_module(package: Path) -> None:
    workdir = Workdir(package.parent)
    ran = workdir.call("run", f"{package.name}.orders.ships:ship", "--input", '{"thing": "vase"}', "--run-id", "ship-1")
    assert ran.returncode == exits.OK, ran.stderr
    suggested = next(line.split() for line in ran.stdout.splitlines() if "callboard replay" in line)
    assert suggested[-2:] == ["--code", f"{package.name}.orders.ships"]
    at = suggested.index("replay")
    assert workdir.call(*suggested[at:]).returncode == exits.OK
    assert workdir.call("replay", "ship-1", "--code", f"{package.name}/orders/ships.py").returncode == exits.OK
    assert workdir.call("replay", "ship-1", "--code", package.name).returncode == exits.OK


def test_a_file_is_run_and_replayed(folder: Path) -> None:
    workdir = Workdir(folder)
    ran = workdir.call("run", "greeting_play.py:greet", "--input", '{"who": "ada"}', "--run-id", "r1", "--json")
    assert ran.returncode == exits.OK, ran
    assert json.loads(ran.stdout)["output"] == {"said": "HELLO, ADA", "apart": True}
    replayed = workdir.call("replay", "r1", "--code", "greeting_play.py")
    assert replayed.returncode == exits.OK, replayed
    (folder / "greeting_play.py").write_text(GREETING.replace("words.HELLO + who", "who"))
    found = workdir.call("replay", "--all", "--code", "greeting_play.py", "--json")
    assert found.returncode == exits.FAILED, found
    assert "greeting_play.py:16 inner" in found.stdout


async def test_a_program_performs_its_own_workflows(tmp_path: Path) -> None:
    async with Runtime(data_dir=tmp_path / "state", code=[workflows]) as runtime:
        run = await runtime.start(registered="grouped", input={"n": 1, "names": ["ada"]})
        assert (await run.result()).output == {"ada": 5}
        with pytest.raises(RequestRefused, match=r"tests\.nowhere:gone"):
            await runtime.start(source='{"python": "tests.nowhere:gone"}')
        with pytest.raises(RequestRefused, match=r"expected 'grouped', the name under which that code is registered"):
            await runtime.start(registered="workflows.py:grouped")


async def test_commands_at_the_same_time_activate_a_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Runtime(data_dir=tmp_path / "state", code=[workflows]) as runtime:
        run = await runtime.start(workflows.signalled)
        async with aclosing(run.events()) as events:
            await anext(event async for event in events if event.type == "signal.awaited")

    async def look_long(_worker: Worker, _ref: RunRef) -> str:
        await anyio.sleep(0.3)
        return ""

    monkeypatch.setattr(Worker, "_code_home", look_long)
    async with Runtime(data_dir=tmp_path / "state", code=[workflows]) as runtime, anyio.create_task_group() as tasks:
        run = runtime.get_run(run.id)
        tasks.start_soon(run.signal, "more", [1])
        tasks.start_soon(run.signal, "price", 7)
        assert (await run.result()).output == {"price": 7, "more": [1]}
        claims = [event async for event in run.events() if event.type == "run.claimed"]
        assert len(claims) == 2, "one in each block"


@pytest.mark.parametrize("shape", ["file", "package", "folder"])
async def test_kept_code_is_unpacked_as_it_was(shape: str, tmp_path: Path) -> None:
    name = f"kept_{shape}"
    root = tmp_path / name if shape != "file" else tmp_path
    root.mkdir(exist_ok=True)
    words = "from . import words_of_it as words" if shape == "package" else f"import words_of_{name} as words"
    (root / ("words_of_it.py" if shape == "package" else f"words_of_{name}.py")).write_text('HELLO = "hello, "\n')
    main = {"file": f"{name}.py", "package": "__init__.py", "folder": f"main_of_{name}.py"}[shape]
    play = f"async def {name}(who: str) -> str:\n    return words.HELLO + who\n"
    (root / main).write_text(f"from callboard import workflow\n{words}\n\n@workflow\n{play}")
    bundle = load(str(root / main) if shape == "file" else str(root))
    async with open_connection(config.load({"data_dir": tmp_path / "state"}, env={}, cwd=tmp_path)) as connection:
        await register_bundle(connection, bundle)
        (place := tmp_path / "place").mkdir()
        target = await unpack_code(connection, name, bundle.digest[:12], place)
        assert Path(target).is_relative_to(place)
        assert {one.relative_to(place).as_posix() for one in find_sources(target)} == set(bundle.sources)
        with pytest.raises(CallboardError, match=bundle.digest[:12]) as raised:
            await unpack_code(connection, name, "0123456", place)
        assert raised.value.code == "python.code_not_kept"


async def test_a_fork_and_a_next_run_continue_with_the_current_code(tmp_path: Path) -> None:
    file = tmp_path / "fraction.py"
    file.write_text(FRACTION)
    async with Runtime(data_dir=tmp_path / "state", code=[str(file)]) as runtime:
        failed = await (await runtime.start(registered="fraction", input={"n": 5})).result()
        waiting = await runtime.start(registered="later", input={})
    before = load(str(file)).digest
    file.write_text(FRACTION.replace("n - 5", "n - 4").replace("'before'", "'after'"))
    async with Runtime(data_dir=tmp_path / "state", code=[str(file)]) as runtime:
        for entry in ("fraction:fraction", "fraction:later"):
            HOSTED[entry].pop(before)
        assert failed.status == "failed"
        fork = ("fork", failed.run, "--at", str(failed.last_n - 4), "--run-id", "forked", "--data-dir", "state")
        forked = await anyio.to_thread.run_sync(Workdir(tmp_path).call, *fork)
        assert forked.returncode == exits.OK, forked
        assert (await runtime.get_run("forked").result()).output == 5.0
        await runtime.get_run(waiting.id).signal("go")
        assert (await runtime.get_run(waiting.id).result()).output == "after"
